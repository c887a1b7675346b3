package kernel

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// skinny is for a C of a few rows or a few columns, where there are but a few operations
// for each element of the long operand, so that nothing counts but how fast that comes
// from memory. Nothing goes through shared memory on its way: a thread has patches of 4×4
// elements of it under way, in vectors along whichever side its rows have in memory, and
// multiplies them with the few elements of the slim operand, which all threads read and
// the L1 cache keeps. The threads of a block share out K, and add what they have in the
// end: in a warp by exchanging registers, between warps through shared memory.
//
// What limits it: memory.
var Skinny = &Kernel{
	Name:       "skinny",
	Adds:       "for a few rows or columns: no tiles, K shared out among the threads of a block",
	SM:         75,
	KPerThread: patch,
	SplitsK:    true,
	// Memory is the limit of a vector's product in tf32 as in float32: it is multiplied unrounded.
	PrecisionTypes: map[gemm.Precision][]dtype.Type{gemm.TF32: {dtype.F32}},
	AccuracyFor: func(p *gemm.Problem) gemm.Accuracy {
		acc := gemm.AccuracyOf(p)
		acc.Operand = 0
		return acc
	},
	Tiles:     skinnyTiles(),
	CheckTile: checkSkinny,
	SetVectors: func(_ Tile, c *Config, p *gemm.Problem) {
		c.VecA, c.VecB = VectorLen(p.Layouts[gemm.A], patch), VectorLen(p.Layouts[gemm.B], patch)
	},
	BlockThreads: func(s Tile) device.Dim3 { return device.Dim3{X: skinnyThreads(s), Y: 1, Z: 1} },
	AccessLimits: limitsSkinny,
	Write:        writeSkinny,
}

// patch is how many elements along the long side, and along K, a thread has of the long
// operand in a step.
const patch = 4

// mostSlim is the most rows or columns that C has for the kernel to be chosen: with more,
// tiles that are read once for all of them cost less.
const MaxSkinny = 8

// skinnyShapes are tiles of few rows, and of few columns. A long one reads the slim
// operand less often; of the short one, for a vector, there are more.
func skinnyTiles() []Tile {
	const threads = 256
	var list []Tile
	for _, tile := range []struct{ slim, long int }{{1, 32}, {4, 32}, {MaxSkinny, 32}, {1, 8}} {
		depth := threads / (tile.long / patch) * patch
		list = append(list,
			Tile{M: tile.slim, N: tile.long, K: depth, RowsPerThread: tile.slim, ColsPerThread: patch},
			Tile{M: tile.long, N: tile.slim, K: depth, RowsPerThread: patch, ColsPerThread: tile.slim})
	}
	return list
}

// fewRows says that a tile's rows are the slim side.
func slimRows(s Tile) bool { return s.RowsPerThread == s.M }

// sides are the extents of a tile's two sides.
func sides(s Tile) (slim, long int) {
	if slimRows(s) {
		return s.M, s.N
	}
	return s.N, s.M
}

func skinnyThreads(s Tile) int {
	_, long := sides(s)
	return long / patch * (s.K / patch)
}

func checkSkinny(s Tile) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: kernel skinny with tile %v: %s", gemm.ErrUnsupported, s, fmt.Sprintf(format, args...))
	}
	for _, n := range []int{s.M, s.N, s.K} {
		if n < 1 || n > 1<<16 || n&(n-1) != 0 {
			return bad("%d is no power of two", n)
		}
	}
	slim, long := sides(s)
	perThread := s.ColsPerThread
	if !slimRows(s) {
		perThread = s.RowsPerThread
		if s.ColsPerThread != s.N {
			return bad("a thread has all rows of a tile, or all columns")
		}
	}
	switch threads := skinnyThreads(s); {
	case perThread != patch || long < patch || s.K < patch:
		return bad("a thread has %d elements of the other side, and of K", patch)
	case slim > MaxSkinny:
		return bad("its slim side is %d at the most", MaxSkinny)
	case threads < 32 || threads > maxThreads:
		return bad("a block has 32 to %d threads, not %d", maxThreads, threads)
	case slim*long > threads:
		return bad("%d threads for %d elements of C", threads, slim*long)
	}
	return nil
}

// limitsSkinny: down the columns of the slim operand, and of C, neighbours lie in
// different rows. Handing the sums of a short tile on, lanes meet in their banks, once.
func limitsSkinny(c Config) AccessLimits {
	slim, long := sides(c.Tile)
	out := long
	if !slimRows(c.Tile) {
		out = slim
	}
	return AccessLimits{Scatter: rowScatter(c, 1, out), Conflicts: 8}
}

// strip is one operand as a matrix whose columns run along K.
type strip struct {
	m      build.Matrix
	kMajor bool // whether its rows in memory do, too
	first  build.Reg
	vec    int
}

// hold is variables for the elements of n rows and of K's patch. They have the type in
// which elements are loaded: what is converted has arrived.
func (x strip) registers(g *Writer, n int) [][]build.Reg {
	rows := make([][]build.Reg, n)
	for i := range rows {
		rows[i] = make([]build.Reg, patch)
		for q := range rows[i] {
			rows[i][q] = g.Fresh(x.m.Loaded())
		}
	}
	return rows
}

// load loads them where ok holds: of the rows from the strip's first and row on, K's patch
// from p on; zeros outside of the matrix.
func (x strip) load(g *Writer, rows [][]build.Reg, row build.Value, p, ok build.Reg) {
	down, across := 1, x.vec // what one load has
	if !x.kMajor {
		down, across = min(x.vec, len(rows)), 1
	}
	for i := 0; i < len(rows); i += down {
		at := g.Add(g.Add(x.first, row), i)
		for j := 0; j < patch; j += across {
			q := g.Add(p, j)
			inside := g.And(g.And(ok, g.Lt(at, x.m.Rows)), g.Lt(q, g.KEnd))
			for e, v := range x.m.At(at, q).LoadVecOr0(inside, down*across) {
				g.Set(rows[i+e%down][j+e/down], v)
			}
		}
	}
}

// column is what rows have at q, in the type that products are summed in.
func (g *Writer) column(rows [][]build.Reg, q int) []build.Reg {
	column := make([]build.Reg, len(rows))
	for i, row := range rows {
		column[i] = g.ToAccType(row[q])
	}
	return column
}

// stepsAhead is how many steps' elements a thread has under way: it holds them in so many
// registers of 4 bytes, two steps at the most where the slim operand takes as many (the
// assembler spills a third of float16).
func stepsAhead(s Tile, sums dtype.Type) int {
	const registers = 96
	slim, _ := sides(s)
	n := max(registers/((slim+patch)*patch*sums.Size()/4), 1)
	if slim > 1 {
		n = min(n, 2)
	}
	return n
}

func writeSkinny(k *build.Kernel, c Config) {
	g := DeclareParams(k, c)
	s := c.Tile
	threads := skinnyThreads(s)
	k.Threads(threads, 1, 1)
	row0, col0 := g.TileOrigin()
	few := strip{g.A, !c.TransA, row0, c.VecA}
	many := strip{g.B.T(), c.TransB, col0, c.VecB}
	if !slimRows(s) {
		few, many = many, few
	}
	slim, long := sides(s)

	k.Comment("neighbouring threads take neighbouring vectors of the long operand")
	tid := k.ThreadIdx(build.X)
	across, down := long/patch, s.K/patch // threads along the long side, and along K
	tl, tk := k.Rem(tid, across), k.Div(tid, across)
	lanes, apart := max(32/across, 1), across // a warp's threads along K, and what lies between two
	if many.kMajor {
		tk, tl = k.Rem(tid, down), k.Div(tid, down)
		lanes, apart = min(down, 32), 1
	}
	tl, tk = k.Named("tl", tl), k.Named("tk", tk)

	acc := make([][]build.Reg, slim)
	for i := range acc {
		acc[i] = k.Vars(fmt.Sprintf("acc%d_", i), g.AccType, patch, 0)
	}
	ahead := stepsAhead(s, c.In.Info().Accum)
	xs, ws := make([][][]build.Reg, ahead), make([][][]build.Reg, ahead)
	busy := k.Lt(k.Add(many.first, k.Mul(tl, patch)), many.m.Rows)
	next := k.Var("next", g.IndexType, k.Mad(tk, patch, g.KBegin)) // the k of what is loaded next
	load := func(n int) {
		many.load(g, ws[n], k.Mul(tl, patch), next, k.Eq(0, 0))
		few.load(g, xs[n], 0, next, busy)
		k.Set(next, k.Add(next, s.K))
	}
	for n := range ahead {
		xs[n], ws[n] = few.registers(g, slim), many.registers(g, patch)
		load(n)
	}
	k.For(0, k.CeilDiv(k.Sub(g.KEnd, g.KBegin), s.K*ahead), func(build.Reg) {
		for n := range ahead {
			for q := range patch {
				w := g.column(ws[n], q)
				for i, x := range g.column(xs[n], q) {
					for j := range w {
						k.FMA(acc[i][j], x, w[j])
					}
				}
			}
			load(n)
		}
	})

	k.Comment("the sums of a warp's threads that have the same elements of C")
	held, begin, mine := g.reduceWarp(slices.Concat(acc...), lanes, apart)
	k.Comment("and those of all warps")
	warps := down / lanes // along K
	shares := k.Shared("shares", g.AccType, warps, slim*long)
	k.If(mine, func() {
		for e, sum := range held {
			at := k.Mad(k.Add(begin, e), across, tl) // neighbours in neighbouring banks
			if many.kMajor {
				at = k.Mad(tl, slim*patch, k.Add(begin, e))
			}
			shares.Store(k.Div(tk, lanes), at, sum)
		}
	})
	k.Barrier()
	group, n := k.Rem(tid, across), k.Div(tid, across)
	if many.kMajor {
		group, n = k.Div(tid, slim*patch), k.Rem(tid, slim*patch)
	}
	i, j := k.Div(n, patch), k.Mad(group, patch, k.Rem(n, patch))
	if !slimRows(s) {
		i, j = j, i
	}
	row, col := k.Add(row0, i), k.Add(col0, j)
	k.If(k.And(k.Lt(tid, slim*long), g.C.InBounds(row, col)), func() {
		total := k.Var("total", g.AccType, shares.Load(0, tid))
		for n := 1; n < warps; n++ {
			k.Set(total, k.Add(total, shares.Load(n, tid)))
		}
		g.StoreSums(row, col, []build.Reg{total})
	})
}

// fold adds sums over so many of a warp's lanes, whose numbers lie apart. In each round a
// lane gives half of what it has to another and takes over that one's share of the other
// half, so that each adds a part in the end: it returns the lane's, and the number of the
// first. Of lanes that are more than the sums, mine says which is to hand them on.
func (g *Writer) reduceWarp(sums []build.Reg, lanes, apart int) (held []build.Reg, first, mine build.Reg) {
	lane := g.Rem(g.ThreadIdx(build.X), 32)
	first, mine = g.To(ptx.U32, 0), g.Eq(0, 0)
	for n := apart; n < lanes*apart; n *= 2 {
		bit := g.Rem(g.Div(lane, n), 2)
		upper := g.Eq(bit, 1)
		if len(sums) == 1 {
			sums = []build.Reg{g.Add(sums[0], g.ShuffleXor(sums[0], n))}
			mine = g.And(mine, g.Not(upper))
			continue
		}
		low, high := sums[:len(sums)/2], sums[len(sums)/2:]
		sums = make([]build.Reg, len(low))
		for i := range sums {
			kept, given := g.Select(upper, high[i], low[i]), g.Select(upper, low[i], high[i])
			sums[i] = g.Add(kept, g.ShuffleXor(given, n))
		}
		first = g.Mad(bit, len(sums), first)
	}
	return sums, first, mine
}
