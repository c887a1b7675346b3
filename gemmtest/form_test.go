package gemmtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// TestFewForms checks that Options.FewForms limits the number of forms, however many cases there
// are, that each check has cases of each type, and that the forms depend on the seed.
func TestFewForms(t *testing.T) {
	const kinds = 4 // of forms: plain, epilogue, scales and batch
	types := len((&Options{}).fewPairs(Pairs()))
	all := map[string]bool{}
	const seeds = 4
	rng := testrand.New(t)
	for range seeds {
		seed := rng.Uint64()
		for _, volume := range []int{defaultVolume, 1000} {
			var mu sync.Mutex
			forms := map[string]bool{}
			count := func(p *Problem) {
				mu.Lock()
				defer mu.Unlock()
				forms[formOf(p)] = true
			}
			impl := declared(func(ctx context.Context, p *Problem, b Buffers) error {
				count(p)
				return new(plain).multiply(ctx, p, b)
			})
			impl.Volume = volume
			batch := new(plain).batch(offsets)
			impl.Batch = func(ctx context.Context, p *Problem, ends []int32, b Buffers) error {
				count(p)
				return batch(ctx, p, ends, b)
			}
			r := Check(t.Context(), impl, Options{Cases: 300, Seed: seed, FewForms: true})
			if err := r.Err(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			for _, c := range r.Checks {
				if c.Name != "refuse" && c.Cases < types {
					t.Errorf("seed %d: check %s has %d cases, want one for each of %d types", seed, c.Name, c.Cases, types)
				}
				if c.Name == "exact" && c.Cases != 300 {
					t.Errorf("seed %d: %d cases of check exact, want 300", seed, c.Cases)
				}
			}
			if len(forms) > kinds*types {
				t.Errorf("seed %d: %d forms, want at most %d", seed, len(forms), kinds*types)
			}
			for f := range forms {
				all[f] = true
			}
		}
	}
	if len(all) < 2*kinds*types {
		t.Errorf("%d forms of %d seeds, want different ones for different seeds", len(all), seeds)
	}
}

// formOf describes the properties for which a GPU kernel is compiled. Of sizes, leading dimensions
// and strides these are the numbers of elements that one instruction can move. The sides of block
// scales are missing, because a single row is also a block of rows.
func formOf(p *Problem) string {
	s := fmt.Sprint(p.In(), p.Out(), p.A().Trans, p.B().Trans, p.Epilogue, p.Batch.Kind, p.BlockScaled())
	for _, o := range []gemm.Operand{gemm.A, gemm.B, gemm.C, gemm.Up, gemm.Residual} {
		if l := p.Layouts[o]; p.Uses(o) {
			s += fmt.Sprint(o, movable(l.LD), movable(l.LD|l.Cols))
		}
	}
	for _, n := range p.Batch.Stride {
		s += fmt.Sprint(movable(n | vector)) // a stride of 0 is aligned too
	}
	return s
}

// movable returns the largest power of two that divides n, at most the elements of a vector.
func movable(n int) int { return min(n&-n-1, vector-1) + 1 }

// TestFewPairs checks that every type of operands has one pair for each kind of arithmetic, and
// that each pair is selected by some seed.
func TestFewPairs(t *testing.T) {
	seen := map[Pair]bool{}
	for seed := range uint64(100) {
		kinds := map[string]int{}
		for _, p := range (&Options{Seed: seed}).fewPairs(Pairs()) {
			seen[p] = true
			kinds[fmt.Sprint(p.In, p.integer())]++
		}
		for _, p := range Pairs() {
			if n := kinds[fmt.Sprint(p.In, p.integer())]; n != 1 {
				t.Errorf("seed %d: %d pairs like %v, want 1", seed, n, p)
			}
		}
	}
	if len(seen) != len(Pairs()) {
		t.Errorf("100 seeds select %d of %d pairs", len(seen), len(Pairs()))
	}
}

// TestZerosAreExact checks that products with zero points whose elements are compared exactly are
// exact, so that float32 sums with a rounding more or less have the same bits: with seeds whose
// elements did not fit, and with others.
func TestZerosAreExact(t *testing.T) {
	rng := testrand.New(t)
	seeds := []uint64{16351542907458316179, 4650382004397210183}
	for range 10 {
		seeds = append(seeds, rng.Uint64())
	}
	impl := declared(new(plain).multiply)
	for _, seed := range seeds {
		for _, few := range []bool{false, true} {
			if err := Check(t.Context(), impl, Options{Cases: 200, Only: "zeros", Seed: seed, FewForms: few}).Err(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
}
