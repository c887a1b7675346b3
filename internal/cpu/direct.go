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
	*micro[T]
	m, n, k     int
	a, b, c     []T
	rsa, csa    int // A's strides from row to row and along K
	ldb, ldc    int
	alpha, beta T
	finish      finisher[T]
	tile        func(i, j, rows, cols int) // see product
	threads     int
	mc, nc      int        // an item's tile of C
	deep        int        // steps of K at a time: as where B is packed, for the same bits, unless memory takes the time
	streams     bool       // whether whole tiles are stored around the caches
	packing     operand[T] // B, if all of it is packed, and …
	panels      []T        // … where to, K×NR after K×NR,
	wide        int        // or one of the few columns that there are
	down        bool       // whether it goes down A, whose next rows are fetched, and not B's
	copies      bool       // whether the first tile of a panel of B copies it for those below
	copied      []T        // for each slot, such a panel
	turned      bool       // whether B is transposed
	inSets      bool       // whether its kernels keep several sums for each element; see [micro.starves]
	last        int        // columns at the end of C that no tiles compute; see [direct.end]
	ends        []T        // for each slot, memory for that
	places      []place
}

const (
	// directBytes is how large A, B and C may be together, whatever their shape: L2 holds
	// them, or most of them.
	directBytes = 5 << 19
	// turnedBytes is the same where B, not A, is transposed: it is packed either way, but A too
	// by the five loops if that is.
	turnedBytes = 384 << 10
	// flatDepth is up to what K is flat: an element of C is not worth more than reading
	// and writing it.
	flatDepth = 64
	// flatTiles is how many tiles, one below the other, a flat product goes along C with:
	// all read the same of B, from L1.
	flatTiles = 4
	// flatReach is how many bytes of B a flat product reads again and again, from L2, while
	// it goes along rows of C.
	flatReach = 256 << 10
	// crowd is how many of B's rows, if they crowd, L1 holds while it holds A's too: a flat
	// product packs more.
	crowd = 8
	// streamBytes is from where on a C goes around the caches, which could not hold it: that
	// saves to read it before it is overwritten.
	streamBytes = 8 << 20
	// Of larger ones with at most so many tiles, one below the other, B is not packed if it
	// takes no more than rereadBytes: to pack it would cost as much as to read it from a
	// cache for most of them.
	rereadTiles = 12
	rereadBytes = 12 << 20
	// crowdedTiles is how many tiles that are where B's rows crowd.
	crowdedTiles = 3
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
	stripBytes     = 256
	stripColumns   = 2048
	stripDepth     = 32
	stripDepthThin = 16
	// The same for so many columns against a large A: a tile's rows are gone through to their
	// ends, which leaves time to have the next tile's come to L2.
	downColumns = 64
	// starvedRows is up to how many rows two vectors of columns are too few chains.
	starvedRows = 3
	// downBytes is up to how many bytes of B stay in L2 while tiles go down the rows of A.
	downBytes = 2 << 20
	// copyReach is how many bytes of C go over all of K at once.
	copyReach = 256 << 10
)

// goesDirect reports whether p is better not packed.
func (mk *micro[T]) goesDirect(p *gemm.Problem) bool {
	switch {
	case !mk.native(p):
		return false
	case p.B.Trans:
		most := float64(turnedBytes)
		if p.A.Trans {
			most = directBytes
		}
		small := area(p.A)+area(p.B)+area(p.C) <= most || p.K <= flatDepth && area(p.C) >= streamBytes || mk.goesDown(p)
		return small && !isThin(p.M, p.N, p.K, dotsRows)
	}
	tiles := rereadTiles
	if crowds(p.B) {
		tiles = crowdedTiles
	}
	if sweeps(p) && p.M <= sweepFirst && area(p.B) > directBytes {
		return false
	}
	few := p.M <= tiles*len(mk.Direct) && (area(p.B) <= rereadBytes || mk.copiesB(p)) || mk.goesInStrips(p) || mk.goesDown(p)
	return few || p.K <= flatDepth || area(p.A)+area(p.B)+area(p.C) <= directBytes
}

// goesInStrips reports whether p, if it goes direct, goes along stretches of B's rows.
func (mk *micro[T]) goesInStrips(p *gemm.Problem) bool {
	return !p.B.Trans && p.M > sweepFirst && p.M <= stripTiles*mk.MR && p.M*p.C.Type.Size() <= stripBytes &&
		area(p.B) > rereadBytes && p.K > flatDepth
}

// goesDown reports whether p, if it goes direct, goes down a few columns along the rows of A.
func (mk *micro[T]) goesDown(p *gemm.Problem) bool {
	return !p.A.Trans && dotsColumns < p.N && p.N <= downColumns && area(p.A) > rereadBytes && area(p.B) <= downBytes && p.K > flatDepth
}

// copiesB reports whether p, if it goes direct, copies panels of B.
func (mk *micro[T]) copiesB(p *gemm.Problem) bool {
	least := float64(copyBytes)
	if p.K >= copyLong*p.N {
		least = copyLongBytes
	}
	return !mk.goesInStrips(p) && p.K > flatDepth && !p.B.Trans && p.N >= mk.NR && p.M >= copyTiles*mk.MR && area(p.B) >= least && !crowds(p.B)
}

// area is a matrix's size in bytes, as a number that does not overflow.
func area(l gemm.Layout) float64 {
	return float64(l.Rows) * float64(l.Cols) * float64(l.Type.Size())
}

// canGoDirect reports whether p can be computed without packing at all.
func (mk *micro[T]) canGoDirect(p *gemm.Problem) bool { return mk.native(p) && !p.B.Trans }

// native reports whether micro-kernels can read and write p's matrices where they lie.
func (mk *micro[T]) native(p *gemm.Problem) bool {
	return len(mk.Direct) > 0 && p.A.Type == p.Accum() && p.C.Type == p.A.Type && p.ReadsAB()
}

// prepare lays out the product for a d of zeros, which is too large to be handed over.
func (d *direct[T]) prepare(pl *Plan, mk *micro[T], b *gemm.Buffers) {
	p, threads := pl.Problem, pl.Threads
	d.micro, d.m, d.n, d.k = mk, p.M, p.N, p.K
	d.a, d.b, d.c = dtype.View[T](b.A), dtype.View[T](b.B), dtype.View[T](b.C)
	d.rsa, d.csa, d.ldb, d.ldc = p.A.LD, 1, p.B.LD, p.C.LD
	d.alpha, d.beta = alphaOf[T](p), T(p.Beta)
	d.tile, d.threads = pl.tile, threads
	d.mc, d.nc, d.deep = p.M, p.N, mk.kc
	d.finish.prepare(p, b, mk)
	if p.A.Trans {
		d.rsa, d.csa = 1, p.A.LD
	}
	d.turned, d.last = p.B.Trans, mk.ends(p)
	if d.wide = min(p.N, mk.NR); mk.packsWhole(p) {
		d.packing.describe(p.B, b.B, p.B.Trans, p.K, mk.Group, mk.formsB)
	}
	d.inSets = mk.starves(p)
	switch {
	case d.inSets: // one item: tiles must not depend on the number of threads
	case threads == 1 && d.m*d.n*d.k <= mostItem/4: // one item: the divisions below take as long as 8³
	case d.k <= flatDepth:
		d.mc = equalParts(d.m, flatTiles*len(d.Direct), len(d.Direct))
		d.nc = equalParts(d.n, flatReach/(d.k*dtype.Of[T]().Size()), d.NR)
		if d.m < 4*threads*d.mc {
			d.nc = equalParts(d.n, min(d.nc, ceilDiv(d.n, threads)), d.NR)
		}
		d.streams = area(p.C) >= streamBytes && d.beta == 0 && d.k <= d.kc && !d.finish.needed && d.tile == nil && d.inLines()
	case mk.goesInStrips(p):
		d.deep = stripDepth
		if p.M <= sweepRows {
			d.deep = stripDepthThin
		}
		d.nc = equalParts(d.n, min(stripColumns, ceilDiv(d.n, 2*threads)), d.NR)
	case mk.goesDown(p):
		d.down, d.mc = true, len(d.Direct)
	case mk.copiesB(p):
		d.copies = true
		d.nc = equalParts(d.n, min(copyReach/(d.m*dtype.Of[T]().Size()), ceilDiv(d.n, threads)), d.NR)
	case threads == 1:
		d.nc = equalParts(d.n, max(mostItem/max(d.m*d.k, 1), 1), mk.NR)
	default:
		d.nc = equalParts(d.n, max(d.n/(4*threads), 1), mk.NR)
		d.mc = equalParts(d.m, max(d.m*ceilDiv(d.n, d.nc)/(4*threads), 1), len(mk.Direct))
	}
}

func (d *direct[T]) reset() { *d = direct[T]{} }

// starves reports whether p has too few vectors of sums in a tile: each is one chain of dependent
// multiply-adds, and fewer than eight chains leave the units idle.
func (mk *micro[T]) starves(p *gemm.Problem) bool {
	return (p.M <= starvedRows || p.N <= mk.lanes()) && p.M+p.N <= splitSides && p.K >= dotsDepth
}

// packsWhole reports whether p, if it goes direct, packs all of B.
func (mk *micro[T]) packsWhole(p *gemm.Problem) bool {
	return p.B.Trans || mk.goesDown(p) && p.N > mk.NR || crowd < p.K && p.K <= flatDepth && crowds(p.B) && p.M > flatTiles*len(mk.Direct)
}

// inLines reports whether C's rows begin with a cache line.
func (d *direct[T]) inLines() bool {
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

func (d *direct[T]) enter(phase, slot int) (items int) {
	d.places[slot].computing = phase == d.phases()-1
	if !d.places[slot].computing {
		return d.count()
	}
	return d.tiles()
}

// count is the number of B's panels.
func (d *direct[T]) count() int { return ceilDiv(d.n-d.last, d.NR) }

func (d *direct[T]) tiles() int { return ceilDiv(d.m, d.mc) * ceilDiv(d.n, d.nc) }

func (d *direct[T]) panelsSize() int {
	if !d.packs() {
		return 0
	}
	return d.k * d.count() * d.NR
}

// copySize is the memory for what each slot copies.
func (d *direct[T]) copySize() int {
	if !d.copies {
		return 0
	}
	return d.threads * d.kc * d.NR
}

func (d *direct[T]) bytes() int {
	return bytesFor[T](d.panelsSize()) + bytesFor[T](d.copySize()) + bytesFor[T](d.threads*d.endSize())
}

func (d *direct[T]) use(m *memory, places []place) {
	d.panels, d.copied, d.places = take[T](m, d.panelsSize()), take[T](m, d.copySize()), places
	d.ends = take[T](m, d.threads*d.endSize())
}

// alone does the product on one goroutine, and allocates nothing even where d is on a stack.
func (d *direct[T]) alone(ctx context.Context) error {
	if d.packs() {
		for panel := range d.count() {
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
	for item := range d.tiles() {
		if err := ctx.Err(); err != nil {
			return err
		}
		d.item(item, 0)
	}
	return nil
}

func (d *direct[T]) do(item, slot int) {
	if d.places[slot].computing {
		d.item(item, slot)
	} else {
		d.pack(item)
	}
}

// pack packs a panel of B.
func (d *direct[T]) pack(panel int) {
	j := panel * d.NR
	d.packing.pack(d.panels[j*d.k:], d.wide, j, min(d.NR, d.n-j), 0, d.k, nil)
}

// item computes a tile of C.
func (d *direct[T]) item(item, slot int) {
	down := ceilDiv(d.m, d.mc)
	i0, j0 := item%down*d.mc, item/down*d.nc
	d.compute(i0, j0, min(d.mc, d.m-i0), min(d.nc, d.n-j0), slot)
}

// compute does the tile of C of rows×cols at (i0, j0).
func (d *direct[T]) compute(i0, j0, rows, cols, slot int) {
	across := cols // in tiles
	if j0+cols == d.n {
		across -= d.last
	}
	line := asm.Line / int(unsafe.Sizeof(d.alpha)) // elements
	beta, kc := d.beta, equalParts(d.k, d.deep, 8)
	below := (i0 + rows) * d.rsa               // where the next rows of A begin
	even := equalParts(rows, len(d.Direct), 1) // no tile of a few rows at the end
	for p := 0; p < d.k; p += kc {
		k := min(kc, d.k-p)
		for j := j0; j < j0+across; j += d.NR {
			n := min(d.NR, j0+across-j)
			var b *T
			ldb := d.ldb
			if d.packs() {
				b, ldb = &d.panels[j*d.k+p*d.wide], d.wide
			} else {
				b = &d.b[p*d.ldb+j]
			}
			// While one panel of B is multiplied the next one comes to L2, its rows' first lines
			// and then the others.
			next, fetched, each := 0, 0, 0
			if d.k > flatDepth && !d.packs() {
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
				panel := &d.copied[slot*d.kc*d.NR]
				d.Copy(k, &d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, b, ldb, &d.c[i*d.ldc+j], panel, 0, d.ldc, n, d.alpha, beta)
				i += d.MR
				b, ldb = panel, d.NR
				high = equalParts(i0+rows-i, len(d.Direct), 1)
			}
			for ; i < i0+rows; i += high {
				m := min(high, i0+rows-i)
				kernel := d.Direct[m-1]
				switch {
				case d.streams && m == d.MR && n == d.NR:
					kernel = d.Stream
				case d.inSets && m <= len(d.Deep):
					kernel = d.Deep[m-1]
				}
				ahead, apart := &d.b[min(next+fetched*d.ldb, len(d.b)-1)], d.ldb
				if d.down {
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
		d.end(i0, rows, d.ends[slot*d.endSize():])
	}
	if d.streams {
		asm.Fence()
	}
	if d.finish.needed {
		d.finish.tile(d.c[i0*d.ldc+j0:], d.ldc, i0, j0, rows, cols, nil)
	}
	if d.tile != nil {
		d.tile(i0, j0, rows, cols)
	}
}
