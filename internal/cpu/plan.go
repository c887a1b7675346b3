package cpu

import (
	"context"
	"fmt"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Options say how a product is to be computed. The zero value leaves everything
// to the plan.
type Options struct {
	Kernel  string // a name of the list; empty: the fastest that fits
	Threads int    // at most so many goroutines; 0 or less: GOMAXPROCS, never more than that
	// Progress is called now and then, from the caller's goroutine, with how much
	// of the work is done.
	Progress func(done, total int64)
	// Config is what is not left to the plan.
	Config Config
}

// Plan is a product on the processor, decided but not computed.
type Plan struct {
	Problem gemm.Problem
	Kernel  *Kernel
	Threads int
	Detail  string // the blocking, in words
	Why     string // what decided for the kernel

	progress func(done, total int64)
	task     func(b gemm.Buffers, w *workspace) task
}

// serialFlops is the work below which helpers cost more than they bring: about
// 300 µs at the speed of one core with AVX-512.
const serialFlops = 20e6

// NewPlan decides how p is computed. The error is ErrUnsupported.
func NewPlan(p *gemm.Problem, o Options) (*Plan, error) {
	k, why, err := choose(o.Kernel, p.Accum())
	if err != nil {
		return nil, err
	}
	if k, err = k.with(o.Config, p); err != nil {
		return nil, err
	}
	pl, err := k.plan(p, o)
	if err != nil {
		return nil, err
	}
	pl.Why = why
	return pl, nil
}

// plan decides how k computes p.
func (k *Kernel) plan(p *gemm.Problem, o Options) (*Plan, error) {
	if !k.Sums(p.Accum()) {
		return nil, fmt.Errorf("%w: kernel %s has no arithmetic for products summed in %v", gemm.ErrUnsupported, k.Name, p.Accum())
	}
	pl := &Plan{Problem: *p, Kernel: k, Threads: threads(p, o.Threads), progress: o.Progress}
	if n := o.Config.Threads; n > 0 {
		pl.Threads = min(n, Workers(o.Threads))
	}
	switch p.Accum() {
	case dtype.F32:
		prepare(pl, k.f32)
	case dtype.F64:
		prepare(pl, k.f64)
	default:
		prepare(pl, k.i32)
	}
	return pl, nil
}

// threads is the number of goroutines for p, asked being what the caller allows.
func threads(p *gemm.Problem, asked int) int {
	if p.Flops() < serialFlops {
		return 1
	}
	return Workers(asked)
}

// prepare decides between the three ways to multiply: the textbook's, without
// packing, and with it. mk is nil for the textbook's.
func prepare[T scalar](pl *Plan, mk *micro[T]) {
	p := &pl.Problem
	switch {
	case pl.Kernel.textbook:
		pl.Threads, pl.Detail = 1, "one thread, nothing blocked or packed"
		pl.task = func(b gemm.Buffers, _ *workspace) task { return newTextbook[T](p, b) }
	case mk.goesDirect(p):
		pl.Detail = fmt.Sprintf("%d×%d tiles, nothing packed", len(mk.Direct), mk.NR)
		pl.task = func(b gemm.Buffers, _ *workspace) task { return newDirect(mk, p, b, pl.Threads) }
	default:
		packed := "packed"
		if mk.readsInPlace(p) {
			packed = "B packed"
		}
		pl.Detail = fmt.Sprintf("%d×%d tiles, MC %d, KC %d, %s", mk.MR, mk.NR, mk.mc, mk.kc, packed)
		pl.task = func(b gemm.Buffers, w *workspace) task { return newProduct(mk, p, b, pl.Threads, w) }
	}
}

// Run computes the product. The buffers are p's; [gemm.Buffers.Check] has
// accepted them. When ctx ends first, Run returns its error, C holds anything,
// and nothing uses the buffers any more.
func (pl *Plan) Run(ctx context.Context, b gemm.Buffers) error {
	if pl.Problem.M == 0 || pl.Problem.N == 0 {
		return ctx.Err()
	}
	w := borrow()
	defer w.giveBack()
	return execute(ctx, pl.task(b, w), pl.Threads, pl.progress)
}
