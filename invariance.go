package tilework

// WithRowInvariance makes the bits of a row of C depend on that row of A, the row's operands of the
// epilogue, B, K and the element types alone. They do not depend on the number of rows or the row's
// position, on transposition and leading dimensions, on batches and groups of rows, on
// [WithVerify], [WithThreads] and [WithKernel], or on the GPU among those of one architecture,
// emulated GPUs included. A server's answer to a request is then the same in every batch.
//
// On CPUs the bits do not depend on the instruction set either, from AVX2 on. Plain Go rounds a
// product before it adds it, and AVX-512 BF16 and AMX multiply bfloat16 in an arithmetic of their
// own: they have other bits. CPUs and GPUs have different bits.
//
// The order of summation depends on K, on the number of columns, the element types and the
// architecture. A kernel with another order is ErrUnsupported, and so is a packed B unless [Pack]
// had this option. Other versions of this package may have other bits.
func WithRowInvariance() Option { return func(c *config) { c.RowInvariant = true } }
