package cpu

import (
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// blocked computes a product with the five loops of BLIS around a micro-kernel, here numbered from
// the outermost:
//
//	1  K, kc at a time
//	2  columns of C, ns at a time: pack kc×ns of B, unless tiles copy it
//	·  rows of C, ms at a time: pack ms×kc of A, if it pays
//	3  rows of C, mc at a time               ┐ a task: a tile of C,
//	4  columns of the tile, nr at a time     │ computed by one worker
//	5  rows of the tile, mr at a time        ┘
//	·  the micro-kernel: an mr×nr tile of C in registers, over kc
//
// The BLIS papers number the loops from the innermost and put the loop over K inside the loop over
// columns: these are their loops 4, 5, 3, 2 and 1.
//
// Loop 1 is serial. Each element of C is therefore summed over K in the same order for any number
// of threads, and its bits depend on the shape alone. It is the outermost loop, so that a packed
// block is multiplied with all columns, or all rows, before the next one is packed. If the sums go
// to scratch memory, which holds a single ms×ns block of C, loop 1 moves inside the other two. The
// outer three loops are phases of the job: each block has one phase for packing and one for
// computing.
type blocked[T scalar] struct {
	mk          *microKernel[T]
	m, n, k     int // k counts steps: one element each, or Group elements
	a, b        operand[T]
	alpha, beta T

	// c receives the sums. It is C itself or, if C has another type, a scratch block of ms×ns from
	// which the epilogue converts to C.
	c        []T
	ldc      int
	scratch  bool
	partial  partial[T]
	epilogue epilogue[T]
	onTile   func(i, j, rows, cols int) // called with each final tile of C, unless nil

	ms, ns, kc  int // the micro-kernel's block sizes, made equal for this product
	packsA      bool
	nonTemporal bool // whether whole tiles are written with non-temporal stores
	// copies is set if B is not packed in advance: the first tile that reads a panel copies it for the
	// tiles below. With several workers each then computes all rows of its columns. keeps is set if
	// the copied panels of a block serve several tasks. Otherwise each worker has room for one panel.
	copies, keeps bool
	aPack, bPack  []T
	// B if it was packed in advance, in words or in 16-bit elements that b.copyRun widens.
	packedLayout packedLayout
	packedB      []T
	halves       bool
	// tiles has kernels if tiles widen 16-bit elements of packed panels. Widening each panel first
	// takes longer if there are few rows.
	tiles  wideningTiles[T]
	height int // rows of a tile and of a panel of A

	threads int
	grid    grid
	states  []phaseState // the block of each worker
	rows    []T          // for each worker, elements under conversion
}

// newBlocked sets up the product. The division into tasks depends on the number of threads; the
// order of summation does not.
func newBlocked[T scalar](pl *Plan, mk *microKernel[T], b *gemm.Buffers) blocked[T] {
	p, packed := pl.Problem, pl.packed
	d := blocked[T]{
		mk: mk, m: p.M, n: p.N, k: mk.steps(p.K),
		a: operandA(p, b, mk), b: operandB(p, b, mk),
		alpha: alphaOf[T](p), beta: T(real(p.Beta)),
		onTile:  pl.onTile,
		packsA:  pl.method.packsA,
		scratch: p.Out() != dtype.Of[T](),
		threads: pl.Threads,
		height:  mk.MR,
	}
	if !p.ReadsAB() {
		d.k, d.alpha = 0, 0
	}
	d.epilogue.prepare(p, b, mk)
	d.kc = mk.blockOf(d.k)
	if d.scratch {
		d.beta = 0 // the epilogue adds β·C
	}
	d.partial.deferAlpha(p, d.k <= d.kc, &d.alpha, &d.beta)
	d.copies = packed == nil && mk.canCopy(p) &&
		(d.threads == 1 || d.m <= copiedBlocks*d.mk.mc && d.n >= d.threads*max(d.m/2, mk.NR))
	d.keeps = d.threads == 1 && d.m > d.mk.mc
	if packed != nil && len(packed.data) > 0 {
		d.usePacked(p, packed)
	}
	ms, ns := d.blocks()
	d.ms = equalParts(d.m, ms, d.height)
	d.ns = equalParts(d.n, ns, mk.NR)
	if d.scratch {
		d.ldc = d.ns + dtype.Of[T]().Elements(cacheLine) // not a power of two, to avoid set conflicts
	} else {
		d.c, d.ldc = dtype.View[T](b[gemm.C]), p.C().LD
	}
	d.nonTemporal = mk.passesCache(p, algoBlocked) && !d.epilogue.needed && d.onTile == nil && !d.scratch &&
		isLineAligned(d.c, d.ldc)
	if d.grid = (grid{1, d.threads}); !d.copies {
		d.grid = newGrid(d.threads, ints.CeilDiv(min(d.m, d.ms), d.height), d.height,
			ints.CeilDiv(min(d.n, d.ns), mk.NR), mk.NR)
	}
	return d
}

// columnsPerRow is the least number of columns of a block of B for each row of A if each block
// packs A again. Packing A then takes at most an eighth of the time of packing B.
const columnsPerRow = 8

// blocks returns the largest block sizes to pack at a time. A block that is soon done with is
// packed in parts that stay in L2 until they are multiplied: B for few rows, A for few columns or,
// on a single thread, always. L2 is assumed to hold two blocks of A.
func (d *blocked[T]) blocks() (ms, ns int) {
	ms, ns = d.mk.ms, d.mk.ns
	few, again := 2*d.mk.mc-d.m, d.scratch && d.k > d.kc // whether each block of columns packs A again
	if d.m <= d.mk.mc && !d.copies && d.packedB == nil && (!again || columnsPerRow*d.m <= few) {
		ns = min(ns, d.threads*few)
	}
	if d.scratch {
		if d.k <= d.kc { // no sums wait in scratch memory for the next block of K, so L2 holds them all
			ms = min(ms, d.threads*d.mk.mc)
		}
		return min(ms, 1024), ns
	}
	if d.packsA && (d.threads == 1 || d.n <= d.mk.mc) {
		ms = min(ms, d.threads*d.mk.mc)
	}
	return ms, ns
}

// rowElems returns the size of a worker's scratch memory: elements under conversion and a widened
// panel of B.
func (d *blocked[T]) rowElems() int {
	if d.halves {
		return d.tmpElems() + d.kc*d.mk.NR
	}
	return d.tmpElems()
}

// tmpElems returns the maximum number of elements under conversion: a row along K, the columns of
// an epilogue, or the steps of a block of A.
func (d *blocked[T]) tmpElems() int { return max(d.kc, epilogueCols, d.mk.Block*d.mk.MR) }

// tmp returns a worker's memory for elements under conversion, panelOf its memory for a panel of B.
func (d *blocked[T]) tmp(worker int) []T     { return d.rows[worker*d.rowElems():][:d.tmpElems()] }
func (d *blocked[T]) panelOf(worker int) []T { return d.rows[worker*d.rowElems()+d.tmpElems():] }

// sizes returns the number of elements packed of A and B and summed in scratch memory at a time.
func (d *blocked[T]) sizes() (a, b, c int) {
	if d.packsA {
		a = d.ms * d.kc
	}
	if d.scratch {
		c = d.ms * d.ldc
	}
	switch {
	case d.packedB != nil:
	case d.copies && !d.keeps:
		b = d.threads * d.kc * d.mk.NR
	default:
		b = d.ns * (d.mk.headerRows() + d.kc)
	}
	return a, b, c
}

func (d *blocked[T]) bytes() int {
	a, b, c := d.sizes()
	return allocBytes[T](a) + allocBytes[T](b) + allocBytes[T](c) + allocBytes[T](d.threads*d.rowElems()) +
		d.partial.bytes()
}

func (d *blocked[T]) bind(m *workspace, states []phaseState) {
	a, b, c := d.sizes()
	d.aPack, d.bPack = alloc[T](m, a), alloc[T](m, b)
	if d.scratch {
		d.c = alloc[T](m, c)
	}
	d.rows, d.states = alloc[T](m, d.threads*d.rowElems()), states
	d.partial.bind(m)
}

// steps returns the number of steps for k terms, rounded up to whole blocks of A. blockOf returns
// the number of steps in a block of K.
func (mk *microKernel[T]) steps(k int) int {
	unit := max(mk.Block, 1)
	return ints.CeilDiv(ints.CeilDiv(k, mk.Group), unit) * unit
}
func (mk *microKernel[T]) blockOf(steps int) int { return equalParts(steps, mk.kc, max(mk.Block, 8)) }

// headerRows returns the number of rows of a panel of B before its first step: 1 if the panel
// starts with a row of compensation.
func (mk *microKernel[T]) headerRows() int {
	if mk.Compensate != nil {
		return 1
	}
	return 0
}

// conflictStride is a distance between rows, in bytes, at which they evict each other. Its
// multiples map to a single set of an L1 cache with 64 sets, and to a few sets of an L2 cache.
const conflictStride = 4 << 10

// hasSetConflicts reports whether the rows of a matrix evict each other.
func hasSetConflicts(l gemm.Layout) bool { return l.Type.Bytes(l.LD)%conflictStride == 0 }

// canReadInPlace reports whether the micro-kernels can read A unpacked.
func (mk *microKernel[T]) canReadInPlace(p *gemm.Problem) bool {
	return len(mk.Direct) > 0 && p.ReadsAB() && p.In() == dtype.Of[T]() && !p.A().Trans
}

// copiedBlocks is the largest number of blocks of mc rows for which several workers let tiles copy
// B. With more rows it takes less time to pack B, and to read A in blocks that stay in L2.
const copiedBlocks = 4

// canCopy reports whether tiles can copy B: if it is stored in rows. Rows that evict each other are
// packed if several blocks of rows of C read them.
func (mk *microKernel[T]) canCopy(p *gemm.Problem) bool {
	return len(mk.Direct) > 0 && mk.Copy != nil && p.ReadsAB() && p.In() == dtype.Of[T]() && !p.B().Trans &&
		!p.BlockScaled() && (p.M <= mk.mc || !hasSetConflicts(p.Layouts[gemm.B]))
}

// phaseState is the phase that a worker has entered: a block of the product to pack or to compute.
type phaseState struct {
	computing        bool
	copies           bool // whether the first tiles copy B
	transposing      bool // see swapAB
	i0, j0, p0       int  // the block starts at row i0, column j0 and step p0
	rows, cols, deep int  // and has this size

	// For a computing phase: the size of a task's tile of C, the tiles from left to right, and the
	// tasks per queue.
	mc, nc, tilesAcross, perQueue int

	// For a packing phase: the division of A's and B's panels into tasks.
	a, b panels

	_ [cacheLine]byte
}

// panels describes the tasks of a phase that pack one operand.
type panels struct {
	count, parts int // panels, and parts of each along K
	deep         int // steps of K in a part
	perQueue     int // tasks per queue
	// rowwise orders tasks by K first: all panels pack their first part before any packs its
	// second. If rows are pages apart, each page is then visited once.
	rowwise    bool
	headerRows int // rows of a panel before its first step; a panel with one is not divided
}

func (d *blocked[T]) reset() { *d = blocked[T]{} }

func (d *blocked[T]) phases() int {
	return 2 * ints.CeilDiv(d.n, d.ns) * ints.CeilDiv(d.m, d.ms) * max(1, ints.CeilDiv(d.k, d.kc))
}

func (d *blocked[T]) enter(phase, worker int) (tasks int) {
	deep, down, across := max(1, ints.CeilDiv(d.k, d.kc)), ints.CeilDiv(d.m, d.ms), ints.CeilDiv(d.n, d.ns)
	block := phase / 2
	row, col, step := block%down, block/down%across, block/down/across
	if d.scratch {
		step, row, col = block%deep, block/deep%down, block/deep/down
	}
	w := &d.states[worker]
	*w = phaseState{computing: phase%2 == 1, p0: step * d.kc, i0: row * d.ms, j0: col * d.ns}
	w.rows, w.cols, w.deep = min(d.ms, d.m-w.i0), min(d.ns, d.n-w.j0), min(d.kc, d.k-w.p0)
	// The previous block's panels remain valid if it covered the same part of K.
	same := !d.scratch || deep == 1
	w.copies = d.copies && !(d.keeps && same && row > 0)
	if w.computing {
		w.mc, w.nc, w.tilesAcross, w.perQueue = d.taskTile(w)
		return d.threads * w.perQueue
	}
	if d.packsA && !(same && down == 1 && col > 0) {
		w.a = d.panels(&d.a, ints.CeilDiv(w.rows, d.height), w.deep, 0)
	}
	if d.packedB == nil && !d.copies && !(same && row > 0) {
		w.b = d.panels(&d.b, ints.CeilDiv(w.cols, d.mk.NR), w.deep, d.mk.headerRows())
	}
	return d.threads * (w.a.perQueue + w.b.perQueue)
}

// panels divides the packing of count panels into tasks: whole panels, or parts if there are too
// few panels for the threads.
func (d *blocked[T]) panels(o *operand[T], count, deep, top int) panels {
	const least = 32 // steps of K, 2 to 4 KiB
	p := panels{count: count, parts: 1, deep: deep, headerRows: top}
	switch {
	case deep <= least || top > 0:
	case d.threads == 1 && !o.alongK:
		p.deep, p.parts, p.rowwise = least, ints.CeilDiv(deep, least), true
	case d.threads > 1:
		unit := max(d.mk.Block, 8)
		p.deep = max(least, ints.CeilDiv(ints.CeilDiv(deep, ints.CeilDiv(4*d.threads, count)), unit)*unit)
		p.parts = ints.CeilDiv(deep, p.deep)
	}
	p.perQueue = ints.CeilDiv(p.count*p.parts, d.threads)
	return p
}

// The range of a task's work, in multiply-adds. On a core with AVX-512 the minimum takes less than
// 2 µs and the maximum 40 µs or more.
const (
	minTaskOps = 1 << 17
	maxTaskOps = 1 << 21
)

// taskTile chooses the tile of C that one task computes. A queue has at least four tasks, so that
// other workers can steal some. Consecutive tasks are side by side and use the same rows of A.
func (d *blocked[T]) taskTile(w *phaseState) (mc, nc, across, perQueue int) {
	rows := ints.CeilDiv(ints.CeilDiv(w.rows, d.height), d.grid.down) * d.height
	cols := ints.CeilDiv(ints.CeilDiv(w.cols, d.mk.NR), d.grid.across) * d.mk.NR
	deep := max(w.deep, 1)
	mc = equalParts(rows, d.mk.mc, d.height)
	work := maxTaskOps
	if d.threads > 1 {
		work = min(work, max(minTaskOps, rows*cols*deep/4))
		if mc*d.mk.NR*deep > work && rows*cols < 4*mc*d.mk.NR {
			mc = equalParts(mc, work/(d.mk.NR*deep), d.height)
		}
	}
	if d.copies && !d.keeps {
		mc = rows
	}
	nc = min(cols, max(1, work/(mc*deep)/d.mk.NR)*d.mk.NR)
	across = ints.CeilDiv(cols, nc)
	return mc, nc, across, ints.CeilDiv(rows, mc) * across
}

func (d *blocked[T]) do(task, worker int) {
	w := &d.states[worker]
	if !w.computing {
		perQueue := w.a.perQueue + w.b.perQueue
		queue, task := task/perQueue, task%perQueue
		if task < w.b.perQueue {
			d.pack(d.bPack, &d.b, d.mk.NR, w.j0, w.cols, w.b, queue, task, w, worker)
		} else {
			d.pack(d.aPack, &d.a, d.height, w.i0, w.rows, w.a, queue, task-w.b.perQueue, w, worker)
		}
		return
	}
	queue, task := task/w.perQueue, task%w.perQueue
	i, iEnd := part(ints.CeilDiv(w.rows, d.height), queue%d.grid.down, d.grid.down)
	j, jEnd := part(ints.CeilDiv(w.cols, d.mk.NR), queue/d.grid.down, d.grid.across)
	i, iEnd = i*d.height+task/w.tilesAcross*w.mc, min(iEnd*d.height, w.rows)
	j, jEnd = j*d.mk.NR+task%w.tilesAcross*w.nc, min(jEnd*d.mk.NR, w.cols)
	if i < iEnd && j < jEnd {
		d.compute(w, i, j, min(w.mc, iEnd-i), min(w.nc, jEnd-j), worker)
	}
}

// pack runs one packing task of a queue: it packs a part of a panel of r rows, from the n rows of o
// that start at x0.
func (d *blocked[T]) pack(dst []T, o *operand[T], r, x0, n int, ps panels, queue, task int, w *phaseState, worker int) {
	first, end := part(ps.count*ps.parts, queue, d.threads)
	if task += first; task >= end {
		return
	}
	x, p := task/ps.parts*r, task%ps.parts*ps.deep
	if ps.rowwise {
		x, p = task%ps.count*r, task/ps.count*ps.deep
	}
	panel := dst[x*(ps.headerRows+w.deep):]
	o.pack(panel[(ps.headerRows+p)*r:], r, x0+x, min(r, n-x), w.p0+p, min(ps.deep, w.deep-p), d.tmp(worker))
	if ps.headerRows > 0 {
		d.mk.Compensate(w.deep, &panel[0])
	}
}

// compute runs loops 4 and 5 for the rows×cols tile at (i, j) of the block of C. While it
// multiplies one panel of B, each call of the micro-kernel prefetches a part of the next panel from
// L3.
func (d *blocked[T]) compute(w *phaseState, i, j, rows, cols, worker int) {
	k, beta := w.deep, T(1)
	if w.p0 == 0 {
		beta = d.beta
	}
	c, at := d.c, i*d.ldc+j
	if !d.scratch {
		at += w.i0*d.ldc + w.j0
	}
	last := w.p0+k >= d.k
	line := dtype.Of[T]().Elements(asm.Line) // elements
	fetched := k / asm.Ahead * line          // elements prefetched by one call
	if !d.packsA {
		fetched = k / asm.DirectAhead * line
	}
	copies := w.copies && i == 0
	first, high := d.height, d.height // rows that the first call computes, and each further one
	switch {
	case d.mk.Block > 0:
		high = epilogueCols / d.mk.MR * d.mk.MR
		first = high
	case d.packsA || d.nonTemporal: // only whole tiles are written with non-temporal stores
	case copies && rows >= d.mk.MR:
		high = equalParts(rows-d.mk.MR, d.mk.MR, 1) // equal heights, without a tile of a few rows at the end
	default:
		high = equalParts(rows, d.mk.MR, 1)
		first = high
	}
	finishes := last && (d.epilogue.needed || d.partial.deferred)
	for jr := 0; jr < cols; jr += d.mk.NR {
		b, ahead := d.panel(w, j+jr, worker)
		cols := min(d.mk.NR, cols-jr)
		var raw lookahead[T]
		copying := copies && rows >= d.mk.MR && cols == d.mk.NR // by the first tile
		if copies {
			raw = d.panelAhead(w.p0, w.j0+j+jr, k)
			if !copying {
				d.b.pack(slice(b, k*d.mk.NR), d.mk.NR, w.j0+j+jr, cols, w.p0, k, d.tmp(worker))
			}
		}
		for ir, m := 0, min(first, rows); ir < rows; ir, m = ir+m, min(high, rows-ir-m) {
			at := at + ir*d.ldc + jr
			if finishes {
				d.epilogue.prefetch(w.i0+i+ir, w.j0+j+jr, m, cols)
			}
			a, rsa, csa := d.rowsOfA(w, i+ir)
			next := &ahead[min(ir/d.height*fetched, len(ahead)-1)]
			streams := d.nonTemporal && m == d.mk.MR && cols == d.mk.NR
			switch {
			case d.tiles.kernels != nil:
				panel, at := (*uint16)(unsafe.Pointer(b)), &c[at]
				next, apart := d.tiles.ahead(ahead, ir, rows, k)
				d.tiles.kernelFor(m)(k, a, csa, panel, next, d.mk.NR, apart, at, d.ldc, m, cols, d.alpha, beta)
			case copying && ir == 0:
				d.mk.Copy(k, a, rsa, csa, &d.b.data[d.b.index(w.j0+j+jr, w.p0)], d.b.ld, &c[at], b, 0, d.ldc, cols,
					d.alpha, beta)
			case copies:
				next, apart := raw.take(k / asm.DirectAhead)
				kernel := d.mk.Direct[m-1]
				if streams {
					kernel = d.mk.Stream
				}
				kernel(1, k, a, rsa, csa, b, d.mk.NR, &c[at], next, apart, d.ldc, cols, d.alpha, beta)
			case streams:
				d.mk.Stream(1, k, a, rsa, csa, b, d.mk.NR, &c[at], next, line, d.ldc, cols, d.alpha, beta)
			case !d.packsA || m < len(d.mk.Direct): // skips the rows that are padding
				d.mk.Direct[m-1](1, k, a, rsa, csa, b, d.mk.NR, &c[at], next, line, d.ldc, cols, d.alpha, beta)
			default:
				d.mk.Packed(k, a, b, &c[at], next, d.ldc, m, cols, d.alpha, beta)
			}
			if finishes {
				d.partial.finish(d.mk, m, cols, c[at:], d.ldc)
				if d.epilogue.needed {
					d.epilogue.apply(c[at:], d.ldc, w.i0+i+ir, w.j0+j+jr, m, cols, d.tmp(worker))
				}
			}
		}
		if last && d.onTile != nil {
			d.onTile(w.i0+i, w.j0+j+jr, rows, cols)
		}
	}
	if d.nonTemporal {
		asm.Fence()
	}
}

// rowsOfA returns the tile of A that starts at row i of the block, and its strides between rows and
// along K.
func (d *blocked[T]) rowsOfA(w *phaseState, i int) (a *T, rsa, csa int) {
	if d.packsA {
		return &d.aPack[i*w.deep], 1, d.height
	}
	return &d.a.data[d.a.index(w.i0+i, w.p0)], d.a.ld, 1
}
