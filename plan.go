package tilework

import (
	"context"
	"fmt"
	"time"

	"tilework/dtype"
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
// [OpenRanks] call it at the same time. The errors are those of [Gemm], and the context's.
func PlanGemm[T, U, R dtype.Element](ctx context.Context, a Operand[T], b Operand[U], c Operand[R],
	opts ...Option) (Plan, error) {
	if err := checkContext(ctx); err != nil {
		return Plan{}, err
	}
	k := newCall(1, a, b, 0, c, opts)
	d, err := k.Describe(ctx)
	k.Release()
	if err != nil {
		return Plan{}, err
	}
	p := &d.Problem
	return Plan{M: p.M, N: p.N, K: p.K, In: p.InNames(), Out: p.Out().String(), Device: d.Device, Kernel: d.Kernel,
		Threads: d.Threads, Detail: d.Detail, Why: d.Why, Compile: d.Compile}, nil
}
