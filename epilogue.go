package tilework

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// WithRowBias adds v[i] to every element of row i of the result. v is a vector of m elements of the
// result's type. A product with [WithColBias], too, is ErrUnsupported.
//
// A vector is any view with one row or one column, such as a column of a matrix. The elements of a
// column of a wider matrix are copied first; on several GPUs the product waits for that copy.
func WithRowBias[T dtype.Element](v Operand[T]) Option { return withBias(gemm.BiasRow, v) }

// WithColBias adds v[j] to every element of column j of the result. v is a vector of n elements of
// the result's type. A product with [WithRowBias], too, is ErrUnsupported.
func WithColBias[T dtype.Element](v Operand[T]) Option { return withBias(gemm.BiasCol, v) }

func withBias[T dtype.Element](dim gemm.BiasDim, v Operand[T]) Option {
	return func(c *config) {
		if c.Epilogue.Bias != gemm.BiasNone && c.Epilogue.Bias != dim {
			c.Fail(fmt.Errorf("%w: WithRowBias and WithColBias in one product, want one of them", ErrUnsupported))
		}
		c.Epilogue.Bias = dim
		give(c, gemm.Bias, v)
	}
}

// WithRowScale multiplies row i of α·A·B + β·C by v[i], before the bias is added. v is a vector of
// m elements of the type of α and β: float64 for float64 matrices, otherwise float32. An int32
// result has no scales: ErrUnsupported.
//
// A quantized layer is an int8 product with a float result, the scales of both factors and a bias:
//
//	err := tilework.Gemm(ctx, 1, q, w, 0, y, // float32 ← int8·int8
//		tilework.WithRowScale(sx), tilework.WithColScale(sw), tilework.WithColBias(b))
func WithRowScale[T dtype.Element](v Operand[T]) Option { return withExtra(gemm.RowScale, v) }

// WithColScale multiplies column j of the product by v[j]. v is a vector of n elements; see
// [WithRowScale].
func WithColScale[T dtype.Element](v Operand[T]) Option { return withExtra(gemm.ColScale, v) }

// WithOutputScale multiplies the result by a 1×1 matrix after everything else, before it is rounded
// to C's type. A scale on the host, such as Vector(0.5), may have any type and is rounded to the
// type of α and β. A scale on the device must have that type; it may be the result of work that is
// still running.
func WithOutputScale[T dtype.Element](v Operand[T]) Option { return withExtra(gemm.OutScale, v) }

// WithResidual adds a matrix to the result, after the activation. d is m×n, of C's type and stored
// by rows or by columns as C is. It must not share memory with C. (β·C is added before the bias.)
func WithResidual[T dtype.Element](d Operand[T]) Option { return withExtra(gemm.Residual, d) }

// WithGated makes a product gated: C ← act(α·A·B) ∘ (α·A·up), element by element. up is k×n, of B's
// type and stored by rows or by columns as B is. With [WithSiLU] that is SwiGLU, where B is called
// the gate, and with [WithGELU] it is GeGLU. Weights side by side in one matrix are two views of it
// ([Matrix.Sub]).
//
// The wgmma kernel of a GPU computes both products in one launch. Other kernels and the CPU
// allocate m×n sums for the second one. A bias, scales of rows or columns, groups, a transposed C
// and a β other than 0 are ErrUnsupported.
func WithGated[T dtype.Element](up Operand[T]) Option { return withExtra(gemm.Up, up) }

func withExtra[T dtype.Element](o gemm.Operand, v Operand[T]) Option {
	return func(c *config) {
		*c.Epilogue.ReadFlag(o) = true
		give(c, o, v)
	}
}

// WithBlockScales multiplies the elements of A and B, which are 8-bit floats, by scales that a
// block of them shares:
//
//	C = α·Σₖ (a[i, k/128]·op(A)[i, k]) · (b[k/128, j]·op(B)[k, j]) + β·C
//
// a is m×⌈k/128⌉ with a scale for each row and 128 of K, or ⌈m/128⌉×⌈k/128⌉ with one for each block
// of 128×128; b is ⌈k/128⌉×n or ⌈k/128⌉×⌈n/128⌉. They have the orientation of op(A) and op(B), and
// may be transposed views themselves. The errors are ErrShape, and ErrUnsupported for other element
// types, for [WithFastAccumulation] and for kernels without block scales.
func WithBlockScales(a, b Operand[float32]) Option {
	return func(c *config) {
		give(c, gemm.ScaleA, a)
		give(c, gemm.ScaleB, b)
	}
}

// WithSaturation replaces results that are too large for C's type by its largest value, with their
// sign, instead of an infinity. NaN stays NaN. An int32 result wraps: ErrUnsupported.
func WithSaturation() Option { return func(c *config) { c.Epilogue.Saturate = true } }

// WithZeroPoints multiplies A less the zero points a by B less the zero points b:
//
//	C = α·Σₖ (A[i, k] − a[i])·(B[k, j] − b[j]) + β·C
//
// A and B hold int8 or uint8. a is a 1×m matrix with a number for each row of A, and b a 1×n matrix
// with one for each column of B, or the transpose of one. A 1×1 matrix on the host, such as
// Vector[int32](128), has the number of all rows or columns. nil stands for zeros. Sums are exact,
// and wrap beyond 32 bits. The errors are ErrShape, and ErrUnsupported for other element types, for
// [WithGated] and for a [DeviceBatch].
func WithZeroPoints(a, b Operand[int32]) Option {
	return func(c *config) {
		if a != nil {
			withExtra(gemm.RowZero, a)(c)
		}
		if b != nil {
			withExtra(gemm.ColZero, b)(c)
		}
	}
}
