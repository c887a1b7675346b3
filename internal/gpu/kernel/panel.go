package kernel

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// panel copies tiles of one operand from global to shared memory. Each thread copies its share.
// Only tiles of A are stored transposed, so that fragment loads in the inner loop are contiguous:
// element (p, i) of a tile belongs to row i of A, or column i of B, at the tile's k number p.
//
// MN-major operands are copied in vectors along i. K-major operands are copied element by element,
// each to a row of its own. Copies are asynchronous (cp.async, sm_80) if the elements need no
// conversion. Otherwise they pass through registers.
//
// Outside the matrix the tiles are filled with zeros, which add nothing.
type panel struct {
	g      *Writer
	m      build.Matrix // element (i, p)
	kMajor bool         // whether the operand is K-major
	async  bool
	vec    int

	source []build.Ptr // the thread's vectors of the first tile
	width  build.Reg   // the remaining extent of the matrix along i from the thread's first vector on
	offset build.Reg   // bytes from the first tile to the one that is copied next
	next   build.Reg   // the k of the thread's vectors in that tile
	target build.Array // the location of the thread's first vector in a stage
	step   int         // distance between a thread's consecutive vectors along i
	active build.Value // whether the thread has any vectors
}

// panel partitions the copies of the tiles of m among the threads of a block. Element (i, p) of m
// is that of A or of the transpose of B. A tile has side rows from the row first on. All vectors of
// a thread have the same p, so one multiply-add locates each, and one comparison per step detects
// the end of K.
func (g *Writer) panel(m build.Matrix, kMajor bool, first build.Reg, side, vec int, tile build.Array) *panel {
	tid, copies := g.ThreadIdx(build.X), NewPanelCopies(&g.Config, vec, kMajor)
	vec = copies.Vec
	x := &panel{g: g, m: m, kMajor: kMajor, async: CopiesAsync(&g.Config), vec: vec, step: copies.Step, active: true}
	across := copies.Run / vec // threads of a run
	var i, p build.Reg
	if kMajor {
		p = g.Mad(g.Add(g.Rem(tid, across), g.Mul(g.Div(tid, across*x.step), across)), vec, 0)
		i = g.Rem(g.Div(tid, across), x.step)
	} else {
		p, i = g.Div(tid, across), g.Mul(g.Rem(tid, across), vec)
	}
	if x.step > side {
		x.active = g.Lt(i, side)
	}
	x.next, x.offset = g.Var("next", g.IndexType, g.Add(p, g.KBegin)), g.Var("apart", ptx.U64, 0)
	i0, p0 := g.Add(first, i), g.Add(p, g.KBegin)
	x.width = g.Select(g.Lt(i0, m.Rows), g.Sub(m.Rows, i0), 0)
	for n := 0; n < side; n += x.step {
		if kMajor {
			x.source = append(x.source, m.At(g.Add(i0, n), p0))
		} else {
			x.source = append(x.source, m.At(i0, p0).At(n))
		}
	}
	x.target = tile.From(p, i)
	return x
}

// PanelCopies describes how the threads of a block of kernel blocked divide the copies of a tile.
type PanelCopies struct {
	Vec  int // elements of a copy
	Run  int // consecutive elements in memory that adjacent threads copy
	Step int // distance between a thread's consecutive copies along the side of the tile
}

// NewPanelCopies returns the copies of an operand that permits vectors of vec elements. An
// asynchronous copy cannot scatter its elements to several rows, as those of a K-major operand.
func NewPanelCopies(c *Config, vec int, kMajor bool) PanelCopies {
	s, threads := c.Tile, BlockedThreads(c.Tile)
	if !kMajor {
		run := threads / s.K * vec
		return PanelCopies{Vec: vec, Run: run, Step: run}
	}
	if CopiesAsync(c) {
		vec = 1
	}
	return PanelCopies{Vec: vec, Run: min(s.K, runAlongK), Step: threads / (s.K / vec)}
}

// runAlongK is the number of consecutive elements along K that adjacent lanes copy from a K-major
// operand: a 32-byte sector of float32. As each element goes to another row of the tile, longer
// runs would cause bank conflicts.
const runAlongK = 8

// issue returns functions that emit the thread's copies of the next tile to the stage that begins
// at a given row, in order. The caller may interleave them with other instructions. The function
// arrive then stores the elements that pass through registers.
func (x *panel) issue(stage build.Value) (pieces []func(), arrive func()) {
	g := x.g
	held := make([][]build.Reg, len(x.source))
	// One value covers both bounds of the matrix. As it changes from step to step, the compiler
	// does not keep a predicate register for each vector.
	width := g.Select(g.Lt(x.next, g.KEnd), x.width, 0)
	for n := range x.source {
		pieces = append(pieces, func() {
			inside, from := g.Lt(n*x.step, width), x.source[n].Skip(x.offset)
			if !x.async {
				held[n] = from.LoadVecOr0(g.And(inside, x.active), x.vec)
				return
			}
			to := x.target.From(stage, 0).At(0, n*x.step)
			g.When(x.active, func() { g.CopyAsync(to, from, x.vec*from.Elem().Bytes(), inside) })
		})
	}
	pieces = append(pieces, func() {
		depth := g.Config.Tile.K
		g.Set(x.next, g.Add(x.next, depth))
		g.Set(x.offset, g.Add(x.offset, x.m.ByteOffset(0, depth)))
	})
	return pieces, func() {
		if !x.async {
			x.store(stage, held)
		}
	}
}

// store writes elements that pass through registers to shared memory.
func (x *panel) store(stage build.Value, held [][]build.Reg) {
	g := x.g
	to := x.target.From(stage, 0)
	for n, vector := range held {
		values := make([]build.Value, x.vec)
		for e, v := range vector {
			values[e] = g.ToAccType(v)
		}
		g.When(x.active, func() {
			if !x.kMajor {
				to.At(0, n*x.step).StoreVec(values...)
				return
			}
			for e, v := range values {
				to.Store(e, n*x.step, v)
			}
		})
	}
}
