package cpu

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// Plan is a planned product on the CPU. It implements [backend.Plan] and formats its texts on
// demand, so that planning into an existing Plan and running it allocate nothing. Several
// goroutines may run one plan at the same time.
type Plan struct {
	backend.BasePlan
	Problem *gemm.Problem // must not change after planning
	Kernel  *Kernel
	Threads int

	packed   *Packed
	given    *gemm.Problem // the product that Problem is computed for, if [Plan.shift] changes its operands
	whole    *gemm.Problem // the product that contains Problem, or nil
	onTile   func(i, j, rows, cols int)
	method   method
	brief    bool   // whether it may take less time than waking a worker
	named    bool   // whether the caller requested the kernel by name
	limit    string // the value of EnvISA, or empty
	progress func(done, total int64)
	trace    *trace // nil except in tests
}

// The work that justifies another thread: operations on 32-bit elements, and bytes of A, B and C.
// One core with AVX-512 takes 12 µs for the operations, and 25 µs to read as many bytes from L3.
// Half of it justifies the second thread. Waking a worker costs its caller 3.5 µs.
const (
	flopsPerThread = 2e6
	bytesPerThread = 768 << 10
)

// A product with at most this work takes too little time to wake sleeping workers: up to 60 µs on
// one core.
const (
	briefFlops = 1e7
	briefBytes = 3 << 19
)

// NewPlan plans p. Its errors wrap ErrUnsupported.
func NewPlan(p *gemm.Problem, o backend.Options) (Plan, error) {
	var pl Plan
	err := pl.Decide(p, &o)
	return pl, err
}

// Decide plans p as [NewPlan] does, but in place: pl must be zero. Returning a Plan takes as long
// as planning.
func (pl *Plan) Decide(p *gemm.Problem, o *backend.Options) error {
	if err := checkProblem(p); err != nil {
		return err
	}
	c, err := chooseCached(o.Kernel, p.In())
	if err != nil {
		return err
	}
	if o.Packed != nil {
		if pl.packed, err = c.checkPacked(o.Packed, p); err != nil {
			return err
		}
		c.kernel = pl.packed.kernel
	} else if c.kernel, err = c.kernel.with(&o.Config, p); err != nil {
		return err
	}
	pl.named, pl.limit = c.named, c.limit
	return pl.decideFor(c.kernel, p, o)
}

// checkProblem refuses products that only GPUs compute.
func checkProblem(p *gemm.Problem) error {
	switch {
	case p.Precision != gemm.Native:
		return fmt.Errorf("%w: precision %v on the CPU: want %v, or a GPU", gemm.ErrUnsupported, p.Precision,
			gemm.Native)
	case p.Epilogue.Function != nil:
		return fmt.Errorf("%w: a device function on the CPU: want a function of tiles, or a GPU", gemm.ErrUnsupported)
	}
	return nil
}

// checkPacked returns the packed B if the chosen kernel can compute p with it.
func (c *choice) checkPacked(b backend.Packed, p *gemm.Problem) (*Packed, error) {
	packed, ok := b.(*Packed)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: a B that was packed for another device than the CPU", gemm.ErrUnsupported)
	case c.named && c.kernel.Name != packed.kernel.Name:
		return nil, fmt.Errorf("%w: kernel %s for a B that was packed for kernel %s", gemm.ErrUnsupported,
			c.kernel.Name, packed.kernel.Name)
	case p.BlockScaled():
		return nil, fmt.Errorf("%w: block scales with a packed B", gemm.ErrUnsupported)
	case p.Ordered() && !packed.kernel.ordered:
		return nil, fmt.Errorf("%w: a row-invariant product with a packed B: want one that was packed for such products",
			gemm.ErrUnsupported)
	}
	return packed, nil
}

// decideFor plans p for kernel k and, if pl.packed is set, for that B.
func (pl *Plan) decideFor(k *Kernel, p *gemm.Problem, o *backend.Options) error {
	if !k.Multiplies(p.In()) {
		return k.errNoArithmetic(p.In())
	}
	p = pl.setProblem(p)
	pl.Kernel, pl.Threads = k, threadCount(p, o.Threads)
	pl.brief = isBrief(p)
	if n := o.Config.Threads; n > 0 {
		pl.Threads = min(n, Workers(o.Threads))
	}
	switch {
	case k.naive:
		pl.Threads = 1
	case p.Accum() == dtype.F32:
		pl.method = k.f32.methodOf(pl)
	case p.Accum() == dtype.F64:
		pl.method = k.f64.methodOf(pl)
	default:
		pl.method = k.i32.methodOf(pl)
	}
	return nil
}

// methodOf returns the method for a plan. Only the blocked algorithm takes a packed B.
func (mk *microKernel[T]) methodOf(pl *Plan) method {
	if pl.packed != nil {
		return mk.methodForPackedB(pl.Problem)
	}
	return mk.method(pl.Problem)
}

func (k *Kernel) errNoArithmetic(in dtype.Type) error {
	return fmt.Errorf("%w: kernel %s does not multiply matrices of %v", gemm.ErrUnsupported, k.Name, in)
}

// threadCount returns the number of goroutines for p if the caller allows up to asked.
func threadCount(p *gemm.Problem, asked int) int {
	if asked == 1 || IsSerial(p) {
		return 1
	}
	return min(Workers(asked), mostThreads(p))
}

// IsSerial reports whether one thread computes p because it is too small for two.
func IsSerial(p *gemm.Problem) bool { return mostThreads(p) < 2 }

// mostThreads returns the number of threads from which p gains, on a machine with any number.
func mostThreads(p *gemm.Problem) int {
	if splits(p) {
		return ints.CeilDiv(p.K, pieceDepth(p))
	}
	flops, bytes := workOf(p)
	more := max(flops/flopsPerThread, bytes/bytesPerThread)
	if more >= 0.5 {
		more = max(more, 1)
	}
	return int(min(1+more, math.MaxInt32))
}

func isBrief(p *gemm.Problem) bool {
	flops, bytes := workOf(p)
	return flops <= briefFlops && bytes <= briefBytes
}

// workOf returns the number of operations on 32-bit elements that take as long as those of p, and
// the bytes of A, B and C.
func workOf(p *gemm.Problem) (flops, bytes float64) {
	bytes = layoutBytes(p.Layouts[gemm.A]) + layoutBytes(p.Layouts[gemm.B]) + layoutBytes(p.Layouts[gemm.C])
	return p.Flops() * float64(p.In().Size()) / 4, bytes
}

// Why returns the reason for the choice of the kernel.
func (pl *Plan) Why() string {
	switch {
	case pl.named:
		return "requested by name"
	case pl.limit != "":
		return "the fastest kernel for this type that " + EnvISA + "=" + pl.limit + " allows"
	}
	return "the fastest kernel for this type that this CPU can run"
}

// Detail describes the algorithm and its block sizes.
func (pl *Plan) Detail() string {
	switch k := pl.Kernel; {
	case k.naive:
		return "one thread, nothing blocked or packed"
	case pl.Problem.Accum() == dtype.F32:
		return k.f32.detail(pl.Problem, pl.method, pl.packed != nil)
	case pl.Problem.Accum() == dtype.F64:
		return k.f64.detail(pl.Problem, pl.method, pl.packed != nil)
	default:
		return k.i32.detail(pl.Problem, pl.method, pl.packed != nil)
	}
}

// detail describes the method w for p.
func (mk *microKernel[T]) detail(p *gemm.Problem, w method, prepacked bool) string {
	var s string
	switch w.algorithm {
	case algoAxpy:
		m := p.M
		if w.swapAB {
			m = p.N
		}
		if t := mk.axpyTiles(p.In(), m, p.K); t.kernels != nil {
			s = fmt.Sprintf("%d×%d tiles that widen B, %d steps of K at a time", t.height, t.cols, t.depth(m))
		} else {
			s = fmt.Sprintf("fused AXPY on whole rows, %d steps of K at a time", axpyDepth)
		}
	case algoRows:
		s = "AXPY on whole rows of C"
	case algoDot:
		return fmt.Sprintf("dot products of rows, %d at a time", asm.DotRows)
	case algoSplitK:
		piece := pieceOf(p, pieceDepth(p))
		return fmt.Sprintf("split-K, %d steps of K at a time: %s", piece.K, mk.detail(&piece, mk.method(&piece), false))
	case algoBlocked:
		return fmt.Sprintf("%d×%d tiles, MC %d, KC %d, %s", mk.MR, mk.NR, mk.mc, mk.kc, packedText(w.packsA, true, prepacked))
	default:
		s = fmt.Sprintf("%d×%d tiles, %s", len(mk.Direct), mk.NR, packedText(false, w.packsB, false))
		switch w.algorithm {
		case algoCopy:
			s += ", panels of B copied by the first tile"
		case algoStrips:
			if !w.swapAB && stripsOfA(p) {
				s += ", A in strips"
			} else {
				s += ", B in strips"
			}
		case algoStream:
			s += ", rows of A from end to end"
		case algoDeep:
			s += ", several sums per element"
		}
	}
	if w.swapAB {
		s += ", swapAB"
	}
	return s
}

// packedText describes which operands are packed.
func packedText(a, b, prepacked bool) string {
	switch {
	case prepacked && a:
		return "A packed, B prepacked"
	case prepacked:
		return "B prepacked"
	case a:
		return "packed"
	case b:
		return "B packed"
	}
	return "nothing packed"
}

// Run computes the product. [gemm.Buffers.Check] must have accepted the buffers for the problem. If
// ctx ends first, Run returns its error, the contents of C are undefined, and nothing uses the
// buffers any more.
func (pl *Plan) Run(ctx context.Context, b *gemm.Buffers) error {
	if pl.Problem.M == 0 || pl.Problem.N == 0 {
		return ctx.Err()
	}
	if pl.Problem.Epilogue.Gated {
		return pl.runGated(ctx, b)
	}
	return pl.multiply(ctx, b)
}

// runGated first computes the up projection into memory of its own. The epilogue of the gate
// projection then multiplies by it while the tile of C is still in the cache.
func (pl *Plan) runGated(ctx context.Context, b *gemm.Buffers) error {
	first, err := pl.up()
	if err != nil {
		return err
	}
	other := first.Problem
	first.progress = halfProgress(pl.progress, 0)
	sums := dtype.Bytes(make([]float64, (other.C().Bytes()+7)/8))
	if err := first.multiply(ctx, &gemm.Buffers{gemm.A: b[gemm.A], gemm.B: b[gemm.Up], gemm.C: sums}); err != nil {
		return err
	}
	with := *b
	with[gemm.Up] = sums
	second := *pl
	second.progress = halfProgress(pl.progress, 1)
	return second.multiply(ctx, &with)
}

// halfProgress maps the progress of the first (n = 0) or second (n = 1) of two products of equal
// work to the progress of both.
func halfProgress(f func(done, total int64), n int64) func(done, total int64) {
	if f == nil {
		return nil
	}
	return func(done, total int64) { f(n*total+done, 2*total) }
}

// multiply computes a single product.
func (pl *Plan) multiply(ctx context.Context, b *gemm.Buffers) error {
	if pl.given != nil {
		return pl.multiplyShifted(ctx, b)
	}
	switch k := pl.Kernel; pl.Problem.Accum() {
	case dtype.F32:
		return execute(ctx, pl, k.f32, b, func(r *execution) *gemmJobs[float32] { return &r.f32 })
	case dtype.F64:
		return execute(ctx, pl, k.f64, b, func(r *execution) *gemmJobs[float64] { return &r.f64 })
	default:
		return execute(ctx, pl, k.i32, b, func(r *execution) *gemmJobs[int32] { return &r.i32 })
	}
}

// execution is the reusable state of a product that is being computed.
type execution struct {
	executor  executor
	workspace workspace
	states    []phaseState // one per worker
	f32       gemmJobs[float32]
	f64       gemmJobs[float64]
	i32       gemmJobs[int32]
}

var executions = sync.Pool{New: func() any { return new(execution) }}

// gemmJobs holds the state of every algorithm, so that executing one allocates nothing.
type gemmJobs[T scalar] struct {
	naive   naive[T]
	direct  direct[T]
	swapAB  swapAB[T]
	axpy    axpy[T]
	dots    dots[T]
	splitK  splitK[T]
	blocked blocked[T]
}

// gemmJob is a job that computes a product in a workspace.
type gemmJob interface {
	job
	bytes() int
	bind(m *workspace, states []phaseState)
	reset() // drops all references to the caller's memory
}

// execute computes the product with the planned algorithm.
func execute[T scalar](ctx context.Context, pl *Plan, mk *microKernel[T], b *gemm.Buffers,
	jobsOf func(*execution) *gemmJobs[T]) error {
	if isApart(pl.Problem) && !pl.Kernel.naive {
		return multiplyApart(ctx, pl, mk, b)
	}
	if pl.Threads == 1 && pl.progress == nil && pl.trace == nil {
		// For the smallest products the rest of this function takes a noticeable part of the time.
		switch w := pl.method; {
		case w.isDirect() && w.swapAB:
			return runSwapAB(ctx, pl, mk, b)
		case w.isDirect():
			return runDirect(ctx, pl, mk, b)
		case w.algorithm == algoAxpy:
			return runAxpy(ctx, pl, mk, b)
		case w.algorithm == algoDot:
			return runDots(ctx, pl, mk, b)
		}
	}
	r := executions.Get().(*execution)
	defer executions.Put(r)
	return r.execute(ctx, pl, jobsOf(r).prepare(pl, mk, b))
}

// The following functions compute a product on the calling goroutine, with the state on its stack.
// Each clears only the state of its algorithm.

func runDirect[T scalar](ctx context.Context, pl *Plan, mk *microKernel[T], b *gemm.Buffers) error {
	var d direct[T]
	d.prepare(pl.Problem, pl, mk, b)
	return d.runSerial(ctx)
}

func runSwapAB[T scalar](ctx context.Context, pl *Plan, mk *microKernel[T], b *gemm.Buffers) error {
	var d swapAB[T]
	d.prepare(pl, mk, b)
	return d.runSerial(ctx)
}

func runAxpy[T scalar](ctx context.Context, pl *Plan, mk *microKernel[T], b *gemm.Buffers) error {
	var d axpy[T]
	d.prepare(pl, mk, b)
	return d.runSerial(ctx)
}

func runDots[T scalar](ctx context.Context, pl *Plan, mk *microKernel[T], b *gemm.Buffers) error {
	var d dots[T]
	d.prepare(pl, mk, b)
	return d.runSerial(ctx)
}

// prepare sets up the planned algorithm.
func (at *gemmJobs[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) gemmJob {
	switch w := pl.method; {
	case w.algorithm == algoNaive:
		at.naive = newNaive[T](pl, b)
		return &at.naive
	case w.isDirect() && w.swapAB:
		at.swapAB.prepare(pl, mk, b)
		return &at.swapAB
	case w.isDirect():
		at.direct.prepare(pl.Problem, pl, mk, b)
		return &at.direct
	case w.algorithm == algoAxpy:
		at.axpy.prepare(pl, mk, b)
		return &at.axpy
	case w.algorithm == algoDot:
		at.dots.prepare(pl, mk, b)
		return &at.dots
	case w.algorithm == algoSplitK:
		at.splitK.prepare(pl, mk, b)
		return &at.splitK
	default:
		at.blocked = newBlocked(pl, mk, b)
		return &at.blocked
	}
}

// Memory returns the number of bytes that Run allocates: the workspace and the sums of products
// that it computes before C.
func (pl *Plan) Memory() int {
	p := pl.Problem
	if p.M == 0 || p.N == 0 {
		return 0
	}
	n := 0
	if pl.given != nil {
		n = pl.shiftBytes()
	}
	if p.Epilogue.Gated {
		n += p.Other().Layouts[gemm.C].Bytes()
	}
	if isApart(p) {
		n += p.Sums().Layouts[gemm.C].Bytes()
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

// planWorkspaceBytes returns the size of a product's workspace. It does not depend on the buffers.
func planWorkspaceBytes[T scalar](pl *Plan, mk *microKernel[T]) int {
	var at gemmJobs[T]
	return at.prepare(pl, mk, &gemm.Buffers{}).bytes() + 2*hugePage
}

// execute runs j in a workspace from the free list and then resets it.
func (r *execution) execute(ctx context.Context, pl *Plan, j gemmJob) error {
	defer j.reset() // also if a callback panics
	r.executor.trace, r.executor.brief = pl.trace, pl.brief
	r.workspace = getWorkspace(j.bytes())
	defer r.workspace.put()
	r.states = slices.Grow(r.states[:0], pl.Threads)[:pl.Threads]
	j.bind(&r.workspace, r.states)
	return r.executor.run(ctx, j, pl.Threads, pl.progress)
}
