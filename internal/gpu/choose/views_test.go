package choose_test

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
	"tilework/internal/testkit/testrand"
)

// cramped is a device with little shared memory.
type cramped struct {
	device.Device
	info device.Info
}

func (d *cramped) Info() *device.Info { return &d.info }

// TestViews checks that a plan has the candidate that [choose.Considered] keeps, that tuning
// measures it and some others, and that every candidate can be planned or has a reason.
func TestViews(t *testing.T) {
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
			p := testkit.Product(t, c.in, c.in.Info().Results[0], c.m, c.n, c.k)
			what := fmt.Sprintf("%v in %d bytes of shared memory", p, d.Info().MaxShared)
			plan, err := b.Plan(p, exec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := plan.Kernel.Name + ":" + plan.Config.Tile.String()
			q := exec.OnDevice(p, false)
			all := choose.Candidates(&q, kernel.Align{}, b.Info())
			considered, measurable := choose.Considered(all), choose.Measurable(all)
			if kept := specs(considered); !slices.Equal(kept, []string{want}) {
				t.Errorf("%s: considered and kept %v, planned %s", what, kept, want)
			}
			if kept := specs(measurable); len(kept) == 0 || kept[0] != want || len(kept) > 40 {
				t.Errorf("%s: %d candidates to measure, want up to 40 from %s on: %v", what, len(kept), want, kept)
			}
			for _, spec := range specs(all) {
				name, tile, _ := strings.Cut(spec, ":")
				if _, err := b.Plan(p, exec.Options{Kernel: name, Tile: tile}); err != nil {
					t.Errorf("%s: candidate %s: %v", what, spec, err)
				}
			}
			if len(considered) != len(all) || len(measurable) != len(all) {
				t.Errorf("%s: %d candidates, %d considered, %d to be measured or not", what, len(all), len(considered),
					len(measurable))
			}
		}
	}
}

// TestCandidatesByName checks that each candidate for random products is the choice for its name,
// with the same configuration and predicted time.
func TestCandidatesByName(t *testing.T) {
	rng := testrand.New(t)
	for range testkit.Cases(20, 200) {
		side := func(bits int) int { return 1 + rng.IntN(1<<rng.IntN(bits)) }
		in := []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I8, dtype.F8E4M3}[rng.IntN(5)]
		p := *testkit.Product(t, in, in.Info().Results[0], side(13), side(13), side(15))
		p.Invariance = []gemm.Invariance{gemm.NotInvariant, gemm.InvariantRows}[rng.IntN(2)]
		for _, c := range choose.Candidates(&p, kernel.Align{}, h200) {
			if c.Rejected != nil {
				continue
			}
			name, tile, _ := strings.Cut(c.Spec(), ":")
			got, err := choose.Named(name, tile, &p, kernel.Align{}, h200)
			if err != nil || got.Config != c.Config || got.Cycles != c.Cycles {
				t.Errorf("%v, candidate %s: %v in %g cycles, %v; want %v in %g cycles", &p, c.Spec(), got.Config, got.Cycles, err,
					c.Config, c.Cycles)
			}
		}
	}
}

// specs returns the names of the candidates that are not rejected.
func specs(all []choose.Candidate) (names []string) {
	for _, c := range all {
		if c.Rejected == nil {
			names = append(names, c.Spec())
		}
	}
	return names
}

// TestReasoning checks that the text has the choice, every rule and fewer lines than there are
// candidates.
func TestReasoning(t *testing.T) {
	e, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := choose.Candidates(testkit.Product(t, dtype.F32, dtype.F32, 16, 4096, 4096), kernel.Align{}, e.Info())
	text := choose.Reasoning(choose.Considered(all))
	for _, want := range []string{
		"kernel mma multiplies float32 only in precision tf32", "+ blocked:16x128x16", "× the cycles of the chosen one",
		"- blocked: ", " more cycles than the chosen one, from ", "- naive", "- skinny:",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n > 12 {
		t.Errorf("%d lines for %d candidates:\n%s", n, len(all), text)
	}
}

// TestReasoningOfOrders checks that the text for a row-invariant product states that candidates are
// rejected for their order of summation.
func TestReasoningOfOrders(t *testing.T) {
	p := *testkit.Product(t, dtype.F32, dtype.F32, 16, 4096, 4096)
	p.Invariance = gemm.InvariantRows
	text := choose.Reasoning(choose.Considered(choose.Candidates(&p, kernel.Align{}, h200)))
	for _, want := range []string{
		"in a row-invariant product sums one product after the other: want one product after the other, in parts of",
		"- tiled: 3 more                    their order of summation is another one",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestNothingComputes checks that the error names the kernel that computes the product on another
// GPU.
func TestNothingComputes(t *testing.T) {
	p, err := testkit.Product(t, dtype.F32, dtype.F32, 64, 64, 64).WithPrecision(gemm.F32x3)
	if err != nil {
		t.Fatal(err)
	}
	_, err = choose.Best(&p, kernel.Align{}, a100)
	if err == nil || !strings.Contains(err.Error(), "kernel wgmma needs sm_90a") {
		t.Errorf("%v", err)
	}
}
