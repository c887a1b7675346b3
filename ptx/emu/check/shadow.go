package check

import "math/bits"

const (
	pageShift = 8 // pages of 256 bytes
	pageBytes = 1 << pageShift
	// coarsest is the largest number of bytes that a cell stands for, as a shift.
	coarsest = 4
)

// page is the cells of 256 bytes. A cell stands for 1 << shift bytes: as many as the
// smallest piece that was accessed, so that float4 needs a sixteenth of the cells
// that bytes do.
type page[C any] struct {
	shift uint8
	cells []C
}

// split makes the cells stand for no more than 1 << shift bytes.
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

// shadow is a page of what a block does, with what spares looking at its cells.
type shadow struct {
	page[cell]
	wrote   epoch // not before any write
	pending int   // cells that an asynchronous copy is to write
	// settled are the cells, by bit, that have two readers of different warps from
	// since on, so that there is nothing more to note of reads. Pages of more than 64
	// cells do without.
	settled uint64
	since   epoch
}

// bits is the cells k to k+n-1 as settled has them, 0 if it does without.
func (p *shadow) bits(k, n int) uint64 {
	if p.shift < pageShift-6 {
		return 0
	}
	return (1<<n - 1) << k
}

// skips reports whether there is nothing to do for a read of the n cells from k on.
func (p *shadow) skips(k, n int, stale epoch) bool {
	bits := p.bits(k, n)
	return p.wrote < stale && p.since == stale && bits != 0 && bits&^p.settled == 0
}

// region is the pages of one memory: of a block's shared memory, or of what one block
// does to an allocation of global memory.
type region struct {
	pages []*shadow
	used  []int32 // indexes of pages that are not nil
}

// pool keeps pages for use in later blocks. Their cells are zero.
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

// page is the page of index i, with cells of at most 1 << shift bytes.
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

// reset forgets everything.
func (g *region) reset(l *pool) {
	for _, i := range g.used {
		l.put(g.pages[i])
		g.pages[i] = nil
	}
	g.used = g.used[:0]
}

// grain is the largest piece, as a shift, that an access of size bytes at off can be
// cut into without cutting through a cell.
func grain(off uint64, size int) uint8 {
	return uint8(min(bits.TrailingZeros64(off|uint64(size)), coarsest))
}
