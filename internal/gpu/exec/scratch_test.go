package exec

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit/testrand"
)

// TestScratchBytes enqueues random products in scratch memory, and compares the bytes that their
// launches take with ScratchBytes.
func TestScratchBytes(t *testing.T) {
	rng := testrand.New(t)
	d := devicetest.NewNull()
	d.Device.Target.Suffix, d.Device.SMs, d.Device.MaxShared = "a", 132, 227<<10
	b := New(d)
	used, planned := 0, 0
	for range 200 {
		in := []dtype.Type{dtype.F32, dtype.BF16, dtype.I8, dtype.F8E4M3, dtype.F64}[rng.IntN(5)]
		side := func() int { return 1 + rng.IntN([]int{2, 40, 300}[rng.IntN(3)]) }
		m, n, k := side(), side(), side()
		layout := func(rows, cols int) gemm.Layout {
			if rng.IntN(2) == 0 {
				return gemm.Dense(in, cols, rows).T()
			}
			return gemm.Dense(in, rows, cols)
		}
		results := in.Info().Results
		e := gemm.Epilogue{Gated: in == dtype.BF16 && rng.IntN(4) == 0}
		p, _, err := gemm.New(1, layout(m, k), layout(k, n), 0, gemm.Dense(results[rng.IntN(len(results))], m, n), e)
		if err != nil {
			t.Fatal(err)
		}
		if e.Gated {
			p.Layouts[gemm.Up] = p.Layouts[gemm.B]
		}
		if in == dtype.F32 {
			all := gemm.Precisions()
			if q, err := p.WithPrecision(all[rng.IntN(len(all))]); err == nil {
				p = q
			}
		}
		pl, err := b.Plan(&p, Options{})
		if err != nil {
			continue
		}
		planned++
		const base = 1 << 40
		placed := pl.InScratch(base)
		var memory kernel.Memory
		for o := range gemm.Operands {
			if p.Uses(o) {
				memory[o] = base / 2
			}
		}
		if err := placed.Enqueue(t.Context(), memory); err != nil {
			t.Fatalf("%v: %v", &p, err)
		}
		want := pl.ScratchBytes()
		if got := int(placed.scratch.next - base); got != want || (want > 0) != pl.UsesScratch() {
			t.Errorf("%v with %s %v: takes %d bytes, ScratchBytes returns %d, UsesScratch %v", &p, pl.Kernel.Name, &pl.Config,
				got, want, pl.UsesScratch())
		}
		if want > 0 {
			used++
		}
	}
	if planned < 100 || used < 5 {
		t.Errorf("planned %d products, %d with scratch memory, want at least 100 and 5", planned, used)
	}
}
