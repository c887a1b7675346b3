package gonumblas

import (
	"testing"

	"gonum.org/v1/gonum/blas"
)

// TestManyTerms checks that a product of 2³¹ terms is not forwarded to gonum as a small one. That
// number overflows an int of 32 bits. With α = 0 the product takes little time.
func TestManyTerms(t *testing.T) {
	r := &routines[float32]{mul: func(blas.Transpose, blas.Transpose, int, int, int, float32, []float32, int, []float32,
		int, float32, []float32, int) {
		t.Error("the product was forwarded to gonum")
	}}
	const m, n, k = 1 << 11, 1 << 11, 1 << 9
	a, b, c := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
	r.product(blas.NoTrans, blas.NoTrans, m, n, k, 0, a, k, b, n, 0, c, n)
}
