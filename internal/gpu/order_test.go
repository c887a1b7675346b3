package gpu_test

import (
	"math/rand/v2"
	"testing"

	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestSameOrder checks that all candidates that add in the order of a plan have its bits, epilogue
// included, for each type and kernel and also with K in many parts, and so have those of other
// kernels that [exec.Plan.SameBits] lists. Candidates of other orders must differ at times, or the
// test would show nothing. Plans whose schedules copy slices of K are left out: each slice is a
// product of its own. With testkit.Full, there are twice as many candidates
// and products with a long K.
func TestSameOrder(t *testing.T) {
	t.Parallel()
	rng := testrand.New(t)
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := stream.New(d)
	same, across, others, different, shared, slices, candidates := 0, 0, 0, 0, 0, 0, testkit.Cases(2, 4)
	for _, typ := range rowsTypes {
		for _, k := range choose.Kernels() {
			for i := range testkit.Cases(2, 3) {
				depth := 1 + rng.IntN(1<<(5+rng.IntN(7)))
				if i == 0 && rng.IntN(testkit.Cases(2, 1)) == 0 {
					depth += 1000
				}
				x := newRowsCase(rng, typ.in, typ.out, typ.precision, 1+rng.IntN(40), depth, drawEpilogue(rng, typ.out))
				p := x.problem(t, rng, 1+rng.IntN(x.rows))
				p.Invariance = gemm.NotInvariant
				s := k.Tiles[rng.IntN(len(k.Tiles))]
				if k.SplitsK && s.ClusterK < 2 {
					s.SplitK = []int{9, 2, 17, 0}[min(i, 1)*rng.IntN(4)]
				}
				pl, err := b.Backend.Plan(&p, exec.Options{Kernel: k.Name, Tile: s.String(), KeepLayout: true})
				if err != nil {
					continue
				}
				run := func(c *choose.Candidate) (result []byte, ok bool) {
					opt := exec.Options{Kernel: c.Kernel.Name, Tile: c.Config.Tile.String(), KeepLayout: true}
					if hasSlices(t, b, &p, opt) {
						slices++
						return nil, false
					}
					return x.compute(t, b, &p, 0, opt), true
				}
				want, ok := run(&choose.Candidate{Kernel: k, Config: pl.Config})
				if !ok {
					continue
				}
				all := pl.SameOrder(p.M, p.N)
				for _, c := range some(rng, all, candidates) {
					if c.Kernel != k {
						t.Errorf("%v: kernel %s instead of %s", &p, c.Kernel.Name, k.Name)
					}
					got, ok := run(&c)
					if !ok {
						continue
					}
					if same++; firstDifference(got, want, x.out) >= 0 {
						t.Errorf("%v, K %d: %s has not the bits of %s", &p, p.K, c.Spec(), pl.Spec())
					}
				}
				for _, c := range some(rng, pl.SameBits(), candidates) {
					got, ok := run(&c)
					if !ok || c.Kernel == k {
						continue
					}
					if across++; firstDifference(got, want, x.out) >= 0 {
						t.Errorf("%v, K %d: %s has not the bits of %s", &p, p.K, c.Spec(), pl.Spec())
					}
				}
				o, ok := k.Order(&p, pl.Config.Tile, d.Info().Target.SM)
				if o.Shares > 0 && len(all) > 1 {
					shared++
				}
				for _, c := range some(rng, choose.CandidatesOf(k, &p, kernel.Align{}, d.Info()), candidates) {
					other, otherOK := k.Order(&p, c.Config.Tile, d.Info().Target.SM)
					if c.Rejected != nil || !ok || !otherOK || other == o {
						continue
					}
					if got, ok := run(&c); ok {
						others++
						if firstDifference(got, want, x.out) >= 0 {
							different++
						}
					}
				}
			}
		}
	}
	t.Logf("%d candidates of the same order, %d of other kernels, %d products with shared parts; %d of other orders, "+
		"%d with other bits; %d in slices of K", same, across, shared, others, different, slices)
	if same == 0 || across == 0 || shared == 0 || different == 0 {
		t.Error("too few candidates")
	}
}

// hasSlices reports whether the schedule of p with options opt copies slices of K.
func hasSlices(t *testing.T, b *stream.Backend, p *gemm.Problem, opt exec.Options) bool {
	t.Helper()
	pl, err := b.Plan(p, opt)
	if err != nil {
		t.Fatal(err)
	}
	return pl.Order() != pl.Plan.Order()
}

// some returns up to n random elements.
func some[T any](rng *rand.Rand, all []T, n int) []T {
	rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:min(n, len(all))]
}
