package kernel

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// panel moves tiles of one operand from global to shared memory, each thread its part
// of each. A is kept as columns of its tile and B as rows, so that what a step of the
// innermost loop reads lies side by side: element (p, i) of a tile is row i's, or
// column i's, at the tile's k number p.
//
// Where the operand's own consecutive elements run along i they move in vectors; where
// they run along K each goes to a row of its own. Copies are asynchronous where the GPU can
// (sm_80) and nothing is converted on the way; or they go through registers.
//
// Outside of the matrix the tiles are filled with zeros, which add nothing.
type panel struct {
	g      *Writer
	m      build.Matrix // element (i, p)
	kMajor bool         // consecutive elements run along K
	async  bool
	vec    int

	source []build.Ptr // the thread's vectors of the first tile
	width  build.Reg   // how far the matrix goes on along i from there, if the vectors do not
	offset build.Reg   // bytes from the first tile to the one that departs next
	next   build.Reg   // the k of the thread's vectors there
	target build.Array // where the thread's first vector goes in a stage
	step   int         // from one of its vectors to the next, along i
	active build.Value // whether the thread has any
}

// panel shares out the tiles of m, whose element (i, p) is A's or the transpose of B's:
// side rows from the row first on. All vectors of a thread have the same p, so that
// it finds each by one multiply-add, and asks once whether K has ended.
func (g *Writer) panel(m build.Matrix, along bool, first build.Reg, side, vec int, tile build.Array, async bool) *panel {
	s := g.Config.Tile
	if async && along {
		vec = 1 // a copy cannot scatter what it moves
	}
	tid, threads := g.ThreadIdx(build.X), BlockedThreads(s)
	x := &panel{g: g, m: m, kMajor: along, async: async, vec: vec, active: true}
	var i, p build.Reg
	if along {
		across := min(s.K, kRunPerLaneGroup) / vec
		down := threads / (s.K / vec)
		p = g.Mad(g.Add(g.Rem(tid, across), g.Mul(g.Div(tid, across*down), across)), vec, 0)
		i, x.step = g.Rem(g.Div(tid, across), down), down
	} else {
		across := threads / s.K
		p, i, x.step = g.Div(tid, across), g.Mul(g.Rem(tid, across), vec), across*vec
	}
	if x.step > side {
		x.active = g.Lt(i, side)
	}
	x.next, x.offset = g.Var("next", g.IndexType, g.Add(p, g.KBegin)), g.Var("apart", ptx.U64, 0)
	i0, p0 := g.Add(first, i), g.Add(p, g.KBegin)
	x.width = g.Select(g.Lt(i0, m.Rows), g.Sub(m.Rows, i0), 0)
	for n := 0; n < side; n += x.step {
		if along {
			x.source = append(x.source, m.At(g.Add(i0, n), p0))
		} else {
			x.source = append(x.source, m.At(i0, p0).At(n))
		}
	}
	x.target = tile.From(p, i)
	return x
}

// runAlong is how many elements along K the lanes of a warp take side by side: a sector
// of float32, which keeps them out of each other's banks when they put each in a row of
// its own.
const kRunPerLaneGroup = 8

// depart is the pieces, to be written in their order, of what sends the thread's part of
// the next tile to the stage whose first row is given, and what puts it there if it goes
// through registers.
func (x *panel) issue(stage build.Value) (pieces []func(), arrive func()) {
	g := x.g
	held := make([][]build.Reg, len(x.source))
	// One number for both ends of the matrix, which changes from step to step, keeps the
	// compiler from holding a predicate for each vector.
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

// put stores what came through registers.
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
