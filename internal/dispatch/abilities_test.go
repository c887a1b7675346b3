package dispatch

import (
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// abilities lists the abilities of a plan of p, besides running as a whole. It calls each method.
func abilities(t *testing.T, plan backend.Plan, p *gemm.Problem, b *gemm.Buffers) string {
	t.Helper()
	ctx := t.Context()
	var all []string
	add := func(name string, can bool) {
		if can {
			all = append(all, name)
		}
	}
	err := plan.Prepare(ctx)
	add("prepare", err == nil && plan.PrepareTime() > 0)
	called, reported := false, false
	tiles := plan.CallTile(func(_, _, _, _ int) { called = true })
	plan.ReportProgress(func(_, _ int64) { reported = true })
	if err := plan.Run(ctx, b); err != nil || tiles != called {
		t.Errorf("CallTile returned %v, the function was called: %v, error %v", tiles, called, err)
	}
	add("tiles", tiles)
	add("progress", reported)
	add("workers", plan.Workers() > 0)
	add("serial", plan.RunSerial(ctx, b) == nil)
	times, err := plan.RunBreakdown(ctx, b)
	add("breakdown", err == nil && len(times) > 0)
	other := *b
	other[gemm.C] = make([]byte, len(b[gemm.C]))
	add("batch", plan.RunBatch(ctx, "", []gemm.Buffers{*b, other}) == nil)
	add("groups", plan.RunGroups(ctx, "", b, [][]byte{b[gemm.B], b[gemm.B]}, []int32{8, int32(p.M)}) == nil)
	add("division", plan.Division(2) != "")
	add("order", plan.Order() != "")
	add("choice", plan.Choice() != backend.Choice{})
	q, _, err := p.Part(gemm.Area{Rows: 8, Cols: p.N}, b)
	if err != nil {
		t.Fatal(err)
	}
	part, err := plan.Part(&q, 0, 0)
	add("part", err == nil && part != nil)
	sums := make([]byte, p.M*p.N*p.ScaleType().Size())
	add("finish", plan.Finish(sums, *b))
	add("memory", plan.Memory() > 0)
	inGo := plan.KernelName() == "portable" || plan.KernelName() == "loop" // without predictions
	add("predicted", inGo || plan.Predicted(plan.Workers()) > 0)
	count, _ := plan.Reasoning()
	add("reasoning", count > 0)
	if can := slices.Contains(all, "batch"); can != plan.CanRunBatch() {
		t.Errorf("CanRunBatch is %v, RunBatch succeeds: %v", plan.CanRunBatch(), can)
	}
	add("reset", plan.Reset() != nil)
	return strings.Join(all, " ")
}

// TestAbilities checks the abilities of the plans of each backend: of a whole product, of a part,
// and of a product in several copies and launches. No method of [backend.BasePlan] may hide one.
func TestAbilities(t *testing.T) {
	for _, c := range []struct {
		device, can string
		hasProgram  bool
	}{
		{"cpu", "tiles progress workers serial order choice part finish memory predicted reset", false},
		{"emu", "prepare progress batch groups order choice part memory reasoning", true},
		{"emu:h200,h200", "prepare progress breakdown batch groups division memory predicted", true},
	} {
		p, b := product(t, dtype.F32, dtype.F32, 16, 16, 16, gemm.Epilogue{})
		r := Request{Problem: p, Device: name(t, c.device), Threads: 1}
		pl, err := New(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		plans := []backend.Plan{pl.plan}
		if pl.Order() != "" {
			part, err := pl.plan.Part(&pl.Problem, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, part)
		}
		for i, plan := range plans {
			if got := abilities(t, plan, &p, &b); got != c.can {
				t.Errorf("%s, plan %d has the abilities\n%s, want\n%s", c.device, i, got, c.can)
			}
		}
		r.Problem = *testkit.Product(t, dtype.F32, dtype.F32, 1024, 1024, 1024)
		r.GPUMemory = 5 << 20
		if pl, err = New(t.Context(), r); err != nil || pl.Program() != "" != c.hasProgram {
			t.Errorf("%s: program %q, error %v, want one: %v", c.device, pl.Program(), err, c.hasProgram)
		}
	}
}
