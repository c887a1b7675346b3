package gonumblas

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/gonum"
	"gonum.org/v1/gonum/lapack/testlapack"

	"tilework/internal/testkit/testrand"
)

// The tests below are gonum's tests of the norms and condition numbers.

func TestDgecon(t *testing.T) { testlapack.DgeconTest(t, LAPACK{}) }
func TestDpocon(t *testing.T) { testlapack.DpoconTest(t, LAPACK{}) }
func TestDtrcon(t *testing.T) { testlapack.DtrconTest(t, LAPACK{}) }
func TestDlange(t *testing.T) { testlapack.DlangeTest(t, LAPACK{}) }
func TestDlansy(t *testing.T) { testlapack.DlansyTest(t, LAPACK{}) }

// TestCondition compares the norms and condition numbers of large matrices with gonum's: of
// factors of random matrices, of triangles whose solutions overflow, of singular ones, and of
// those with an infinity.
func TestCondition(t *testing.T) {
	const n = 150
	rng := testrand.New(t)
	diagonal := func(change func(i int, v float64) float64) []float64 {
		a := values[float64](rng, n)
		gonum.Implementation{}.Dgetrf(n, n, a, n, make([]int, n))
		for i := range n {
			a[i*n+i] = change(i, a[i*n+i])
		}
		return a
	}
	at := func(row int, to float64) func(i int, v float64) float64 {
		return func(i int, v float64) float64 {
			if i == row {
				return to
			}
			return v
		}
	}
	for name, a := range map[string][]float64{
		"factors":  diagonal(func(_ int, v float64) float64 { return v }),
		"graded":   diagonal(func(i int, v float64) float64 { return v * math.Pow(10, -200*float64(i)/n) }),
		"large":    diagonal(func(_ int, v float64) float64 { return v * 7e-3 }),
		"overflow": diagonal(func(_ int, v float64) float64 { return v * 1e-30 }),
		"singular": diagonal(at(97, 0)),
		"infinity": diagonal(at(97, math.Inf(1))),
	} {
		for _, norm := range []lapack.MatrixNorm{lapack.MaxColumnSum, lapack.MaxRowSum} {
			for _, ul := range []blas.Uplo{blas.Upper, blas.Lower} {
				for routine, call := range map[string]func(l lapack.Float64, work []float64, iwork []int) float64{
					"Dgecon": func(l lapack.Float64, work []float64, iwork []int) float64 {
						return l.Dgecon(norm, n, a, n, 10, work, iwork)
					},
					"Dpocon": func(l lapack.Float64, work []float64, iwork []int) float64 {
						return l.Dpocon(ul, n, a, n, 10, work, iwork)
					},
					"Dtrcon": func(l lapack.Float64, work []float64, iwork []int) float64 {
						return l.Dtrcon(norm, ul, blas.NonUnit, n, a, n, work, iwork)
					},
					"Dtrcon of a unit triangle": func(l lapack.Float64, work []float64, iwork []int) float64 {
						return l.Dtrcon(norm, ul, blas.Unit, n, a, n, work, iwork)
					},
					"Dlange": func(l lapack.Float64, work []float64, _ []int) float64 {
						return l.Dlange(norm, n, n, a, n, work)
					},
					"Dlansy": func(l lapack.Float64, work []float64, _ []int) float64 {
						return l.Dlansy(norm, ul, n, a, n, work)
					},
				} {
					got := call(LAPACK{}, make([]float64, 4*n), make([]int, n))
					want := call(gonum.Implementation{}, make([]float64, 4*n), make([]int, n))
					isNear := math.Abs(got-want) <= 1e-9*want || math.Max(got, want) < 1e-290
					if !isNear && !(math.IsNaN(got) && math.IsNaN(want)) && got != want {
						t.Errorf("%s of %s, norm %c, %c: %g, want %g as in gonum", routine, name, norm, ul,
							got, want)
					}
				}
			}
		}
	}
}

// TestConditionNaN checks that norms and condition numbers of a matrix are NaN if it has a NaN, and
// do not depend on elements outside a triangle.
func TestConditionNaN(t *testing.T) {
	rng := testrand.New(t)
	for range 300 {
		n := []int{1, 2, 3, 5, 40, 100}[rng.IntN(6)]
		ul := []blas.Uplo{blas.Upper, blas.Lower}[rng.IntN(2)]
		norm := []lapack.MatrixNorm{lapack.MaxColumnSum, lapack.MaxRowSum}[rng.IntN(2)]
		a, work, iwork := values[float64](rng, n), make([]float64, 4*n), make([]int, n)
		i, j := rng.IntN(n), rng.IntN(n)
		a[i*n+j] = math.NaN()
		l := LAPACK{}
		for _, call := range []struct {
			name   string
			got    float64
			isRead bool
		}{
			{"Dgecon", l.Dgecon(norm, n, a, n, 3, work, iwork), true},
			{"Dlange", l.Dlange(norm, n, n, a, n, work), true},
			{"Dpocon", l.Dpocon(ul, n, a, n, 3, work, iwork), isStored(ul, blas.NonUnit, i, j)},
			{"Dlansy", l.Dlansy(norm, ul, n, a, n, work), isStored(ul, blas.NonUnit, i, j)},
			{"Dtrcon", l.Dtrcon(norm, ul, blas.NonUnit, n, a, n, work, iwork), isStored(ul, blas.NonUnit, i, j)},
			{"Dtrcon of a unit triangle", l.Dtrcon(norm, ul, blas.Unit, n, a, n, work, iwork),
				isStored(ul, blas.Unit, i, j)},
		} {
			if math.IsNaN(call.got) != call.isRead {
				t.Errorf("%s %c, norm %c, n = %d, NaN at (%d, %d): got %v, want NaN: %t", call.name, ul, norm, n, i, j,
					call.got, call.isRead)
			}
		}
		a[i*n+j] = 1
		if got := l.Dgecon(norm, n, a, n, math.NaN(), work, iwork); !math.IsNaN(got) {
			t.Errorf("Dgecon with the norm NaN: got %v, want NaN", got)
		}
		if got := l.Dpocon(ul, n, a, n, math.NaN(), work, iwork); !math.IsNaN(got) {
			t.Errorf("Dpocon with the norm NaN: got %v, want NaN", got)
		}
	}
}
