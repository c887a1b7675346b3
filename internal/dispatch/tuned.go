package dispatch

import (
	"fmt"

	"tilework/internal/cpu"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
)

// tuning is what was tuned for a plan: nothing, for its zero value.
type tuning struct {
	*tuned.Tuned
	unfit error // why the plan is another all the same
}

// why is what decided, otherwise being what did where nothing is tuned.
func (t tuning) why(otherwise string) string {
	switch {
	case t.unfit != nil:
		return fmt.Sprintf("%s; what was tuned for it does not do: %v", otherwise, t.unfit)
	case t.Tuned != nil:
		return t.Tuned.Why()
	}
	return otherwise
}

// onDevice says that a matrix lies as those do that are brought to a GPU.
func onDevice(l gemm.Layout) bool { return l.LD == kernel.Padded(l).LD }

// PlanGPU plans a product on a GPU with the kernel that opt names or, if it names none,
// with what was tuned for the product, or else with the plan's own choice.
func PlanGPU(b *exec.Backend, p *gemm.Problem, opt exec.Options) (*exec.Plan, error) {
	if opt.Kernel != "" {
		return b.Plan(p, opt)
	}
	lies := onDevice
	if !opt.KeepLayout {
		lies = func(gemm.Layout) bool { return true } // it will
	}
	t := tuning{Tuned: tuned.ForGPU(b, p, lies)}
	if t.Tuned != nil {
		tuned := opt
		tuned.Kernel, tuned.Shape = t.Kernel, t.Shape
		pl, err := b.Plan(p, tuned)
		if err == nil {
			pl.Why = t.why("")
			return pl, nil
		}
		t.unfit = err
	}
	pl, err := b.Plan(p, opt)
	if err == nil {
		pl.Why = t.why(pl.Why)
	}
	return pl, err
}

// planCPU plans the product on the processor with the kernel or the choice that was asked for
// or, if none was, with what was tuned for the product, or else with the plan's own choice.
func (pl *Plan) planCPU() error {
	r := &pl.Request
	opt := cpu.Options{Kernel: r.Kernel, Threads: r.Threads, Packed: r.Packed, Tile: r.Tile, Progress: r.Progress}
	switch {
	case r.Choice != nil:
		opt.Kernel, opt.Config = r.Choice.Kernel, r.Choice.Config
	case r.Kernel == "" && r.Packed == nil:
		pl.tuned.Tuned = tuned.ForCPU(&r.Problem)
	}
	if t := &pl.tuned; t.Tuned != nil {
		tuned := opt
		tuned.Kernel, tuned.Config = t.Kernel, t.Choice.Config
		if t.unfit = pl.cpu.Decide(&r.Problem, &tuned); t.unfit == nil {
			return nil
		}
	}
	return pl.cpu.Decide(&r.Problem, &opt)
}
