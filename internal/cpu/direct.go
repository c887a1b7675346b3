package cpu

import (
	"context"
	"math/bits"
	"sync"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// direct computes a product without packing: the micro-kernels read A and B as stored. It serves
// small products, whose packing would take as long as their arithmetic, and products with so few
// rows, columns or steps of K that packed data would hardly be reused. A may be transposed. B is
// packed if it is transposed, if its rows evict each other from L1, or if A is streamed and a row
// of B exceeds one tile; see [microKernel.packsWhole].
type direct[T scalar] struct {
	*microKernel[T]
	m, n, k     int
	a, b, c     []T
	rsa, csa    int // A's strides between rows and along K
	ldb, ldc    int
	alpha, beta T
	epilogue    epilogue[T]
	onTile      func(i, j, rows, cols int) // see blocked
	threads     int
	mc, nc      int        // a task's tile of C
	depth       int        // steps of K at a time: as in the blocked algorithm, for the same bits, except in strips
	nonTemporal bool       // whether whole tiles are written with non-temporal stores
	packing     operand[T] // B, if all of it is packed
	panels      []T        // the packed B: panels of K×panelCols, each with room for panelDepth steps of NR
	panelCols   int        // columns in a panel: NR, or N if that is less
	panelDepth  int        // K, or more for [operand.packShort]
	streamsA    bool       // see [microKernel.shouldStreamA]
	copies      bool       // whether the first tile of a panel of B copies the panel for the tiles below
	copyBuf     []T        // for each worker, a copied panel
	transB      bool       // whether B is transposed
	columns     bool       // whether to compute several tiles of a column in one call
	wholeRows   bool       // whether to compute whole rows of C; see [microKernel.isOuter]
	deepKernels bool       // whether to use the Deep kernels; see [microKernel.isLatencyBound]
	edgeCols    int        // columns at the right edge that tiles do not cover; see [direct.computeEdge]
	edgeScratch []T        // scratch memory for them, for each worker
	states      []phaseState
}

const (
	// directMaxBytes is the maximum size of A, B and C together for which nothing is packed, for
	// any shape: L2 holds all or most of them.
	directMaxBytes = 5 << 19
	// directMaxBytesTransB is the same limit for a transposed B and an A that is not. B is packed
	// in either algorithm, but the blocked one may pack A too.
	directMaxBytesTransB = 384 << 10
	// transARows is the number of rows of a transposed A up to which its size does not matter.
	transARows = 144
	// smallK is the largest K for which reading and writing C takes most of the time.
	smallK = 64
	// smallKTiles is the height, in tiles, of a task with small K: all its tiles read the same part
	// of B, from L1.
	smallKTiles = 4
	// smallKBBytes is the size of the part of B that a task with small K reads repeatedly, from L2.
	smallKBBytes = 256 << 10
	// outerTiles is the length in tiles from which rows of C are long for a K of more than 2.
	outerTiles = 16
	// outerSteps is the number of steps of K that one pass over such rows should add.
	outerSteps = 4
	// columnSteps is the largest number of steps of K, over all tiles, of a call for several tiles:
	// some tens of microseconds.
	columnSteps = 16 << 10
	// conflictRows is the number of conflicting rows of B that L1 holds along with those of A. A
	// product with small K packs B if there are more.
	conflictRows = 8
	// nonTemporalBytes is the size from which C is written with non-temporal stores. No cache could
	// hold it, and the stores avoid reading C before it is overwritten.
	nonTemporalBytes = 8 << 20
	// rereadTiles is the number of rows of tiles up to which B stays unpacked if it takes at most
	// rereadBytes: packing it would take as long as reading it for each row, mostly from a cache.
	rereadTiles = 12
	rereadBytes = 12 << 20
	// rereadTilesConflicting replaces rereadTiles if B's rows conflict.
	rereadTilesConflicting = 3
	// copyTiles is the number of rows of tiles from which the first tile that reads a panel of B
	// copies it, if B takes at least copyBytes. The other tiles read the copy from L2, free of set
	// conflicts. A long B, with at
	// least copyLong rows per column, is copied from copyLongBytes on: its rows are so short that a
	// panel maps to few sets of L1, which cannot hold it.
	copyTiles     = 3
	copyBytes     = 1 << 20
	copyLongBytes = 256 << 10
	copyLong      = 16 // rows of B per column
	// stripTiles is the number of rows of tiles up to which a product is bound by memory, if a column
	// of C takes at most stripMaxCBytes and B more than rereadBytes. It reads B once, in strips
	// of stripDepth rows and stripCols columns, which stay in L2 while all tiles use them. A
	// product of up to axpyRows rows finishes a strip sooner and uses stripDepthThin.
	stripTiles     = 6
	stripMaxCBytes = 256
	stripCols      = 2048
	stripDepth     = 32
	stripDepthThin = 16
	// streamAMaxN is the maximum number of columns for streaming a large A: a tile reads its rows
	// of A from end to end, which leaves time to prefetch the next tile's rows into L2.
	streamAMaxN = 64
	// latencyBoundRows is the largest number of rows for which tiles two vectors wide have too few
	// independent accumulators.
	latencyBoundRows = 3
	// streamAMaxBBytes is the maximum size of B for streaming A: B must stay in L2.
	streamAMaxBBytes = 2 << 20
	// copyCBytes is the size of the part of C that runs through all of K at once if B is copied.
	copyCBytes = 256 << 10
)

// usesDirect reports whether p is faster without packing.
func (mk *microKernel[T]) usesDirect(p *gemm.Problem) bool {
	switch {
	case !mk.native(p):
		return false
	case p.B().Trans:
		most := float64(directMaxBytesTransB)
		if p.A().Trans {
			most = directBytes(p)
		}
		small := layoutBytes(p.Layouts[gemm.A])+layoutBytes(p.Layouts[gemm.B])+layoutBytes(p.Layouts[gemm.C]) <= most ||
			p.K <= smallK || mk.shouldStreamA(p)
		return small && !isThin(p.M, p.N, p.K, dotsRows)
	}
	tiles := rereadTiles
	if hasSetConflicts(p.Layouts[gemm.B]) {
		tiles = rereadTilesConflicting
	}
	if usesAxpy(p) && p.M <= axpyBestRows && layoutBytes(p.Layouts[gemm.B]) > directMaxBytes {
		return false
	}
	few := p.M <= tiles*len(mk.Direct) && (layoutBytes(p.Layouts[gemm.B]) <= rereadBytes || mk.copiesB(p)) ||
		mk.usesStrips(p) || mk.shouldStreamA(p)
	return few || p.K <= smallK || layoutBytes(p.Layouts[gemm.A])+layoutBytes(p.Layouts[gemm.B])+
		layoutBytes(p.Layouts[gemm.C]) <= directBytes(p)
}

// directBytes returns the maximum size of A, B and C together for which nothing is packed. It
// depends on L2 for a transposed A: each step along K of a tile reads another line of it, usually
// on another page.
func directBytes(p *gemm.Problem) float64 {
	if p.A().Trans && p.M > transARows {
		return min(directMaxBytes, 2*l2Bytes())
	}
	return directMaxBytes
}

// l2Bytes returns the size of the L2 cache, or that of a Xeon if it is unknown.
var l2Bytes = sync.OnceValue(func() float64 {
	if n := host.L2Cache(); n > 0 {
		return float64(n)
	}
	return 2 << 20
})

// usesStrips reports whether a direct p reads B in strips.
func (mk *microKernel[T]) usesStrips(p *gemm.Problem) bool {
	return !p.B().Trans && p.M > axpyBestRows && p.M <= stripTiles*mk.MR && p.M*p.Out().Bits() <= 8*stripMaxCBytes &&
		layoutBytes(p.Layouts[gemm.B]) > rereadBytes && p.K > smallK
}

// shouldStreamA reports whether a direct p streams A: it has few columns and a large A.
func (mk *microKernel[T]) shouldStreamA(p *gemm.Problem) bool {
	return !p.A().Trans && dotsCols < p.N && p.N <= streamAMaxN && p.K > smallK &&
		layoutBytes(p.Layouts[gemm.A]) > rereadBytes && layoutBytes(p.Layouts[gemm.B]) <= streamAMaxBBytes
}

// copiesB reports whether a direct p copies panels of B.
func (mk *microKernel[T]) copiesB(p *gemm.Problem) bool {
	least := float64(copyBytes)
	if p.K >= copyLong*p.N {
		least = copyLongBytes
	}
	return !mk.usesStrips(p) && p.K > smallK && !p.B().Trans && p.N >= mk.NR && p.M >= copyTiles*mk.MR &&
		layoutBytes(p.Layouts[gemm.B]) >= least && !hasSetConflicts(p.Layouts[gemm.B])
}

// layoutBytes returns the size of a matrix in bytes, as a float64 to avoid overflow.
func layoutBytes(l gemm.Layout) float64 {
	return float64(l.Rows) * float64(l.Cols) * float64(l.Type.Bits()) / 8
}

// canRunDirect reports whether p can be computed without any packing.
func (mk *microKernel[T]) canRunDirect(p *gemm.Problem) bool { return mk.native(p) && !p.B().Trans }

// native reports whether the micro-kernels can read and write p's matrices as stored.
func (mk *microKernel[T]) native(p *gemm.Problem) bool {
	return len(mk.Direct) > 0 && p.In() == p.Accum() && p.Out() == p.In() && p.ReadsAB()
}

// prepare sets up the product. d must be zero; it is too large to return.
func (d *direct[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	p, threads := pl.Problem, pl.Threads
	d.microKernel, d.m, d.n, d.k = mk, p.M, p.N, p.K
	d.a, d.b, d.c = dtype.View[T](b[gemm.A]), dtype.View[T](b[gemm.B]), dtype.View[T](b[gemm.C])
	d.rsa, d.csa, d.ldb, d.ldc = p.A().LD, 1, p.B().LD, p.C().LD
	d.alpha, d.beta = alphaOf[T](p), T(real(p.Beta))
	d.onTile, d.threads = pl.onTile, threads
	d.mc, d.nc, d.depth = p.M, p.N, mk.kc
	d.epilogue.prepare(p, b, mk)
	if p.A().Trans {
		d.rsa, d.csa = 1, p.A().LD
	}
	d.columns = mk.usesColumns(p)
	d.transB, d.edgeCols = p.B().Trans, mk.edgeColumns(p)
	if d.panelCols = min(p.N, mk.NR); mk.packsWhole(p) {
		d.packing.describe(p.Layouts[gemm.B], b[gemm.B], p.B().Trans, p.K, mk.Group, mk.packersB)
		d.panelDepth = d.packing.depthToPack(p.K)
	}
	d.wholeRows, d.deepKernels = mk.isOuter(p), mk.isLatencyBound(p)
	switch {
	case d.deepKernels: // a single task: tiles must not depend on the number of threads
	case threads == 1 && d.m*d.n*d.k <= maxTaskOps/4: // a single task: the divisions below take as long as 8³
	case d.k <= smallK:
		tiles := smallKTiles
		if d.n <= smallKTiles*d.NR {
			tiles *= smallKTiles
		}
		d.mc = equalParts(d.m, tiles*len(d.Direct), len(d.Direct))
		d.nc = equalParts(d.n, smallKBBytes/dtype.Of[T]().Bytes(d.k), d.NR)
		if d.m < 4*threads*d.mc {
			d.nc = equalParts(d.n, min(d.nc, ceilDiv(d.n, threads)), d.NR)
		}
		d.nonTemporal = !d.wholeRows && layoutBytes(p.Layouts[gemm.C]) >= nonTemporalBytes && d.beta == 0 && d.k <= d.kc &&
			!d.epilogue.needed && d.onTile == nil && d.isLineAligned()
	case mk.usesStrips(p):
		d.depth = stripDepth
		if p.M <= axpyRows {
			d.depth = stripDepthThin
		}
		d.nc = equalParts(d.n, min(stripCols, ceilDiv(d.n, 2*threads)), d.NR)
	case mk.shouldStreamA(p):
		d.streamsA, d.mc = true, len(d.Direct)
	case mk.copiesB(p):
		d.copies = true
		d.nc = equalParts(d.n, min(copyCBytes/dtype.Of[T]().Bytes(d.m), ceilDiv(d.n, threads)), d.NR)
	case threads == 1:
		d.nc = equalParts(d.n, max(maxTaskOps/max(d.m*d.k, 1), 1), mk.NR)
	default:
		d.nc = equalParts(d.n, max(d.n/(4*threads), 1), mk.NR)
		d.mc = equalParts(d.m, max(d.m*ceilDiv(d.n, d.nc)/(4*threads), 1), len(mk.Direct))
	}
}

// hasRows reports whether rows of op(B) are contiguous. That holds for a transposed B that is a
// single contiguous column.
func hasRows(b *gemm.Layout, k int) bool { return !b.Trans || k == 1 && b.LD == 1 }

func (d *direct[T]) reset() { *d = direct[T]{} }

// isOuter reports whether p is close to an outer product with long rows. The Update kernels then
// compute whole rows of C, which reads and writes memory in order.
func (mk *microKernel[T]) isOuter(p *gemm.Problem) bool {
	if p.K > 8 || p.N < 4*mk.NR || len(mk.Update) == 0 || mk.packsWhole(p) {
		return false
	}
	c := p.Layouts[gemm.C]
	conflicts, large := hasSetConflicts(c), layoutBytes(c) >= nonTemporalBytes
	switch {
	case p.K <= 2:
		return true
	case large && c.Type.Bytes(c.LD)%cacheLine == 0 && !conflicts: // tiles have non-temporal stores
		return false
	case p.K <= 4:
		return p.N >= outerTiles*mk.NR
	}
	return p.N >= outerTiles*mk.NR && (large || conflicts)
}

// usesColumns reports whether one call computes several tiles of a column of C. It does not
// prefetch the next panel of B, which matters if B exceeds the L2 cache, or the next rows of A.
func (mk *microKernel[T]) usesColumns(p *gemm.Problem) bool {
	if mk.shouldStreamA(p) {
		return false
	}
	return p.K <= smallK || layoutBytes(p.Layouts[gemm.B]) <= directMaxBytes
}

// isLatencyBound reports whether tiles of p have too few independent accumulators. Each vector of
// sums is one chain of dependent FMAs, and fewer than eight chains leave the FMA units idle.
func (mk *microKernel[T]) isLatencyBound(p *gemm.Problem) bool {
	return (p.M <= latencyBoundRows || p.N <= mk.lanes()) && p.M+p.N <= splitSides && p.K >= dotsDepth
}

// packsWhole reports whether a direct p packs all of B.
func (mk *microKernel[T]) packsWhole(p *gemm.Problem) bool {
	return !hasRows(p.B(), p.K) || mk.shouldStreamA(p) && p.N > mk.NR ||
		conflictRows < p.K && p.K <= smallK && hasSetConflicts(p.Layouts[gemm.B]) && p.M > smallKTiles*len(mk.Direct)
}

// isLineAligned reports whether every row of C starts on a cache line.
func (d *direct[T]) isLineAligned() bool {
	size := unsafe.Sizeof(*new(T))
	return uintptr(unsafe.Pointer(unsafe.SliceData(d.c)))%cacheLine == 0 && uintptr(d.ldc)*size%cacheLine == 0
}

// packs reports whether B is packed.
func (d *direct[T]) packs() bool { return d.packing.raw != nil }

// The job of a direct product has one phase, whose tasks are tiles of C. If B is packed, a phase
// whose tasks are the panels of B comes first.

func (d *direct[T]) phases() int {
	if d.packs() {
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
func (d *direct[T]) panelCount() int { return ceilDiv(d.n-d.edgeCols, d.NR) }

func (d *direct[T]) tileCount() int { return ceilDiv(d.m, d.mc) * ceilDiv(d.n, d.nc) }

func (d *direct[T]) panelElems() int {
	if !d.packs() {
		return 0
	}
	return d.panelDepth * d.panelCount() * d.NR
}

// copyElems returns the number of elements of all workers' copied panels.
func (d *direct[T]) copyElems() int {
	if !d.copies {
		return 0
	}
	return d.threads * d.kc * d.NR
}

func (d *direct[T]) bytes() int {
	return allocBytes[T](d.panelElems()) + allocBytes[T](d.copyElems()) + allocBytes[T](d.threads*d.edgeScratchSize())
}

func (d *direct[T]) bind(m *workspace, states []phaseState) {
	d.panels, d.copyBuf, d.states = alloc[T](m, d.panelElems()), alloc[T](m, d.copyElems()), states
	d.edgeScratch = alloc[T](m, d.threads*d.edgeScratchSize())
}

// runSerial computes the product on the calling goroutine. It allocates nothing, even if d is on
// the stack.
func (d *direct[T]) runSerial(ctx context.Context) error {
	if d.packs() {
		for panel := range d.panelCount() {
			if err := ctx.Err(); err != nil {
				return err
			}
			d.pack(panel)
		}
	}
	if d.mc == d.m && d.nc == d.n {
		if err := ctx.Err(); err != nil {
			return err
		}
		d.compute(0, 0, d.m, d.n, 0)
		return nil
	}
	for task := range d.tileCount() {
		if err := ctx.Err(); err != nil {
			return err
		}
		d.computeTask(task, 0)
	}
	return nil
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
	j := panel * d.NR
	to, cols := d.panels[j*d.panelDepth:], min(d.NR, d.n-j)
	if d.panelDepth > d.k {
		d.packing.packShort(to, d.panelCols, j, cols, d.k)
		return
	}
	d.packing.pack(to, d.panelCols, j, cols, 0, d.k, nil)
}

// computeTask computes a task's tile of C.
func (d *direct[T]) computeTask(task, worker int) {
	down := ceilDiv(d.m, d.mc)
	i0, j0 := task%down*d.mc, task/down*d.nc
	d.compute(i0, j0, min(d.mc, d.m-i0), min(d.nc, d.n-j0), worker)
}

// compute computes the rows×cols tile of C at (i0, j0).
func (d *direct[T]) compute(i0, j0, rows, cols, worker int) {
	tiledCols := cols // columns computed in tiles
	if j0+cols == d.n {
		tiledCols -= d.edgeCols
	}
	if d.wholeRows {
		d.computeRows(i0, j0, rows, tiledCols)
	} else {
		d.computeTiles(i0, j0, rows, tiledCols, worker)
	}
	if tiledCols < cols {
		d.computeEdge(i0, rows, d.edgeScratch[worker*d.edgeScratchSize():])
	}
	if d.nonTemporal {
		asm.Fence()
	}
	if d.epilogue.needed {
		d.epilogue.apply(d.c[i0*d.ldc+j0:], d.ldc, i0, j0, rows, cols, nil)
	}
	if d.onTile != nil {
		d.onTile(i0, j0, rows, cols)
	}
}

// computeRows computes a part of C along its rows, with the Update kernels: as many rows at a time
// as there are kernels for outerSteps steps of K.
func (d *direct[T]) computeRows(i0, j0, rows, cols int) {
	most := len(d.Update)
	for most > 1 && 1<<len(d.Update[most-1]) <= min(d.k, outerSteps) {
		most--
	}
	depths := len(d.Update[most-1]) // the same for all rows, whose bits must not depend on the task
	for i := i0; i < i0+rows; {
		x := min(bits.Len(uint(i0+rows-i)), most) - 1
		beta := d.beta
		for p := 0; p < d.k; {
			y := min(bits.Len(uint(d.k-p)), depths) - 1
			d.Update[x][y](&d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, &d.b[p*d.ldb+j0], d.ldb, &d.c[i*d.ldc+j0], d.ldc, cols,
				d.alpha, beta)
			beta = 1
			p += 1 << y
		}
		i += 1 << x
	}
}

// computeTiles computes a part of C tile by tile.
func (d *direct[T]) computeTiles(i0, j0, rows, cols, worker int) {
	line := asm.Line / int(unsafe.Sizeof(d.alpha)) // elements
	beta, kc := d.beta, equalParts(d.k, d.depth, 8)
	below := (i0 + rows) * d.rsa                 // the start of the rows of A below this tile
	height := equalParts(rows, len(d.Direct), 1) // equal heights, without a tile of a few rows at the end
	for p := 0; p < d.k; p += kc {
		k := min(kc, d.k-p)
		for j := j0; j < j0+cols; j += d.NR {
			n := min(d.NR, j0+cols-j)
			var b *T
			ldb := d.ldb
			if d.packs() {
				b, ldb = &d.panels[j*d.panelDepth+p*d.panelCols], d.panelCols
			} else {
				b = &d.b[p*d.ldb+j]
			}
			// While one panel of B is multiplied, prefetch the next one into L2: the first cache
			// line of all its rows, then their second lines.
			next, fetched, each := 0, 0, 0
			if d.k > smallK && !d.packs() {
				next, each = p*d.ldb+j, k/asm.DirectAhead
				switch {
				case j+d.NR < j0+cols:
					next += d.NR
				case p+k < d.k:
					next = (p+k)*d.ldb + j0
				default:
					next = j0 + cols
				}
			}
			i, high := i0, height
			if d.copies && n == d.NR {
				panel := &d.copyBuf[worker*d.kc*d.NR]
				d.Copy(k, &d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, b, ldb, &d.c[i*d.ldc+j], panel, 0, d.ldc, n, d.alpha,
					beta)
				i += d.MR
				b, ldb = panel, d.NR
				high = equalParts(i0+rows-i, len(d.Direct), 1)
			}
			for i < i0+rows {
				m, tiles := min(high, i0+rows-i), 1
				kernel := d.Direct[m-1]
				switch {
				case d.nonTemporal && m == d.MR && n == d.NR:
					kernel = d.Stream
				case d.deepKernels && m <= len(d.Deep):
					kernel = d.Deep[m-1]
				}
				ahead, apart := &d.b[min(next+fetched*d.ldb, len(d.b)-1)], d.ldb
				switch {
				case d.columns:
					tiles = min((i0+rows-i)/m, max(columnSteps/k, 1))
					ahead, apart = b, 0
				case d.streamsA:
					ahead, apart = &d.a[min(below, len(d.a)-1)], line
					below += k / asm.DirectAhead * line
				}
				kernel(tiles, k, &d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, b, ldb, &d.c[i*d.ldc+j], ahead, apart, d.ldc, n,
					d.alpha, beta)
				if fetched += each; fetched >= k {
					next, fetched = next+line, 0
				}
				i += tiles * m
			}
		}
		beta = 1
	}
}
