package cpu

import (
	"context"
	"math/bits"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// direct computes a product without packing: the micro-kernels read A and B as stored. It serves
// small products, whose packing would take as long as their arithmetic, and products with so few
// rows, columns or steps of K that packed data would hardly be reused. A may be transposed. B is
// packed if it is transposed, or if its method packs B.
type direct[T scalar] struct {
	mk          *microKernel[T]
	m, n, k     int
	a, b, c     []T
	rsa, csa    int // A's strides between rows and along K
	ldb, ldc    int
	alpha, beta T
	partial     partial[T]
	epilogue    epilogue[T]
	onTile      func(i, j, rows, cols int) // see blocked
	threads     int
	mc, nc      int        // a task's tile of C
	depth       int        // steps of K at a time: as in the blocked algorithm, for the same bits, except in strips
	stripsOfA   bool       // whether A, and not B, is in strips
	nonTemporal bool       // whether whole tiles are written with non-temporal stores
	packing     operand[T] // B, if all of it is packed
	panels      []T        // the packed B: panels of K×panelCols, each with room for panelDepth steps of packCols
	packCols    int        // columns to pack into a panel: NR, or N for whole rows of C
	panelCols   int        // columns in a panel: packCols, or N if that is less
	panelDepth  int        // K, or more for [operand.packShort]
	ownPanels   bool       // whether a task packs each panel before it reads it; panels then has one for each worker
	algorithm   algorithm  // the variant
	copyBuf     []T        // for each worker, a copied panel
	transB      bool       // whether B is transposed
	columns     bool       // whether to compute several tiles of a column in one call
	narrow      bool       // whether Narrow kernels compute whole rows of C
	aligned     bool       // whether AlignedRow kernels do
	edgeCols    int        // columns at the right edge that tiles do not cover; see [direct.computeEdge]
	edgeScratch []T        // scratch memory for them, for each worker
	states      []phaseState
}

const (
	// smallK is the largest K for which reading and writing C takes most of the time.
	smallK = 64
	// smallKTiles is the height, in tiles, of a task with small K: all its tiles read the same part
	// of B, from L1.
	smallKTiles = 4
	// wholeCBytes is the size from which a task with a few steps of K has few rows. Otherwise the
	// lines that two tiles of a row share would leave L1 between the two.
	wholeCBytes = 48 << 10
	// smallKBBytes is the size of the part of B that a task with small K reads repeatedly, from L2.
	smallKBBytes = 256 << 10
	// exchangeBytes is the number of bytes of B that a thread reads in the time in which two threads
	// exchange a line of C. Tasks beside each other share a line of each row, and tasks below each
	// other read the same B.
	exchangeBytes = 512
	// outerSteps is the number of steps of K that one pass over whole rows of C should add.
	outerSteps = 4
	// columnSteps is the largest number of steps of K, over all tiles, of a call for several tiles:
	// some tens of microseconds. columnBytes is the largest B: a call prefetches no panel of B.
	columnSteps = 16 << 10
	columnBytes = 5 << 19
	// fetchedCBytes is the size of C from which tiles with a few steps of K prefetch their rows, and
	// fetchedTileBytes that of a tile. Smaller tiles do not repay a call for each: those of AVX2.
	fetchedCBytes    = 256 << 10
	fetchedTileBytes = 1 << 10
	// nonTemporalRowsBytes is the size of C from which rows of any alignment, of at least
	// nonTemporalRowBytes, gain from non-temporal stores. Blocked products gain with up to
	// nonTemporalK steps of K.
	nonTemporalRowsBytes = 24 << 20
	nonTemporalRowBytes  = 2 << 10
	nonTemporalK         = 256
	// stripCols and stripDepth are the columns and rows of a strip of B. If C has up to stripThinRows
	// rows, a strip is finished sooner and has stripDepthThin rows. stripBytes is the size of a strip
	// of A and of the rows of C that it adds to.
	stripCols      = 2048
	stripDepth     = 32
	stripDepthThin = 16
	stripBytes     = 384 << 10
	stripThinRows  = 24
	// wideCBytes is the size of the part of C that runs through all of K at once in tasks with many
	// columns: if B is copied, or if its rows are more than pageBytes apart. Tasks with fewer columns
	// would read a short run of each page again and again.
	wideCBytes = 256 << 10
)

// layoutBytes returns the size of a matrix in bytes, as a float64 to avoid overflow.
func layoutBytes(l gemm.Layout) float64 {
	return float64(l.Rows) * float64(l.Cols) * float64(l.Type.Size())
}

// prepare sets up the product p, which is pl's or its transpose. d must be zero; it is too large to
// return.
func (d *direct[T]) prepare(p *gemm.Problem, pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	w := pl.method
	d.mk, d.m, d.n, d.k = mk, p.M, p.N, p.K
	d.a, d.b, d.c = dtype.View[T](b[gemm.A]), dtype.View[T](b[gemm.B]), dtype.View[T](b[gemm.C])
	d.rsa, d.csa, d.ldb, d.ldc = p.A().LD, 1, p.B().LD, p.C().LD
	d.alpha, d.beta = alphaOf[T](p), T(real(p.Beta))
	d.algorithm, d.onTile, d.threads = w.algorithm, pl.onTile, pl.Threads
	d.mc, d.nc, d.depth = p.M, p.N, mk.kc
	if w.algorithm == algoStrips {
		d.depth, d.stripsOfA = depthOfStrips(min(p.M, p.N)), stripsOfA(p)
	}
	d.epilogue.prepare(p, b, mk)
	if p.A().Trans {
		d.rsa, d.csa = 1, p.A().LD
	}
	d.columns, d.narrow = mk.usesColumns(p, w), mk.usesNarrow(p, w)
	d.aligned = mk.usesAlignedRows(p, w)
	if d.transB = p.B().Trans; pl.whole == nil { // otherwise the whole has none
		d.edgeCols = mk.edgeColumns(p)
	}
	d.packCols = mk.NR
	if w.algorithm == algoRows {
		d.packCols = p.N
	}
	if d.panelCols = min(p.N, d.packCols); w.packsB {
		d.packing.describe(p.Layouts[gemm.B], b[gemm.B], p.B().Trans, p.K, mk.Group, mk.packersB)
		d.panelDepth = d.packing.depthToPack(p.K)
	}
	d.divide(p)
	d.partial.deferAlpha(p, d.inOneCall(), &d.alpha, &d.beta)
}

// inOneCall reports whether one call of a kernel sums all of K.
func (d *direct[T]) inOneCall() bool {
	if d.algorithm != algoRows {
		return d.k <= d.depth
	}
	_, depths := d.updates()
	return d.aligned || d.nonTemporal || d.k&(d.k-1) == 0 && d.k < 1<<depths
}

// divide sets the size of a task's tile of C.
func (d *direct[T]) divide(p *gemm.Problem) {
	threads := d.threads
	switch {
	case d.algorithm == algoDeep: // a single task: tiles must not depend on the number of threads
	case threads == 1 && d.m*d.n*d.k <= maxTaskOps/4 && (d.k > rowsMaxK || layoutBytes(*p.C()) <= wholeCBytes):
		// a single task: the divisions below take as long as 8³
	case d.stripsOfA:
		rows := dtype.Of[T]().Elements(stripBytes) / (d.n + d.depth)
		d.mc = equalParts(d.m, min(rows, ints.CeilDiv(d.m, 2*threads)), len(d.mk.Direct))
	case d.algorithm == algoStrips:
		d.nc = equalParts(d.n, min(stripCols, ints.CeilDiv(d.n, 2*threads)), d.mk.NR)
	case d.algorithm == algoStream:
		d.divideStream()
	case d.algorithm == algoCopy || threads == 1 && d.k > smallK && !d.packs() && dtype.Of[T]().Bytes(d.ldb) > pageBytes:
		d.nc = equalParts(d.n, min(wideCBytes/dtype.Of[T]().Bytes(d.m), ints.CeilDiv(d.n, threads)), d.mk.NR)
	case d.k <= smallK:
		d.divideSmallK()
		d.nonTemporal = d.mk.passesCache(p, d.algorithm) && !d.epilogue.needed && d.onTile == nil &&
			(d.algorithm == algoRows || isLineAligned(d.c, d.ldc))
	case threads == 1:
		d.nc = equalParts(d.n, max(maxTaskOps/max(d.m*d.k, 1), 1), d.mk.NR)
	default:
		d.nc = equalParts(d.n, max(min(d.n/(4*threads), 4*maxTaskOps/max(d.m*d.k, 1)), 1), d.mk.NR)
		d.mc = equalParts(d.m, max(d.m*ints.CeilDiv(d.n, d.nc)/(4*threads), 1), len(d.mk.Direct))
	}
	d.ownPanels = d.packs() && d.mc >= d.m && d.algorithm != algoRows
}

// divideStream divides C by rows, so that each line of A is read once. Several threads that pack a
// large B divide it by columns instead, if they get equally many: otherwise each would read panels
// that the others have packed.
func (d *direct[T]) divideStream() {
	d.mc = len(d.mk.Direct)
	if d.threads == 1 || !d.packs() || d.m*exchangeBytes > dtype.Of[T]().Bytes(d.k*d.n) {
		return
	}
	nc := equalParts(d.n, ints.CeilDiv(d.n, d.threads), d.mk.NR)
	if last := d.n - (d.threads-1)*nc; 4*last >= 3*nc {
		d.mc, d.nc = d.m, nc
	}
}

// divideSmallK divides C into tasks whose tiles read the same part of B, if possible several for
// each thread.
func (d *direct[T]) divideSmallK() {
	tiles := smallKTiles
	if d.n <= smallKTiles*d.mk.NR {
		tiles *= smallKTiles
	}
	if d.threads == 1 && d.packs() && d.algorithm != algoRows && d.m <= 2*tiles*len(d.mk.Direct) {
		tiles *= 2 // tasks of all rows pack their own panels
	}
	d.mc = equalParts(d.m, tiles*len(d.mk.Direct), len(d.mk.Direct))
	d.nc = equalParts(d.n, smallKBBytes/dtype.Of[T]().Bytes(d.k), d.mk.NR)
	switch {
	case d.threads == 1 || d.m >= 4*d.threads*d.mc:
	case d.m >= 2*d.threads*len(d.mk.Direct) && d.m*exchangeBytes > dtype.Of[T]().Bytes(d.k*d.n):
		d.mc = equalParts(d.m, ints.CeilDiv(d.m, 4*d.threads), len(d.mk.Direct))
	default:
		d.nc = equalParts(d.n, min(d.nc, ints.CeilDiv(d.n, d.threads)), d.mk.NR)
	}
}

// hasRows reports whether rows of op(B) are contiguous. That holds for a transposed B that is a
// single contiguous column.
func hasRows(b *gemm.Layout, k int) bool { return !b.Trans || k == 1 && b.LD == 1 }

func (d *direct[T]) reset() { *d = direct[T]{} }

// depthOfStrips returns the number of rows of a strip of B if C has the given number of rows, or of
// a strip of A if C has that many columns.
func depthOfStrips(across int) int {
	if across <= stripThinRows {
		return stripDepthThin
	}
	return stripDepth
}

// usesNarrow reports whether Narrow kernels compute p by method w.
func (mk *microKernel[T]) usesNarrow(p *gemm.Problem, w method) bool {
	return w.algorithm == algoDirect && p.Beta == 0 && p.K >= 1 && p.K <= len(mk.Narrow) && p.N >= 1 && p.N <= mk.lanes()
}

// usesAlignedRows reports whether AlignedRow kernels compute p by method w: a vector of other
// kernels would often be in two lines. It depends on the layout of C alone, and not on its address,
// because other kernels can sum in another order.
func (mk *microKernel[T]) usesAlignedRows(p *gemm.Problem, w method) bool {
	return w.algorithm == algoRows && p.Beta == 0 && p.K <= len(mk.AlignedRow) && !startLines[T](p.C().LD)
}

// startLines reports whether rows that are ld elements apart can all start on cache lines.
func startLines[T scalar](ld int) bool { return dtype.Of[T]().Bytes(ld)%asm.Line == 0 }

// usesColumns reports whether one call computes several tiles of a column of C. It does not
// prefetch the next panel of B, which matters if B exceeds the L2 cache, or the next rows of A. Nor
// does it prefetch the rows of C after the first tile, which matters for large tiles with a few
// steps of K.
func (mk *microKernel[T]) usesColumns(p *gemm.Problem, w method) bool {
	if p.K <= rowsMaxK && layoutBytes(*p.C()) > fetchedCBytes && p.Out().Bytes(mk.MR*mk.NR) >= fetchedTileBytes {
		return false
	}
	return w.algorithm != algoStream && (p.K <= smallK || layoutBytes(p.Layouts[gemm.B]) <= columnBytes)
}

// passesCache reports whether a is faster with non-temporal stores of C. They avoid reading C
// before it is overwritten, but no cache holds it afterwards. C must be complete after one pass
// over K. Except for rows, [isLineAligned] must hold too.
func (mk *microKernel[T]) passesCache(p *gemm.Problem, a algorithm) bool {
	if p.Beta != 0 || p.Epilogue != (gemm.Epilogue{}) || mk.Stream == nil {
		return false
	}
	bytes := layoutBytes(p.Layouts[gemm.C])
	if bytes < mk.costs().cached {
		return false
	}
	switch a {
	case algoRows:
		return bytes >= nonTemporalRowsBytes && dtype.Of[T]().Bytes(p.N) >= nonTemporalRowBytes && p.K <= len(mk.StreamRow)
	case algoBlocked:
		return p.K <= min(mk.kc, nonTemporalK)
	}
	return p.K <= min(mk.kc, smallK)
}

// isLineAligned reports whether every row of c starts on a cache line.
func isLineAligned[T scalar](c []T, ldc int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(c)))%cacheLine == 0 && startLines[T](ldc)
}

// packs reports whether B is packed.
func (d *direct[T]) packs() bool { return d.packing.raw != nil }

// The job of a direct product has one phase, whose tasks are tiles of C. If B is packed, and not by
// these tasks, a phase whose tasks are the panels of B comes first.

func (d *direct[T]) phases() int {
	if d.packs() && !d.ownPanels {
		return 2
	}
	return 1
}

func (d *direct[T]) enter(phase, worker int) (tasks int) {
	d.states[worker].computing = phase == d.phases()-1
	if !d.states[worker].computing {
		return d.panelCount()
	}
	return d.tileCount()
}

// panelCount returns the number of panels of B.
func (d *direct[T]) panelCount() int { return ints.CeilDiv(d.n-d.edgeCols, d.packCols) }

func (d *direct[T]) tileCount() int { return ints.CeilDiv(d.m, d.mc) * ints.CeilDiv(d.n, d.nc) }

func (d *direct[T]) panelElems() int {
	if !d.packs() {
		return 0
	}
	if d.ownPanels {
		return d.threads * d.ownPanelElems()
	}
	return d.panelDepth * d.panelCount() * d.packCols
}

// ownPanelElems returns the size of a worker's panel: a part of K, unless [operand.packShort] packs
// it.
func (d *direct[T]) ownPanelElems() int {
	if d.panelDepth > d.k {
		return d.panelDepth * d.packCols
	}
	return min(d.k, equalParts(d.k, d.depth, 8)) * d.packCols
}

// copyElems returns the number of elements of all workers' copied panels.
func (d *direct[T]) copyElems() int {
	if d.algorithm != algoCopy {
		return 0
	}
	return d.threads * d.mk.kc * d.mk.NR
}

func (d *direct[T]) bytes() int {
	return allocBytes[T](d.panelElems()) + allocBytes[T](d.copyElems()) +
		allocBytes[T](d.threads*d.edgeScratchSize()) + d.partial.bytes()
}

func (d *direct[T]) bind(m *workspace, states []phaseState) {
	d.panels, d.copyBuf, d.states = alloc[T](m, d.panelElems()), alloc[T](m, d.copyElems()), states
	d.edgeScratch = alloc[T](m, d.threads*d.edgeScratchSize())
	d.partial.bind(m)
}

// runSerial computes the product on the calling goroutine, without an [execution]. It allocates
// nothing, even if d is on the stack.
func (d *direct[T]) runSerial(ctx context.Context) error {
	if n := d.bytes(); n > 0 {
		m := getWorkspace(n)
		defer m.put()
		d.bind(&m, nil)
	}
	return d.runTasks(ctx)
}

// runTasks runs all tasks of all phases on the calling goroutine.
func (d *direct[T]) runTasks(ctx context.Context) error {
	if d.phases() > 1 {
		if err := runPhase(ctx, d.panelCount(), func(panel, _ int) { d.pack(panel) }); err != nil {
			return err
		}
	}
	if d.mc == d.m && d.nc == d.n {
		if err := ctx.Err(); err != nil {
			return err
		}
		d.compute(0, 0, d.m, d.n, 0)
		return nil
	}
	return runPhase(ctx, d.tileCount(), d.computeTask)
}

func (d *direct[T]) do(task, worker int) {
	if d.states[worker].computing {
		d.computeTask(task, worker)
	} else {
		d.pack(task)
	}
}

// pack packs a panel of B.
func (d *direct[T]) pack(panel int) {
	j := panel * d.packCols
	d.packPart(d.panels[j*d.panelDepth:], j, 0, d.k)
}

// packPart packs k steps, from p on, of the panel of B at column j.
func (d *direct[T]) packPart(to []T, j, p, k int) {
	cols := min(d.packCols, d.n-j)
	if d.panelDepth > d.k {
		d.packing.packShort(to, d.panelCols, j, cols, k)
		return
	}
	d.packing.pack(to, d.panelCols, j, cols, p, k, nil)
}

// panel returns k packed steps, from p on, of the panel of B at column j.
func (d *direct[T]) panel(j, p, k, worker int) *T {
	if !d.ownPanels {
		return &d.panels[j*d.panelDepth+p*d.panelCols]
	}
	own := d.panels[worker*d.ownPanelElems():]
	d.packPart(own, j, p, k)
	return &own[0]
}

// computeTask computes a task's tile of C.
func (d *direct[T]) computeTask(task, worker int) {
	down := ints.CeilDiv(d.m, d.mc)
	i0, j0 := task%down*d.mc, task/down*d.nc
	d.compute(i0, j0, min(d.mc, d.m-i0), min(d.nc, d.n-j0), worker)
}

// compute computes the rows×cols tile of C at (i0, j0).
func (d *direct[T]) compute(i0, j0, rows, cols, worker int) {
	tiledCols := cols // columns computed in tiles
	if j0+cols == d.n {
		tiledCols -= d.edgeCols
	}
	c := d.c[i0*d.ldc+j0:]
	if d.algorithm == algoRows {
		d.computeRows(i0, j0, rows, tiledCols)
	} else {
		d.computeTiles(i0, j0, rows, tiledCols, worker)
	}
	if tiledCols < cols {
		d.computeEdge(i0, rows, d.edgeScratch[worker*d.edgeScratchSize():])
	}
	d.partial.finish(d.mk, rows, cols, c, d.ldc)
	if d.nonTemporal {
		asm.Fence()
	}
	if d.epilogue.needed {
		d.epilogue.apply(c, d.ldc, i0, j0, rows, cols, nil)
	}
	if d.onTile != nil {
		d.onTile(i0, j0, rows, cols)
	}
}

// updates returns the largest number of rows that an Update kernel computes, as a power of two, and
// the number of kernels for them: there are kernels for outerSteps steps of K, if K has as many.
func (d *direct[T]) updates() (most, depths int) {
	most = len(d.mk.Update)
	for most > 1 && 1<<len(d.mk.Update[most-1]) <= min(d.k, outerSteps) {
		most--
	}
	return most, len(d.mk.Update[most-1])
}

// computeRows computes a part of C along its rows, with the Update kernels. It computes single rows
// if they are written with non-temporal stores or in aligned vectors.
func (d *direct[T]) computeRows(i0, j0, rows, cols int) {
	b, ldb := d.b, d.ldb
	if d.packs() {
		b, ldb = d.panels, d.panelCols
	}
	var ofRows []asm.Update[T]
	switch {
	case d.nonTemporal:
		ofRows = d.mk.StreamRow
	case d.aligned:
		ofRows = d.mk.AlignedRow
	}
	if ofRows != nil {
		for i := i0; i < i0+rows; i++ {
			ofRows[d.k-1](&d.a[i*d.rsa], d.rsa, d.csa, &b[j0], ldb, &d.c[i*d.ldc+j0], d.ldc, cols, d.alpha, 0)
		}
		return
	}
	most, depths := d.updates() // the same for all rows, whose bits must not depend on the task
	for i := i0; i < i0+rows; {
		x := min(bits.Len(uint(i0+rows-i)), most) - 1
		beta := d.beta
		for p := 0; p < d.k; {
			y := min(bits.Len(uint(d.k-p)), depths) - 1
			d.mk.Update[x][y](&d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, &b[p*ldb+j0], ldb, &d.c[i*d.ldc+j0], d.ldc, cols,
				d.alpha, beta)
			beta = 1
			p += 1 << y
		}
		i += 1 << x
	}
}

// computeTiles computes a part of C tile by tile.
func (d *direct[T]) computeTiles(i0, j0, rows, cols, worker int) {
	if d.narrow {
		b, ldb := &d.b[0], d.ldb
		if d.packs() {
			b, ldb = d.panel(0, 0, d.k, worker), d.panelCols
		}
		d.mk.Narrow[d.k-1](rows, &d.a[i0*d.rsa], d.rsa, d.csa, b, ldb, &d.c[i0*d.ldc], d.ldc, cols, d.alpha)
		return
	}
	beta, kc := d.beta, equalParts(d.k, d.depth, 8)
	ahead := lookahead[T]{data: d.b}
	if d.algorithm == algoStream {
		ahead = d.rowsAhead(i0 + rows)
	}
	strips := d.algorithm == algoStrips && !d.columns && !d.stripsOfA
	panels := d.k > smallK && !d.packs() && !d.columns && d.algorithm != algoStream && d.algorithm != algoStrips
	height := equalParts(rows, len(d.mk.Direct), 1) // equal heights, without a tile of a few rows at the end
	for p := 0; p < d.k; p += kc {
		k := min(kc, d.k-p)
		if strips {
			ahead = d.stripAhead(p+k, kc, j0, cols)
		}
		for j := j0; j < j0+cols; j += d.mk.NR {
			n := min(d.mk.NR, j0+cols-j)
			var b *T
			ldb := d.ldb
			if d.packs() {
				b, ldb = d.panel(j, p, k, worker), d.panelCols
			} else {
				b = &d.b[p*d.ldb+j]
			}
			if panels {
				ahead = d.panelAhead(p, j, k, j0, j0+cols)
			}
			i, high := i0, height
			if d.algorithm == algoCopy && n == d.mk.NR {
				panel := &d.copyBuf[worker*d.mk.kc*d.mk.NR]
				d.mk.Copy(k, &d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, b, ldb, &d.c[i*d.ldc+j], panel, 0, d.ldc, n,
					d.alpha, beta)
				i += d.mk.MR
				b, ldb = panel, d.mk.NR
				high = equalParts(i0+rows-i, len(d.mk.Direct), 1)
			}
			for i < i0+rows {
				m, tiles := min(high, i0+rows-i), 1
				kernel := d.mk.Direct[m-1]
				switch {
				case d.nonTemporal && m == d.mk.MR && n == d.mk.NR:
					kernel = d.mk.Stream
				case d.algorithm == algoDeep && m <= len(d.mk.Deep):
					kernel = d.mk.Deep[m-1]
				}
				if d.columns {
					tiles = min((i0+rows-i)/m, max(columnSteps/k, 1))
				}
				next, apart := ahead.take(k / asm.DirectAhead)
				kernel(tiles, k, &d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, b, ldb, &d.c[i*d.ldc+j], next, apart, d.ldc, n,
					d.alpha, beta)
				i += tiles * m
			}
		}
		beta = 1
	}
}
