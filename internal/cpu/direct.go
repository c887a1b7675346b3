package cpu

import (
	"context"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// direct is a product without packing: the micro-kernels read A and B where they
// lie (but for a B that is transposed, and a flat one whose rows evict each other). It is for
// small products, whose packing would cost as much as their arithmetic, and for those with
// so few rows, or steps of K, that what is packed would hardly be read again. A may lie
// either way.
type direct[T scalar] struct {
	*microKernel[T]
	m, n, k     int
	a, b, c     []T
	rsa, csa    int // A's strides from row to row and along K
	ldb, ldc    int
	alpha, beta T
	epilogue    epilogue[T]
	onTile      func(i, j, rows, cols int) // see product
	threads     int
	mc, nc      int        // an item's tile of C
	depth       int        // steps of K at a time: as where B is packed, for the same bits, unless memory takes the time
	nonTemporal bool       // whether whole tiles are stored around the caches
	packing     operand[T] // B, if all of it is packed, and …
	panels      []T        // … where to, K×NR after K×NR,
	panelCols   int        // or one of the few columns that there are
	streamsA    bool       // whether it goes down A, whose next rows are fetched, and not B's
	copies      bool       // whether the first tile of a panel of B copies it for those below
	copyBuf     []T        // for each slot, such a panel
	transB      bool       // whether B is transposed
	deepKernels bool       // whether its kernels keep several sums for each element; see [micro.starves]
	edgeCols    int        // columns at the end of C that no tiles compute; see [direct.end]
	edgeScratch []T        // for each slot, memory for that
	states      []phaseState
}

const (
	// directBytes is how large A, B and C may be together, whatever their shape: L2 holds
	// them, or most of them.
	directMaxBytes = 5 << 19
	// turnedBytes is the same where B, not A, is transposed: it is packed either way, but A too
	// by the five loops if that is.
	directMaxBytesTransB = 384 << 10
	// flatDepth is up to what K is flat: an element of C is not worth more than reading
	// and writing it.
	smallK = 64
	// flatTiles is how many tiles, one below the other, a flat product goes along C with:
	// all read the same of B, from L1.
	smallKTiles = 4
	// flatReach is how many bytes of B a flat product reads again and again, from L2, while
	// it goes along rows of C.
	smallKBBytes = 256 << 10
	// crowd is how many of B's rows, if they crowd, L1 holds while it holds A's too: a flat
	// product packs more.
	conflictRows = 8
	// streamBytes is from where on a C goes around the caches, which could not hold it: that
	// saves to read it before it is overwritten.
	nonTemporalBytes = 8 << 20
	// Of larger ones with at most so many tiles, one below the other, B is not packed if it
	// takes no more than rereadBytes: to pack it would cost as much as to read it from a
	// cache for most of them.
	rereadTiles = 12
	rereadBytes = 12 << 20
	// crowdedTiles is how many tiles that are where B's rows crowd.
	rereadTilesConflicting = 3
	// From so many tiles and bytes on a panel of B is copied by the first tile that reads it:
	// the others then find it in L2 whatever lies between its rows.
	// The rows of a long B are short. A panel of it falls on few sets of L1, which cannot hold it.
	copyTiles     = 3
	copyBytes     = 1 << 20
	copyLongBytes = 256 << 10
	copyLong      = 16 // steps of K for each column
	// With so few rows, in tiles and in bytes of a column of C, against a B larger than
	// rereadBytes it is memory that takes the time: stretches of a few of B's rows come one after
	// the other, stay in L2 while the tiles go along them, and are gone through once. There are
	// fewer rows in a stretch where its columns are soon done with.
	stripTiles     = 6
	stripMaxCBytes = 256
	stripCols      = 2048
	stripDepth     = 32
	stripDepthThin = 16
	// The same for so many columns against a large A: a tile's rows are gone through to their
	// ends, which leaves time to have the next tile's come to L2.
	streamAMaxN = 64
	// starvedRows is up to how many rows two vectors of columns are too few chains.
	latencyBoundRows = 3
	// downBytes is up to how many bytes of B stay in L2 while tiles go down the rows of A.
	streamAMaxBBytes = 2 << 20
	// copyReach is how many bytes of C go over all of K at once.
	copyCBytes = 256 << 10
)

// goesDirect reports whether p is better not packed.
func (mk *microKernel[T]) usesDirect(p *gemm.Problem) bool {
	switch {
	case !mk.native(p):
		return false
	case p.B.Trans:
		most := float64(directMaxBytesTransB)
		if p.A.Trans {
			most = directMaxBytes
		}
		small := layoutBytes(p.A)+layoutBytes(p.B)+layoutBytes(p.C) <= most || p.K <= smallK && layoutBytes(p.C) >= nonTemporalBytes || mk.streamsA(p)
		return small && !isThin(p.M, p.N, p.K, dotsRows)
	}
	tiles := rereadTiles
	if hasSetConflicts(p.B) {
		tiles = rereadTilesConflicting
	}
	if usesAxpy(p) && p.M <= axpyBestRows && layoutBytes(p.B) > directMaxBytes {
		return false
	}
	few := p.M <= tiles*len(mk.Direct) && (layoutBytes(p.B) <= rereadBytes || mk.copiesB(p)) || mk.usesStrips(p) || mk.streamsA(p)
	return few || p.K <= smallK || layoutBytes(p.A)+layoutBytes(p.B)+layoutBytes(p.C) <= directMaxBytes
}

// goesInStrips reports whether p, if it goes direct, goes along stretches of B's rows.
func (mk *microKernel[T]) usesStrips(p *gemm.Problem) bool {
	return !p.B.Trans && p.M > axpyBestRows && p.M <= stripTiles*mk.MR && p.M*p.C.Type.Size() <= stripMaxCBytes &&
		layoutBytes(p.B) > rereadBytes && p.K > smallK
}

// goesDown reports whether p, if it goes direct, goes down a few columns along the rows of A.
func (mk *microKernel[T]) streamsA(p *gemm.Problem) bool {
	return !p.A.Trans && dotsCols < p.N && p.N <= streamAMaxN && layoutBytes(p.A) > rereadBytes && layoutBytes(p.B) <= streamAMaxBBytes && p.K > smallK
}

// copiesB reports whether p, if it goes direct, copies panels of B.
func (mk *microKernel[T]) copiesB(p *gemm.Problem) bool {
	least := float64(copyBytes)
	if p.K >= copyLong*p.N {
		least = copyLongBytes
	}
	return !mk.usesStrips(p) && p.K > smallK && !p.B.Trans && p.N >= mk.NR && p.M >= copyTiles*mk.MR && layoutBytes(p.B) >= least && !hasSetConflicts(p.B)
}

// area is a matrix's size in bytes, as a number that does not overflow.
func layoutBytes(l gemm.Layout) float64 {
	return float64(l.Rows) * float64(l.Cols) * float64(l.Type.Size())
}

// canGoDirect reports whether p can be computed without packing at all.
func (mk *microKernel[T]) canRunDirect(p *gemm.Problem) bool { return mk.native(p) && !p.B.Trans }

// native reports whether micro-kernels can read and write p's matrices where they lie.
func (mk *microKernel[T]) native(p *gemm.Problem) bool {
	return len(mk.Direct) > 0 && p.A.Type == p.Accum() && p.C.Type == p.A.Type && p.ReadsAB()
}

// prepare lays out the product for a d of zeros, which is too large to be handed over.
func (d *direct[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	p, threads := pl.Problem, pl.Threads
	d.microKernel, d.m, d.n, d.k = mk, p.M, p.N, p.K
	d.a, d.b, d.c = dtype.View[T](b.A), dtype.View[T](b.B), dtype.View[T](b.C)
	d.rsa, d.csa, d.ldb, d.ldc = p.A.LD, 1, p.B.LD, p.C.LD
	d.alpha, d.beta = alphaOf[T](p), T(p.Beta)
	d.onTile, d.threads = pl.onTile, threads
	d.mc, d.nc, d.depth = p.M, p.N, mk.kc
	d.epilogue.prepare(p, b, mk)
	if p.A.Trans {
		d.rsa, d.csa = 1, p.A.LD
	}
	d.transB, d.edgeCols = p.B.Trans, mk.edgeColumns(p)
	if d.panelCols = min(p.N, mk.NR); mk.packsWhole(p) {
		d.packing.describe(p.B, b.B, p.B.Trans, p.K, mk.Group, mk.packersB)
	}
	d.deepKernels = mk.isLatencyBound(p)
	switch {
	case d.deepKernels: // one item: tiles must not depend on the number of threads
	case threads == 1 && d.m*d.n*d.k <= maxTaskOps/4: // one item: the divisions below take as long as 8³
	case d.k <= smallK:
		d.mc = equalParts(d.m, smallKTiles*len(d.Direct), len(d.Direct))
		d.nc = equalParts(d.n, smallKBBytes/(d.k*dtype.Of[T]().Size()), d.NR)
		if d.m < 4*threads*d.mc {
			d.nc = equalParts(d.n, min(d.nc, ceilDiv(d.n, threads)), d.NR)
		}
		d.nonTemporal = layoutBytes(p.C) >= nonTemporalBytes && d.beta == 0 && d.k <= d.kc && !d.epilogue.needed && d.onTile == nil && d.isLineAligned()
	case mk.usesStrips(p):
		d.depth = stripDepth
		if p.M <= axpyRows {
			d.depth = stripDepthThin
		}
		d.nc = equalParts(d.n, min(stripCols, ceilDiv(d.n, 2*threads)), d.NR)
	case mk.streamsA(p):
		d.streamsA, d.mc = true, len(d.Direct)
	case mk.copiesB(p):
		d.copies = true
		d.nc = equalParts(d.n, min(copyCBytes/(d.m*dtype.Of[T]().Size()), ceilDiv(d.n, threads)), d.NR)
	case threads == 1:
		d.nc = equalParts(d.n, max(maxTaskOps/max(d.m*d.k, 1), 1), mk.NR)
	default:
		d.nc = equalParts(d.n, max(d.n/(4*threads), 1), mk.NR)
		d.mc = equalParts(d.m, max(d.m*ceilDiv(d.n, d.nc)/(4*threads), 1), len(mk.Direct))
	}
}

func (d *direct[T]) reset() { *d = direct[T]{} }

// starves reports whether p has too few vectors of sums in a tile: each is one chain of dependent
// multiply-adds, and fewer than eight chains leave the units idle.
func (mk *microKernel[T]) isLatencyBound(p *gemm.Problem) bool {
	return (p.M <= latencyBoundRows || p.N <= mk.lanes()) && p.M+p.N <= splitSides && p.K >= dotsDepth
}

// packsWhole reports whether p, if it goes direct, packs all of B.
func (mk *microKernel[T]) packsWhole(p *gemm.Problem) bool {
	return p.B.Trans || mk.streamsA(p) && p.N > mk.NR || conflictRows < p.K && p.K <= smallK && hasSetConflicts(p.B) && p.M > smallKTiles*len(mk.Direct)
}

// inLines reports whether C's rows begin with a cache line.
func (d *direct[T]) isLineAligned() bool {
	size := unsafe.Sizeof(*new(T))
	return uintptr(unsafe.Pointer(unsafe.SliceData(d.c)))%cacheLine == 0 && uintptr(d.ldc)*size%cacheLine == 0
}

// packs reports whether B is packed.
func (d *direct[T]) packs() bool { return d.packing.raw != nil }

// A direct product is one phase, whose items are tiles of C, after another if it packs,
// whose items are panels of B.

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

// count is the number of B's panels.
func (d *direct[T]) panelCount() int { return ceilDiv(d.n-d.edgeCols, d.NR) }

func (d *direct[T]) tileCount() int { return ceilDiv(d.m, d.mc) * ceilDiv(d.n, d.nc) }

func (d *direct[T]) panelElems() int {
	if !d.packs() {
		return 0
	}
	return d.k * d.panelCount() * d.NR
}

// copySize is the memory for what each slot copies.
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

// alone does the product on one goroutine, and allocates nothing even where d is on a stack.
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
	d.packing.pack(d.panels[j*d.k:], d.panelCols, j, min(d.NR, d.n-j), 0, d.k, nil)
}

// item computes a tile of C.
func (d *direct[T]) computeTask(task, worker int) {
	down := ceilDiv(d.m, d.mc)
	i0, j0 := task%down*d.mc, task/down*d.nc
	d.compute(i0, j0, min(d.mc, d.m-i0), min(d.nc, d.n-j0), worker)
}

// compute does the tile of C of rows×cols at (i0, j0).
func (d *direct[T]) compute(i0, j0, rows, cols, worker int) {
	across := cols // in tiles
	if j0+cols == d.n {
		across -= d.edgeCols
	}
	line := asm.Line / int(unsafe.Sizeof(d.alpha)) // elements
	beta, kc := d.beta, equalParts(d.k, d.depth, 8)
	below := (i0 + rows) * d.rsa               // where the next rows of A begin
	even := equalParts(rows, len(d.Direct), 1) // no tile of a few rows at the end
	for p := 0; p < d.k; p += kc {
		k := min(kc, d.k-p)
		for j := j0; j < j0+across; j += d.NR {
			n := min(d.NR, j0+across-j)
			var b *T
			ldb := d.ldb
			if d.packs() {
				b, ldb = &d.panels[j*d.k+p*d.panelCols], d.panelCols
			} else {
				b = &d.b[p*d.ldb+j]
			}
			// While one panel of B is multiplied the next one comes to L2, its rows' first lines
			// and then the others.
			next, fetched, each := 0, 0, 0
			if d.k > smallK && !d.packs() {
				next, each = p*d.ldb+j, k/asm.DirectAhead
				switch {
				case j+d.NR < j0+across:
					next += d.NR
				case p+k < d.k:
					next = (p+k)*d.ldb + j0
				default:
					next = j0 + cols
				}
			}
			i, high := i0, even
			if d.copies && n == d.NR {
				panel := &d.copyBuf[worker*d.kc*d.NR]
				d.Copy(k, &d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, b, ldb, &d.c[i*d.ldc+j], panel, 0, d.ldc, n, d.alpha, beta)
				i += d.MR
				b, ldb = panel, d.NR
				high = equalParts(i0+rows-i, len(d.Direct), 1)
			}
			for ; i < i0+rows; i += high {
				m := min(high, i0+rows-i)
				kernel := d.Direct[m-1]
				switch {
				case d.nonTemporal && m == d.MR && n == d.NR:
					kernel = d.Stream
				case d.deepKernels && m <= len(d.Deep):
					kernel = d.Deep[m-1]
				}
				ahead, apart := &d.b[min(next+fetched*d.ldb, len(d.b)-1)], d.ldb
				if d.streamsA {
					ahead, apart = &d.a[min(below, len(d.a)-1)], line
					below += k / asm.DirectAhead * line
				}
				kernel(k, &d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, b, ldb, &d.c[i*d.ldc+j], ahead, apart, d.ldc, n, d.alpha, beta)
				if fetched += each; fetched >= k {
					next, fetched = next+line, 0
				}
			}
		}
		beta = 1
	}
	if across < cols {
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
