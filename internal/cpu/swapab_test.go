package cpu

import (
	"math/rand/v2"
	"testing"

	"tilework/dtype"
)

// TestTallProducts checks that a tall C with A transposed is computed as its transpose: along its
// columns if they are few, and in tiles where each step along K reads another page of A.
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
				shape [3]int
				want  algorithm // with A transposed
			}{
				{[3]int{300, 1, 1}, algoAxpySwapAB}, {[3]int{300, 1, 9}, algoAxpySwapAB},
				{[3]int{2000, 1, 31}, algoAxpySwapAB}, {[3]int{2003, 2, 7}, algoAxpySwapAB},
				{[3]int{1100, 3, 300}, algoAxpySwapAB}, {[3]int{1100, 17, 300}, algoDirectSwapAB},
				{[3]int{130, 1, 9}, algoAxpySwapAB}, {[3]int{120, 1, 9}, algoDirect}, {[3]int{250, 2, 7}, algoDirect},
				{[3]int{1100, 17, 30}, algoDirect}, {[3]int{2000, 8, 30}, algoDirect},
			} {
				for trans := range 4 {
					p, b := thinProblem(t, rng, typ, typ, s.shape, trans)
					got := checkAgainstNaive(t, k, &p, b, 1+rng.IntN(3))
					if p.A().Trans && got != s.want {
						t.Errorf("%s: %v: %v, want %v", k.Name, &p, got, s.want)
					}
				}
			}
		}
	}
}
