package dot

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu/internal/number"
)

// TestMultiply checks that each element of a product of matrices has the bits of Element, for every
// unit, and with rows of zeros, infinities and NaNs.
func TestMultiply(t *testing.T) {
	rng := testrand.New(t)
	for _, in := range []*number.Format{number.F16, number.BF16, number.E4M3, number.TF32} {
		for _, out := range []*number.Format{number.F32, number.F16} {
			for _, unit := range []Unit{Aligned, TwoSums, Short, Blackwell} {
				p := &Product{Unit: unit, A: in, B: in, Result: out}
				for i := range 40 {
					p.compareElements(t, rng, i%2 == 0, i%4 < 2)
				}
			}
		}
	}
}

// compareElements compares a random product with its elements.
func (p *Product) compareElements(t *testing.T, rng *rand.Rand, nearest, finite bool) {
	t.Helper()
	const m, n, k = 4, 5, 32
	a, b, c := drawRows(rng, p.A, m, k, finite), drawRows(rng, p.B, n, k, finite), drawRows(rng, p.Result, m, n, finite)
	got := slices.Clone(c)
	p.Multiply(nearest, a, b, k, got)
	for i, x := range c {
		want := p.Element(nearest, a[i/n*k:][:k], b[i%n*k:][:k], x)
		if math.Float64bits(got[i]) != math.Float64bits(want) && (got[i] == got[i] || want == want) {
			t.Fatalf("%+v, nearest %v: element %d is %v, want %v", *p, nearest, i, got[i], want)
		}
	}
}

// drawRows returns a matrix of random elements in which about half of the rows are zero.
func drawRows(rng *rand.Rand, f *number.Format, rows, cols int, finite bool) []float64 {
	values := make([]float64, rows*cols)
	for row := range rows {
		if rng.IntN(2) == 0 {
			continue
		}
		for i := range cols {
			v := f.Decode(rng.Uint64() & (1<<f.Bits - 1))
			if finite && v-v != 0 {
				v = math.Copysign(0, -1)
			}
			values[row*cols+i] = v
		}
	}
	return values
}
