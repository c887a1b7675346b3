package cpu

import (
	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// product is one product by the five loops around a micro-kernel, numbered as
// in the BLIS papers:
//
//	5  columns of C, ns at a time
//	·  rows of C, ms at a time (so that what is packed is bounded)
//	4  K, kc at a time: pack ms×kc of A, if need be, and kc×ns of B
//	3  rows of the block, mc at a time       ┐ an item: a tile of C,
//	2  columns of the tile, nr at a time     │ which one goroutine
//	1  rows of the tile, mr at a time        ┘ computes
//	0  the micro-kernel: an mr×nr tile of C in registers, over kc
//
// Loop 4 is serial: an element of C is summed over K in one order, whoever does
// it, so that its bits depend on the shape alone. Loops 5 and 4 are the phases of
// a task, and packing and computing are a phase each.
type product[T scalar] struct {
	*micro[T]
	m, n, k     int // k in steps: of an element each, or of int8 several
	a, b        operand[T]
	alpha, beta T

	// Where the sums go: C itself or, when C holds another type, a scratch of
	// ms×ns, from which finish converts.
	c       []T
	ldc     int
	scratch bool
	finish  finisher[T]

	ms, ns, kc int // the micro-kernel's, cut to equal parts of this product
	mc, nc     int // an item's tile of C
	packsA     bool
	aPack      []T
	bPack      []T
}

// newProduct lays out the blocks for the given number of threads. Only the tile
// of an item depends on that number, never the order of a sum.
func newProduct[T scalar](mk *micro[T], p *gemm.Problem, b gemm.Buffers, threads int, w *workspace) *product[T] {
	d := &product[T]{
		micro: mk, m: p.M, n: p.N, k: ceilDiv(p.K, mk.Group),
		a: operandA(p, b, mk), b: operandB(p, b, mk),
		alpha: T(p.Alpha), beta: T(p.Beta),
		finish: newFinisher[T](p, b, mk),
	}
	if !p.ReadsAB() {
		d.k, d.alpha = 0, 0
	}
	d.ms = equalParts(d.m, mk.ms, mk.MR)
	d.ns = equalParts(d.n, mk.ns, mk.NR)
	d.kc = equalParts(d.k, mk.kc, 8)
	if p.C.Type == dtype.Of[T]() {
		d.c, d.ldc = dtype.View[T](b.C), p.C.LD
	} else {
		d.ms = equalParts(d.m, min(mk.ms, 1024), mk.MR)
		d.c, d.ldc, d.scratch = take[T](w, d.ms*d.ns), d.ns, true
	}
	d.mc, d.nc = d.tile(threads)
	if d.packsA = !mk.readsInPlace(p); d.packsA {
		d.aPack = take[T](w, d.ms*d.kc)
	}
	d.bPack = take[T](w, d.ns*(d.top()+d.kc))
	return d
}

// crowding is a distance of a matrix's rows, in bytes, whose multiples fall on one set
// of an L1 cache with 64 of them, and on a few of an L2 cache: rows evict each other.
const crowding = 4 << 10

// readsInPlace reports whether the micro-kernel may as well read A where it lies: its
// rows run along K, which is the order in which panels would have them, and do not
// crowd.
func (mk *micro[T]) readsInPlace(p *gemm.Problem) bool {
	t := dtype.Of[T]()
	return len(mk.Direct) > 0 && p.ReadsAB() && p.A.Type == t && !p.A.Trans && p.A.LD*t.Size()%crowding != 0
}

// tile chooses what one item computes: with one thread a whole row of blocks,
// with more about four items a thread, so that none waits long for the last.
func (d *product[T]) tile(threads int) (mc, nc int) {
	mc, nc = equalParts(d.ms, d.micro.mc, d.MR), d.ns
	if threads == 1 {
		return mc, nc
	}
	items := 4 * threads
	nc = equalParts(d.ns, max(d.ns*ceilDiv(d.ms, mc)/items, 4*d.NR), d.NR)
	if have := ceilDiv(d.ms, mc) * ceilDiv(d.ns, nc); have < items {
		mc = equalParts(d.ms, max(mc*have/items, d.MR), d.MR)
	}
	return mc, nc
}

func (d *product[T]) walk() walker {
	return &blockWalk[T]{product: d, tmp: make([]T, max(d.kc, finishing))}
}

// blockWalk goes through loops 5 to 4.
type blockWalk[T scalar] struct {
	*product[T]
	i0, j0, p0 int // the block: rows i0…, columns j0…, p0… of K
	computing  bool
	tmp        []T // a row under conversion
}

// The present block's size.
func (w *blockWalk[T]) rows() int  { return min(w.ms, w.m-w.i0) }
func (w *blockWalk[T]) cols() int  { return min(w.ns, w.n-w.j0) }
func (w *blockWalk[T]) depth() int { return min(w.kc, w.k-w.p0) }

func (w *blockWalk[T]) advance() bool {
	w.computing = !w.computing
	if w.computing {
		return true
	}
	if w.p0 += w.kc; w.p0 < w.k {
		return true
	}
	w.p0 = 0
	if w.i0 += w.ms; w.i0 < w.m {
		return true
	}
	w.i0 = 0
	w.j0 += w.ns
	return w.j0 < w.n
}

// panelsPerItem is how many panels one item of a packing phase packs.
const panelsPerItem = 4

func (w *blockWalk[T]) items() int {
	if w.computing {
		return ceilDiv(w.rows(), w.mc) * ceilDiv(w.cols(), w.nc)
	}
	return w.itemsA() + w.itemsB()
}

// itemsA is zero where A is not packed.
func (w *blockWalk[T]) itemsA() int {
	if !w.packsA {
		return 0
	}
	return ceilDiv(w.rows(), w.MR*panelsPerItem)
}

// itemsB is zero where B's panels are those of the block of rows before.
func (w *blockWalk[T]) itemsB() int {
	if w.i0 > 0 && w.kc >= w.k {
		return 0
	}
	return ceilDiv(w.cols(), w.NR*panelsPerItem)
}

func (w *blockWalk[T]) do(item int) {
	switch itemsA := w.itemsA(); {
	case w.computing:
		across := ceilDiv(w.cols(), w.nc)
		w.compute(item/across*w.mc, item%across*w.nc)
	case item < itemsA:
		w.pack(w.aPack, &w.a, w.MR, w.i0, w.rows(), item, nil)
	default:
		w.pack(w.bPack, &w.b, w.NR, w.j0, w.cols(), item-itemsA, w.Start)
	}
}

// pack packs the item'th group of panels, of r rows each, of the n rows of o
// from x0 on. A panel that has a row on top gets it from start.
func (w *blockWalk[T]) pack(dst []T, o *operand[T], r, x0, n, item int, start func(k int, b *T)) {
	k, top := w.depth(), 0
	if start != nil {
		top = 1
	}
	for x := item * panelsPerItem * r; x < min((item+1)*panelsPerItem*r, n); x += r {
		panel := dst[x*(top+k):]
		o.pack(panel[top*r:], r, x0+x, min(r, n-x), w.p0, k, w.tmp)
		if start != nil {
			start(k, &panel[0])
		}
	}
}

// top is the number of rows in a panel of B before the first step.
func (mk *micro[T]) top() int {
	if mk.Start != nil {
		return 1
	}
	return 0
}

// compute does loops 2 to 0 for the tile of C at (i, j) of the block. While a panel of
// B is multiplied the next one comes from L3, a part with each call of the micro-kernel.
func (w *blockWalk[T]) compute(i, j int) {
	k, beta := w.depth(), T(1)
	if w.p0 == 0 {
		beta = w.beta
		if w.scratch {
			beta = 0 // finish adds β·C
		}
	}
	rows, cols := min(w.mc, w.rows()-i), min(w.nc, w.cols()-j)
	c, at := w.c, i*w.ldc+j
	if !w.scratch {
		at += w.i0*w.ldc + w.j0
	}
	deep := w.top() + k
	fetched := k / asm.Ahead * asm.Line / dtype.Of[T]().Size() // elements, by one call
	for jr := 0; jr < cols; jr += w.NR {
		b := &w.bPack[(j+jr)*deep]
		ahead := w.bPack[(j+min(jr+w.NR, cols-1))*deep:]
		for ir := 0; ir < rows; ir += w.MR {
			m, n, tile := min(w.MR, rows-ir), min(w.NR, cols-jr), &c[at+ir*w.ldc+jr]
			next := &ahead[min(ir/w.MR*fetched, len(ahead)-1)]
			if w.packsA {
				w.Packed(k, &w.aPack[(i+ir)*k], b, tile, next, w.ldc, m, n, w.alpha, beta)
				continue
			}
			row := &w.a.data[w.a.index(w.i0+i+ir, w.p0)]
			w.Direct[m-1](k, row, w.a.ld, 1, b, w.NR, tile, next, w.ldc, n, w.alpha, beta)
		}
		if w.finish.needed && w.p0+k >= w.k {
			w.finish.tile(c[at+jr:], w.ldc, w.i0+i, w.j0+j+jr, rows, min(w.NR, cols-jr), w.tmp)
		}
	}
}

// equalParts cuts n into the fewest parts of at most size, all multiples of unit
// but the last, and as equal as that allows: it returns their size.
func equalParts(n, size, unit int) int {
	if n == 0 {
		return unit
	}
	size = max(size/unit*unit, unit)
	return ceilDiv(ceilDiv(n, ceilDiv(n, size)), unit) * unit
}

func ceilDiv(n, d int) int { return (n + d - 1) / d }
