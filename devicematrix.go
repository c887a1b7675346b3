package tilework

import (
	"context"
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/resident"
)

// DeviceMatrix is a view of a matrix in a device's memory, as [Matrix] is one of a
// slice: [DeviceMatrix.T] and [DeviceMatrix.Sub] are views of the same memory. Make one
// with [Upload], [NewOn] or [MulOn]; the zero DeviceMatrix is on no device.
//
// [DeviceMatrix.Close] gives the memory back, for all views of it. Memory that nobody
// refers to any more is given back by and by, but the garbage collector sees only how
// little of Go's memory it takes: whoever makes many matrices should close them.
type DeviceMatrix[T Element] struct {
	m   resident.Matrix
	err error
}

// NewOn is a rows×cols matrix on a device, with any elements: nothing is written. The
// errors are ErrShape, ErrOutOfMemory, which says how much was asked for and how much
// there is, ErrDeviceLost and ErrClosed.
func NewOn[T Element](d *Device, rows, cols int) (DeviceMatrix[T], error) {
	if err := d.check(); err != nil {
		return DeviceMatrix[T]{}, err
	}
	if _, err := area(rows, cols); err != nil {
		return DeviceMatrix[T]{}, err
	}
	m, err := resident.New(d.d, gemm.Dense(dtype.Of[T](), rows, cols))
	return DeviceMatrix[T]{m: m}, err
}

// Upload is a copy of a matrix on a device; of a transposed view it is one too. When it
// returns, the memory of a may be used again. The errors are those of [NewOn] and the
// context's.
func Upload[T Element](ctx context.Context, d *Device, a Matrix[T]) (DeviceMatrix[T], error) {
	if a.err != nil {
		return DeviceMatrix[T]{}, a.err
	}
	stored := a
	if a.trans {
		stored = a.T()
	}
	m, err := NewOn[T](d, stored.rows, stored.cols)
	if err != nil {
		return DeviceMatrix[T]{}, err
	}
	if err := m.UploadFrom(ctx, stored); err != nil {
		return DeviceMatrix[T]{}, device.Join(err, m.Close())
	}
	if a.trans {
		m = m.T()
	}
	return m, nil
}

// UploadFrom overwrites the matrix with one of the host's of the same size, after all
// that was asked for before.
func (m DeviceMatrix[T]) UploadFrom(ctx context.Context, from Matrix[T]) error {
	if err := m.fits(from, "upload"); err != nil {
		return err
	}
	if m.Transposed() {
		m, from = m.T(), from.T()
	}
	if from.trans {
		if from = from.Clone(); from.err != nil {
			return from.err
		}
	}
	return m.m.CopyIn(ctx, bytesOf(from), from.layout())
}

// Download is a copy of the matrix in memory of the host's, without room between the
// rows and not transposed. It waits for all that was asked for before it. The errors
// are ErrOutOfMemory, of the host's; ErrLaunch and ErrDeviceLost, which may be those
// of a product before it; ErrClosed; and the context's.
func (m DeviceMatrix[T]) Download(ctx context.Context) (Matrix[T], error) {
	if err := firstErr(m.err, m.there("the matrix")); err != nil {
		return Matrix[T]{}, err
	}
	to := New[T](m.Rows(), m.Cols())
	if err := m.DownloadTo(ctx, to); err != nil {
		return Matrix[T]{}, err
	}
	return to, nil
}

// DownloadTo is Download into a matrix that is there, of the same size. After an error
// that holds anything. It is fastest where both are transposed, or neither.
func (m DeviceMatrix[T]) DownloadTo(ctx context.Context, to Matrix[T]) error {
	if err := m.fits(to, "download"); err != nil {
		return err
	}
	if m.Transposed() {
		m, to = m.T(), to.T()
	}
	if !to.trans {
		return m.m.CopyOut(ctx, bytesOf(to), to.layout())
	}
	stored := New[T](to.rows, to.cols)
	if stored.err != nil {
		return stored.err
	}
	if err := m.m.CopyOut(ctx, bytesOf(stored), stored.layout()); err != nil {
		return err
	}
	for i := range to.rows {
		for j := range to.cols {
			to.Set(i, j, stored.At(i, j))
		}
	}
	return nil
}

// there refuses a matrix that is on no device.
func (m DeviceMatrix[T]) there(name string) error {
	if m.m.Memory == nil {
		return fmt.Errorf("%w: %s is on none: it is a DeviceMatrix of neither Upload nor NewOn", ErrNoDevice, name)
	}
	return nil
}

// fits refuses a copy between matrices that are not alike, or that are none.
func (m DeviceMatrix[T]) fits(h Matrix[T], what string) error {
	switch {
	case m.err != nil:
		return m.err
	case m.m.Memory == nil:
		return m.there("the matrix")
	case h.err != nil:
		return h.err
	case m.Rows() != h.rows || m.Cols() != h.cols:
		return fmt.Errorf("%w: %s of %d×%d on the device and %d×%d on the host", ErrShape, what, m.Rows(), m.Cols(), h.rows, h.cols)
	}
	return nil
}

// Close gives the memory back, for all views of it, as soon as no product that was
// asked for uses it; it does not wait for that. Any use of a view is ErrClosed from
// now on. A second time it does nothing.
func (m DeviceMatrix[T]) Close() error {
	if m.m.Memory == nil {
		return nil
	}
	return m.m.Memory.Close()
}

// Rows is the number of rows.
func (m DeviceMatrix[T]) Rows() int { return m.m.Layout.OpRows() }

// Cols is the number of columns.
func (m DeviceMatrix[T]) Cols() int { return m.m.Layout.OpCols() }

// Transposed reports whether the stored rows are the matrix's columns.
func (m DeviceMatrix[T]) Transposed() bool { return m.m.Layout.Trans }

// Err is what is wrong with the view, nil if nothing is. It wraps ErrShape.
func (m DeviceMatrix[T]) Err() error { return m.err }

// T is the transpose: the same memory seen the other way round.
func (m DeviceMatrix[T]) T() DeviceMatrix[T] {
	m.m.Layout = m.m.Layout.T()
	return m
}

// Sub is the rows×cols matrix whose first element is element (i, j) of m. The memory
// is shared. Kernels are fastest on parts whose stored rows begin at multiples of 16
// bytes and are as long.
func (m DeviceMatrix[T]) Sub(i, j, rows, cols int) DeviceMatrix[T] {
	if m.err != nil {
		return m
	}
	if i < 0 || j < 0 || rows < 0 || cols < 0 || rows > m.Rows()-i || cols > m.Cols()-j {
		return DeviceMatrix[T]{err: notPart(i, j, rows, cols, m.Rows(), m.Cols())}
	}
	l := &m.m.Layout
	if rows > 0 && cols > 0 {
		m.m.Offset += l.Index(i, j) * l.Type.Size()
	}
	if l.Rows, l.Cols = rows, cols; l.Trans {
		l.Rows, l.Cols = cols, rows
	}
	return m
}
