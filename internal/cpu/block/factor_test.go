package block

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"tilework/internal/testkit/testrand"
)

func TestCholesky(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testCholesky[float32](t, 0x1p-23) })
	t.Run("float64", func(t *testing.T) { testCholesky[float64](t, 0x1p-52) })
}

// testCholesky checks the residuals of factorisations, with NaNs in the triangle that is not
// stored, and that matrices that are not positive definite are reported and unchanged.
func testCholesky[T Float](t *testing.T, epsilon float64) {
	rng := testrand.New(t)
	k := New[T]()
	for _, n := range sizes {
		for _, lower := range []bool{false, true} {
			a := random[T](rng, n, n)
			for i := range n {
				for j := range n {
					switch at := &a.Data[i*a.Down+j*a.Right]; {
					case i == j:
						*at += T(n)
					case (j < i) != lower:
						*at = T(math.NaN())
					}
				}
			}
			u := clone(a)
			if !k.Cholesky(u, lower) {
				t.Fatalf("n %d, lower %v: not positive definite", n, lower)
			}
			at := func(m Matrix[T], i, j int) float64 { // of the upper triangle
				if lower {
					i, j = j, i
				}
				return float64(m.at(i, j))
			}
			for i := range n {
				for j := i; j < n; j++ {
					sum, size := 0.0, 0.0
					for p := range i + 1 {
						term := at(u, p, i) * at(u, p, j)
						sum += term
						size += math.Abs(term)
					}
					if diff := math.Abs(sum - at(a, i, j)); !(diff <= float64(n+4)*epsilon*size) {
						t.Fatalf("n %d, lower %v: residual %g in row %d, column %d", n, lower, diff, i, j)
					}
				}
			}
			checkUntouched(t, u, a)
			last := &a.Data[(n-1)*(a.Down+a.Right)]
			for _, bad := range []T{-1, 0, T(math.NaN())} {
				*last = bad
				b := clone(a)
				if k.Cholesky(b, lower) {
					t.Errorf("n %d, lower %v, last pivot %v: reported as positive definite", n, lower, bad)
				}
				for i, v := range b.Data {
					if v != a.Data[i] && v == v {
						t.Fatalf("n %d, lower %v, last pivot %v: element %d changed", n, lower, bad, i)
					}
				}
			}
		}
	}
}

func TestLU(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testLU[float32](t, 0x1p-23) })
	t.Run("float64", func(t *testing.T) { testLU[float64](t, 0x1p-52) })
}

// testLU checks the residuals of factorisations, that the pivots are the first largest elements of
// their columns, and that columns of zeros are reported.
func testLU[T Float](t *testing.T, epsilon float64) {
	rng := testrand.New(t)
	k := New[T]()
	for _, n := range []int{1, 2, 3, 7, 8, 9, 16, 31, 32, 40, 64, 130} {
		for _, m := range append([]int{n, n + 1, 512, 700}, sizes...) {
			if m < n {
				continue
			}
			a := random[T](rng, m, n)
			for a.Right != 1 {
				a = random[T](rng, m, n)
			}
			zero := rng.IntN(2*n) - n // a column of zeros, or none
			for i := range m {
				if zero >= 0 {
					a.Data[i*a.Down+zero] = 0
				}
			}
			f, pivots := clone(a), make([]int, n)
			if ok := k.LU(f, pivots); ok != (zero < 0) {
				t.Fatalf("%d×%d, zero column %d: reported %v", m, n, zero, ok)
			}
			checkUntouched(t, f, a)
			for i, p := range pivots {
				if p < i || p >= m {
					t.Fatalf("%d×%d: pivot %d is row %d", m, n, i, p)
				}
				for j := range n {
					a.Data[i*a.Down+j], a.Data[p*a.Down+j] = a.at(p, j), a.at(i, j)
				}
			}
			for i := range m {
				for j := range n {
					sum, size := 0.0, 0.0
					for p := range min(i, j+1) {
						term := float64(f.at(i, p)) * float64(f.at(p, j))
						sum += term
						size += math.Abs(term)
					}
					if i <= j {
						sum += float64(f.at(i, j))
						size += math.Abs(float64(f.at(i, j)))
					} else if !(math.Abs(float64(f.at(i, j))) <= 1) {
						t.Fatalf("%d×%d: multiplier %v", m, n, f.at(i, j))
					}
					if diff := math.Abs(sum - float64(a.at(i, j))); !(diff <= float64(n+4)*epsilon*size) {
						t.Fatalf("%d×%d: residual %g in row %d, column %d", m, n, diff, i, j)
					}
				}
			}
		}
	}
}

// TestLUSameBits checks that the factors of a matrix do not depend on the number of threads.
func TestLUSameBits(t *testing.T) {
	t.Run("float32", testLUSameBits[float32])
	t.Run("float64", testLUSameBits[float64])
}

func testLUSameBits[T Float](t *testing.T) {
	rng := testrand.New(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	k := New[T]()
	for _, size := range [][3]int{{200, 200, 200}, {300, 130, 130}, {200, 150, 310}, {400, 400, 400}} {
		rows, n, cols := size[0], size[1], size[2]
		a := Matrix[T]{Data: make([]T, rows*(cols+3)), Rows: rows, Cols: cols, Down: cols + 3, Right: 1}
		for i := range a.Data {
			a.Data[i] = T(rng.NormFloat64())
		}
		runtime.GOMAXPROCS(1)
		want, wantPivots := clone(a), make([]int, n)
		k.LU(want, wantPivots)
		runtime.GOMAXPROCS(4)
		for range 3 {
			got, pivots := clone(a), make([]int, n)
			k.LU(got, pivots)
			if !slices.Equal(got.Data, want.Data) || !slices.Equal(pivots, wantPivots) {
				t.Errorf("%d×%d matrix, %d pivots: the factors differ from those of one thread", rows, cols, n)
			}
		}
	}
}

// clone returns a matrix with a copy of m's elements.
func clone[T Float](m Matrix[T]) Matrix[T] {
	m.Data = append([]T(nil), m.Data...)
	return m
}

// checkUntouched checks that the NaNs of old, which mark elements outside a matrix, are NaNs still.
func checkUntouched[T Float](t *testing.T, m, old Matrix[T]) {
	t.Helper()
	for i, v := range old.Data {
		if v != v && m.Data[i] == m.Data[i] {
			t.Fatalf("element %d, outside the matrix, became %v", i, m.Data[i])
		}
	}
}
