package resident

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/split"
)

var (
	coefficients = flag.String("coefficients", "NVIDIA A100", "the GPU whose coefficients TestGPUTrials predicts with")
	layers       = flag.Int("layers", 4, "the number of layers of TestGPUTrials")
	layerSeed    = flag.Uint64("layer-seed", 1, "the seed of the layers of TestGPUTrials")
	layerType    = flag.String("layer-type", "bfloat16", "the type of the layers of TestGPUTrials")
)

// renamed is a GPU with the name of another model, whose coefficients predict its times.
type renamed struct {
	device.Device
	info device.Info
}

func (d *renamed) Info() *device.Info { return &d.info }

// TestGPUTrials repeats layers of networks on a GPU of this machine, with kernels chosen by the
// coefficients of another GPU. It checks that all calls have the same bits, and reports the loss of
// the default choice and of the choice after 20 calls, relative to the fastest of all candidates
// whose predicted time is at most 1.5 times that of the default one.
func TestGPUTrials(t *testing.T) {
	t.Cleanup(tuned.Substitute(nil))
	restore := gpu.Substitute(func(name backend.DeviceName) (device.Device, error) {
		d, err := cuda.Open(name.Index)
		if err != nil {
			return nil, err
		}
		x := &renamed{d, *d.Info()}
		x.info.Name = *coefficients
		return x, nil
	})
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	d := openGPU(t, backend.DeviceName{Kind: backend.GPU})
	d.timed = true
	kind, err := dtype.Parse(*layerType)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := bench.Suite(bench.ModelSuite, bench.Draw{Seed: *layerSeed, Count: *layers, Type: kind})
	if err != nil {
		t.Fatal(err)
	}
	before, after := 0., 0.
	for i, s := range samples {
		x := layerTrial{GPUs: d, sample: s, kind: kind}
		if err := x.run(t.Context(), uint64(i)); err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		t.Logf("%-28s %-34s %s: %.1f%%; after 20 calls %s: %.1f%%; best of %d %s: %v; longest call %v", s.Shape, s.Why,
			x.standard.Spec(), 100*x.loss(x.standard), x.found.Spec(), 100*x.loss(x.found), len(x.times), x.best,
			x.times[x.best], x.longest)
		before, after = before+x.loss(x.standard), after+x.loss(x.found)
	}
	n := float64(len(samples))
	t.Logf("with the coefficients of %s, %d layers lose %.1f%% in the mean, and %.1f%% after 20 calls", *coefficients,
		len(samples), 100*before/n, 100*after/n)
}

// layerTrial repeats a layer and measures its candidates.
type layerTrial struct {
	*GPUs
	sample bench.Sample
	kind   dtype.Type

	standard, found *exec.Plan
	times           map[string]time.Duration // of the candidates
	best            string
	longest         time.Duration // on the host, of the calls after the first one
}

// loss returns by how much of the best time a plan takes longer.
func (x *layerTrial) loss(pl *exec.Plan) float64 {
	return float64(x.times[pl.Spec()])/float64(x.times[x.best]) - 1
}

// run makes the calls of trials, with a pause for the compiler, and compares the bits of the first
// and the last.
func (x *layerTrial) run(ctx context.Context, seed uint64) (err error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	host, err := x.sample.Problem(x.kind, x.kind.Info().Results[0])
	if err != nil {
		return err
	}
	p := product(1, 0, nil)
	for o := range gemm.C + 1 {
		l := host.Layout(o)
		m, err := New(x.GPUs, l, split.Rows)
		if err != nil {
			return err
		}
		defer func() { err = device.Join(err, m.Memory.Close()) }()
		m.Layout.Trans = l.Trans
		if err := m.CopyIn(ctx, someElements(rng, l.Type, l.Len()), l); err != nil {
			return err
		}
		p.Operands[o].On = m
	}
	if err := p.complete(); err != nil {
		return err
	}
	if x.standard, _, err = PlanOf(p); err != nil {
		return err
	}
	untried := *p
	untried.Kernel = backend.DefaultKernel
	if err := Gemm(ctx, &untried); err != nil {
		return err
	}
	var bits [2][]byte // of the first call and of the last one
	for n := range trialCalls {
		if err := x.call(ctx, p, n > 0); err != nil {
			return err
		}
		switch n {
		case 1:
			err = x.compile(ctx, &untried)
		case trialCalls - 2:
			err = x.Sync(ctx) // so that the last call reads all events
		case 0, trialCalls - 1:
			got := make([]byte, p.c().Layout.Bytes())
			err = p.c().CopyOut(ctx, got, p.c().Layout)
			bits[min(n, 1)] = got
		}
		if err != nil {
			return err
		}
	}
	if !slices.Equal(bits[0], bits[1]) {
		return fmt.Errorf("the last call has other bits than the first one")
	}
	if x.found, _, err = PlanOf(p); err != nil {
		return err
	}
	return p.with(func(q planned) error { return x.measure(ctx, q.memory) })
}

// call makes a call, which may be the longest one.
func (x *layerTrial) call(ctx context.Context, p *Job, counts bool) error {
	start := time.Now()
	err := Gemm(ctx, p)
	if counts {
		x.longest = max(x.longest, time.Since(start))
	}
	return err
}

// compile waits until the candidates are compiled, and calls p in the meantime.
func (x *layerTrial) compile(ctx context.Context, p *Job) error {
	done := make(chan struct{})
	go func() {
		x.trials.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			return nil
		default:
		}
		if err := device.Join(x.call(ctx, p, true), x.Sync(ctx)); err != nil {
			return err
		}
	}
}

// measure times all candidates near the default one.
func (x *layerTrial) measure(ctx context.Context, m kernel.Memory) error {
	var plans []*exec.Plan
	for _, c := range choose.Near(x.standard.Candidates(), 1.5) {
		pl, err := x.standard.With(&c)
		if err != nil {
			return err
		}
		plans = append(plans, pl)
	}
	if !slices.ContainsFunc(plans, func(pl *exec.Plan) bool { return pl.Spec() == x.found.Spec() }) {
		plans = append(plans, x.found) // with parts of K in an order of its own
	}
	if err := device.Join(exec.CompileAll(ctx, plans)...); err != nil {
		return err
	}
	const rounds, repetitions = 5, 10
	x.times = map[string]time.Duration{}
	on := x.first().Device
	for range rounds {
		for _, pl := range plans {
			from, err := on.Record()
			if err != nil {
				return err
			}
			for range repetitions {
				if err := pl.Enqueue(ctx, m); err != nil {
					return err
				}
			}
			to, err := on.Record()
			if err != nil {
				return err
			}
			took, err := to.Since(ctx, from)
			if err = device.Join(err, from.Free(), to.Free()); err != nil {
				return err
			}
			took /= repetitions
			if known := x.times[pl.Spec()]; known == 0 || took < known {
				x.times[pl.Spec()] = took
			}
			if least := x.times[x.best]; least == 0 || took < least {
				x.best = pl.Spec()
			}
		}
	}
	return nil
}
