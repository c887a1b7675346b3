package tilework

import (
	"context"
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/resident"
)

// DeviceBatch is a batch of matrices of one size in a device's memory, which begin at equal
// distances. Make one with [NewBatchOn] or [UploadBatch], or see memory that is there as one
// with [DeviceMatrix.Batch].
type DeviceBatch[T Element] struct {
	first         DeviceMatrix[T]
	count, stride int // matrices, and elements from one to the next
	err           error
}

// NewBatchOn is count matrices of rows×cols on a device, one behind the other, with any
// elements. The errors are those of [NewOn].
func NewBatchOn[T Element](d *Device, count, rows, cols int) (DeviceBatch[T], error) {
	all, err := area(count, rows)
	if err != nil {
		return DeviceBatch[T]{}, err
	}
	m, err := NewOn[T](d, all, cols)
	if err != nil {
		return DeviceBatch[T]{}, err
	}
	m.m.Layout.Rows = rows
	return DeviceBatch[T]{first: m, count: count, stride: rows * m.m.Layout.LD}, nil
}

// uploadAtOnce is how many bytes of small matrices are worth a copy of their own.
const uploadAtOnce = 4 << 20

// UploadBatch is copies of matrices of one size on a device, transposed views or not. The
// errors are those of [Upload], and ErrShape for matrices of different sizes.
func UploadBatch[T Element](ctx context.Context, d *Device, all []Matrix[T]) (DeviceBatch[T], error) {
	var rows, cols int
	if len(all) > 0 {
		rows, cols = all[0].rows, all[0].cols
	}
	for i, m := range all {
		switch {
		case m.err != nil:
			return DeviceBatch[T]{}, fmt.Errorf("matrix %d of the batch: %w", i, m.err)
		case m.rows != rows || m.cols != cols:
			return DeviceBatch[T]{}, fmt.Errorf("%w: matrix %d of the batch is %d×%d, and the first %d×%d", ErrShape, i, m.rows, m.cols, rows, cols)
		}
	}
	b, err := NewBatchOn[T](d, len(all), rows, cols)
	if err != nil {
		return b, err
	}
	each := b.atOnce()
	for i := 0; i < len(all) && err == nil; i += each {
		together := all[i:min(i+each, len(all))]
		if len(together) == 1 {
			err = b.Matrix(i).UploadFrom(ctx, together[0])
			continue
		}
		host := New[T](len(together)*rows, cols)
		for n, m := range together {
			host.Sub(n*rows, 0, rows, cols).copyFrom(m)
		}
		err = b.stack(i, len(together)).UploadFrom(ctx, host)
	}
	if err != nil {
		return DeviceBatch[T]{}, device.Join(err, b.Close())
	}
	return b, nil
}

// Download is copies of the matrices in memory of the host's. The errors are those of
// [DeviceMatrix.Download].
func (b DeviceBatch[T]) Download(ctx context.Context) ([]Matrix[T], error) {
	if err := b.check("the batch"); err != nil {
		return nil, err
	}
	all := make([]Matrix[T], b.count)
	each := b.atOnce()
	if b.first.Transposed() || b.stride != b.Rows()*b.first.m.Layout.LD {
		each = 1 // they are no rows of one matrix
	}
	for i := 0; i < b.count; i += each {
		n := min(each, b.count-i)
		together, err := b.stack(i, n).Download(ctx)
		if err != nil {
			return nil, err
		}
		for j := range n {
			all[i+j] = together.Sub(j*b.Rows(), 0, b.Rows(), b.Cols())
		}
	}
	return all, nil
}

// atOnce is how many matrices are copied together.
func (b DeviceBatch[T]) atOnce() int { return max(1, uploadAtOnce/max(b.first.m.Layout.Bytes(), 1)) }

// stack is matrices i to i+n-1 as one, of a batch whose matrices are its rows.
func (b DeviceBatch[T]) stack(i, n int) DeviceMatrix[T] {
	m := b.Matrix(i)
	if n > 1 {
		m.m.Layout.Rows *= n
	}
	return m
}

// Batch is count matrices of m's size and layout, the first of which is m: each begins stride
// elements behind the one before, side by side in long rows or one behind the other. With a
// stride of 0 all are m, as A or as B of a product. The batch has m's memory; one that
// would leave it is ErrShape.
func (m DeviceMatrix[T]) Batch(count, stride int) DeviceBatch[T] {
	b := DeviceBatch[T]{first: m, count: count, stride: stride}
	if b.err = firstErr(m.err, m.there("the matrix")); b.err != nil {
		return b
	}
	l := m.m.Layout
	n, err := l.Span(count, stride, "of a batch")
	switch room := m.m.Memory.Size() - m.m.Offset; {
	case count < 0:
		b.err = fmt.Errorf("%w: a batch of %d matrices", ErrShape, count)
	case err != nil:
		b.err = err
	case n*l.Type.Size() > room:
		b.err = fmt.Errorf("%w: %d matrices of %v, one every %d elements, end %d bytes behind the memory that the first is in", ErrShape, count, l, stride, n*l.Type.Size()-room)
	}
	return b
}

// Matrix is matrix i of the batch, of whose memory it is a view.
func (b DeviceBatch[T]) Matrix(i int) DeviceMatrix[T] {
	m := b.first
	switch {
	case b.err != nil:
		m.err = b.err
	case i < 0 || i >= b.count:
		m.err = fmt.Errorf("%w: matrix %d of a batch of %d", ErrShape, i, b.count)
	default:
		m.m.Offset += i * b.stride * m.m.Layout.Type.Size()
	}
	return m
}

// Count is the number of matrices.
func (b DeviceBatch[T]) Count() int { return b.count }

// Rows is the number of rows of each matrix.
func (b DeviceBatch[T]) Rows() int { return b.first.Rows() }

// Cols is the number of columns of each matrix.
func (b DeviceBatch[T]) Cols() int { return b.first.Cols() }

// Err is what is wrong with the view, nil if nothing is. It wraps ErrShape.
func (b DeviceBatch[T]) Err() error { return b.err }

// T is the transposes: the same memory seen the other way round.
func (b DeviceBatch[T]) T() DeviceBatch[T] {
	b.first = b.first.T()
	return b
}

// Close is [DeviceMatrix.Close] for the memory of all matrices.
func (b DeviceBatch[T]) Close() error { return b.first.Close() }

func (b DeviceBatch[T]) check(name string) error {
	return firstErr(b.err, b.first.err, b.first.there(name))
}

// GemmBatchOn is [GemmOn] for many products in one launch: C[i] ← α·A[i]·B[i] + β·C[i] for
// every i. All have the same options, and the same bias. The errors are those of GemmOn, and
// ErrShape for batches of different lengths or a C that overlaps another. No C may lie
// between the first and the last A or B.
func GemmBatchOn[I, O Element](ctx context.Context, alpha float64, a, b DeviceBatch[I], beta float64, c DeviceBatch[O], opts ...Option) error {
	p, err := batchProduct(alpha, a, b, beta, c, opts)
	if err != nil {
		return err
	}
	return resident.Gemm(ctx, p)
}

// PlanGemmBatchOn is what [GemmBatchOn] would run for these matrices and options; M, N and K are
// those of one product.
func PlanGemmBatchOn[I, O Element](a, b DeviceBatch[I], c DeviceBatch[O], opts ...Option) (Plan, error) {
	return planOn(batchProduct(1, a, b, 0, c, opts))
}

func batchProduct[I, O Element](alpha float64, a, b DeviceBatch[I], beta float64, c DeviceBatch[O], opts []Option) (*resident.Product, error) {
	if err := firstErr(a.check("A"), b.check("B"), c.check("C")); err != nil {
		return nil, err
	}
	if a.count != c.count || b.count != c.count {
		return nil, fmt.Errorf("%w: a batch of %d A, %d B and %d C", ErrShape, a.count, b.count, c.count)
	}
	p, err := product(alpha, a.first, b.first, beta, c.first, opts)
	if err != nil {
		return nil, err
	}
	p.Batch = gemm.Batch{Kind: gemm.Strided, Count: c.count, Stride: gemm.Strides{gemm.A: a.stride, gemm.B: b.stride, gemm.C: c.stride}}
	return p, nil
}

// Groups says how the rows of matrices on a device are shared out: to group 0 the first ones,
// to group 1 those behind them, and so on. A group may have none.
type Groups struct {
	ends DeviceMatrix[int32]
	rows int // of all, as far as that is known here
	err  error
}

// UploadGroups is groups of so many rows each. The errors are ErrShape, for a number of rows
// below 0 or more than 31 bits in all, and those of [Upload].
func UploadGroups(ctx context.Context, d *Device, rows []int) (Groups, error) {
	ends := New[int32](1, len(rows))
	end := 0
	for i, n := range rows {
		if n < 0 || n > 1<<31-1-end {
			return Groups{}, fmt.Errorf("%w: group %d of %d rows, behind %d others: want 0 or more, and less than 2³¹ in all", ErrShape, i, n, end)
		}
		end += n
		ends.Set(0, i, int32(end))
	}
	m, err := Upload(ctx, d, ends)
	return Groups{ends: m, rows: end}, err
}

// GroupsOf is the groups that a 1×n matrix of int32 on a device ends: of each it has the first
// row that is behind it. It is read when a product is computed, as whatever the device was
// asked for before leaves it: nobody waits for a router. An end below the one before it is
// taken for that, and one beyond the matrix, or below 0, for the matrix's.
func GroupsOf(ends DeviceMatrix[int32]) Groups {
	g := Groups{ends: ends}
	if g.err = firstErr(ends.err, ends.there("the groups' ends")); g.err == nil && (ends.Transposed() || ends.Rows() != 1) {
		g.err = fmt.Errorf("%w: groups' ends in a matrix of %v: want one stored row", ErrShape, ends.m.Layout)
	}
	return g
}

// Count is the number of groups.
func (g Groups) Count() int { return g.ends.Cols() }

// Close is [DeviceMatrix.Close] for the groups' ends.
func (g Groups) Close() error { return g.ends.Close() }

// GemmGroupedOn computes a product for each group of rows in one launch, as a mixture of
// experts does: with the rows of group g of A, which is m×k, and matrix g of B, k×n each, it
// computes the same rows of C, m×n, as [GemmOn] does. Rows behind the last group are nobody's:
// of A they are not used, and of C they stay as they are.
//
// Row biases and column biases are those of all of C. The errors are those of GemmOn, ErrShape
// for groups that are not as many as B's matrices or have more rows than A, and ErrUnsupported
// for a transposed A or C.
func GemmGroupedOn[I, O Element](ctx context.Context, alpha float64, a DeviceMatrix[I], b DeviceBatch[I], groups Groups, beta float64, c DeviceMatrix[O], opts ...Option) error {
	p, err := groupedProduct(alpha, a, b, groups, beta, c, opts)
	if err != nil {
		return err
	}
	return resident.Gemm(ctx, p)
}

// PlanGemmGroupedOn is what [GemmGroupedOn] would run for these matrices and options; M counts
// the rows of all groups.
func PlanGemmGroupedOn[I, O Element](a DeviceMatrix[I], b DeviceBatch[I], groups Groups, c DeviceMatrix[O], opts ...Option) (Plan, error) {
	return planOn(groupedProduct(1, a, b, groups, 0, c, opts))
}

func groupedProduct[I, O Element](alpha float64, a DeviceMatrix[I], b DeviceBatch[I], groups Groups, beta float64, c DeviceMatrix[O], opts []Option) (*resident.Product, error) {
	if err := firstErr(a.err, b.check("B"), groups.err, c.err, groups.ends.there("the groups' ends")); err != nil {
		return nil, err
	}
	switch {
	case groups.Count() != b.count:
		return nil, fmt.Errorf("%w: %d groups of rows for %d B", ErrShape, groups.Count(), b.count)
	case groups.rows > a.Rows():
		return nil, fmt.Errorf("%w: groups of %d rows of an A of %d", ErrShape, groups.rows, a.Rows())
	}
	p, err := product(alpha, a, b.first, beta, c, opts)
	if err != nil {
		return nil, err
	}
	p.Batch = gemm.Batch{Kind: gemm.Grouped, Count: b.count, Stride: gemm.Strides{gemm.B: b.stride}}
	p.Operands[gemm.GroupEnds].On = groups.ends.m
	return p, nil
}
