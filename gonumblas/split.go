package gonumblas

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/blas"

	"tilework"
)

// leaf is the size of the blocks along the diagonal at which splitting stops. It is large enough
// for a fast GEMM and small compared with matrices whose speed matters.
const leaf = 64

// minTerms is the product m·n·k below which gonum is faster, because tilework takes longer to plan.
const minTerms = 12 * 12 * 12

// triangle is a square matrix. Only one of its triangles is read or written.
type triangle[T float32 | float64] struct {
	tilework.Matrix[T]
	lower bool // the triangle after a transposition of the view
	diag  blas.Diag
}

// t returns the transpose.
func (a triangle[T]) t() triangle[T] { return triangle[T]{a.Matrix.T(), !a.lower, a.diag} }

// halves splits a triangle into two triangles along the diagonal, the first of size h, and the
// rectangle below the first and left of the second. For an upper triangle, it returns the transpose
// of the rectangle right of the first and above the second.
func (a triangle[T]) halves() (h int, first, second triangle[T], below tilework.Matrix[T]) {
	n := a.Rows()
	h = (n/2 + leaf - 1) / leaf * leaf
	first = triangle[T]{a.Sub(0, 0, h, h), a.lower, a.diag}
	second = triangle[T]{a.Sub(h, h, n-h, n-h), a.lower, a.diag}
	if a.lower {
		return h, first, second, a.Sub(h, 0, n-h, h)
	}
	return h, first, second, a.Sub(0, h, h, n-h).T()
}

// rows splits a matrix after its first h rows.
func rows[T float32 | float64](x tilework.Matrix[T], h int) (first, second tilework.Matrix[T]) {
	return x.Sub(0, 0, h, x.Cols()), x.Sub(h, 0, x.Rows()-h, x.Cols())
}

// gemm computes C ← α·A·B + β·C.
func gemm[T float32 | float64](alpha T, a, b tilework.Matrix[T], beta T, c tilework.Matrix[T]) {
	err := tilework.Gemm(context.Background(), float64(alpha), a, b, float64(beta), c, tilework.WithDevice("cpu"))
	if err != nil {
		panic(fmt.Sprintf("gonumblas: %v", err)) // the shapes match, so C must share memory with A or B
	}
}

// scratch allocates a leaf×leaf matrix.
func scratch[T float32 | float64]() tilework.Matrix[T] { return tilework.New[T](leaf, leaf) }

// symm computes C ← α·A·B + β·C for a symmetric A.
func symm[T float32 | float64](alpha T, a triangle[T], b tilework.Matrix[T], beta T, c, room tilework.Matrix[T]) {
	if n := a.Rows(); n <= leaf {
		whole := room.Sub(0, 0, n, n)
		for i := range n {
			for j := range i + 1 {
				v := a.At(i, j)
				if !a.lower {
					v = a.At(j, i)
				}
				whole.Set(i, j, v)
				whole.Set(j, i, v)
			}
		}
		gemm(alpha, whole, b, beta, c)
		return
	}
	h, a1, a2, below := a.halves()
	b1, b2 := rows(b, h)
	c1, c2 := rows(c, h)
	symm(alpha, a1, b1, beta, c1, room)
	gemm(alpha, below.T(), b2, 1, c1)
	symm(alpha, a2, b2, beta, c2, room)
	gemm(alpha, below, b1, 1, c2)
}

// rankUpdate computes a triangle of C ← P + β·C, where P is a symmetric product. part computes the
// rows×cols block of P at (i, j): c ← P(i, j) + β·c.
func rankUpdate[T float32 | float64](beta T, c triangle[T], room tilework.Matrix[T],
	part func(beta T, i, j, rows, cols int, c tilework.Matrix[T])) {
	n := c.Rows()
	if n <= leaf {
		whole := room.Sub(0, 0, n, n)
		part(0, 0, 0, n, n, whole)
		for i := range n {
			for j := range i + 1 {
				at := [2]int{i, j}
				if !c.lower {
					at = [2]int{j, i}
				}
				v := whole.At(at[0], at[1])
				if beta != 0 {
					v += beta * c.At(at[0], at[1])
				}
				c.Set(at[0], at[1], v)
			}
		}
		return
	}
	h, c1, c2, below := c.halves()
	rankUpdate(beta, c1, room, part)
	part(beta, h, 0, n-h, h, below)
	rankUpdate(beta, c2, room, func(beta T, i, j, rows, cols int, c tilework.Matrix[T]) {
		part(beta, h+i, h+j, rows, cols, c)
	})
}

// trmm computes B ← α·A·B.
func trmm[T float32 | float64](alpha T, a triangle[T], b tilework.Matrix[T], native inPlace[T]) {
	if a.Rows() <= leaf {
		native.on(alpha, a, b)
		return
	}
	h, a1, a2, between := a.halves()
	b1, b2 := rows(b, h)
	if a.lower {
		trmm(alpha, a2, b2, native)
		gemm(alpha, between, b1, 1, b2)
		trmm(alpha, a1, b1, native)
		return
	}
	trmm(alpha, a1, b1, native)
	gemm(alpha, between.T(), b2, 1, b1)
	trmm(alpha, a2, b2, native)
}

// trsm computes B ← α·A⁻¹·B.
func trsm[T float32 | float64](alpha T, a triangle[T], b tilework.Matrix[T], native inPlace[T]) {
	if a.Rows() <= leaf {
		native.on(alpha, a, b)
		return
	}
	h, a1, a2, between := a.halves()
	b1, b2 := rows(b, h)
	if a.lower {
		trsm(alpha, a1, b1, native)
		gemm(-1, between, b1, alpha, b2)
		trsm(1, a2, b2, native)
		return
	}
	trsm(alpha, a2, b2, native)
	gemm(-1, between.T(), b2, alpha, b1)
	trsm(1, a1, b1, native)
}

// inPlace is the type of gonum's TRMM and TRSM.
type inPlace[T float32 | float64] func(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T,
	a []T, lda int, b []T, ldb int)

// on calls f for A on the left of B. Both can be transposed views.
func (f inPlace[T]) on(alpha T, a triangle[T], b tilework.Matrix[T]) {
	side := blas.Left
	if b.Transposed() { // (A·Bᵀ)ᵀ is B·Aᵀ
		side, a, b = blas.Right, a.t(), b.T()
	}
	trans, lower := blas.NoTrans, a.lower
	if a.Transposed() {
		trans, lower = blas.Trans, !a.lower
	}
	ul := blas.Upper
	if lower {
		ul = blas.Lower
	}
	f(side, ul, trans, a.diag, b.Rows(), b.Cols(), alpha, a.Data(), a.Stride(), b.Data(), b.Stride())
}
