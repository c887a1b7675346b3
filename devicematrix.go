package tilework

import (
	"context"
	"fmt"

	"tilework/dtype"
	"tilework/internal/call"
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// DeviceMatrix is a view of a matrix in a device's memory. [DeviceMatrix.T] and [DeviceMatrix.Sub]
// return views of the same memory. Make one with [Upload], [NewDeviceMatrix] or [Mul]; the zero
// DeviceMatrix is on no device.
//
// [DeviceMatrix.Close] frees the memory for all views of it. The garbage collector frees memory
// without references too, but it does not see how much memory a device has left: close matrices
// when you make many.
type DeviceMatrix[T dtype.Element] struct{ deviceView }

// deviceView is a view of memory of a device.
type deviceView struct {
	view
	memory call.Memory
	offset int // bytes from the start of the memory
}

// Close frees the memory, for all views of it, as soon as no enqueued product uses it. It does not
// wait. Every later use of a view returns ErrClosed. Later calls of Close do nothing.
func (v deviceView) Close() error {
	if v.memory == nil {
		return nil
	}
	return v.memory.Close()
}

// check returns the error of the view, or an error if it is on no device.
func (v deviceView) check(name string) error {
	if v.err == nil && v.memory == nil {
		return fmt.Errorf("%w: %s on no device: make it with Upload or NewDeviceMatrix", ErrNoDevice, name)
	}
	return v.err
}

// stored returns the matrix, which is on a device.
func (v deviceView) stored() call.Stored { return v.memory.Matrix(v.offset, v.layout) }

// device returns the device that stores the matrix, or nil for a zero matrix.
func (v deviceView) device() *Device {
	if v.memory == nil {
		return nil
	}
	return &Device{v.memory.Place()}
}

// overlaps reports whether two matrices on devices have an element in common.
func (v deviceView) overlaps(w deviceView) bool {
	return v.memory == w.memory && gemm.OverlapAt(v.layout, uintptr(v.offset), w.layout, uintptr(w.offset))
}

// Part returns the part of the matrix that this process stores: rows×cols elements from (row, col)
// on. It is the whole matrix except on a device of several ranks, where it may have no elements.
func (v deviceView) Part() (row, col, rows, cols int) {
	if v.memory == nil {
		return 0, 0, v.Rows(), v.Cols()
	}
	p := v.stored().Part()
	return p.Rows.From, p.Cols.From, p.Rows.Len(), p.Cols.Len()
}

// NewDeviceMatrix allocates a rows×cols matrix on a device. Its elements are undefined. The options
// are [WithColumnDivision] and [WithCopyOnEach]. The errors are ErrShape, ErrOutOfMemory, which
// states the memory requested and the memory left, ErrUnsupported for other options, ErrDeviceLost
// and ErrClosed.
func NewDeviceMatrix[T dtype.Element](d *Device, rows, cols int, opts ...Option) (DeviceMatrix[T], error) {
	by, err := divisionOf(opts)
	if err != nil {
		return DeviceMatrix[T]{}, err
	}
	return newDeviceMatrix[T](d, by, rows, cols)
}

// divisionOf returns the division of a new matrix that opts select.
func divisionOf(opts []Option) (division, error) {
	var c config
	apply(&c, opts)
	return c.OnlyDivision()
}

func newDeviceMatrix[T dtype.Element](d *Device, by division, rows, cols int) (DeviceMatrix[T], error) {
	if err := d.check(); err != nil {
		return DeviceMatrix[T]{}, err
	}
	if _, err := area(rows, cols); err != nil {
		return DeviceMatrix[T]{}, err
	}
	memory, l, err := d.at.New(gemm.Dense(dtype.Of[T](), rows, cols), by)
	return DeviceMatrix[T]{deviceView{view: view{shape{layout: l}}, memory: memory}}, err
}

// Upload copies a [Matrix] to a new [DeviceMatrix], or a [Batch] of matrices of one size to a new
// [DeviceBatch]. Of several ranks, each reads only its part. Transposed views are copied as such.
// The host's memory may be reused when Upload returns. The options and errors are those of
// [NewDeviceMatrix] and [NewDeviceBatch], and the context's error.
func Upload[H interface {
	upload(ctx context.Context, d *Device, by division) (D, error)
}, D any](ctx context.Context, d *Device, from H, opts ...Option) (D, error) {
	by, err := divisionOf(opts)
	if err := firstErr(checkContext(ctx), err); err != nil {
		var none D
		return none, err
	}
	return from.upload(ctx, d, by)
}

func (m Matrix[T]) upload(ctx context.Context, d *Device, by division) (DeviceMatrix[T], error) {
	if m.err != nil {
		return DeviceMatrix[T]{}, m.err
	}
	if m.Transposed() {
		on, err := m.T().upload(ctx, d, by.T())
		if err != nil {
			return DeviceMatrix[T]{}, err
		}
		return on.T(), nil
	}
	on, err := newDeviceMatrix[T](d, by, m.Rows(), m.Cols())
	if err != nil {
		return DeviceMatrix[T]{}, err
	}
	if err := on.uploadFrom(ctx, m.Sub(on.Part())); err != nil {
		return DeviceMatrix[T]{}, device.Join(err, on.Close())
	}
	return on, nil
}

// uploadFrom overwrites the part that this process stores with a matrix of the same size in the
// host's memory.
func (m DeviceMatrix[T]) uploadFrom(ctx context.Context, from Matrix[T]) error {
	if err := m.checkCopy(from); err != nil {
		return err
	}
	if m.Transposed() {
		m, from = m.T(), from.T()
	}
	if from.Transposed() {
		if from = from.clone(); from.err != nil {
			return from.err
		}
	}
	from.describe(&from.layout)
	return m.stored().CopyIn(ctx, from.bytes(), from.layout)
}

// Download waits for all earlier work and returns a copy of the matrix in the host's memory,
// without gaps between rows and not transposed. Of several ranks, each copies its part. The errors
// are ErrOutOfMemory for the host's memory, ErrLaunch and ErrDeviceLost, which may be those of an
// earlier product, ErrClosed, and the context's.
func (m DeviceMatrix[T]) Download(ctx context.Context) (Matrix[T], error) {
	if err := firstErr(checkContext(ctx), m.check("the matrix")); err != nil {
		return Matrix[T]{}, err
	}
	_, _, rows, cols := m.Part()
	to := New[T](rows, cols)
	if err := m.downloadTo(ctx, to); err != nil {
		return Matrix[T]{}, err
	}
	return to, nil
}

// downloadTo copies the part that this process stores to a matrix of the same size in the host's
// memory, whose elements are undefined after an error.
func (m DeviceMatrix[T]) downloadTo(ctx context.Context, to Matrix[T]) error {
	if err := m.checkCopy(to); err != nil {
		return err
	}
	if m.Transposed() {
		m, to = m.T(), to.T()
	}
	stored := to
	if to.Transposed() {
		if stored = New[T](to.Rows(), to.Cols()); stored.err != nil {
			return stored.err
		}
	}
	stored.describe(&stored.layout)
	if err := m.stored().CopyOut(ctx, stored.bytes(), stored.layout); err != nil {
		return err
	}
	if to.Transposed() {
		to.set(stored)
	}
	return nil
}

// checkCopy refuses a copy between matrices that are invalid or differ in size.
func (m DeviceMatrix[T]) checkCopy(h Matrix[T]) error {
	if err := firstErr(m.check("the matrix"), h.err); err != nil {
		return err
	}
	if _, _, rows, cols := m.Part(); rows != h.Rows() || cols != h.Cols() {
		return fmt.Errorf("%w: a copy between %d×%d on the device and %d×%d on the host", ErrShape, rows, cols, h.Rows(),
			h.Cols())
	}
	return nil
}

// T returns the transpose, a view of the same memory.
func (m DeviceMatrix[T]) T() DeviceMatrix[T] {
	m.layout.Trans = !m.layout.Trans
	return m
}

// Sub returns the rows×cols part of m that starts at element (i, j), a view of the same memory.
// Kernels are fastest on parts whose stored rows start at, and are as long as, multiples of 16
// bytes. A matrix of several ranks has no such views: ErrUnsupported.
func (m DeviceMatrix[T]) Sub(i, j, rows, cols int) DeviceMatrix[T] {
	part, offset := m.sub(i, j, rows, cols)
	if part.err == nil && m.memory != nil {
		part.err = m.memory.CheckPart()
	}
	if m.view = part; part.err != nil {
		m.memory = nil
	}
	m.offset += m.layout.Type.Bytes(offset)
	return m
}

func (DeviceMatrix[T]) operand(T) {}
