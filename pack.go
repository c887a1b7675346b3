package tilework

import (
	"context"

	"tilework/dtype"
	"tilework/internal/dispatch"
)

// Pack returns a packed copy of the k×n matrix b, which may be a transposed view. The copy takes
// k·n elements, with n rounded up to the width of the kernel's tiles (at most 32). For int8, k is
// rounded up to a multiple of four, and every 2048 rows have one row of sums. The memory of b may
// be reused when Pack returns.
//
// Pack uses the options [WithKernel], which names the kernel to pack for, [WithThreads],
// [WithRowInvariance] and [WithDevice]. A device other than the CPU is ErrUnsupported: keep
// matrices on a GPU with [Upload]. The other errors are ErrOutOfMemory and the context's.
//
// A product with a packed B has the bits of the product with b on the same CPU kernel, except where
// that sums in another order: for few rows or columns, for a small C with a long K, and in the last
// columns of a small C. A transposed C and [WithVerify] need the unpacked B: ErrUnsupported.
func Pack[T dtype.Element](ctx context.Context, b Matrix[T], opts ...Option) (PackedMatrix[T], error) {
	var c config
	apply(&c, opts)
	if err := firstErr(checkContext(ctx), b.err, c.Err()); err != nil {
		return PackedMatrix[T]{}, err
	}
	b.describe(&b.layout)
	p, err := dispatch.Pack(ctx, b.layout, b.bytes(), c.Request())
	if err != nil {
		return PackedMatrix[T]{}, err
	}
	return PackedMatrix[T]{shape{layout: p.Layout()}, p}, nil
}
