package cpu

import (
	"math/rand/v2"
	"testing"

	"tilework/dtype"
)

// TestTallProducts checks that a tall C with A transposed is computed as its transpose: where C has
// few columns, and where each step along K reads another page of A.
func TestTallProducts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, k := range Kernels() {
		if k.naive || !k.Available() {
			continue
		}
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64} {
			if !k.Multiplies(typ) || k.f32 != nil && len(k.f32.Direct) == 0 {
				continue
			}
			for _, s := range []struct {
				shape   [3]int
				swapped bool // with A transposed
			}{
				{[3]int{300, 1, 1}, true}, {[3]int{300, 1, 9}, true}, {[3]int{2000, 1, 31}, true},
				{[3]int{1100, 17, 300}, true}, {[3]int{1100, 17, 30}, false}, {[3]int{200, 1, 9}, false},
			} {
				for trans := range 4 {
					p, b := thinProblem(t, rng, typ, typ, s.shape, trans)
					algorithm := checkAgainstNaive(t, k, &p, b, 1+rng.IntN(3))
					if p.A().Trans && (algorithm == algoDirectSwapAB) != s.swapped {
						t.Errorf("%s: %v: %v, want the product of the transpose: %v", k.Name, &p, algorithm, s.swapped)
					}
				}
			}
		}
	}
}
