package choose

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// checkFloors checks that no candidate's predicted time is below its lower bound, and that Best
// chooses the fastest of all candidates.
func checkFloors(t *testing.T, p *gemm.Problem, a kernel.Align, d *device.Info) {
	t.Helper()
	all := Candidates(p, a, d)
	j := newJob(p, a, d)
	var shared *configs
	for i := range all {
		c := &all[i]
		if i == 0 || c.Kernel != all[i-1].Kernel {
			shared = rowsOf(c.Kernel)[0].configs(j)
		}
		if c.Rejected != nil {
			continue
		}
		if least := shared.least(c.Config.Tile); !(least <= c.Cycles) { // also if one is no number
			t.Errorf("%v on %d SMs: %s: %g cycles, with a lower bound of %g", p, d.SMs, c.Spec(), c.Cycles, least)
		}
	}
	want := Fastest(all)
	if want == nil {
		return
	}
	got, err := Best(p, a, d)
	if err != nil || got.Kernel != want.Kernel || got.Config != want.Config || got.Cycles != want.Cycles {
		t.Errorf("%v on %d SMs: chose %s, %v: want %s", p, d.SMs, got.Spec(), err, want.Spec())
	}
}

// TestFloorsOfMeasured checks the lower bounds for the products of testdata/times.
func TestFloorsOfMeasured(t *testing.T) {
	for _, file := range []string{"h100", "h200", "h200-models"} {
		for _, x := range readTimes(t, file) {
			checkFloors(t, &x.problem, kernel.Align{}, x.gpu)
		}
	}
}

// TestFloors checks the lower bounds for random products of all types, precisions and kinds of
// batches, with random layouts, alignments and epilogues, on GPUs of random sizes.
func TestFloors(t *testing.T) {
	rng := testrand.New(t)
	targets := []ptx.Target{{SM: 75}, {SM: 80}, {SM: 89}, {SM: 90, Suffix: "a"}, {SM: 90, Suffix: "a"}}
	var types []dtype.Type
	for _, in := range dtype.All() {
		if len(in.Info().Results) > 0 {
			types = append(types, in)
		}
	}
	side := func() int { return rng.IntN(1 << rng.IntN(16)) }
	layout := func(in dtype.Type, rows, cols int) gemm.Layout {
		l := gemm.Dense(in, rows, cols)
		if rng.IntN(2) == 0 {
			l = gemm.Dense(in, cols, rows).T()
		}
		if rng.IntN(2) == 0 {
			return gemm.Padded(l)
		}
		l.LD += rng.IntN(4) * rng.IntN(16)
		return l
	}
	for range testkit.Cases(1000, 50000) {
		in := types[rng.IntN(len(types))]
		out := in.Info().Results[rng.IntN(len(in.Info().Results))]
		m, n, k := side(), side(), side()
		var e gemm.Epilogue
		if rng.IntN(3) == 0 {
			e = gemm.Epilogue{Bias: gemm.BiasCol, Activation: gemm.ActReLU}
			if all := gemm.Activations(); !out.Info().Integer {
				e.Activation = all[rng.IntN(len(all))]
			}
		}
		p, _, err := gemm.New(complex(float64(rng.IntN(9)), 0), layout(in, m, k), layout(in, k, n), 0,
			gemm.Padded(gemm.Dense(out, m, n)), e)
		if err != nil {
			t.Fatal(err)
		}
		precisions := gemm.Precisions()
		if q, err := p.WithPrecision(precisions[rng.IntN(len(precisions))]); err == nil {
			p = q
		}
		switch rng.IntN(5) {
		case 0:
			stride := gemm.Strides{gemm.A: p.A().Len(), gemm.B: p.B().Len() * rng.IntN(2), gemm.C: p.C().Len()}
			if q, err := p.Strided(1+rng.IntN(64), gemm.Batch{Stride: stride}); err == nil {
				p = q
			}
		case 1:
			if q, err := p.Grouped(1+rng.IntN(16), p.B().Len()); err == nil {
				p = q
			}
		case 2:
			if rng.IntN(20) == 0 { // their order takes long to choose
				p.Invariance = gemm.InvariantRows
			}
		}
		var a kernel.Align
		if rng.IntN(3) == 0 {
			a[gemm.A], a[gemm.B], a[gemm.C] = 1<<rng.IntN(6), 1<<rng.IntN(6), 1<<rng.IntN(6)
		}
		checkFloors(t, &p, a, &device.Info{SMs: 1 + rng.IntN(200), MaxThreads: 1024, MaxShared: 227 << 10,
			Target: targets[rng.IntN(len(targets))]})
	}
}
