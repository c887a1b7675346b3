package block

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

func TestVectors(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testVectors[float32](t, 0x1p-23) })
	t.Run("float64", func(t *testing.T) { testVectors[float64](t, 0x1p-52) })
}

// testVectors compares the products and solutions of vectors with those of matrices of one column,
// and outer products with their elements.
func testVectors[T Float](t *testing.T, epsilon float64) {
	rng := testrand.New(t)
	k := New[T]()
	for range testkit.Short(500) {
		m, n := sizes[rng.IntN(len(sizes))], sizes[rng.IntN(len(sizes))]
		a, x, y := random[T](rng, m, n), vector[T](rng, n), vector[T](rng, m)
		alpha, beta := T(rng.Float64()), T(rng.IntN(3)-1)
		about := fmt.Sprintf("%d×%d, strides %d and %d, β %v", m, n, a.Down, a.Right, beta)
		got := append([]T(nil), y...)
		if beta == 0 {
			got[m-1] = T(math.NaN())
		}
		k.MatrixVector(alpha, a, x, beta, got)
		for i, v := range got {
			sum, size := float64(beta)*float64(y[i]), math.Abs(float64(y[i]))
			for j := range n {
				term := float64(alpha) * float64(a.at(i, j)) * float64(x[j])
				sum += term
				size += math.Abs(term)
			}
			if !(math.Abs(float64(v)-sum) <= float64(n+4)*epsilon*size) {
				t.Fatalf("product, %s: element %d is %v, want %v", about, i, v, sum)
			}
		}
		if a.Right == 1 {
			outer := clone(a)
			k.Outer(alpha, y, x, outer.Data, outer.Down)
			checkUntouched(t, outer, a)
			for i := range m {
				for j := range n {
					want := float64(a.at(i, j)) + float64(alpha)*float64(y[i])*float64(x[j])
					if diff := math.Abs(float64(outer.at(i, j)) - want); !(diff <= 4*epsilon) {
						t.Fatalf("outer product, %s: element (%d, %d) is %v, want %v", about, i, j, outer.at(i, j), want)
					}
				}
			}
		}
		testVectorTriangles(t, k, rng, min(m, n), a, about, epsilon)
	}
}

// TestFinishedSums checks that alpha multiplies finished sums of a matrix with contiguous columns.
// The sum of the first columns times alpha overflows.
func TestFinishedSums(t *testing.T) {
	const rows, cols = 19, 21
	k := New[float64]()
	a := Matrix[float64]{make([]float64, rows*cols), rows, cols, 1, rows}
	x := make([]float64, cols)
	for i := range a.Data {
		a.Data[i] = 1
	}
	for j := range x {
		x[j] = float64(1 - 2*(j/(cols/2+1))) // 11 times 1 and 10 times -1
	}
	for _, alpha := range []float64{0x1p1022, -0x1p1022, math.Inf(1)} {
		for _, beta := range []float64{0, 1, -2} {
			y := vector[float64](testrand.New(t), rows)
			want := make([]float64, rows)
			for i, v := range y {
				want[i] = alpha + beta*v
			}
			k.MatrixVector(alpha, a, x, beta, y)
			if !slices.Equal(y, want) {
				t.Errorf("α %v, β %v: y is %v, want %v", alpha, beta, y, want)
			}
		}
	}
}

// testVectorTriangles makes a triangle of the first n rows and columns of a, with NaNs outside.
func testVectorTriangles[T Float](t *testing.T, k *Kernels[T], rng *rand.Rand, n int, a Matrix[T], about string,
	epsilon float64) {
	lower, unit := rng.IntN(2) == 0, rng.IntN(2) == 0
	a.Rows, a.Cols = n, n
	for i := range n {
		for j := range n {
			switch at := &a.Data[i*a.Down+j*a.Right]; {
			case i == j && !unit:
				*at += 2
			case i == j || (j < i) != lower:
				*at = T(math.NaN())
			default:
				*at /= T(n)
			}
		}
	}
	x := vector[T](rng, n)
	for name, run := range map[string]func(x []T, asMatrix Matrix[T]){
		"solve": func(x []T, m Matrix[T]) {
			k.SolveVector(a, lower, unit, x)
			k.Solve(1, a, lower, unit, m)
		},
		"multiply": func(x []T, m Matrix[T]) {
			k.MultiplyVector(a, lower, unit, x)
			k.Multiply(1, a, lower, unit, m)
		},
	} {
		got, want := append([]T(nil), x...), append([]T(nil), x...)
		run(got, Matrix[T]{Data: want, Rows: n, Cols: 1, Down: 1, Right: 1})
		for i, v := range got {
			if diff := math.Abs(float64(v - want[i])); !(diff <= 100*float64(n)*epsilon) {
				t.Fatalf("%s, %s, lower %v, unit %v: element %d is %v, want %v", name, about, lower, unit, i, v, want[i])
			}
		}
	}
}

// vector returns n random elements.
func vector[T Float](rng *rand.Rand, n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = T(2*rng.Float64() - 1)
	}
	return v
}
