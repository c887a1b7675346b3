package tilework

import (
	"fmt"

	"tilework/internal/gemm"
)

// Precision is the arithmetic of a product. The zero value, which is the default, is the arithmetic
// of the element type.
type Precision uint8

// The precisions other than the default one are for GPUs. All but F32x3 are less accurate.
const (
	// TF32 rounds float32 operands to 11 significant bits.
	TF32 Precision = iota + 1
	// Fast keeps sums of products of 8-bit floats in the tensor cores' accumulators, which have 14
	// bits on some GPUs.
	Fast
	// F32x3 splits each float32 operand into three bfloat16 for Hopper's tensor cores. It is as
	// accurate as float32 arithmetic, with other bits, and faster where M, N and K are in the
	// thousands. A product with an infinity, or with a number above 2^127.99, is an infinity or NaN
	// where that of float32 is one; the two may differ where finite numbers overflow.
	F32x3
)

var precisions = [...]gemm.Precision{0: gemm.Native, TF32: gemm.TF32, Fast: gemm.Fast, F32x3: gemm.F32x3}

// WithPrecision selects an arithmetic other than that of the element type.
func WithPrecision(p Precision) Option {
	return func(c *config) {
		if int(p) >= len(precisions) {
			c.Fail(fmt.Errorf("%w: %v", ErrUnsupported, p))
			return
		}
		c.Precision = precisions[p]
	}
}
