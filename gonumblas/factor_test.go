package gonumblas

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/blas"
)

// TestAlphaTimesFinishedSums checks that alpha multiplies finished sums in the routines that split
// problems, at sizes that they split: alpha times the sum of the first half overflows.
func TestAlphaTimesFinishedSums(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testFinishedSums(t, &single, 0x1p126) })
	t.Run("float64", func(t *testing.T) { testFinishedSums(t, &double, 0x1p1022) })
}

func testFinishedSums[T float32 | float64](t *testing.T, r *routines[T], large T) {
	inf := T(math.Inf(1))
	for _, n := range []int{12, 90, 300, 700} {
		for _, alpha := range []T{large, -large, inf, -inf} {
			for _, beta := range []T{0, 1} {
				for _, ul := range []blas.Uplo{blas.Lower, blas.Upper} {
					checkFinishedSums(t, r, n, alpha, beta, ul)
				}
			}
		}
	}
}

// checkFinishedSums checks calls with operands of few values, whose products sum to 0, 1/2 or 1.
func checkFinishedSums[T float32 | float64](t *testing.T, r *routines[T], n int, alpha, beta T, ul blas.Uplo) {
	t.Helper()
	of := func(rows, cols int, f func(i, j int) T) []T {
		to := make([]T, rows*cols)
		for i := range to {
			to[i] = f(i/cols, i%cols)
		}
		return to
	}
	one := func(_, _ int) T { return 1 }
	half := n / 2
	sign := func(at int) T { // the sum of n of them is 1
		switch {
		case at < half:
			return 1
		case at < 2*half-(n+1)%2:
			return -1
		case at == 2*half-1:
			return 0 // so that the sum is 1 also if n is even
		}
		return 1
	}
	check := func(name string, got []T) {
		t.Helper()
		want := alpha + beta*3
		for i, v := range got {
			if v != want {
				t.Fatalf("%s, n = %d, α = %v, β = %v: element %d is %v, want %v", name, n, alpha, beta, i, v, want)
			}
		}
	}
	three := func(_, _ int) T { return 3 }

	ones, b, c := of(n, n, one), of(n, 5, func(i, _ int) T { return sign(i) }), of(n, 5, three)
	r.symmetric(blas.Left, ul, n, 5, alpha, ones, n, b, 5, beta, c, 5)
	check("symm", c)

	x := of(n, 1, func(i, _ int) T { return sign(i) })
	for _, trans := range []blas.Transpose{blas.NoTrans, blas.Trans} {
		y := of(n, 1, three)
		r.matrixVector(trans, n, n, alpha, ones, n, x, 1, beta, y, 1)
		check("gemv", y)
	}

	a, b := of(n, 2, one), of(n, 2, func(_, j int) T { return T(1 - 2*j) })
	b[1] = -0.5 // the sum of the products with row 0 is 1/2 instead of 0
	cc := of(n, n, three)
	r.rank2K(ul, blas.NoTrans, n, 2, alpha/8, a, 2, scaled(b, 8), 2, beta, cc, n)
	for i := range n {
		for j := range n {
			if stored := ul == blas.Lower && j <= i || ul == blas.Upper && j >= i; !stored {
				continue
			}
			sum := T(0)
			if i == 0 {
				sum += 0.5
			}
			if j == 0 {
				sum += 0.5
			}
			want := alpha*sum + beta*3
			if got := cc[i*n+j]; got != want && !(got != got && want != want) {
				t.Fatalf("syr2k, n = %d, α = %v, β = %v: element (%d, %d) is %v, want %v", n, alpha, beta, i, j, got, want)
			}
		}
	}
	if beta != 0 {
		return
	}
	d := of(n, 5, func(i, _ int) T { return sign(i) })
	r.triangularProduct(blas.Left, blas.Lower, blas.NoTrans, blas.NonUnit, n, 5, alpha, ones, n, d, 5)
	check("trmm", d[(n-1)*5:])
}

// scaled returns s times a factor.
func scaled[T float32 | float64](s []T, factor T) []T {
	to := clone(s)
	for i := range to {
		to[i] *= factor
	}
	return to
}
