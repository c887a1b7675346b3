package gpu

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// blocked computes several elements of C in each thread, in registers: a thread that
// holds 8 rows of A and 8 columns of B makes 64 multiply-adds of 16 loads, where
// tiled makes one of two. The tiles go from global memory to shared memory by way of
// registers, so that the next ones are under way while the present ones are
// multiplied; there are two of each in shared memory, and one barrier a step. A's tile
// is stored transposed, so that a thread finds its rows side by side.
//
// A warp's threads are 4 by 8: together they read few enough different words that
// shared memory delivers each fragment at full speed.
var blocked = &Kernel{
	Name:    "blocked",
	Adds:    "several elements of C in each thread's registers, vector loads, the next tiles under way",
	SM:      75,
	shapes:  []Shape{{128, 128, 8, 8, 8, 0}, {64, 64, 8, 8, 4, 0}},
	check:   checkBlocked,
	vectors: blockedVectors,
	threads: func(s Shape) device.Dim3 { return device.Dim3{X: blockedThreads(s), Y: 1, Z: 1} },
	limits:  func(c Config) Limits { return Limits{Scatter: rowScatter(c, c.Shape.K, c.Shape.N)} },
	write:   writeBlocked,
}

const warpRows, warpCols = 4, 8 // the threads of a warp

// fragment is how many rows or columns of a tile a thread has side by side: as many
// sums as one instruction moves.
func fragment(sums dtype.Type) int { return maxVector / sums.Size() }

func blockedThreads(s Shape) int { return s.M / s.RowsPerThread * (s.N / s.ColsPerThread) }

func checkBlocked(s Shape) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: kernel blocked with tile %v: %s", gemm.ErrUnsupported, s, fmt.Sprintf(format, args...))
	}
	for _, n := range []int{s.M, s.N, s.K, s.RowsPerThread, s.ColsPerThread} {
		if n < 1 || n > maxThreads || n&(n-1) != 0 {
			return bad("%d is no power of two up to %d", n, maxThreads)
		}
	}
	if s.RowsPerThread%4 != 0 || s.ColsPerThread%4 != 0 {
		return bad("a thread has multiples of 4 rows and columns")
	}
	threads := blockedThreads(s)
	switch {
	case s.M < s.RowsPerThread*warpRows || s.N < s.ColsPerThread*warpCols:
		return bad("a warp alone has %d×%d", s.RowsPerThread*warpRows, s.ColsPerThread*warpCols)
	case threads > maxThreads:
		return bad("a block has at most %d threads, not %d", maxThreads, threads)
	case s.M*s.K < threads || s.N*s.K < threads || s.M > threads || s.N > threads:
		return bad("%d threads cannot share out the loads of %d×%d and %d×%d elements", threads, s.M, s.K, s.K, s.N)
	case s.K > 32:
		return bad("K is at most 32")
	}
	return nil
}

func blockedVectors(s Shape, c *Config, p *gemm.Problem) {
	threads, most := blockedThreads(s), fragment(p.Accum())
	c.VecA = vector(p.A, min(most, s.M*s.K/threads))
	c.VecB = vector(p.B, min(most, s.N*s.K/threads))
	c.VecC = vector(p.C, most)
}

func writeBlocked(k *build.Kernel, c Config) {
	g := declare(k, c)
	s := c.Shape
	threads := blockedThreads(s)
	k.Threads(threads, 1, 1)
	// Rows of shared memory keep the alignment of vectors, and are a vector longer
	// so that a column's elements are in different banks.
	width := fragment(c.In.Info().Accum)
	as := k.Shared("As", g.acc, 2*s.K, s.M+width)
	bs := k.Shared("Bs", g.acc, 2*s.K, s.N+width)
	tid := k.ThreadIdx(build.X)
	row0, col0 := g.origin()
	a := g.panel(g.a, !c.TransA, row0, s.M, c.VecA, as)
	b := g.panel(g.b.T(), c.TransB, col0, s.N, c.VecB, bs)

	lane, warp := k.Rem(tid, 32), k.Div(tid, 32)
	warps := s.N / s.ColsPerThread / warpCols // side by side
	ty := k.Named("ty", k.Mad(k.Div(warp, warps), warpRows, k.Div(lane, warpCols)))
	tx := k.Named("tx", k.Mad(k.Rem(warp, warps), warpCols, k.Rem(lane, warpCols)))

	acc := make([][]build.Reg, s.RowsPerThread)
	for i := range acc {
		acc[i] = k.Vars(fmt.Sprintf("acc%d_", i), g.acc, s.ColsPerThread, 0)
	}
	steps := k.Named("steps", k.CeilDiv(g.k, s.K))
	stage := k.Var("stage", tid.Type(), 0) // first row of the tiles that are multiplied

	k.Comment("the first tiles")
	a.put(stage, a.fetch(0))
	b.put(stage, b.fetch(0))
	k.Barrier()
	k.For(0, steps, func(step build.Reg) {
		k.Comment("the next tiles set out from global memory; behind K they are zeros")
		next := k.Add(step, 1)
		an, bn := a.fetch(next), b.fetch(next)
		k.Comment("multiply the present ones")
		av, bv := as.From(stage, k.Mul(ty, width)), bs.From(stage, k.Mul(tx, width))
		for p := range s.K {
			rows := fragments(av, p, s.M, s.RowsPerThread, width)
			cols := fragments(bv, p, s.N, s.ColsPerThread, width)
			for i, x := range rows {
				for j, y := range cols {
					k.FMA(acc[i][j], x, y)
				}
			}
		}
		k.Comment("the next tiles arrive in the other half")
		k.Set(stage, k.Xor(stage, s.K))
		a.put(stage, an)
		b.put(stage, bn)
		k.Barrier()
	})

	k.Comment("write the thread's part of C")
	for i := range acc {
		row := k.Add(row0, k.Mad(ty, width, place(i, s.M, s.RowsPerThread, width)))
		for j := 0; j < s.ColsPerThread; j += c.VecC {
			col := k.Add(col0, k.Mad(tx, width, place(j, s.N, s.ColsPerThread, width)))
			k.If(g.c.Inside(row, col), func() { g.storeVec(row, col, acc[i][j:j+c.VecC]) })
		}
	}
}

// place is where a thread's element i lies along a tile's side, from the thread's
// first: fragments of all threads side by side, then the next fragment of each.
func place(i, side, perThread, width int) int {
	return i/width*(side/(perThread/width)) + i%width
}

// fragments loads a thread's elements of row p of a tile.
func fragments(tile build.Array, p, side, perThread, width int) []build.Reg {
	var all []build.Reg
	for i := 0; i < perThread; i += width {
		all = append(all, tile.LoadVec(p, place(i, side, perThread, width), width)...)
	}
	return all
}

// panel moves tiles of one operand from global to shared memory, each thread its part
// of each.
type panel struct {
	g     *product
	m     build.Matrix // element (i, p): A, or B transposed
	tile  build.Array  // element (p, i)
	along bool         // consecutive elements run along K
	vec   int
	// i and p are the thread's first vector's place in the tile; the thread's next
	// one is apart from it by iStep and pStep.
	i, p         build.Reg
	first        build.Reg // of the operand's rows in the tile
	iStep, pStep int
	count        int
}

func (g *product) panel(m build.Matrix, along bool, first build.Reg, side, vec int, tile build.Array) *panel {
	s := g.config.Shape
	threads := blockedThreads(s)
	x := &panel{g: g, m: m, tile: tile, along: along, vec: vec, first: first, count: side * s.K / vec / threads}
	tid := g.ThreadIdx(build.X)
	if along {
		row := s.K / vec // vectors
		x.p, x.i, x.iStep = g.Mul(g.Rem(tid, row), vec), g.Div(tid, row), threads/row
	} else {
		row := side / vec
		x.i, x.p, x.pStep = g.Mul(g.Rem(tid, row), vec), g.Div(tid, row), threads/row
	}
	return x
}

// fetch reads the thread's part of the tile of a step. A vector is inside of the
// matrix or outside, as the length of its rows is a multiple of it.
func (x *panel) fetch(step build.Value) [][]build.Reg {
	g := x.g
	vectors := make([][]build.Reg, x.count)
	for n := range vectors {
		i := g.Add(x.first, g.Add(x.i, n*x.iStep))
		p := g.Mad(step, g.config.Shape.K, g.Add(x.p, n*x.pStep))
		vectors[n] = x.m.At(i, p).LoadVecOr0(x.m.Inside(i, p), x.vec)
	}
	return vectors
}

// put stores what was fetched in the tile whose first row is stage.
func (x *panel) put(stage build.Reg, vectors [][]build.Reg) {
	g := x.g
	tile := x.tile.From(x.p, x.i).From(stage, 0)
	for n, vector := range vectors {
		values := make([]build.Value, x.vec)
		for e, v := range vector {
			values[e] = g.sum(v)
		}
		at := tile.From(n*x.pStep, n*x.iStep)
		if !x.along {
			at.StoreVec(values...)
			continue
		}
		for e, v := range values {
			at.Store(e, 0, v)
		}
	}
}
