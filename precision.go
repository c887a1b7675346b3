package tilework

import "tilework/internal/gemm"

// WithTF32 rounds float32 operands to 11 significant bits, on a GPU. The last option for a
// precision counts; without one, a product has the arithmetic of its element types.
func WithTF32() Option { return withPrecision(gemm.TF32) }

// WithFastAccumulation keeps sums of products of 8-bit floats in the tensor cores' accumulators,
// which have 14 bits on some GPUs.
func WithFastAccumulation() Option { return withPrecision(gemm.Fast) }

// WithF32x3 splits each float32 operand into three bfloat16 for Hopper's tensor cores. It is as
// accurate as float32 arithmetic, with other bits, and faster where M, N and K are in the
// thousands. A product with an infinity, or with a number above 2^127.99, is an infinity or NaN
// where that of float32 is one; the two may differ where finite numbers overflow.
func WithF32x3() Option { return withPrecision(gemm.F32x3) }

func withPrecision(p gemm.Precision) Option { return func(c *config) { c.Precision = p } }
