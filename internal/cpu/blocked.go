package cpu

import (
	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// product is one product by five loops around a micro-kernel, numbered from the outermost:
//
//	1  K, kc at a time
//	2  columns of C, ns at a time: pack kc×ns of B
//	·  rows of C, ms at a time: pack ms×kc of A, if it pays
//	3  rows of C, mc at a time               ┐ an item: a tile of C,
//	4  columns of the tile, nr at a time     │ which one goroutine
//	5  rows of the tile, mr at a time        ┘ computes
//	·  the micro-kernel: an mr×nr tile of C in registers, over kc
//
// The BLIS papers number the loops from the innermost and have K inside of the columns: these
// are their loops 4, 5, 3, 2 and 1.
//
// Loop 1 is serial: an element of C is summed over K in one order by any number of
// threads, so that its bits depend on the shape alone. It is the outermost, so that a block is
// packed once that all columns, or all rows, are multiplied with; where sums are kept
// beside C, which there is memory for one block of, it comes within the two after it. These
// three loops are the phases of a task, and packing and computing are a phase each.
type blocked[T scalar] struct {
	*microKernel[T]
	m, n, k     int // k in steps: of an element each, or of int8 several
	a, b        operand[T]
	alpha, beta T

	// Where the sums go: C itself or, when C holds another type, a scratch of
	// ms×ns, from which finish converts.
	c        []T
	ldc      int
	scratch  bool
	epilogue epilogue[T]
	onTile   func(i, j, rows, cols int) // is told of tiles of C that are final, if not nil

	ms, ns, kc int // the micro-kernel's, cut to equal parts of this product
	packsA     bool
	aPack      []T
	bPack      []T
	// B where it was packed before: in words, or in halves, which b.run widens.
	packedLayout packedLayout
	packedB      []T
	halves       bool
	// direct multiplies by a panel of halves as it is, if there is such a micro-kernel and
	// there are so few rows that to widen it first would take longer.
	halfKernel func(k int, a, b, c, next *T, ldc, m, n int, alpha, beta T)

	threads int
	grid    grid
	states  []phaseState // where each slot is
	rows    []T          // for each slot, a row under conversion
}

// newProduct lays out the blocks for the plan's number of threads. Only who computes
// what depends on that number, never the order of a sum.
func newBlocked[T scalar](pl *Plan, mk *microKernel[T], b *gemm.Buffers) blocked[T] {
	p, packed := pl.Problem, pl.packed
	d := blocked[T]{
		microKernel: mk, m: p.M, n: p.N, k: mk.steps(p.K),
		a: operandA(p, b, mk), b: operandB(p, b, mk),
		alpha: alphaOf[T](p), beta: T(p.Beta),
		onTile:  pl.onTile,
		packsA:  !mk.readsInPlace(p),
		scratch: p.C.Type != dtype.Of[T](),
		threads: pl.Threads,
	}
	if !p.ReadsAB() {
		d.k, d.alpha = 0, 0
	}
	d.epilogue.prepare(p, b, mk)
	d.kc = mk.blockOf(d.k)
	ms, ns := d.blocks()
	d.ms = equalParts(d.m, ms, mk.MR)
	d.ns = equalParts(d.n, ns, mk.NR)
	if d.scratch {
		d.ldc = d.ns + cacheLine/dtype.Of[T]().Size() // that rows do not crowd
	} else {
		d.c, d.ldc = dtype.View[T](b.C), p.C.LD
	}
	if packed != nil && len(packed.data) > 0 {
		d.usePacked(p, packed)
	}
	d.grid = newGrid(d.threads, ceilDiv(min(d.m, d.ms), mk.MR), mk.MR, ceilDiv(min(d.n, d.ns), mk.NR), mk.NR)
	return d
}

// blocks are the largest sizes of what is packed at a time. What is soon done with is
// packed in parts that L2 holds until they are multiplied: B where there are few rows, A
// where there are few columns or, as long as nobody else waits for it, always. L2 is taken
// to hold two blocks of A.
func (d *blocked[T]) blocks() (ms, ns int) {
	ms, ns = d.microKernel.ms, d.microKernel.ns
	if d.scratch {
		if d.k <= d.kc { // no sums wait there for the next block of K: L2 holds all
			ms = min(ms, d.threads*d.mc)
		}
		return min(ms, 1024), ns
	}
	if d.m <= d.mc {
		ns = min(ns, d.threads*(2*d.mc-d.m))
	}
	if d.packsA && (d.threads == 1 || d.n <= d.mc) {
		ms = min(ms, d.threads*d.mc)
	}
	return ms, ns
}

// row is how many elements each slot has: what is under conversion or to finish with,
// and a panel of B.
func (d *blocked[T]) rowElems() int {
	if d.halves {
		return d.tmpElems() + d.kc*d.NR
	}
	return d.tmpElems()
}

// spare is what is under conversion at most: a row along K, one to finish with, or the
// steps of a block of A.
func (d *blocked[T]) tmpElems() int { return max(d.kc, epilogueCols, d.Block*d.MR) }

// tmp is a slot's memory for what is under conversion, panelOf that for a panel of B.
func (d *blocked[T]) tmp(worker int) []T     { return d.rows[worker*d.rowElems():][:d.tmpElems()] }
func (d *blocked[T]) panelOf(worker int) []T { return d.rows[worker*d.rowElems()+d.tmpElems():] }

// The sizes of what is packed and summed at a time.
func (d *blocked[T]) sizes() (a, b, c int) {
	if d.packsA {
		a = d.ms * d.kc
	}
	if d.scratch {
		c = d.ms * d.ldc
	}
	if d.packedB == nil {
		b = d.ns * (d.headerRows() + d.kc)
	}
	return a, b, c
}

func (d *blocked[T]) bytes() int {
	a, b, c := d.sizes()
	return allocBytes[T](a) + allocBytes[T](b) + allocBytes[T](c) + allocBytes[T](d.threads*d.rowElems())
}

func (d *blocked[T]) bind(m *workspace, states []phaseState) {
	a, b, c := d.sizes()
	d.aPack, d.bPack = alloc[T](m, a), alloc[T](m, b)
	if d.scratch {
		d.c = alloc[T](m, c)
	}
	d.rows, d.states = alloc[T](m, d.threads*d.rowElems()), states
}

// steps is how many steps k terms are, blockOf how many of them a block has at most.
func (mk *microKernel[T]) steps(k int) int {
	unit := max(mk.Block, 1)
	return ceilDiv(ceilDiv(k, mk.Group), unit) * unit
}
func (mk *microKernel[T]) blockOf(steps int) int { return equalParts(steps, mk.kc, max(mk.Block, 8)) }

// top is the number of rows of a panel of B before the first step.
func (mk *microKernel[T]) headerRows() int {
	if mk.Compensate != nil {
		return 1
	}
	return 0
}

// crowding is a distance of a matrix's rows, in bytes, whose multiples fall on one set
// of an L1 cache with 64 of them, and on a few of an L2 cache: rows evict each other.
const conflictStride = 4 << 10

// crowds reports whether a matrix's rows do.
func hasSetConflicts(l gemm.Layout) bool { return l.LD*l.Type.Size()%conflictStride == 0 }

// inPlaceBytes is how large A may be to be read where it lies, again for each panel of B:
// beyond, its rows are on more pages than the processor knows the addresses of.
// It takes as long to pack A as to read it badly for so many columns, however large it is.
const (
	inPlaceBytes = 2 << 20
	inPlaceCols  = 64
)

// readsInPlace reports whether the micro-kernel may as well read A where it lies: its
// rows run along K, which is the order in which panels would have them, and do not
// crowd, unless all that is soon over.
func (mk *microKernel[T]) readsInPlace(p *gemm.Problem) bool {
	if mk.packing != "" {
		return mk.packing == PackB
	}
	return mk.canReadInPlace(p) && (p.N <= inPlaceCols || layoutBytes(p.A) <= inPlaceBytes && !hasSetConflicts(p.A))
}

// canReadInPlace reports whether A need not be packed.
func (mk *microKernel[T]) canReadInPlace(p *gemm.Problem) bool {
	return len(mk.Direct) > 0 && p.ReadsAB() && p.A.Type == dtype.Of[T]() && !p.A.Trans
}

// place is the phase that a slot is in: a block of the product, to be packed or computed.
type phaseState struct {
	computing        bool
	transposing      bool // see flipped
	i0, j0, p0       int  // the block: rows i0…, columns j0…, p0… of K
	rows, cols, deep int  // and its size

	// Of a phase that computes: an item's tile of C, and how many a share has, across
	// and in all.
	mc, nc, tilesAcross, perQueue int

	// Of one that packs: how much of K an item packs, of how many panels there are and
	// how many parts each has, of A and of B.
	a, b panels

	_ [cacheLine]byte
}

// panels are the items of a phase that packs one operand.
type panels struct {
	count, parts int // panels, and parts of each
	deep         int // a part's share of K
	perQueue     int // items of a share
	// rowwise says that items go through all panels before the next part of K: along rows
	// that are pages apart, each of which is then visited once.
	rowwise    bool
	headerRows int // rows of a panel before the first step; a panel that has one is not cut
}

func (d *blocked[T]) reset() { *d = blocked[T]{} }

func (d *blocked[T]) phases() int {
	return 2 * ceilDiv(d.n, d.ns) * ceilDiv(d.m, d.ms) * max(1, ceilDiv(d.k, d.kc))
}

func (d *blocked[T]) enter(phase, worker int) (tasks int) {
	deep, down, across := max(1, ceilDiv(d.k, d.kc)), ceilDiv(d.m, d.ms), ceilDiv(d.n, d.ns)
	block := phase / 2
	row, col, step := block%down, block/down%across, block/down/across
	if d.scratch {
		step, row, col = block%deep, block/deep%down, block/deep/down
	}
	w := &d.states[worker]
	*w = phaseState{computing: phase%2 == 1, p0: step * d.kc, i0: row * d.ms, j0: col * d.ns}
	w.rows, w.cols, w.deep = min(d.ms, d.m-w.i0), min(d.ns, d.n-w.j0), min(d.kc, d.k-w.p0)
	if w.computing {
		w.mc, w.nc, w.tilesAcross, w.perQueue = d.taskTile(w)
		return d.threads * w.perQueue
	}
	// Panels may be those of the block before, if that was of the same part of K.
	same := !d.scratch || deep == 1
	if d.packsA && !(same && down == 1 && col > 0) {
		w.a = d.panels(&d.a, ceilDiv(w.rows, d.MR), w.deep, 0)
	}
	if d.packedB == nil && !(same && row > 0) {
		w.b = d.panels(&d.b, ceilDiv(w.cols, d.NR), w.deep, d.headerRows())
	}
	return d.threads * (w.a.perQueue + w.b.perQueue)
}

// panels cuts the packing of so many panels: into whole ones, or parts if they are too
// few for the threads.
func (d *blocked[T]) panels(o *operand[T], count, deep, top int) panels {
	const least = 32 // steps of K, some 2 to 4 KiB
	p := panels{count: count, parts: 1, deep: deep, headerRows: top}
	switch {
	case deep <= least || top > 0:
	case d.threads == 1 && !o.alongK:
		p.deep, p.parts, p.rowwise = least, ceilDiv(deep, least), true
	case d.threads > 1:
		unit := max(d.Block, 8)
		p.deep = max(least, ceilDiv(ceilDiv(deep, ceilDiv(4*d.threads, count)), unit)*unit)
		p.parts = ceilDiv(deep, p.deep)
	}
	p.perQueue = ceilDiv(p.count*p.parts, d.threads)
	return p
}

// The work of an item, in multiply-adds: below least it is over in less than 2 µs, above
// most in 40 µs or more at the speed of a core with AVX-512.
const (
	minTaskOps = 1 << 17
	maxTaskOps = 1 << 21
)

// item chooses what one item computes. A share has at least four, so that others can
// help, and consecutive ones lie side by side: they use the same rows of A.
func (d *blocked[T]) taskTile(w *phaseState) (mc, nc, across, each int) {
	rows := ceilDiv(ceilDiv(w.rows, d.MR), d.grid.down) * d.MR
	cols := ceilDiv(ceilDiv(w.cols, d.NR), d.grid.across) * d.NR
	deep := max(w.deep, 1)
	mc = equalParts(rows, d.mc, d.MR)
	work := maxTaskOps
	if d.threads > 1 {
		work = min(work, max(minTaskOps, rows*cols*deep/4))
		if mc*d.NR*deep > work && rows*cols < 4*mc*d.NR {
			mc = equalParts(mc, work/(d.NR*deep), d.MR)
		}
	}
	nc = min(cols, max(1, work/(mc*deep)/d.NR)*d.NR)
	across = ceilDiv(cols, nc)
	return mc, nc, across, ceilDiv(rows, mc) * across
}

func (d *blocked[T]) do(task, worker int) {
	w := &d.states[worker]
	if !w.computing {
		each := w.a.perQueue + w.b.perQueue
		queue, task := task/each, task%each
		if task < w.b.perQueue {
			d.pack(d.bPack, &d.b, d.NR, w.j0, w.cols, w.b, queue, task, w, worker)
		} else {
			d.pack(d.aPack, &d.a, d.MR, w.i0, w.rows, w.a, queue, task-w.b.perQueue, w, worker)
		}
		return
	}
	queue, task := task/w.perQueue, task%w.perQueue
	i, iEnd := part(ceilDiv(w.rows, d.MR), queue%d.grid.down, d.grid.down)
	j, jEnd := part(ceilDiv(w.cols, d.NR), queue/d.grid.down, d.grid.across)
	i, iEnd = i*d.MR+task/w.tilesAcross*w.mc, min(iEnd*d.MR, w.rows)
	j, jEnd = j*d.NR+task%w.tilesAcross*w.nc, min(jEnd*d.NR, w.cols)
	if i < iEnd && j < jEnd {
		d.compute(w, i, j, min(w.mc, iEnd-i), min(w.nc, jEnd-j), worker)
	}
}

// pack packs one of a share's items: a part of a panel, of r rows, of the n rows of o
// from x0 on.
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
		d.Compensate(w.deep, &panel[0])
	}
}

// compute runs loops 4 and 5 for the rows×cols tile of C at (i, j) of the block. While a
// panel of B is multiplied the next one comes from L3, a part with each call of the
// micro-kernel.
func (d *blocked[T]) compute(w *phaseState, i, j, rows, cols, worker int) {
	k, beta := w.deep, T(1)
	if w.p0 == 0 {
		beta = d.beta
		if d.scratch {
			beta = 0 // finish adds β·C
		}
	}
	c, at := d.c, i*d.ldc+j
	if !d.scratch {
		at += w.i0*d.ldc + w.j0
	}
	last := w.p0+k >= d.k
	line := asm.Line / dtype.Of[T]().Size() // elements
	fetched := k / asm.Ahead * line         // by one call
	if !d.packsA {
		fetched = k / asm.DirectAhead * line
	}
	high := d.MR // rows that one call computes
	switch {
	case d.Block > 0:
		high = epilogueCols / d.MR * d.MR
	case !d.packsA:
		high = equalParts(rows, d.MR, 1) // no tile of a few rows at the end
	}
	finishes := last && d.epilogue.needed
	for jr := 0; jr < cols; jr += d.NR {
		b, ahead := d.panel(w, j+jr, worker)
		cols := min(d.NR, cols-jr)
		for ir := 0; ir < rows; ir += high {
			m, at := min(high, rows-ir), at+ir*d.ldc+jr
			if finishes {
				d.epilogue.prefetch(w.i0+i+ir, w.j0+j+jr, m, cols)
			}
			next := &ahead[min(ir/d.MR*fetched, len(ahead)-1)]
			switch {
			case d.halfKernel != nil:
				d.halfKernel(k, &d.aPack[(i+ir)*k], b, &c[at], next, d.ldc, m, cols, d.alpha, beta)
			case !d.packsA:
				row := &d.a.data[d.a.index(w.i0+i+ir, w.p0)]
				d.Direct[m-1](k, row, d.a.ld, 1, b, d.NR, &c[at], next, line, d.ldc, cols, d.alpha, beta)
			case m < len(d.Direct): // no more rows than there are
				d.Direct[m-1](k, &d.aPack[(i+ir)*k], 1, d.MR, b, d.NR, &c[at], next, line, d.ldc, cols, d.alpha, beta)
			default:
				d.Packed(k, &d.aPack[(i+ir)*k], b, &c[at], next, d.ldc, m, cols, d.alpha, beta)
			}
			if finishes {
				d.epilogue.apply(c[at:], d.ldc, w.i0+i+ir, w.j0+j+jr, m, cols, d.tmp(worker))
			}
		}
		if last && d.onTile != nil {
			d.onTile(w.i0+i, w.j0+j+jr, rows, cols)
		}
	}
}

// grid is how C is shared out: a part for each thread, the shares numbered down the
// columns, so that those with the same columns of B, which pack them too, follow each
// other.
type grid struct{ down, across int }

// newGrid finds the grid for a C of so many tiles. What a share takes is the product of
// its sides, its operations, and their sum, what it reads of A and B.
func newGrid(threads, rows, mr, cols, nr int) (best grid) {
	// An element that another core has packed takes as long to come as some 24
	// multiply-adds: 0.4 ns, where a core does 60 to 130 operations in a nanosecond.
	const fetch = 24
	least := 0
	for down := 1; down <= threads; down++ {
		if threads%down != 0 {
			continue
		}
		r, c := ceilDiv(rows, down)*mr, ceilDiv(cols, threads/down)*nr
		if cost := r*c + fetch*(r+c); down == 1 || cost < least {
			best, least = grid{down, threads / down}, cost
		}
	}
	return best
}

// part is where the i'th of parts begins and ends that n are cut into, as equal as can
// be.
func part(n, i, parts int) (first, end int) { return i * n / parts, (i + 1) * n / parts }

// equalParts cuts n into the fewest parts of at most size, all multiples of unit
// but the last, and as equal as that allows: it returns their size.
func equalParts(n, size, unit int) int {
	switch {
	case n <= unit:
		return unit
	case n <= size-unit: // it is one part, and divisions take time where products are small
		return ceilDiv(n, unit) * unit
	case n <= size && unit == 1:
		return n
	}
	size = max(size/unit*unit, unit)
	return ceilDiv(ceilDiv(n, ceilDiv(n, size)), unit) * unit
}

func ceilDiv(n, d int) int { return (n + d - 1) / d }
