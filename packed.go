package tilework

import (
	"context"
	"fmt"

	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// PackedMatrix is the B of many products, laid out once as the processor's kernels read
// it: the weights of a network. It cannot change, so any number of goroutines may
// multiply by it. Make one with [Pack].
type PackedMatrix[T Element] struct {
	b *dispatch.Packed
}

// Pack is a packed copy of B, k×n; a transposed view packs as well. The copy takes the
// memory of B itself, k·n elements, with n rounded up to the width of the kernel's tiles
// (at most 32) and k, of int8, to a multiple of four and one row of sums in 2048; see
// [PackedMatrix.Bytes]. The memory of b may be used again when Pack returns.
//
// Of the options it heeds [WithKernel], which says for whom to pack, [WithThreads] and
// [WithDevice]: packing is for the processor, and matrices on a GPU, which stay there with
// [Upload], are ErrUnsupported. The other errors are ErrOutOfMemory and the context's.
func Pack[T Element](ctx context.Context, b Matrix[T], opts ...Option) (PackedMatrix[T], error) {
	var cfg config
	var request dispatch.Request
	cfg.configure(&request, opts)
	if err := firstErr(b.err, cfg.err); err != nil {
		return PackedMatrix[T]{}, err
	}
	p, err := dispatch.Pack(ctx, b.layout(), bytesOf(b), request)
	if err != nil {
		return PackedMatrix[T]{}, err
	}
	return PackedMatrix[T]{b: p}, nil
}

// Rows and Cols are the size of B, k×n.
func (w PackedMatrix[T]) Rows() int { return w.layout().OpRows() }
func (w PackedMatrix[T]) Cols() int { return w.layout().OpCols() }

// Bytes is the memory that the packed copy takes.
func (w PackedMatrix[T]) Bytes() int {
	if w.b == nil {
		return 0
	}
	return w.b.Bytes()
}

func (w PackedMatrix[T]) layout() gemm.Layout {
	if w.b == nil {
		return gemm.Layout{}
	}
	return w.b.Layout()
}

// MulPacked is the product A·B of an m×k matrix and a packed k×n one, as a new m×n
// matrix. (int8 matrices have an int32 product: use [GemmPacked].)
func MulPacked[T Float](ctx context.Context, a Matrix[T], b PackedMatrix[T], opts ...Option) (Matrix[T], error) {
	if err := firstErr(a.err, b.check()); err != nil {
		return Matrix[T]{}, err
	}
	c := New[T](a.rows, b.Cols())
	if err := GemmPacked(ctx, 1, a, b, 0, c, opts...); err != nil {
		return Matrix[T]{}, err
	}
	return c, nil
}

// GemmPacked is [Gemm] with a packed B: C ← α·A·B + β·C. It gives the same bits as Gemm
// on the CPU with the same kernel, except where Gemm sums in another order: for few rows or
// columns, for a small C with a long K, and in the last columns of a small C. A transposed C and
// [WithVerify] would need the unpacked B and are refused: ErrUnsupported.
func GemmPacked[I, O Element](ctx context.Context, alpha float64, a Matrix[I], b PackedMatrix[I], beta float64, c Matrix[O], opts ...Option) error {
	by := factor{layout: b.layout(), packed: b.b, err: b.check()}
	return run(ctx, alpha, &a, &by, beta, &c, opts)
}

func (w PackedMatrix[T]) check() error {
	if w.b == nil {
		return fmt.Errorf("%w: the zero PackedMatrix: make one with Pack", ErrShape)
	}
	return nil
}
