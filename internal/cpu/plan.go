package cpu

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// Options say how a product is to be computed. The zero value leaves everything
// to the plan.
type Options struct {
	Kernel  string // a name of the list; empty: the fastest that fits
	Threads int    // at most so many goroutines; 0 or less: GOMAXPROCS, never more than that
	// Packed is B, if it is packed already: its kernel is the one to be used, and the
	// product has no other memory of B.
	Packed *Packed
	// Tile is called for each tile of C, rows×cols from (i, j) on, once that is final, by
	// the goroutine that computed it.
	Tile func(i, j, rows, cols int)
	// Progress is called now and then, from the caller's goroutine, with how much
	// of the work is done.
	Progress func(done, total int64)
	// Config is what is not left to the plan.
	Config Config
}

// Plan is a product on the processor, decided but not computed. It is a value, and its
// words are only made when they are asked for: to plan and to run one allocates nothing.
// Any number of goroutines may run one at once.
type Plan struct {
	Problem gemm.Problem
	Kernel  *Kernel
	Threads int

	packed   *Packed
	tile     func(i, j, rows, cols int)
	way      way
	named    bool   // whether the kernel was asked for
	limit    string // what the environment allows, if it says so
	progress func(done, total int64)
	trace    *trace // nil outside of tests
}

// way is one of the ways to multiply.
type way uint8

const (
	byTheBook way = iota // the triple loop
	unpacked             // micro-kernels on A and B where they lie
	blocked              // the five loops
	alongN               // along the rows of B and C
	alongM               // the same for the transposed product
	dotsOfB              // rows of A times rows of B, of which there are many
	dotsOfA              // the same, A having the many rows
)

// leastFlops is the work, for each thread, that makes a helper pay: about 15 µs at the
// speed of one core with AVX-512, when to wake a helper costs its caller 3.5 µs.
const leastFlops = 2e6

// NewPlan decides how p is computed. The error is ErrUnsupported.
func NewPlan(p *gemm.Problem, o Options) (Plan, error) {
	c, err := choose(o.Kernel, environment(), p.A.Type)
	if err != nil {
		return Plan{}, err
	}
	if o.Packed != nil {
		if c.named && c.kernel != o.Packed.kernel {
			return Plan{}, fmt.Errorf("%w: kernel %s for a B that was packed for kernel %s", gemm.ErrUnsupported, o.Kernel, o.Packed.kernel.Name)
		}
		if p.BlockScaled() {
			return Plan{}, fmt.Errorf("%w: block scales of a B that was packed before", gemm.ErrUnsupported)
		}
		c.kernel = o.Packed.kernel
	} else if c.kernel, err = c.kernel.with(o.Config, p); err != nil {
		return Plan{}, err
	}
	pl, err := c.kernel.plan(p, o)
	pl.named, pl.limit = c.named, c.limit
	return pl, err
}

// plan decides how k computes p.
func (k *Kernel) plan(p *gemm.Problem, o Options) (Plan, error) {
	if !k.Multiplies(p.A.Type) {
		return Plan{}, k.noArithmetic(p.A.Type)
	}
	pl := Plan{Problem: *p, Kernel: k, Threads: threads(p, o.Threads), packed: o.Packed, tile: o.Tile, progress: o.Progress}
	if n := o.Config.Threads; n > 0 {
		pl.Threads = min(n, Workers(o.Threads))
	}
	switch {
	case k.textbook:
		pl.Threads = 1
	case o.Packed != nil:
		pl.way = blocked
	case p.Accum() == dtype.F32:
		pl.way = k.f32.way(p)
	case p.Accum() == dtype.F64:
		pl.way = k.f64.way(p)
	default:
		pl.way = k.i32.way(p)
	}
	return pl, nil
}

func (k *Kernel) noArithmetic(in dtype.Type) error {
	return fmt.Errorf("%w: kernel %s has no arithmetic for matrices of %v", gemm.ErrUnsupported, k.Name, in)
}

// threads is the number of goroutines for p, asked being what the caller allows.
func threads(p *gemm.Problem, asked int) int {
	if p.Flops() < 2*leastFlops {
		return 1
	}
	return int(min(float64(Workers(asked)), p.Flops()/leastFlops))
}

// way decides between no packing, packing, and the ways of products bound by memory.
func (mk *micro[T]) way(p *gemm.Problem) way {
	switch {
	case mk.packing == PackB || mk.packing == PackBoth:
		return blocked
	case !mk.native(p):
		return mk.wayOfHalves(p)
	case isLong(p) && p.N >= p.M:
		return dotsOfB
	case isLong(p):
		return dotsOfA
	case mk.goesDirect(p):
		return unpacked
	case sweeps(p):
		return alongN
	case sweepsFlipped(p):
		return alongM
	case p.B.Trans && isThin(p.M, p.N, p.K, dotsRows):
		return dotsOfB
	case !p.A.Trans && isThin(p.N, p.M, p.K, dotsColumns):
		return dotsOfA
	case mk.packing == PackNothing:
		return unpacked
	}
	return blocked
}

// wayOfHalves is way where elements must be widened: to pack them costs as much, but for
// the large operand of a product bound by memory.
func (mk *micro[T]) wayOfHalves(p *gemm.Problem) way {
	rows := sweepRows
	if mk.Group > 1 {
		rows = wordRows
	}
	switch {
	case mk.wide[p.A.Type].Lay == nil || len(mk.Update) == 0 || !p.ReadsAB() || p.BlockScaled():
	case !p.B.Trans && isThin(p.M, p.N, p.K, rows):
		return alongN
	case p.A.Trans && isThin(p.N, p.M, p.K, rows):
		return alongM
	case p.B.Trans && isThin(p.M, p.N, p.K, min(rows, dotsRows)):
		return dotsOfB
	case !p.A.Trans && isThin(p.N, p.M, p.K, min(rows, dotsRows)):
		return dotsOfA
	}
	return blocked
}

// Why says what decided for the kernel.
func (pl *Plan) Why() string {
	switch {
	case pl.named:
		return "asked for by name"
	case pl.limit != "":
		return "the fastest kernel for this type that " + EnvISA + "=" + pl.limit + " allows"
	}
	return "the fastest kernel for this type that this processor can run"
}

// Detail is the blocking, in words.
func (pl *Plan) Detail() string {
	switch k := pl.Kernel; {
	case pl.way == byTheBook:
		return "one thread, nothing blocked or packed"
	case pl.Problem.Accum() == dtype.F32:
		return k.f32.detail(pl)
	case pl.Problem.Accum() == dtype.F64:
		return k.f64.detail(pl)
	default:
		return k.i32.detail(pl)
	}
}

func (mk *micro[T]) detail(pl *Plan) string {
	switch pl.way {
	case unpacked:
		packed := "nothing"
		if mk.packsWhole(&pl.Problem) {
			packed = "B"
		}
		return fmt.Sprintf("%d×%d tiles, %s packed", len(mk.Direct), mk.NR, packed)
	case alongN, alongM:
		return fmt.Sprintf("along whole rows, %d steps of K at a time", sweepDepth)
	case dotsOfB, dotsOfA:
		return fmt.Sprintf("rows times rows, %d at a time", asm.DotRows)
	}
	packed := "packed"
	switch inPlace := mk.readsInPlace(&pl.Problem); {
	case pl.packed != nil && inPlace:
		packed = "B packed before"
	case pl.packed != nil:
		packed = "A packed, B before"
	case inPlace:
		packed = "B packed"
	}
	return fmt.Sprintf("%d×%d tiles, MC %d, KC %d, %s", mk.MR, mk.NR, mk.mc, mk.kc, packed)
}

// Run computes the product. The buffers are p's; [gemm.Buffers.Check] has
// accepted them. When ctx ends first, Run returns its error, C holds anything,
// and nothing uses the buffers any more.
func (pl *Plan) Run(ctx context.Context, b gemm.Buffers) error {
	if pl.Problem.M == 0 || pl.Problem.N == 0 {
		return ctx.Err()
	}
	switch k := pl.Kernel; pl.Problem.Accum() {
	case dtype.F32:
		return carryOut(ctx, pl, k.f32, b, func(r *run) *jobs[float32] { return &r.f32 })
	case dtype.F64:
		return carryOut(ctx, pl, k.f64, b, func(r *run) *jobs[float64] { return &r.f64 })
	default:
		return carryOut(ctx, pl, k.i32, b, func(r *run) *jobs[int32] { return &r.i32 })
	}
}

// run is what a product under way needs besides its plan, kept for the next one.
type run struct {
	crew   crew
	memory memory
	places []place // one for each slot
	f32    jobs[float32]
	f64    jobs[float64]
	i32    jobs[int32]
}

var runs = sync.Pool{New: func() any { return new(run) }}

// jobs has room for a product in each of the ways to multiply.
type jobs[T scalar] struct {
	textbook textbook[T]
	direct   direct[T]
	sweep    sweep[T]
	dots     dots[T]
	product  product[T]
}

// job is a task that computes a product, and needs memory for that.
type job interface {
	task
	bytes() int
	use(m *memory, places []place)
}

// carryOut computes the product in the way that was decided.
func carryOut[T scalar](ctx context.Context, pl *Plan, mk *micro[T], b gemm.Buffers, jobsOf func(*run) *jobs[T]) error {
	if pl.way == unpacked {
		d := newDirect(pl, mk, b)
		if pl.Threads == 1 && pl.progress == nil && pl.trace == nil && d.bytes() == 0 {
			return d.alone(ctx) // the smallest products: what the rest of this function costs is worth sparing
		}
		r := runs.Get().(*run)
		defer runs.Put(r)
		own := &jobsOf(r).direct
		*own = d
		err := r.execute(ctx, pl, own)
		*own = direct[T]{} // it refers to the caller's memory
		return err
	}
	r := runs.Get().(*run)
	defer runs.Put(r)
	at, j := jobsOf(r), job(nil)
	switch pl.way {
	case byTheBook:
		at.textbook, j = newTextbook[T](pl, b), &at.textbook
	case alongN, alongM:
		at.sweep, j = newSweep(pl, mk, b, pl.way == alongM), &at.sweep
	case dotsOfB, dotsOfA:
		at.dots, j = newDots(pl, mk, b, pl.way == dotsOfA), &at.dots
	default:
		at.product, j = newProduct(pl, mk, b), &at.product
	}
	err := r.execute(ctx, pl, j)
	*at = jobs[T]{}
	return err
}

// execute computes j with the memory that it needs.
func (r *run) execute(ctx context.Context, pl *Plan, j job) error {
	r.crew.trace = pl.trace
	r.memory = borrow(j.bytes())
	r.places = slices.Grow(r.places[:0], pl.Threads)[:pl.Threads]
	j.use(&r.memory, r.places)
	err := r.crew.execute(ctx, j, pl.Threads, pl.progress)
	r.memory.giveBack()
	return err
}
