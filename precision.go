package tilework

import (
	"fmt"

	"tilework/internal/gemm"
)

// Precision is the arithmetic of a product.
type Precision uint8

// The precisions. All but Native are for GPUs. All but Native and F32x3 are less accurate.
const (
	// Native is the arithmetic of the element type, and the default.
	Native Precision = iota
	// TF32 rounds float32 operands to 11 significant bits.
	TF32
	// Fast keeps sums of products of 8-bit floats in the tensor cores' accumulators, which have 14
	// bits on some GPUs.
	Fast
	// F32x3 splits each float32 operand into three bfloat16 for Hopper's tensor cores. It is as
	// accurate as float32 arithmetic, with other bits, and faster where M, N and K are in the
	// thousands. A product with an infinity, or with a number above 2^127.99, is an infinity or NaN
	// where that of float32 is one; the two may differ where finite numbers overflow.
	F32x3
)

var precisions = [...]gemm.Precision{Native: gemm.Native, TF32: gemm.TF32, Fast: gemm.Fast, F32x3: gemm.F32x3}

// WithPrecision selects an arithmetic other than [Native].
func WithPrecision(p Precision) Option {
	return func(c *config) {
		if int(p) >= len(precisions) {
			c.fail(fmt.Errorf("%w: precision %d", ErrUnsupported, p))
			return
		}
		c.precision = precisions[p]
	}
}
