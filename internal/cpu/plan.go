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

	packed    *Packed
	onTile    func(i, j, rows, cols int)
	algorithm algorithm
	named     bool   // whether the kernel was asked for
	limit     string // what the environment allows, if it says so
	progress  func(done, total int64)
	trace     *trace // nil outside of tests
}

// way is one of the ways to multiply.
type algorithm uint8

const (
	algoNaive        algorithm = iota // the triple loop
	algoDirect                        // micro-kernels on A and B where they lie
	algoBlocked                       // the five loops
	algoDirectSwapAB                  // unpacked, of the transposed product
	algoAxpy                          // along the rows of B and C
	algoAxpySwapAB                    // the same for the transposed product
	algoDotB                          // rows of A times rows of B, of which there are many
	algoDotA                          // the same, A having the many rows
	algoSplitK                        // K in pieces that are products of their own
)

// leastFlops is the work, for each thread, that makes a helper pay: about 15 µs at the
// speed of one core with AVX-512, when to wake a helper costs its caller 3.5 µs.
const minFlopsPerThread = 2e6

// NewPlan decides how p is computed. The error is ErrUnsupported.
func NewPlan(p *gemm.Problem, o Options) (Plan, error) {
	var pl Plan
	err := pl.Decide(p, &o)
	return pl, err
}

// Decide is [NewPlan] for a plan that is there already, and has nothing: to hand one over takes
// as long as to decide.
func (pl *Plan) Decide(p *gemm.Problem, o *Options) error {
	c, err := chooseCached(o.Kernel, p.A.Type)
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
	return pl.decideFor(c.kernel, p, o)
}

// by decides how k computes p.
func (pl *Plan) decideFor(k *Kernel, p *gemm.Problem, o *Options) error {
	if !k.Multiplies(p.A.Type) {
		return k.errNoArithmetic(p.A.Type)
	}
	pl.Problem, pl.Kernel, pl.Threads = p, k, threadCount(p, o.Threads)
	pl.packed, pl.onTile, pl.progress = o.Packed, o.Tile, o.Progress
	if n := o.Config.Threads; n > 0 {
		pl.Threads = min(n, Workers(o.Threads))
	}
	switch {
	case k.naive:
		pl.Threads = 1
	case o.Packed != nil:
		pl.algorithm = algoBlocked
	case p.Accum() == dtype.F32:
		pl.algorithm = k.f32.algorithm(p)
	case p.Accum() == dtype.F64:
		pl.algorithm = k.f64.algorithm(p)
	default:
		pl.algorithm = k.i32.algorithm(p)
	}
	return nil
}

func (k *Kernel) errNoArithmetic(in dtype.Type) error {
	return fmt.Errorf("%w: kernel %s has no arithmetic for matrices of %v", gemm.ErrUnsupported, k.Name, in)
}

// threads is the number of goroutines for p, asked being what the caller allows.
func threadCount(p *gemm.Problem, asked int) int {
	if splits(p) {
		return min(Workers(asked), ceilDiv(p.K, pieceDepth(p)))
	}
	if p.Flops() < 2*minFlopsPerThread {
		return 1
	}
	return int(min(float64(Workers(asked)), p.Flops()/minFlopsPerThread))
}

// way decides between no packing, packing, and the ways of products bound by memory.
func (mk *microKernel[T]) algorithm(p *gemm.Problem) algorithm {
	byDots, xIsA := mk.usesDots(p)
	switch {
	case mk.packing == PackB || mk.packing == PackBoth:
		return algoBlocked
	case mk.packing == "" && splits(p):
		return algoSplitK
	case byDots && xIsA:
		return algoDotA
	case byDots:
		return algoDotB
	case !mk.native(p):
		return mk.algorithmForHalves(p)
	case mk.usesDirectSwapAB(p):
		return algoDirectSwapAB
	case mk.usesDirect(p):
		return algoDirect
	case usesAxpy(p):
		return algoAxpy
	case usesAxpySwapAB(p):
		return algoAxpySwapAB
	case p.B.Trans && isThin(p.M, p.N, p.K, dotsRows):
		return algoDotB
	case !p.A.Trans && isThin(p.N, p.M, p.K, dotsCols):
		return algoDotA
	case mk.packing == PackNothing:
		return algoDirect
	}
	return algoBlocked
}

// wayOfHalves is way where elements must be widened: to pack them costs as much, but for
// the large operand of a product bound by memory.
func (mk *microKernel[T]) algorithmForHalves(p *gemm.Problem) algorithm {
	rows := axpyRows
	if mk.Group > 1 {
		rows = axpyRowsGrouped
	}
	switch {
	case mk.wideners.of(p.A.Type).Lay == nil || len(mk.Update) == 0 || !p.ReadsAB() || p.BlockScaled():
	case !p.B.Trans && isThin(p.M, p.N, p.K, rows):
		return algoAxpy
	case p.A.Trans && isThin(p.N, p.M, p.K, rows):
		return algoAxpySwapAB
	case p.B.Trans && isThin(p.M, p.N, p.K, min(rows, dotsRows)):
		return algoDotB
	case !p.A.Trans && isThin(p.N, p.M, p.K, min(rows, dotsRows)):
		return algoDotA
	}
	return algoBlocked
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
	case pl.algorithm == algoNaive:
		return "one thread, nothing blocked or packed"
	case pl.Problem.Accum() == dtype.F32:
		return k.f32.detail(pl)
	case pl.Problem.Accum() == dtype.F64:
		return k.f64.detail(pl)
	default:
		return k.i32.detail(pl)
	}
}

func (mk *microKernel[T]) detail(pl *Plan) string {
	switch pl.algorithm {
	case algoDirect:
		packed := "nothing"
		if mk.packsWhole(pl.Problem) {
			packed = "B"
		}
		return fmt.Sprintf("%d×%d tiles, %s packed", len(mk.Direct), mk.NR, packed)
	case algoDirectSwapAB:
		return fmt.Sprintf("%d×%d tiles of the transposed product, nothing packed", len(mk.Direct), mk.NR)
	case algoAxpy, algoAxpySwapAB:
		return fmt.Sprintf("along whole rows, %d steps of K at a time", axpyDepth)
	case algoDotB, algoDotA:
		return fmt.Sprintf("rows times rows, %d at a time", asm.DotRows)
	case algoSplitK:
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
func (mk *microKernel[T]) detailOfPieces(pl *Plan) string {
	piece := pieceOf(pl.Problem, pieceDepth(pl.Problem))
	one := Plan{Problem: &piece, Kernel: pl.Kernel, algorithm: mk.algorithm(&piece)}
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
	if err := first.decideFor(pl.Kernel, &other, &Options{Threads: pl.Threads, Progress: halfProgress(pl.progress, 0)}); err != nil {
		return err
	}
	sums := dtype.Bytes(make([]float64, (other.C.Bytes()+7)/8))
	if err := first.multiply(ctx, &gemm.Buffers{A: b.A, B: b.Extras[gemm.Up], C: sums}); err != nil {
		return err
	}
	with := *b
	with.Extras[gemm.Up] = sums
	second := *pl
	second.progress = halfProgress(pl.progress, 1)
	return second.multiply(ctx, &with)
}

// halfOf is the progress of the first or of the second of two products of equal work.
func halfProgress(f func(done, total int64), n int64) func(done, total int64) {
	if f == nil {
		return nil
	}
	return func(done, total int64) { f(n*total+done, 2*total) }
}

// multiply computes the product itself.
func (pl *Plan) multiply(ctx context.Context, b *gemm.Buffers) error {
	switch k := pl.Kernel; pl.Problem.Accum() {
	case dtype.F32:
		return execute(ctx, pl, k.f32, b, func(r *execution) *gemmJobs[float32] { return &r.f32 })
	case dtype.F64:
		return execute(ctx, pl, k.f64, b, func(r *execution) *gemmJobs[float64] { return &r.f64 })
	default:
		return execute(ctx, pl, k.i32, b, func(r *execution) *gemmJobs[int32] { return &r.i32 })
	}
}

// run is what a product under way needs besides its plan, kept for the next one.
type execution struct {
	executor  executor
	workspace workspace
	states    []phaseState // one for each slot
	f32       gemmJobs[float32]
	f64       gemmJobs[float64]
	i32       gemmJobs[int32]
}

var executions = sync.Pool{New: func() any { return new(execution) }}

// jobs has room for a product in each of the ways to multiply.
type gemmJobs[T scalar] struct {
	naive   naive[T]
	direct  direct[T]
	swapAB  swapAB[T]
	axpy    axpy[T]
	dots    dots[T]
	splitK  splitK[T]
	blocked blocked[T]
}

// job is a task that computes a product, and needs memory for that.
type gemmJob interface {
	job
	bytes() int
	bind(m *workspace, states []phaseState)
	reset() // forgets the product, and so the caller's memory
}

// carryOut computes the product in the way that was decided.
func execute[T scalar](ctx context.Context, pl *Plan, mk *microKernel[T], b *gemm.Buffers, jobsOf func(*execution) *gemmJobs[T]) error {
	if pl.algorithm == algoDirect {
		var d direct[T]
		d.prepare(pl, mk, b)
		if pl.Threads == 1 && pl.progress == nil && pl.trace == nil {
			// The smallest products: what the rest of this function costs is worth sparing.
			n := d.bytes()
			if n == 0 {
				return d.runSerial(ctx)
			}
			m := getWorkspace(n)
			d.bind(&m, nil)
			err := d.runSerial(ctx)
			m.put()
			return err
		}
		r := executions.Get().(*execution)
		defer executions.Put(r)
		own := &jobsOf(r).direct
		*own = d
		return r.execute(ctx, pl, own)
	}
	r := executions.Get().(*execution)
	defer executions.Put(r)
	return r.execute(ctx, pl, jobsOf(r).prepare(pl, mk, b))
}

// prepare lays out the product in the way that was decided. The smallest products, which are
// unpacked, are laid out by [carryOut] itself.
func (at *gemmJobs[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) gemmJob {
	switch pl.algorithm {
	case algoNaive:
		at.naive = newNaive[T](pl, b)
		return &at.naive
	case algoDirect:
		at.direct.prepare(pl, mk, b)
		return &at.direct
	case algoDirectSwapAB:
		at.swapAB.prepare(pl, mk, b)
		return &at.swapAB
	case algoAxpy, algoAxpySwapAB:
		at.axpy.prepare(pl, mk, b, pl.algorithm == algoAxpySwapAB)
		return &at.axpy
	case algoDotB, algoDotA:
		at.dots.prepare(pl, mk, b, pl.algorithm == algoDotA)
		return &at.dots
	case algoSplitK:
		at.splitK.prepare(pl, mk, b)
		return &at.splitK
	default:
		at.blocked = newBlocked(pl, mk, b)
		return &at.blocked
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
		return n + planWorkspaceBytes(pl, k.f32)
	case dtype.F64:
		return n + planWorkspaceBytes(pl, k.f64)
	default:
		return n + planWorkspaceBytes(pl, k.i32)
	}
}

// workspace returns the bytes of a product's workspace, which do not depend on its buffers.
func planWorkspaceBytes[T scalar](pl *Plan, mk *microKernel[T]) int {
	var at gemmJobs[T]
	return at.prepare(pl, mk, &gemm.Buffers{}).bytes() + 2*hugePage
}

// execute computes j with the memory that it needs, and resets it.
func (r *execution) execute(ctx context.Context, pl *Plan, j gemmJob) error {
	defer j.reset() // also if a function of the caller's panics
	r.executor.trace = pl.trace
	r.workspace = getWorkspace(j.bytes())
	r.states = slices.Grow(r.states[:0], pl.Threads)[:pl.Threads]
	j.bind(&r.workspace, r.states)
	err := r.executor.run(ctx, j, pl.Threads, pl.progress)
	r.workspace.put()
	return err
}
