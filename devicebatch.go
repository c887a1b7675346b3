package tilework

import (
	"context"
	"fmt"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// DeviceBatch is a batch of matrices of one size in a device's memory, at equal distances. Make one
// with [NewDeviceBatch], [Upload] or [Mul], or view existing memory as one with
// [DeviceMatrix.Batch].
//
// Products of a DeviceBatch support a bias, an activation and saturation. Scales, a gate, a
// residual, an output scale and a [DeviceFunc] are ErrUnsupported.
type DeviceBatch[T dtype.Element] struct {
	deviceView    // of the first matrix
	count, stride int
}

// NewDeviceBatch allocates count matrices of rows×cols on a device, one after the other. Their
// elements are undefined. Several GPUs have some whole matrices each, some columns of each matrix
// with [WithColumnDivision], or all with [WithCopyOnEach]. The errors are those of
// [NewDeviceMatrix].
func NewDeviceBatch[T dtype.Element](d *Device, count, rows, cols int, opts ...Option) (DeviceBatch[T], error) {
	by, err := divisionOf(opts)
	if err != nil {
		return DeviceBatch[T]{}, err
	}
	return newDeviceBatch[T](d, by, count, rows, cols)
}

func newDeviceBatch[T dtype.Element](d *Device, by division, count, rows, cols int) (DeviceBatch[T], error) {
	if err := d.check(); err != nil {
		return DeviceBatch[T]{}, err
	}
	all, err := area(count, rows)
	if err == nil {
		_, err = area(all, cols)
	}
	if err != nil {
		return DeviceBatch[T]{}, err
	}
	memory, l, err := d.at.NewBatch(gemm.Dense(dtype.Of[T](), rows, cols), count, by)
	return DeviceBatch[T]{deviceView{view: view{shape{layout: l}}, memory: memory}, count, rows * l.LD}, err
}

// Batch returns m and count-1 more matrices of its size and layout. Each starts stride elements
// after the one before: side by side in long rows, or one after the other. With a stride of 0 all
// are m, for use as A or B. The batch shares m's memory; one that would leave it has the error
// ErrShape. On several GPUs, products refuse matrices that are neither below each other nor side by
// side.
func (m DeviceMatrix[T]) Batch(count, stride int) DeviceBatch[T] {
	b := DeviceBatch[T]{m.deviceView, count, stride}
	if b.err = m.check("the matrix"); b.err != nil {
		return b
	}
	size, err := m.memory.Size()
	if err != nil {
		b.err = err
		return b
	}
	n, err := m.layout.Span(count, stride, "of a batch")
	switch bytes, room := m.layout.Type.Bytes(n), size-m.offset; {
	case count < 0:
		b.err = fmt.Errorf("%w: a batch of %d matrices", ErrShape, count)
	case err != nil:
		b.err = err
	case bytes > room:
		b.err = fmt.Errorf("%w: %d matrices of %v, one every %d elements, end %d bytes after the end of their memory",
			ErrShape, count, m.layout, stride, bytes-room)
	}
	return b
}

// Matrix returns matrix i of the batch, a view of the same memory.
func (b DeviceBatch[T]) Matrix(i int) DeviceMatrix[T] {
	m := DeviceMatrix[T]{b.deviceView}
	switch {
	case b.err != nil:
	case i < 0 || i >= b.count:
		m.err = fmt.Errorf("%w: matrix %d of a batch of %d", ErrShape, i, b.count)
	default:
		m.offset += m.layout.Type.Bytes(i * b.stride)
	}
	return m
}

// Count returns the number of matrices.
func (b DeviceBatch[T]) Count() int { return b.count }

// T returns the batch of the transposes, a view of the same memory.
func (b DeviceBatch[T]) T() DeviceBatch[T] {
	b.layout.Trans = !b.layout.Trans
	return b
}

// Download waits for all earlier work and returns copies of the matrices in the host's memory. The
// errors are those of [DeviceMatrix.Download].
func (b DeviceBatch[T]) Download(ctx context.Context) (Batch[T], error) {
	if err := firstErr(checkContext(ctx), b.check("the batch")); err != nil {
		return nil, err
	}
	bytes, err := area(b.count, int(unsafe.Sizeof(Matrix[T]{})))
	if err == nil {
		err = host.CheckMemory(bytes, fmt.Sprintf("a list of %d matrices", b.count))
	}
	if err != nil {
		return nil, err
	}
	all := make(Batch[T], b.count)
	for i, n := range b.stacks() {
		stack, err := b.stack(i, n).Download(ctx)
		if err != nil {
			return nil, err
		}
		for j := range n {
			all[i+j] = stack.Sub(j*b.Rows(), 0, b.Rows(), b.Cols())
		}
	}
	return all, nil
}

func (b Batch[T]) upload(ctx context.Context, d *Device, by division) (DeviceBatch[T], error) {
	rows, cols, err := b.size()
	if err != nil {
		return DeviceBatch[T]{}, err
	}
	on, err := newDeviceBatch[T](d, by, len(b), rows, cols)
	if err != nil {
		return DeviceBatch[T]{}, err
	}
	if err := on.uploadFrom(ctx, b); err != nil {
		return DeviceBatch[T]{}, device.Join(err, on.Close())
	}
	return on, nil
}

// uploadFrom overwrites the matrices with as many of the same size in the host's memory.
func (b DeviceBatch[T]) uploadFrom(ctx context.Context, from Batch[T]) error {
	if err := b.check("the batch"); err != nil {
		return err
	}
	rows, cols, err := from.size()
	switch {
	case err != nil:
		return err
	case len(from) != b.count || b.count > 0 && (rows != b.Rows() || cols != b.Cols()):
		return fmt.Errorf("%w: a copy of %d matrices of %d×%d to %d of %d×%d", ErrShape, len(from), rows, cols, b.count,
			b.Rows(), b.Cols())
	}
	for i, n := range b.stacks() {
		stack := from[i]
		if n > 1 {
			stack = New[T](n*rows, cols)
			if stack.err != nil {
				return stack.err
			}
			for j := range n {
				stack.Sub(j*rows, 0, rows, cols).set(from[i+j])
			}
		}
		if err := b.stack(i, n).uploadFrom(ctx, stack); err != nil {
			return err
		}
	}
	return nil
}

// regions returns the memory of the matrices, with their indices as IDs. Of matrices that are all
// at one place it returns two.
func (b DeviceBatch[T]) regions(written bool) []gemm.Region {
	n := b.count
	switch {
	case b.err != nil || b.layout.Len() == 0:
		n = 0
	case b.stride == 0:
		n = min(n, 2)
	}
	all := make([]gemm.Region, n)
	for i := range all {
		all[i] = gemm.Region{ID: i, Layout: b.layout, Offset: b.Matrix(i).offset, Written: written}
	}
	return all
}

// minCopy is the size in bytes from which matrices are copied one by one.
const minCopy = 4 << 20

// stacks yields the first index and the number of the matrices that are copied together. Matrices
// that are not rows of one matrix are copied one by one.
func (b DeviceBatch[T]) stacks() func(yield func(i, n int) bool) {
	each := 1
	if !b.Transposed() && b.stride == b.Rows()*b.layout.LD {
		each = max(1, minCopy/max(b.layout.Bytes(), 1))
	}
	return func(yield func(i, n int) bool) {
		for i := 0; i < b.count && yield(i, min(each, b.count-i)); i += each {
		}
	}
}

// stack returns n matrices from matrix i on, which are rows of one matrix, as that matrix.
func (b DeviceBatch[T]) stack(i, n int) DeviceMatrix[T] {
	m := b.Matrix(i)
	if n > 1 {
		m.layout.Rows *= n
	}
	return m
}

func (DeviceBatch[T]) operand(T) {}
