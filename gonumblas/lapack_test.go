package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/gonum"
	"gonum.org/v1/gonum/lapack/testlapack"

	"tilework/internal/cpu/block"
	"tilework/internal/testkit/testrand"
)

// The tests below are gonum's tests of the factorisations.

func TestDgetrf(t *testing.T) { testlapack.DgetrfTest(t, LAPACK{}) }
func TestDpotrf(t *testing.T) { testlapack.DpotrfTest(t, LAPACK{}) }
func TestDgeqrf(t *testing.T) { testlapack.DgeqrfTest(t, LAPACK{}) }
func TestDormqr(t *testing.T) { testlapack.DormqrTest(t, LAPACK{}) }

// product returns op(A)·B for an m×k op(A) and a k×n B, computed by gonum.
func product(t blas.Transpose, m, n, k int, a, b []float64) []float64 {
	c := make([]float64, m*n)
	lda := k
	if t == blas.Trans {
		lda = m
	}
	double.mul(t, blas.NoTrans, m, n, k, 1, a, lda, b, n, 0, c, n)
	return c
}

// distance returns the largest difference of two slices.
func distance(a, b []float64) float64 {
	most := 0.0
	for i := range a {
		most = math.Max(most, math.Abs(a[i]-b[i]))
	}
	return most
}

// TestFactorisations compares the residuals of LU, Cholesky and QR factorisations with those of
// gonum. A residual may be four times as large, or as large as the rounding of one sum.
func TestFactorisations(t *testing.T) {
	rng := testrand.New(t)
	for _, size := range [][2]int{{65, 65}, {200, 200}, {350, 350}, {530, 560}, {400, 90}, {90, 400}, {500, 17},
		{17, 500}, {3000, 5}} {
		m, n := size[0], size[1]
		k := min(m, n)
		a := values[float64](rng, max(m, n))[:m*n]
		for name, residual := range map[string]func(l lapack.Float64) float64{
			"lu": func(l lapack.Float64) float64 { return residualLU(l, m, n, a) },
			"qr": func(l lapack.Float64) float64 { return residualQR(l, m, n, a) },
			"cholesky": func(l lapack.Float64) float64 {
				return residualCholesky(l, k, product(blas.Trans, k, k, k, a[:k*k], a[:k*k]))
			},
		} {
			got, want := residual(LAPACK{}), residual(gonum.Implementation{})
			if !(got <= max(4*want, float64(m+n)*0x1p-52)) {
				t.Errorf("%s of a %d×%d matrix: residual %g, and %g with gonum", name, m, n, got, want)
			}
		}
	}
}

// residualLU returns the largest element of A - P·L·U.
func residualLU(l lapack.Float64, m, n int, a []float64) float64 {
	k := min(m, n)
	f, pivots := clone(a), make([]int, k)
	l.Dgetrf(m, n, f, n, pivots)
	lower, upper := make([]float64, m*k), make([]float64, k*n)
	for i := range m {
		for j := range n {
			switch {
			case j < i && j < k:
				lower[i*k+j] = f[i*n+j]
			case i < k && j >= i:
				upper[i*n+j] = f[i*n+j]
			}
		}
		if i < k {
			lower[i*k+i] = 1
		}
	}
	p := clone(a)
	gonum.Implementation{}.Dlaswp(n, p, n, 0, k-1, pivots, 1)
	return distance(product(blas.NoTrans, m, n, k, lower, upper), p)
}

// residualQR returns the largest element of A - Q·R, R - Qᵀ·Q·R, Aᵀ - Rᵀ·Qᵀ and Rᵀ - Rᵀ·Qᵀ·Q.
func residualQR(l lapack.Float64, m, n int, a []float64) float64 {
	k := min(m, n)
	f, tau, work := clone(a), make([]float64, k), make([]float64, 64*(m+n)+4096)
	l.Dgeqrf(m, n, f, n, tau, work, len(work))
	r, transposed := make([]float64, m*n), make([]float64, n*m)
	for i := range k {
		for j := i; j < n; j++ {
			r[i*n+j], transposed[j*m+i] = f[i*n+j], f[i*n+j]
		}
	}
	v := make([]float64, m*k)
	for i := range m {
		copy(v[i*k:][:k], f[i*n:])
	}
	product := clone(r)
	l.Dormqr(blas.Left, blas.NoTrans, m, n, k, v, k, tau, product, n, work, len(work))
	most := distance(product, a)
	l.Dormqr(blas.Left, blas.Trans, m, n, k, v, k, tau, product, n, work, len(work))
	most = max(most, distance(product, r))
	product = clone(transposed)
	l.Dormqr(blas.Right, blas.Trans, n, m, k, v, k, tau, product, m, work, len(work))
	for i := range m {
		for j := range n {
			most = max(most, math.Abs(product[j*m+i]-a[i*n+j]))
		}
	}
	l.Dormqr(blas.Right, blas.NoTrans, n, m, k, v, k, tau, product, m, work, len(work))
	return max(most, distance(product, transposed))
}

// residualCholesky returns the largest element of A - Uᵀ·U or A - L·Lᵀ.
func residualCholesky(l lapack.Float64, n int, a []float64) (most float64) {
	for i := range n {
		a[i*n+i] += 1
	}
	for _, ul := range []blas.Uplo{blas.Upper, blas.Lower} {
		f := clone(a)
		if !l.Dpotrf(ul, n, f, n) {
			return math.Inf(1)
		}
		u := make([]float64, n*n)
		for i := range n {
			for j := i; j < n; j++ {
				if u[i*n+j] = f[i*n+j]; ul == blas.Lower {
					u[i*n+j] = f[j*n+i]
				}
			}
		}
		most = max(most, distance(product(blas.Trans, n, n, n, u, u), a))
	}
	return most
}

// TestWideLU factorises a matrix of more columns than are divided into panels: P·A·x must be L·U·x.
func TestWideLU(t *testing.T) {
	const n = block.MaxColumns + 70
	rng := testrand.New(t)
	a := values[float64](rng, n)
	f, pivots := clone(a), make([]int, n)
	if !(LAPACK{}).Dgetrf(n, n, f, n, pivots) {
		t.Fatal("reported as singular")
	}
	ones := make([]float64, n)
	for i := range ones {
		ones[i] = 1
	}
	want, got := make([]float64, n), clone(ones)
	gonum.Implementation{}.Dlaswp(n, a, n, 0, n-1, pivots, 1)
	double.gemv(blas.NoTrans, n, n, 1, a, n, ones, 1, 0, want, 1)
	double.trmv(blas.Upper, blas.NoTrans, blas.NonUnit, n, f, n, got, 1)
	double.trmv(blas.Lower, blas.NoTrans, blas.Unit, n, f, n, got, 1)
	equal(t, "P·A·x", got, want, 1e-8)
}

// TestExchangeRows compares exchanges of rows, on one and several threads, with gonum's.
func TestExchangeRows(t *testing.T) {
	rng := testrand.New(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for range 50 {
		rows, cols, ld := 1+rng.IntN(500), 1+rng.IntN(500), 512
		pivots := make([]int, 1+rng.IntN(rows))
		for i := range pivots {
			pivots[i] = i + rng.IntN(rows-i)
		}
		a := values[float64](rng, 512)[:(rows-1)*ld+cols]
		want := clone(a)
		gonum.Implementation{}.Dlaswp(cols, want, ld, 0, len(pivots)-1, pivots, 1)
		for _, threads := range []int{1, 4} {
			runtime.GOMAXPROCS(threads)
			got := clone(a)
			block.ExchangeRows(matrix[float64]{got, rows, cols, ld, 1}.block(), pivots)
			if !slices.Equal(got, want) {
				t.Errorf("%d×%d matrix, exchanges with rows %v, %d threads: rows differ from gonum's", rows, cols, pivots,
					threads)
			}
		}
	}
}

// TestSingular checks the reports of matrices that have no factorisation, and that LU continues.
func TestSingular(t *testing.T) {
	const n = 150
	rng := rand.New(rand.NewPCG(1, 0))
	a := values[float64](rng, n)
	for i := range n {
		a[i*n+97] = 0
	}
	singular, pivots := clone(a), make([]int, n)
	if (LAPACK{}).Dgetrf(n, n, singular, n, pivots) {
		t.Error("LU: a zero column was not reported")
	}
	if got := residualLU(LAPACK{}, n, n, a); got > n*0x1p-52 {
		t.Errorf("LU of a singular matrix: residual %g", got)
	}
	for _, ul := range []blas.Uplo{blas.Upper, blas.Lower} {
		spd := make([]float64, n*n)
		for i := range n {
			spd[i*n+i] = 1
		}
		spd[97*n+97] = -1
		if (LAPACK{}).Dpotrf(ul, n, spd, n) {
			t.Errorf("Cholesky %c: a negative pivot was not reported", ul)
		}
		spd[97*n+97] = math.NaN()
		if (LAPACK{}).Dpotrf(ul, n, spd, n) {
			t.Errorf("Cholesky %c: a NaN was not reported", ul)
		}
	}
}

// TestPivots checks that the pivots are gonum's: the first largest element of each column.
func TestPivots(t *testing.T) {
	const n = 150
	rng := rand.New(rand.NewPCG(1, 0))
	a := make([]float64, n*n)
	for i := range a {
		a[i] = float64(rng.IntN(3) - 1)
	}
	b, got, want := clone(a), make([]int, 16), make([]int, 16)
	LAPACK{}.Dgetrf(n, 16, a, n, got)
	gonum.Implementation{}.Dgetrf(n, 16, b, n, want)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pivots %v, want %v as in gonum", got, want)
	}
}

// TestLargeVectors runs gonum's unblocked factorisations with this package's level 2 routines,
// whose operands are rows and columns of one matrix.
func TestLargeVectors(t *testing.T) {
	const n = 600
	rng := rand.New(rand.NewPCG(1, 0))
	a := values[float64](rng, n)
	defer useGonum()
	run := func() (lu, qr []float64) {
		lu, qr = clone(a), clone(a)
		gonum.Implementation{}.Dgetf2(n, n, lu, n, make([]int, n))
		gonum.Implementation{}.Dgeqr2(n, n, qr, n, make([]float64, n), make([]float64, n))
		return lu, qr
	}
	lu, qr := run()
	blas64.Use(Implementation{})
	gotLU, gotQR := run()
	equal(t, "Dgetf2", gotLU, lu, 1e-9)
	equal(t, "Dgeqr2", gotQR, qr, 1e-9)
}

// TestLAPACKPanics checks that invalid arguments cause the same panics as in gonum.
func TestLAPACKPanics(t *testing.T) {
	const n = 150
	a, tau, work, pivots := make([]float64, n*n), make([]float64, n), make([]float64, 64*n+4096), make([]int, n)
	left, trans, sums := blas.Left, blas.Trans, lapack.MaxColumnSum
	for name, call := range map[string]func(l lapack.Float64){
		"lu m":          func(l lapack.Float64) { l.Dgetrf(-1, n, a, n, pivots) },
		"lu lda":        func(l lapack.Float64) { l.Dgetrf(n, n, a, n-1, pivots) },
		"lu a":          func(l lapack.Float64) { l.Dgetrf(n, n, a[1:], n, pivots) },
		"lu pivots":     func(l lapack.Float64) { l.Dgetrf(n, n, a, n, pivots[1:]) },
		"cholesky uplo": func(l lapack.Float64) { l.Dpotrf('x', n, a, n) },
		"cholesky a":    func(l lapack.Float64) { l.Dpotrf(blas.Upper, n, a[1:], n) },
		"qr n":          func(l lapack.Float64) { l.Dgeqrf(n, -1, a, n, tau, work, len(work)) },
		"qr tau":        func(l lapack.Float64) { l.Dgeqrf(n, n, a, n, tau[1:], work, len(work)) },
		"qr lwork":      func(l lapack.Float64) { l.Dgeqrf(n, n, a, n, tau, work, n-1) },
		"qr work":       func(l lapack.Float64) { l.Dgeqrf(n, n, a, n, tau, work[:n], n+1) },
		"q side":        func(l lapack.Float64) { l.Dormqr('x', trans, n, n, n, a, n, tau, a, n, work, len(work)) },
		"q trans":       func(l lapack.Float64) { l.Dormqr(left, 'x', n, n, n, a, n, tau, a, n, work, len(work)) },
		"q k":           func(l lapack.Float64) { l.Dormqr(left, trans, n, n, n+1, a, n, tau, a, n, work, len(work)) },
		"q c":           func(l lapack.Float64) { l.Dormqr(left, trans, n, n, n, a, n, tau, a[1:], n, work, len(work)) },
		"lu norm":       func(l lapack.Float64) { l.Dgecon('x', n, a, n, 1, work, pivots) },
		"lu condition":  func(l lapack.Float64) { l.Dgecon(sums, n, a, n, -1, work, pivots) },
		"cholesky work": func(l lapack.Float64) { l.Dpocon(blas.Upper, n, a, n, 1, work[:n], pivots) },
		"cholesky ul":   func(l lapack.Float64) { l.Dpocon('x', n, a, n, 1, work, pivots) },
		"triangle diag": func(l lapack.Float64) { l.Dtrcon(sums, blas.Upper, 'x', n, a, n, work, pivots) },
		"triangle work": func(l lapack.Float64) { l.Dtrcon(sums, blas.Upper, blas.Unit, n, a, n, work, pivots[1:]) },
		"norm lda":      func(l lapack.Float64) { l.Dlange(lapack.MaxRowSum, n, n, a, n-1, work) },
		"norm work":     func(l lapack.Float64) { l.Dlansy(sums, blas.Upper, n, a, n, work[:1]) },
		"q lwork":       func(l lapack.Float64) { l.Dormqr(left, trans, n, n, n, a, n, tau, a, n, work, 0) },
	} {
		want := panicOf(func() { call(gonum.Implementation{}) })
		if want == nil {
			t.Fatalf("%s: gonum did not panic", name)
		}
		if got := panicOf(func() { call(LAPACK{}) }); got != want {
			t.Errorf("%s: panic %v, want %v as in gonum", name, got, want)
		}
	}
}
