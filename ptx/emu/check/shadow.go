package check

import "math/bits"

const (
	pageShift = 8 // pages of 256 bytes
	pageBytes = 1 << pageShift
	// coarsest is the log2 of the maximum number of bytes per cell.
	coarsest = 4
)

// page holds the cells for 256 bytes of memory. Each cell represents 1 << shift bytes, the
// smallest unit that has been accessed. A page accessed by float4 thus needs a sixteenth of the
// cells of a page accessed by bytes.
type page[C any] struct {
	shift uint8
	cells []C
}

// split makes the cells represent at most 1 << shift bytes each.
func (p *page[C]) split(shift uint8) {
	if shift >= p.shift {
		return
	}
	old, each := p.cells, 1<<(p.shift-shift)
	p.shift, p.cells = shift, make([]C, pageBytes>>shift)
	for i := range p.cells {
		p.cells[i] = old[i/each]
	}
}

// shadow is a page of shadow memory for one block. The fields besides the page allow most
// accesses to skip the cells.
type shadow struct {
	page[cell]
	wrote   epoch // at least the latest write
	pending int   // number of cells that asynchronous copies in flight will write
	// settled is a bit mask of the cells with two reads by different warps at or after
	// since. Further reads of these cells need not be recorded. It is unused in pages of
	// more than 64 cells.
	settled uint64
	since   epoch
}

// bits returns the mask of cells k to k+n-1 in settled, or 0 if settled is unused.
func (p *shadow) bits(k, n int) uint64 {
	if p.shift < pageShift-6 {
		return 0
	}
	return (1<<n - 1) << k
}

// skips reports whether a read of n cells starting at k can be skipped.
func (p *shadow) skips(k, n int, stale epoch) bool {
	bits := p.bits(k, n)
	return p.wrote < stale && p.since == stale && bits != 0 && bits&^p.settled == 0
}

// region is the shadow memory of one block's shared memory, or of the accesses of one block to an
// allocation of global memory.
type region struct {
	pages []*shadow
	used  []int32 // indices of the pages that are not nil
}

// pool holds zeroed pages for reuse by later blocks.
type pool struct {
	free [coarsest + 1][]*shadow
}

func (l *pool) get(shift uint8) *shadow {
	if n := len(l.free[shift]); n > 0 {
		p := l.free[shift][n-1]
		l.free[shift] = l.free[shift][:n-1]
		return p
	}
	return &shadow{page: page[cell]{shift: shift, cells: make([]cell, pageBytes>>shift)}}
}

func (l *pool) put(p *shadow) {
	clear(p.cells)
	*p = shadow{page: p.page}
	l.free[p.shift] = append(l.free[p.shift], p)
}

// page returns page i, with cells of at most 1 << shift bytes.
func (g *region) page(i int, shift uint8, l *pool) *shadow {
	if i >= len(g.pages) {
		g.pages = append(g.pages, make([]*shadow, i+1-len(g.pages))...)
	}
	p := g.pages[i]
	if p == nil {
		p = l.get(shift)
		g.pages[i] = p
		g.used = append(g.used, int32(i))
	} else if shift < p.shift {
		p.pending <<= p.shift - shift
		p.settled = 0
		p.split(shift)
	}
	return p
}

// reset returns all pages to the pool.
func (g *region) reset(l *pool) {
	for _, i := range g.used {
		l.put(g.pages[i])
		g.pages[i] = nil
	}
	g.used = g.used[:0]
}

// grain returns the log2 of the largest cell size for which an access of size bytes at off
// consists of whole cells.
func grain(off uint64, size int) uint8 {
	return uint8(min(bits.TrailingZeros64(off|uint64(size)), coarsest))
}
