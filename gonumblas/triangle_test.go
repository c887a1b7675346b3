package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack/gonum"

	"tilework/internal/testkit/testrand"
)

// everyTriangle calls f for each way to store and use a triangle.
func everyTriangle(f func(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag)) {
	for _, s := range []blas.Side{blas.Left, blas.Right} {
		for _, ul := range []blas.Uplo{blas.Lower, blas.Upper} {
			for _, t := range []blas.Transpose{blas.NoTrans, blas.Trans} {
				for _, d := range []blas.Diag{blas.NonUnit, blas.Unit} {
					f(s, ul, t, d)
				}
			}
		}
	}
}

// isStored reports whether element (i, j) of a triangle is read.
func isStored(ul blas.Uplo, d blas.Diag, i, j int) bool {
	return i == j && d == blas.NonUnit || ul == blas.Lower && j < i || ul == blas.Upper && j > i
}

// TestSolveResidual checks the residual of TRSM with triangles from LU factorisations with
// pivoting, and with triangles whose diagonal falls from 1 to 1e-200. Substitution bounds it for
// each element for any condition: |B - A·X| ≤ c·n·ε·|A|·|X| (N. Higham, "Accuracy and
// Stability of Numerical Algorithms", theorem 8.5).
func TestSolveResidual(t *testing.T) {
	const n, cols = 150, 37
	rng := testrand.New(t)
	factors := values[float64](rng, n)
	gonum.Implementation{}.Dgetrf(n, n, factors, n, make([]int, n))
	graded := values[float64](rng, n)
	for i := range graded {
		graded[i] *= math.Pow(10, -200*float64(min(i/n, i%n))/n)
	}
	for name, a := range map[string][]float64{"LU": factors, "graded": graded} {
		everyTriangle(func(s blas.Side, ul blas.Uplo, trans blas.Transpose, d blas.Diag) {
			if name == "graded" && d == blas.Unit {
				return // a unit triangle is not graded
			}
			m, k := n, cols
			if s == blas.Right {
				m, k = cols, n
			}
			b := values[float64](rng, n)[:m*k]
			x := clone(b)
			Implementation{}.Dtrsm(s, ul, trans, d, m, k, 1, a, n, x, k)
			op := func(i, j int) float64 {
				if trans == blas.Trans {
					i, j = j, i
				}
				switch {
				case isStored(ul, d, i, j):
					return a[i*n+j]
				case i == j:
					return 1
				}
				return 0
			}
			for i := range m {
				for j := range k {
					residual, size := b[i*k+j], 0.0
					for p := range n {
						term := op(i%n, p) * x[(p%m)*k+j]
						if s == blas.Right {
							term = x[i*k+p] * op(p, j)
						}
						residual -= term
						size += math.Abs(term)
					}
					if !(math.Abs(residual) <= 2*n*0x1p-52*size) {
						t.Fatalf("%s %c%c%c%c: residual %g in row %d, column %d, want at most %g", name, s, ul,
							trans, d, residual, i, j, 2*n*0x1p-52*size)
					}
				}
			}
		})
	}
}

// TestUnreadTriangle checks that NaNs in the triangle that a routine does not read, and on a unit
// diagonal, have no effect, and that a NaN in one column or row of B stays there.
func TestUnreadTriangle(t *testing.T) {
	const n = 150
	rng := rand.New(rand.NewPCG(1, 0))
	isNaN := func(v float64) bool { return math.IsNaN(v) }
	everyTriangle(func(s blas.Side, ul blas.Uplo, trans blas.Transpose, d blas.Diag) {
		name := fmt.Sprintf("%c%c%c%c", s, ul, trans, d)
		a, b, c := values[float64](rng, n), values[float64](rng, n), values[float64](rng, n)
		for i := range n {
			for j := range n {
				if a[i*n+j] /= n; i == j {
					a[i*n+j] = 2
				}
				if !isStored(ul, d, i, j) {
					a[i*n+j] = math.NaN()
				}
			}
		}
		impl := Implementation{}
		impl.Dtrmm(s, ul, trans, d, n, n, 1, a, n, b, n)
		impl.Dtrsm(s, ul, trans, d, n, n, 1, a, n, b, n)
		impl.Dtrmv(ul, trans, d, n, a, n, b[:n], 1)
		impl.Dtrsv(ul, trans, d, n, a, n, b, n)
		if slices.ContainsFunc(b, isNaN) {
			t.Errorf("%s: TRMM, TRSM, TRMV or TRSV read an element outside the triangle", name)
		}
		if d == blas.NonUnit {
			impl.Dsymm(s, ul, n, n, 1, a, n, b, n, 0, c, n)
			if slices.ContainsFunc(c, isNaN) {
				t.Errorf("%s: SYMM read an element outside the triangle", name)
			}
			untouched := clone(a)
			for i := range n {
				untouched[i*n+i] = 2 // the matrix is positive definite
			}
			if !(LAPACK{}).Dpotrf(ul, n, untouched, n) {
				t.Errorf("%s: Dpotrf found a positive definite matrix not to be so", name)
			}
			for i, v := range untouched {
				if math.IsNaN(v) != math.IsNaN(a[i]) {
					t.Fatalf("%s: Dpotrf read or wrote outside the triangle", name)
				}
			}
		}
		at := 7*n + 11
		b[at] = math.NaN()
		impl.Dtrmm(s, ul, trans, d, n, n, 1, a, n, b, n)
		impl.Dtrsm(s, ul, trans, d, n, n, 1, a, n, b, n)
		for i, v := range b {
			if math.IsNaN(v) && (s == blas.Left && i%n != at%n || s == blas.Right && i/n != at/n) {
				t.Fatalf("%s: a NaN of B at (7, 11) spread to (%d, %d)", name, i/n, i%n)
			}
		}
	})
}

// TestBetaZero checks that NaNs in C have no effect if β is 0, and that C keeps its other triangle.
func TestBetaZero(t *testing.T) {
	const n = 530
	rng := rand.New(rand.NewPCG(1, 0))
	a, b := values[float64](rng, n), values[float64](rng, n)
	impl := Implementation{}
	for _, ul := range []blas.Uplo{blas.Lower, blas.Upper} {
		for name, call := range map[string]func(c []float64){
			"syrk":  func(c []float64) { impl.Dsyrk(ul, blas.NoTrans, n, 9, 1, a, n, 0, c, n) },
			"syr2k": func(c []float64) { impl.Dsyr2k(ul, blas.Trans, n, 9, 1, a, n, b, n, 0, c, n) },
		} {
			c := make([]float64, n*n)
			for i := range c {
				c[i] = math.NaN()
			}
			call(c)
			for i, v := range c {
				if math.IsNaN(v) == isStored(ul, blas.NonUnit, i/n, i%n) {
					t.Fatalf("%s %c: element (%d, %d) is %v", name, ul, i/n, i%n, v)
				}
			}
		}
	}
	y := []float64{math.NaN()}
	for range n - 1 {
		y = append(y, math.NaN())
	}
	impl.Dgemv(blas.NoTrans, n, n, 1, a, n, b, 1, 0, y, 1)
	if slices.ContainsFunc(y, func(v float64) bool { return math.IsNaN(v) }) {
		t.Error("gemv read y for β = 0")
	}
}

// TestThreads checks that the results have the same bits with one thread and with all.
func TestThreads(t *testing.T) {
	const n = 700
	rng := rand.New(rand.NewPCG(1, 0))
	a, b := values[float64](rng, n), values[float64](rng, n)
	for i := range n {
		a[i*n+i] = n
	}
	work, tau, pivots := make([]float64, 64*n), make([]float64, n), make([]int, n)
	impl := Implementation{}
	for name, call := range map[string]func(a, b []float64){
		"syrk": func(a, b []float64) { impl.Dsyrk(blas.Lower, blas.NoTrans, n, n, 1, a, n, 1, b, n) },
		"symm": func(a, b []float64) { impl.Dsymm(blas.Left, blas.Lower, n, n, 1, clone(b), n, a, n, 1, b, n) },
		"trsm": func(a, b []float64) {
			impl.Dtrsm(blas.Left, blas.Lower, blas.NoTrans, blas.NonUnit, n, n, 1, a, n, b, n)
		},
		"trsv": func(a, b []float64) { impl.Dtrsv(blas.Lower, blas.NoTrans, blas.NonUnit, n, a, n, b, 1) },
		"gemv": func(a, b []float64) { impl.Dgemv(blas.Trans, n, n, 1, a, n, clone(b), n, 1, b, 1) },
		"ger":  func(a, b []float64) { impl.Dger(n, n, 1, a, n, a[1:], 1, b, n) },
		"lu":   func(_, b []float64) { LAPACK{}.Dgetrf(n, n, b, n, pivots) },
		"qr":   func(_, b []float64) { LAPACK{}.Dgeqrf(n, n, b, n, tau, work, len(work)) },
		"cholesky": func(a, b []float64) {
			copy(b, a)
			LAPACK{}.Dpotrf(blas.Upper, n, b, n)
		},
	} {
		all := clone(b)
		call(a, all)
		one := clone(b)
		threads := runtime.GOMAXPROCS(1)
		call(a, one)
		runtime.GOMAXPROCS(threads)
		equal(t, name, all, one, 0)
	}
}
