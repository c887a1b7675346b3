package cpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit/testrand"
)

// TestTallProducts compares every method for a tall C with the naive loop. If A is transposed, the
// transposed product may be computed, along its rows or in tiles.
func TestTallProducts(t *testing.T) {
	rng := testrand.New(t)
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64} {
		for _, shape := range [][3]int{{300, 1, 1}, {300, 1, 9}, {2003, 2, 7}, {1100, 3, 300}, {1100, 17, 300},
			{250, 2, 7}, {1100, 17, 30}, {2000, 8, 30}} {
			for trans := range 4 {
				p, b := thinProblem(t, rng, typ, typ, shape, trans)
				want := naiveC(t, &p, b)
				for _, k := range kernelsFor(typ) {
					checkMethods(t, k, &p, b, want, 1+rng.IntN(3), nil)
				}
			}
		}
	}
}
