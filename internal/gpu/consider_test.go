package gpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

// cramped is a device with next to no shared memory.
type cramped struct {
	device.Device
	info device.Info
}

func (d *cramped) Info() *device.Info { return &d.info }

// TestConsidered: what is chosen is what a plan has, all else has its reason, and what
// tuning is to measure is the chosen one and some others.
func TestConsidered(t *testing.T) {
	e, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tight := &cramped{e, *e.Info()}
	tight.info.MaxShared = 40 << 10
	for _, d := range []device.Device{e, tight} {
		b := stream.New(d)
		for _, c := range []struct {
			in      dtype.Type
			m, n, k int
		}{
			{dtype.F32, 4096, 4096, 4096}, {dtype.F32, 16, 4096, 4096}, {dtype.F32, 1, 1, 1}, {dtype.F64, 300, 300, 300},
			{dtype.F16, 64, 64, 64}, {dtype.I8, 128, 96, 1000}, {dtype.F32, 0, 5, 5},
		} {
			out := c.in.Info().Results[0]
			p, _, err := gemm.New(1, gemm.Dense(c.in, c.m, c.k), gemm.Dense(c.in, c.k, c.n), 0, gemm.Dense(out, c.m, c.n), gemm.Epilogue{})
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%v in %d bytes of shared memory", &p, d.Info().MaxShared)
			plan, err := b.Plan(&p, exec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := choose.Considered{Kernel: plan.Kernel.Name, Shape: plan.Config.Tile}.Spec()
			q := exec.OnDevice(&p, false)
			considered, candidates := choose.List(&q, kernel.Align{}, b.Info()), choose.Candidates(&q, kernel.Align{}, b.Info(), false)
			if in := specs(considered); len(in) != 1 || in[0] != want {
				t.Errorf("%s: considered, and chose %v; planned %s", what, in, want)
			}
			if in := specs(candidates); len(in) == 0 || in[0] != want || len(in) > 40 {
				t.Errorf("%s: %d candidates, not from %s on: %v", what, len(in), want, in)
			} else {
				for _, spec := range in {
					kernel, shape, _ := strings.Cut(spec, ":")
					if _, err := b.Plan(&p, exec.Options{Kernel: kernel, Shape: shape}); err != nil {
						t.Errorf("%s: candidate %s: %v", what, spec, err)
					}
				}
			}
			everything := choose.Candidates(&q, kernel.Align{}, b.Info(), true)
			if in := specs(everything); len(in) < len(specs(candidates)) || !strings.HasPrefix(in[len(in)-1], "naive:") {
				t.Errorf("%s: everything is %v", what, in)
			}
			for _, x := range slices.Concat(considered, candidates, everything) {
				if x.Why == "" {
					t.Errorf("%s: %s without a reason", what, x.Spec())
				}
			}
		}
	}
}

func specs(all []choose.Considered) []string {
	var in []string
	for _, c := range all {
		if c.In {
			in = append(in, c.Spec())
		}
	}
	return in
}

// TestReasoning: the text has the choice, every rule, and not a line for everything.
func TestReasoning(t *testing.T) {
	e, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := testkit.Product(t, dtype.F32, dtype.F32, 16, 4096, 4096)
	all := choose.List(p, kernel.Align{}, e.Info())
	text := choose.Reasoning(all)
	for _, want := range []string{
		"kernel mma multiplies no float32", "+ blocked:16x128x16", "predicted to take the fewest cycles", "× the cycles of the chosen one",
		"- blocked: ", " more cycles than the chosen one, from ", "- naive", "slower than blocked, which can compute it",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n > 12 || n >= len(all) {
		t.Errorf("%d lines for %d ways:\n%s", n, len(all), text)
	}
}
