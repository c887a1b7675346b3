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
	Problem *gemm.Problem // which must stay as it is
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
	turned               // unpacked, of the transposed product
	alongN               // along the rows of B and C
	alongM               // the same for the transposed product
	dotsOfB              // rows of A times rows of B, of which there are many
	dotsOfA              // the same, A having the many rows
	cutAlongK            // K in pieces that are products of their own
)

// leastFlops is the work, for each thread, that makes a helper pay: about 15 µs at the
// speed of one core with AVX-512, when to wake a helper costs its caller 3.5 µs.
const leastFlops = 2e6

// NewPlan decides how p is computed. The error is ErrUnsupported.
func NewPlan(p *gemm.Problem, o Options) (Plan, error) {
	var pl Plan
	err := pl.Decide(p, &o)
	return pl, err
}

// Decide is [NewPlan] for a plan that is there already, and has nothing: to hand one over takes
// as long as to decide.
func (pl *Plan) Decide(p *gemm.Problem, o *Options) error {
	c, err := chooseHere(o.Kernel, p.A.Type)
	if err != nil {
		return err
	}
	if o.Packed != nil {
		if c.named && c.kernel != o.Packed.kernel {
			return fmt.Errorf("%w: kernel %s for a B that was packed for kernel %s", gemm.ErrUnsupported, o.Kernel, o.Packed.kernel.Name)
		}
		if p.BlockScaled() {
			return fmt.Errorf("%w: block scales of a B that was packed before", gemm.ErrUnsupported)
		}
		c.kernel = o.Packed.kernel
	} else if c.kernel, err = c.kernel.with(&o.Config, p); err != nil {
		return err
	}
	pl.named, pl.limit = c.named, c.limit
	return pl.by(c.kernel, p, o)
}

// by decides how k computes p.
func (pl *Plan) by(k *Kernel, p *gemm.Problem, o *Options) error {
	if !k.Multiplies(p.A.Type) {
		return k.noArithmetic(p.A.Type)
	}
	pl.Problem, pl.Kernel, pl.Threads = p, k, threads(p, o.Threads)
	pl.packed, pl.tile, pl.progress = o.Packed, o.Tile, o.Progress
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
	return nil
}

func (k *Kernel) noArithmetic(in dtype.Type) error {
	return fmt.Errorf("%w: kernel %s has no arithmetic for matrices of %v", gemm.ErrUnsupported, k.Name, in)
}

// threads is the number of goroutines for p, asked being what the caller allows.
func threads(p *gemm.Problem, asked int) int {
	if splits(p) {
		return min(Workers(asked), ceilDiv(p.K, pieceDepth(p)))
	}
	if p.Flops() < 2*leastFlops {
		return 1
	}
	return int(min(float64(Workers(asked)), p.Flops()/leastFlops))
}

// way decides between no packing, packing, and the ways of products bound by memory.
func (mk *micro[T]) way(p *gemm.Problem) way {
	byDots, xIsA := mk.goesByDots(p)
	switch {
	case mk.packing == PackB || mk.packing == PackBoth:
		return blocked
	case mk.packing == "" && splits(p):
		return cutAlongK
	case byDots && xIsA:
		return dotsOfA
	case byDots:
		return dotsOfB
	case !mk.native(p):
		return mk.wayOfHalves(p)
	case mk.flips(p):
		return turned
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
	case mk.wide.of(p.A.Type).Lay == nil || len(mk.Update) == 0 || !p.ReadsAB() || p.BlockScaled():
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
		if mk.packsWhole(pl.Problem) {
			packed = "B"
		}
		return fmt.Sprintf("%d×%d tiles, %s packed", len(mk.Direct), mk.NR, packed)
	case turned:
		return fmt.Sprintf("%d×%d tiles of the transposed product, nothing packed", len(mk.Direct), mk.NR)
	case alongN, alongM:
		return fmt.Sprintf("along whole rows, %d steps of K at a time", sweepDepth)
	case dotsOfB, dotsOfA:
		return fmt.Sprintf("rows times rows, %d at a time", asm.DotRows)
	case cutAlongK:
		return mk.detailOfPieces(pl)
	}
	packed := "packed"
	switch inPlace := mk.readsInPlace(pl.Problem); {
	case pl.packed != nil && inPlace:
		packed = "B packed before"
	case pl.packed != nil:
		packed = "A packed, B before"
	case inPlace:
		packed = "B packed"
	}
	return fmt.Sprintf("%d×%d tiles, MC %d, KC %d, %s", mk.MR, mk.NR, mk.mc, mk.kc, packed)
}

// detailOfPieces describes a product that is cut along K.
func (mk *micro[T]) detailOfPieces(pl *Plan) string {
	piece := pieceOf(pl.Problem, pieceDepth(pl.Problem))
	one := Plan{Problem: &piece, Kernel: pl.Kernel, way: mk.way(&piece)}
	return fmt.Sprintf("split-K, %d steps of K at a time: %s", piece.K, mk.detail(&one))
}

// Run computes the product. The buffers are p's; [gemm.Buffers.Check] has
// accepted them. When ctx ends first, Run returns its error, C holds anything,
// and nothing uses the buffers any more.
func (pl *Plan) Run(ctx context.Context, b *gemm.Buffers) error {
	if pl.Problem.M == 0 || pl.Problem.N == 0 {
		return ctx.Err()
	}
	if pl.Problem.Epilogue.Gated {
		return pl.runGated(ctx, b)
	}
	return pl.multiply(ctx, b)
}

// runGated computes the other product first, into memory of its own, and multiplies by it where
// tiles are finished: it is read once, from a cache that has C's tile anyway.
func (pl *Plan) runGated(ctx context.Context, b *gemm.Buffers) error {
	other := pl.Problem.Other()
	var first Plan
	if err := first.by(pl.Kernel, &other, &Options{Threads: pl.Threads, Progress: halfOf(pl.progress, 0)}); err != nil {
		return err
	}
	sums := dtype.Bytes(make([]float64, (other.C.Bytes()+7)/8))
	if err := first.multiply(ctx, &gemm.Buffers{A: b.A, B: b.Extras[gemm.Up], C: sums}); err != nil {
		return err
	}
	with := *b
	with.Extras[gemm.Up] = sums
	second := *pl
	second.progress = halfOf(pl.progress, 1)
	return second.multiply(ctx, &with)
}

// halfOf is the progress of the first or of the second of two products of equal work.
func halfOf(f func(done, total int64), n int64) func(done, total int64) {
	if f == nil {
		return nil
	}
	return func(done, total int64) { f(n*total+done, 2*total) }
}

// multiply computes the product itself.
func (pl *Plan) multiply(ctx context.Context, b *gemm.Buffers) error {
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
	flipped  flipped[T]
	sweep    sweep[T]
	dots     dots[T]
	splitK   splitK[T]
	product  product[T]
}

// job is a task that computes a product, and needs memory for that.
type job interface {
	task
	bytes() int
	use(m *memory, places []place)
	reset() // forgets the product, and so the caller's memory
}

// carryOut computes the product in the way that was decided.
func carryOut[T scalar](ctx context.Context, pl *Plan, mk *micro[T], b *gemm.Buffers, jobsOf func(*run) *jobs[T]) error {
	if pl.way == unpacked {
		var d direct[T]
		d.prepare(pl, mk, b)
		if pl.Threads == 1 && pl.progress == nil && pl.trace == nil {
			// The smallest products: what the rest of this function costs is worth sparing.
			n := d.bytes()
			if n == 0 {
				return d.alone(ctx)
			}
			m := borrow(n)
			d.use(&m, nil)
			err := d.alone(ctx)
			m.giveBack()
			return err
		}
		r := runs.Get().(*run)
		defer runs.Put(r)
		own := &jobsOf(r).direct
		*own = d
		return r.execute(ctx, pl, own)
	}
	r := runs.Get().(*run)
	defer runs.Put(r)
	return r.execute(ctx, pl, jobsOf(r).prepare(pl, mk, b))
}

// prepare lays out the product in the way that was decided. The smallest products, which are
// unpacked, are laid out by [carryOut] itself.
func (at *jobs[T]) prepare(pl *Plan, mk *micro[T], b *gemm.Buffers) job {
	switch pl.way {
	case byTheBook:
		at.textbook = newTextbook[T](pl, b)
		return &at.textbook
	case unpacked:
		at.direct.prepare(pl, mk, b)
		return &at.direct
	case turned:
		at.flipped.prepare(pl, mk, b)
		return &at.flipped
	case alongN, alongM:
		at.sweep.prepare(pl, mk, b, pl.way == alongM)
		return &at.sweep
	case dotsOfB, dotsOfA:
		at.dots.prepare(pl, mk, b, pl.way == dotsOfA)
		return &at.dots
	case cutAlongK:
		at.splitK.prepare(pl, mk, b)
		return &at.splitK
	default:
		at.product = newProduct(pl, mk, b)
		return &at.product
	}
}

// Memory returns the bytes that Run allocates: the workspace that it packs into and, of a gated
// product, the other product.
func (pl *Plan) Memory() int {
	p := pl.Problem
	if p.M == 0 || p.N == 0 {
		return 0
	}
	n := 0
	if p.Epilogue.Gated {
		n = p.Other().C.Bytes()
	}
	switch k := pl.Kernel; p.Accum() {
	case dtype.F32:
		return n + workspace(pl, k.f32)
	case dtype.F64:
		return n + workspace(pl, k.f64)
	default:
		return n + workspace(pl, k.i32)
	}
}

// workspace returns the bytes of a product's workspace, which do not depend on its buffers.
func workspace[T scalar](pl *Plan, mk *micro[T]) int {
	var at jobs[T]
	return at.prepare(pl, mk, &gemm.Buffers{}).bytes() + 2*hugePage
}

// execute computes j with the memory that it needs, and resets it.
func (r *run) execute(ctx context.Context, pl *Plan, j job) error {
	defer j.reset() // also if a function of the caller's panics
	r.crew.trace = pl.trace
	r.memory = borrow(j.bytes())
	r.places = slices.Grow(r.places[:0], pl.Threads)[:pl.Threads]
	j.use(&r.memory, r.places)
	err := r.crew.execute(ctx, j, pl.Threads, pl.progress)
	r.memory.giveBack()
	return err
}
