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

// Skinny is for a C with a few rows or a few columns (GEMV and similar). Such a product has only a
// few operations per element of the long operand, so its speed is that of reading this operand from
// memory. The operand does not go through shared memory: each thread has 4×4 patches of it in
// flight, loaded in vectors along the contiguous dimension. It multiplies them with the few
// elements of the slim operand, which all threads read and the L1 cache holds. The threads of a
// block partition K and reduce their sums at the end: within a warp by shuffles, between warps
// through shared memory. With serial parts each thread has a part of K of its own, so that the
// order of summation is that of the other kernels.
//
// Limit: memory bandwidth.
var Skinny = &Kernel{
	Name:       "skinny",
	Adds:       "for a few rows or columns: no tiles, K shared out among the threads of a block",
	SM:         75,
	KPerThread: patch,
	SplitsK:    true,
	// The product with a vector is limited by memory in tf32 as in float32, so elements are not
	// rounded.
	PrecisionTypes: map[gemm.Precision][]dtype.Type{gemm.TF32: {dtype.F32}},
	AccuracyFor: func(p *gemm.Problem) gemm.Accuracy {
		acc := gemm.AccuracyOf(p)
		acc.Operand = 0
		return acc
	},
	OrderFor:  fusedOrder,
	Tiles:     slices.Concat(SkinnyPartTiles, SkinnyTiles),
	CheckTile: checkSkinny,
	SetVectors: func(_ Tile, c *Config, p *gemm.Problem) {
		c.VecA, c.VecB = VectorLen(p.Layouts[gemm.A], patch), VectorLen(p.Layouts[gemm.B], patch)
	},
	CheckFit: func(p *gemm.Problem, s Tile) error {
		if n := p.Accum().Bytes(skinnyThreads(s) * s.RowsPerThread * s.ColsPerThread); s.SerialK > 1 && n > staticShared {
			return fmt.Errorf("%w: kernel skinny with tile %v: sums of %d bytes: want at most %d", gemm.ErrUnsupported, s, n,
				staticShared)
		}
		return nil
	},
	BlockThreads: func(s Tile) device.Dim3 { return device.Dim3{X: skinnyThreads(s), Y: 1, Z: 1} },
	AccessLimits: limitsSkinny,
	Write:        writeSkinny,
}

// patch is the number of elements along the long side, and along K, that a thread loads of the long
// operand per step.
const patch = 4

// MaxSkinny is the maximum number of rows or columns of C for which the kernel is considered.
// Beyond it, tiles in shared memory, read once for all rows, are cheaper.
const MaxSkinny = 8

// SkinnyTiles lists the tiles with few rows and with few columns, of 256 threads. A long tile reads
// the slim operand less often. A short one, for a vector, gives more blocks.
var SkinnyTiles = skinnyTiles([]Tile{
	{M: 1, N: 32, K: 128}, {M: 4, N: 32, K: 128}, {M: MaxSkinny, N: 32, K: 128}, {M: 1, N: 8, K: 512},
})

// SkinnyPartTiles lists further tiles for serial parts, with fewer threads along K. No thread is
// idle if K has few parts.
var SkinnyPartTiles = skinnyTiles([]Tile{
	{M: 4, N: 32, K: 64}, {M: 1, N: 32, K: 64}, {M: 1, N: 32, K: 32}, {M: 1, N: 8, K: 128},
})

// skinnyTiles completes tiles with few rows, and adds the ones with few columns.
func skinnyTiles(few []Tile) (all []Tile) {
	for _, s := range few {
		s.RowsPerThread, s.ColsPerThread = s.M, patch
		all = append(all, s, Tile{M: s.N, N: s.M, K: s.K, RowsPerThread: patch, ColsPerThread: s.M})
	}
	return all
}

// slimRows reports whether the rows of a tile are its slim side.
func slimRows(s Tile) bool { return s.RowsPerThread == s.M }

// sides returns the lengths of a tile's two sides.
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
			return bad("size %d: want a power of two, at most %d", n, 1<<16)
		}
	}
	slim, long := sides(s)
	perThread := s.ColsPerThread
	if !slimRows(s) {
		perThread = s.RowsPerThread
		if s.ColsPerThread != s.N {
			return bad("want all rows of the tile in each thread, or all columns")
		}
	}
	switch threads := skinnyThreads(s); {
	case s.SerialK > s.K/patch:
		return bad("%d serial parts: want at most %d, one for each thread along K", s.SerialK, s.K/patch)
	case perThread != patch || long < patch || s.K < patch:
		return bad("want %d elements per thread along the long side, and along K", patch)
	case slim > MaxSkinny:
		return bad("the slim side is %d: want at most %d", slim, MaxSkinny)
	case threads < 32 || threads > maxThreads:
		return bad("a block of %d threads: want 32 to %d", threads, maxThreads)
	case slim*long > threads:
		return bad("a block of %d threads for %d elements of C: want at least one thread per element", threads, slim*long)
	}
	return nil
}

// limitsSkinny returns the bounds of skinny's memory accesses. Along the columns of the slim
// operand, and of C, adjacent threads access different rows. The lanes that store the sums of a
// short tile to shared memory have bank conflicts, once per block.
func limitsSkinny(c Config) AccessLimits {
	slim, long := sides(c.Tile)
	out := long
	if !slimRows(c.Tile) {
		out = slim
	}
	return AccessLimits{Scatter: rowScatter(c, 1, out), Conflicts: 8}
}

// strip is an operand as a matrix with K along its columns.
type strip struct {
	m      build.Matrix
	kMajor bool // whether the operand is K-major in memory
	first  build.Reg
	vec    int
	elem   dtype.Type
}

// loads returns the elements of one load of a patch with n rows in each direction.
func (x strip) loads(n int) (down, across int) {
	if x.kMajor {
		return 1, x.vec
	}
	return min(x.vec, n), 1
}

// word returns the type of the registers into which a load of the given number of elements goes,
// and the number of elements in each. Elements of less than 4 bytes stay packed until they are
// used: unpacking them would wait for the load.
func (x strip) word(elements int) (t ptx.Type, each int) {
	const wordBits = 32
	switch each = min(elements, max(wordBits/x.elem.Bits(), 1)); each * x.elem.Bits() {
	case x.elem.Bits():
		return x.m.Loaded(), each
	case wordBits / 2:
		return ptx.U16, each
	}
	return ptx.U32, each
}

// registers returns the registers for a patch's elements of n rows. Elements that are packed share
// one. They have the type of the loaded elements, because a conversion would wait for the load.
func (x strip) registers(g *Writer, n int) [][]build.Reg {
	down, across := x.loads(n)
	word, each := x.word(down * across)
	rows := make([][]build.Reg, n)
	for i := range rows {
		rows[i] = make([]build.Reg, patch)
		for q := range rows[i] {
			switch {
			case x.kMajor && q%each > 0:
				rows[i][q] = rows[i][q-1]
			case !x.kMajor && i%each > 0:
				rows[i][q] = rows[i-1][q]
			default:
				rows[i][q] = g.Fresh(word)
			}
		}
	}
	return rows
}

// load loads elements where the predicate ok holds: the rows of the strip from first+row on, and a
// patch along K from p on. Elements outside the matrix, or from end on, are 0.
func (x strip) load(g *Writer, rows [][]build.Reg, row build.Value, p build.Reg, end build.Value, ok build.Reg) {
	down, across := x.loads(len(rows))
	word, each := x.word(down * across)
	for i := 0; i < len(rows); i += down {
		at := g.Add(g.Add(x.first, row), i)
		for j := 0; j < patch; j += across {
			q := g.Add(p, j)
			inside := g.And(g.And(ok, g.Lt(at, x.m.Rows)), g.Lt(q, end))
			from := x.m.At(at, q)
			if each > 1 {
				from = from.As(word)
			}
			for n, v := range from.LoadVecOr0(inside, down*across/each) {
				e := n * each
				g.Set(rows[i+e%down][j+e/down], v)
			}
		}
	}
}

// column returns column q of rows in the type of the accumulators.
func (x strip) column(g *Writer, rows [][]build.Reg, q int) []build.Reg {
	down, across := x.loads(len(rows))
	_, each := x.word(down * across)
	column := make([]build.Reg, len(rows))
	for i, row := range rows {
		n := i
		if x.kMajor {
			n = q
		}
		column[i] = g.ToAccType(x.unpack(g, row[q], n%each, each))
	}
	return column
}

// unpack returns element n of a word with the given number of elements.
func (x strip) unpack(g *Writer, word build.Reg, n, elements int) build.Reg {
	if elements == 1 {
		return word
	}
	switch bits := x.elem.Bits(); {
	case bits == 16:
		return g.Bits(x.m.Elem(), g.To(ptx.U16, g.Shr(word, n*bits)))
	case x.m.Loaded() == ptx.S32: // the shift extends the sign
		return g.Shr(g.Shl(g.Bits(ptx.S32, g.To(ptx.U32, word)), 32-(n+1)*bits), 32-bits)
	default:
		return g.And(g.Shr(g.To(ptx.U32, word), n*bits), 1<<bits-1)
	}
}

// SkinnyStepsAhead returns the number of steps whose elements a thread has in flight. Registers
// limit them, and for 16-bit types the assembler, which spills if the slim operand has several
// rows. With serial parts an SM has fewer threads, so each has more in flight.
func SkinnyStepsAhead(s Tile, in dtype.Type) int {
	slim, _ := sides(s)
	sums := in.Info().Accum
	registers, many := 96, s.SerialK > 1 && in == sums
	if many {
		registers = 160
	}
	n := max(registers/(sums.Bytes((slim+patch)*patch)/4), 1)
	if slim == MaxSkinny || slim > 1 && !many {
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
	few := strip{g.A, !c.TransA, row0, c.VecA, c.In}
	many := strip{g.B.T(), c.TransB, col0, c.VecB, c.In}
	if !slimRows(s) {
		few, many = many, few
	}
	slim, long := sides(s)

	k.Comment("neighbouring threads take neighbouring vectors of the long operand")
	tid := k.ThreadIdx(build.X)
	across, down := long/patch, s.K/patch // threads along the long side, and along K
	tl, tk := k.Rem(tid, across), k.Div(tid, across)
	lanes, apart := max(32/across, 1), across // lanes of a warp along K, and the distance between adjacent ones
	if many.kMajor {
		tk, tl = k.Rem(tid, down), k.Div(tid, down)
		lanes, apart = min(down, 32), 1
	}
	tl, tk = k.Named("tl", tl), k.Named("tk", tk)

	acc := make([][]build.Reg, slim)
	for i := range acc {
		acc[i] = k.Vars(fmt.Sprintf("acc%d_", i), g.AccType, patch, 0)
	}
	ahead := SkinnyStepsAhead(s, c.In)
	xs, ws := make([][][]build.Reg, ahead), make([][][]build.Reg, ahead)
	busy := k.Lt(k.Add(many.first, k.Mul(tl, patch)), many.m.Rows)
	first, advance, end := k.Mad(tk, patch, g.KBegin), s.K, g.KEnd
	turns := func() build.Reg { return k.CeilDiv(k.Sub(g.KEnd, g.KBegin), s.K*ahead) }
	if s.SerialK > 1 { // a part for each thread along K
		first, advance = k.Mad(k.To(g.IndexType, tk), g.partLength, g.KBegin), patch
		end = k.Min(k.Add(first, g.partLength), g.KEnd)
		turns = func() build.Reg { return k.CeilDiv(g.partLength, patch*ahead) }
	}
	next := k.Var("next", g.IndexType, first) // the k of the elements to load next
	load := func(n int) {
		many.load(g, ws[n], k.Mul(tl, patch), next, end, k.Eq(0, 0))
		few.load(g, xs[n], 0, next, end, busy)
		k.Set(next, k.Add(next, advance))
	}
	for n := range ahead {
		xs[n], ws[n] = few.registers(g, slim), many.registers(g, patch)
		load(n)
	}
	k.For(0, turns(), func(build.Reg) {
		for n := range ahead {
			for q := range patch {
				w := many.column(g, ws[n], q)
				for i, x := range few.column(g, xs[n], q) {
					for j := range w {
						k.FMA(acc[i][j], x, w[j])
					}
				}
			}
			load(n)
		}
	})

	if s.SerialK > 1 && s.SplitK > 1 {
		k.Comment("the parts of other blocks come between: the second launch adds all of them")
		k.If(k.Lt(first, g.KEnd), func() { g.storeParts(acc, row0, col0, k.Mul(tl, patch), k.Div(first, g.partLength)) })
		return
	}
	sums := slices.Concat(acc...)
	held, begin, mine := sums, k.To(ptx.U32, 0), k.Eq(0, 0)
	if s.SerialK > 1 {
		lanes = 1 // each thread's sums are those of a part
	} else {
		k.Comment("the sums of a warp's threads that have the same elements of C")
		held, begin, mine = g.reduceWarp(sums, lanes, apart)
	}
	k.Comment("and those of all warps")
	warps := down / lanes // warps along K, or parts
	shares := k.Shared("shares", g.AccType, warps, slim*long)
	k.If(mine, func() {
		for e, sum := range held {
			at := k.Mad(k.Add(begin, e), across, tl) // adjacent threads access adjacent banks
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
		if s.SerialK > 1 { // other kernels add the first part to zero
			k.Set(total, k.Add(total, 0))
		}
		for n := 1; n < warps; n++ {
			k.Set(total, k.Add(total, shares.Load(n, tid)))
		}
		g.StoreSums(row, col, []build.Reg{total})
	})
}

// storeParts stores a thread's sums of a part of K to the partial sums. The thread has all rows or
// columns of the slim side and, from at on, a patch along the long side.
func (g *Writer) storeParts(acc [][]build.Reg, row0, col0, at, part build.Reg) {
	sums := acc
	if slimRows(g.Config.Tile) {
		col0 = g.Add(col0, at)
	} else {
		row0, sums = g.Add(row0, at), make([][]build.Reg, patch)
		for j := range sums {
			for _, column := range acc {
				sums[j] = append(sums[j], column[j])
			}
		}
	}
	width := min(VectorOf(g.Config.In.Info().Accum), len(sums[0])) // rows of partial sums have whole vectors
	for i, row := range sums {
		row0 := g.Add(row0, i)
		for j := 0; j < len(row); j += width {
			col := g.Add(col0, j)
			values := make([]build.Value, width)
			for e := range values {
				values[e] = row[j+e]
			}
			g.If(g.C.InBounds(row0, col), func() { g.sums.At(g.partRow(part, row0), col).StoreVec(values...) })
		}
	}
}

// reduceWarp adds sums over the given number of a warp's lanes, whose lane numbers differ by
// multiples of apart. In each round, a lane exchanges half of its sums for another lane's share of
// the other half (a reduce-scatter), so in the end each lane holds the totals of a part of the
// sums. It returns these totals and the index of the first. If there are more lanes than sums, the
// predicate mine selects the lane that holds a total.
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
