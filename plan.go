package tilework

import (
	"fmt"
	"time"

	"tilework/dtype"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/resident"
)

// Plan describes how a product would be computed, and why.
type Plan struct {
	M, N, K int
	In, Out string // element types of A and B, "uint8·int8" if they differ, and of C
	Device  string // a name for [WithDevice], such as "cpu"
	Kernel  string // a name for [WithKernel]
	Threads int    // maximum number of goroutines; 0 on a GPU
	Detail  string // the kernel's parameters for this shape, in words
	Why     string // the reason for the choice
	// Compile is the time it took to compile the kernel, once in this process; 0 before its first
	// use, and on the CPU.
	Compile time.Duration
}

// String returns the plan in one line.
func (p Plan) String() string {
	s := fmt.Sprintf("%d×%d·%d×%d %s → %s on %s, kernel %s", p.M, p.K, p.K, p.N, p.In, p.Out, p.Device, p.Kernel)
	switch {
	case p.Threads == 1:
		s += ", 1 thread"
	case p.Threads > 1:
		s += fmt.Sprintf(", %d threads", p.Threads)
	}
	s = fmt.Sprintf("%s: %s (%s)", s, p.Detail, p.Why)
	if p.Compile > 0 {
		s += fmt.Sprintf(", compiled in %v", p.Compile.Round(time.Microsecond))
	}
	return s
}

// PlanGemm returns the plan of [Gemm] for these operands and options. It reads no element. To
// choose the device it may measure products of other matrices. M, N and K are those of one product
// of a batch, on the host of the first one, and M counts the rows of all groups. All ranks of
// [OpenRanks] call it at the same time.
func PlanGemm[T, U, R dtype.Element](a Operand[T], b Operand[U], c Operand[R], opts ...Option) (Plan, error) {
	k := newCall(1, a, b, 0, c, opts)
	pl, err := k.describePlan()
	k.release()
	return pl, err
}

func (k *call) describePlan() (Plan, error) {
	err := k.check()
	switch {
	case k.team() != nil:
		return k.teamPlan(err)
	case err != nil:
		return Plan{}, err
	case k.device() != nil:
		p, err := k.resident()
		if err != nil {
			return Plan{}, err
		}
		return devicePlan(p)
	case k.grouped():
		whole, ends, err := k.planGroups()
		if err == nil && len(ends) == 0 {
			err = fmt.Errorf("%w: a plan of no groups", ErrShape)
		}
		if err != nil {
			return Plan{}, err
		}
		return hostPlan(whole), nil
	case k.batched():
		batch, err := k.planBatch()
		if err == nil && len(batch) == 0 {
			err = fmt.Errorf("%w: a plan of an empty batch", ErrShape)
		}
		if err != nil {
			return Plan{}, err
		}
		pl := hostPlan(batch[0].Product)
		if division := dispatch.Division(batch); division != "" {
			pl.Detail += "; " + division
		}
		return pl, nil
	}
	if err := k.planProduct(); err != nil {
		return Plan{}, err
	}
	return hostPlan(&k.product.Product), nil
}

// planOf returns a plan with the fields that depend on the product alone.
func planOf(p *gemm.Problem) Plan {
	return Plan{M: p.M, N: p.N, K: p.K, In: p.InNames(), Out: p.Out().String()}
}

func hostPlan(p *dispatch.Product) Plan {
	pl := planOf(&p.Problem)
	pl.Device, pl.Kernel, pl.Threads, pl.Compile = p.Device().String(), p.Kernel(), p.Threads(), p.CompileTime()
	pl.Detail, pl.Why = p.Detail(), p.Why()
	return pl
}

func devicePlan(p *resident.Product) (Plan, error) {
	found, division, err := resident.PlanOf(p)
	if err != nil {
		return Plan{}, err
	}
	pl := planOf(found.Problem())
	pl.Device, pl.Kernel, pl.Compile = p.Operands[gemm.C].On.Memory.Device().String(), found.Kernel.Name,
		found.CompileTime()
	pl.Detail, pl.Why = found.Config.String(), found.Why
	if division != "" {
		pl.Detail += "; " + division
	}
	return pl, nil
}
