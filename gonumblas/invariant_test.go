package gonumblas_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"

	"tilework/gonumblas"
	"tilework/internal/testkit/testrand"
)

// TestRowInvariant checks that rows of Dgemm and Sgemm have the same bits in products with other
// numbers of rows and in other layouts.
func TestRowInvariant(t *testing.T) {
	rng := testrand.New(t)
	for range 200 {
		testRows(t, rng, gonumblas.RowInvariant{}.Dgemm)
		testRows(t, rng, gonumblas.RowInvariant{}.Sgemm)
	}
}

func testRows[T float32 | float64](t *testing.T, rng *rand.Rand, gemm func(tA, tB blas.Transpose, m, n, k int, alpha T,
	a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)) {
	t.Helper()
	const rows = 40
	n, k := 1+rng.IntN(1<<rng.IntN(8)), 1+rng.IntN(1<<rng.IntN(11))
	a, b, old := numbers[T](rng, rows*k), numbers[T](rng, k*n), numbers[T](rng, rows*n)
	const alpha, beta = 0.75, 1.25
	want := slices.Clone(old)
	gemm(blas.NoTrans, blas.NoTrans, rows, n, k, alpha, a, k, b, n, beta, want, n)
	for range 3 {
		m := 1 + rng.IntN(rows)
		first := rng.IntN(rows - m + 1)
		tA, tB := blas.NoTrans, blas.NoTrans
		sa, lda, sb, ldb := a[first*k:], k, b, n
		if rng.IntN(2) == 0 {
			tA, sa, lda = blas.Trans, transposed(sa[:m*k], m, k), m
		}
		if rng.IntN(2) == 0 {
			tB, sb, ldb = blas.Trans, transposed(b, k, n), k
		}
		got := slices.Clone(old[first*n:][:m*n])
		gemm(tA, tB, m, n, k, alpha, sa, lda, sb, ldb, beta, got, n)
		if !slices.Equal(got, want[first*n:][:m*n]) {
			t.Errorf("%d rows from %d on of %d×%d, %c%c: other bits", m, first, k, n, tA, tB)
		}
	}
}

func numbers[T float32 | float64](rng *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(2*rng.Float64() - 1)
	}
	return x
}

// transposed returns the transpose of a rows×cols matrix.
func transposed[T any](x []T, rows, cols int) []T {
	y := make([]T, len(x))
	for i := range rows {
		for j := range cols {
			y[j*rows+i] = x[i*cols+j]
		}
	}
	return y
}
