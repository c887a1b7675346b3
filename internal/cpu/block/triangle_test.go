package block

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// sizes are numbers of rows and columns around the sizes of tiles, up to MaxSize.
var sizes = []int{1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 16, 23, 24, 31, 32, 33, 50, 64, 100, 128, 200, 255, MaxSize}

func TestTriangles(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testTriangles[float32](t, 0x1p-23) })
	t.Run("float64", func(t *testing.T) { testTriangles[float64](t, 0x1p-52) })
}

// testTriangles compares products with triangles with sums in float64, and checks the residuals of
// solutions. Elements outside the triangle and between the rows of B are NaNs.
func testTriangles[T Float](t *testing.T, epsilon float64) {
	rng := testrand.New(t)
	k := New[T]()
	for range testkit.Short(150) {
		n, cols := sizes[rng.IntN(len(sizes))], sizes[rng.IntN(len(sizes))]
		lower, unit, alpha := rng.IntN(2) == 0, rng.IntN(2) == 0, T(rng.Float64())
		a, b := random[T](rng, n, n), random[T](rng, n, cols)
		isStored := func(i, j int) bool { return i == j && !unit || i != j && (j < i) == lower }
		element := func(i, j int) float64 {
			switch {
			case isStored(i, j):
				return float64(a.at(i, j))
			case i == j:
				return 1
			}
			return 0
		}
		for i := range n {
			for j := range n {
				if at := &a.Data[i*a.Down+j*a.Right]; !isStored(i, j) {
					*at = T(math.NaN())
				} else if i == j {
					*at += 2
				} else {
					*at /= T(n)
				}
			}
		}
		for name, run := range map[string]func(b Matrix[T]){
			"solve":    func(b Matrix[T]) { k.Solve(alpha, a, lower, unit, b) },
			"multiply": func(b Matrix[T]) { k.Multiply(alpha, a, lower, unit, b) },
		} {
			x := clone(b)
			run(x)
			from, to := b, x // to is α·A·from
			if name == "solve" {
				from, to = x, b
			}
			about := fmt.Sprintf("%s, %d×%d, lower %v, unit %v, strides of A %d and %d, of B %d and %d", name, n, cols,
				lower, unit, a.Down, a.Right, b.Down, b.Right)
			for i := range n {
				for j := range cols {
					sum, size := 0.0, 0.0
					for p := range n {
						term := element(i, p) * float64(from.at(p, j))
						sum += term
						size += math.Abs(term)
					}
					got, want := float64(to.at(i, j)), float64(alpha)*sum
					size *= float64(alpha)
					if name == "solve" {
						got, want = float64(alpha)*got, sum
						size = max(size/float64(alpha), math.Abs(got))
					}
					if !(math.Abs(got-want) <= float64(n+4)*epsilon*size) {
						t.Fatalf("%s: row %d, column %d: %g, want %g", about, i, j, got, want)
					}
				}
			}
			checkUntouched(t, x, b)
		}
	}
}

// at returns element (i, j).
func (m Matrix[T]) at(i, j int) T { return m.Data[i*m.Down+j*m.Right] }

// random returns a matrix of random elements, stored by rows or by columns. The elements between
// them are NaNs.
func random[T Float](rng *rand.Rand, rows, cols int) Matrix[T] {
	m := Matrix[T]{Rows: rows, Cols: cols, Down: cols + rng.IntN(5), Right: 1}
	size := (rows-1)*m.Down + cols
	if rng.IntN(2) == 0 {
		m.Down, m.Right = 1, rows+rng.IntN(5)
		size = (cols-1)*m.Right + rows
	}
	m.Data = make([]T, size)
	for i := range m.Data {
		m.Data[i] = T(math.NaN())
	}
	for i := range rows {
		for j := range cols {
			m.Data[i*m.Down+j*m.Right] = T(2*rng.Float64() - 1)
		}
	}
	return m
}
