package kernel

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
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
	Name: "skinny",
	Adds: "for a few rows or columns: no tiles, K partitioned among the threads of a block",
	SM:   75,
	// The product with a vector is limited by memory in tf32 as in float32, so elements are not
	// rounded.
	PrecisionTypes: map[gemm.Precision][]dtype.Type{gemm.TF32: {dtype.F32}},
	AccuracyFor: func(p *gemm.Problem) gemm.Accuracy {
		acc := gemm.AccuracyOf(p)
		acc.Operand = 0
		return acc
	},
	OrderFor:   fusedOrder,
	SplitsK:    true,
	KPerThread: SkinnyPatch,
	Tiles:      slices.Concat(SkinnyPartTiles, SkinnyTiles),
	CheckTile:  checkSkinny,
	CheckFit: func(p *gemm.Problem, c *Config) *Reason {
		s := c.Tile
		if n := p.Accum().Bytes(skinnyThreads(s) * s.RowsPerThread * s.ColsPerThread); s.SerialK > 1 && n > staticShared {
			return Because("sums of %d bytes: want at most %d", n, staticShared)
		}
		return nil
	},
	SetVectors: func(c *Config, p *gemm.Problem) {
		c.VecA, c.VecB = VectorLen(p.Layouts[gemm.A], SkinnyPatch), VectorLen(p.Layouts[gemm.B], SkinnyPatch)
	},
	Write:        writeSkinny,
	AccessLimits: limitsSkinny,
	BlockThreads: func(s Tile) device.Dim3 { return device.Dim3{X: skinnyThreads(s), Y: 1, Z: 1} },
}

// SkinnyPatch is the number of elements along the long side, and along K, that a thread loads of
// the long operand per step.
const SkinnyPatch = 4

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
		s.RowsPerThread, s.ColsPerThread = s.M, SkinnyPatch
		all = append(all, s, Tile{M: s.N, N: s.M, K: s.K, RowsPerThread: SkinnyPatch, ColsPerThread: s.M})
	}
	return all
}

// HasSlimRows reports whether the rows of a tile are its slim side.
func HasSlimRows(s Tile) bool { return s.RowsPerThread == s.M }

// SkinnySides returns the lengths of the two sides of a tile of kernel skinny.
func SkinnySides(s Tile) (slim, long int) {
	if HasSlimRows(s) {
		return s.M, s.N
	}
	return s.N, s.M
}

func skinnyThreads(s Tile) int {
	_, long := SkinnySides(s)
	return long / SkinnyPatch * (s.K / SkinnyPatch)
}

func checkSkinny(s Tile) *Reason {
	if why := checkPowersOfTwo(1<<16, s.M, s.N, s.K); why != nil {
		return why
	}
	slim, long := SkinnySides(s)
	perThread := s.ColsPerThread
	if !HasSlimRows(s) {
		perThread = s.RowsPerThread
		if s.ColsPerThread != s.N {
			return Because("want all rows of the tile in each thread, or all columns")
		}
	}
	switch threads := skinnyThreads(s); {
	case s.SerialK > s.K/SkinnyPatch:
		return Because("%d serial parts: want at most %d, one for each thread along K", s.SerialK, s.K/SkinnyPatch)
	case perThread != SkinnyPatch || long < SkinnyPatch || s.K < SkinnyPatch:
		return Because("want %d elements per thread along the long side, and along K", SkinnyPatch)
	case slim > MaxSkinny:
		return Because("the slim side is %d: want at most %d", slim, MaxSkinny)
	case threads < 32 || threads > maxThreads:
		return Because("a block of %d threads: want 32 to %d", threads, maxThreads)
	case slim*long > threads:
		return Because("a block of %d threads for %d elements of C: want at least one thread per element", threads, slim*long)
	}
	return nil
}

// limitsSkinny returns the bounds of skinny's memory accesses. Along the columns of the slim
// operand, and of C, adjacent threads access different rows. The lanes that store the sums of a
// short tile to shared memory have bank conflicts, once per block.
func limitsSkinny(c Config) AccessLimits {
	slim, long := SkinnySides(c.Tile)
	out := long
	if !HasSlimRows(c.Tile) {
		out = slim
	}
	return AccessLimits{Scatter: rowScatter(c, 1, out), Conflicts: 8}
}

// strip is a tile's part of an operand, as a matrix with K along its columns.
type strip struct {
	g      *Writer
	m      build.Matrix
	kMajor bool      // whether the operand is K-major in memory
	first  build.Reg // row of m
	vec    int
	rows   int // of the patches that a thread loads
}

// loads returns the elements of one load of a patch in each direction.
func (x *strip) loads() (down, across int) {
	if x.kMajor {
		return 1, x.vec
	}
	return min(x.vec, x.rows), 1
}

// word returns the type of the registers that hold the elements of a load, and the number of
// elements in each. Elements of less than 4 bytes stay packed until they are used: unpacking them
// would wait for the load.
func (x *strip) word() (t ptx.Type, each int) {
	const wordBits = 32
	down, across := x.loads()
	bits := x.g.Config.In.Bits()
	switch each = min(down*across, max(wordBits/bits, 1)); each * bits {
	case bits:
		return x.m.Loaded(), each
	case wordBits / 2:
		return ptx.U16, each
	}
	return ptx.U32, each
}

// registers returns the registers for a patch. Elements that are packed share one. They have the
// type of the loaded elements, because a conversion would wait for the load.
func (x *strip) registers() [][]build.Reg {
	word, each := x.word()
	patch := make([][]build.Reg, x.rows)
	for i := range patch {
		patch[i] = make([]build.Reg, SkinnyPatch)
		for q := range patch[i] {
			switch {
			case x.kMajor && q%each > 0:
				patch[i][q] = patch[i][q-1]
			case !x.kMajor && i%each > 0:
				patch[i][q] = patch[i-1][q]
			default:
				patch[i][q] = x.g.Fresh(word)
			}
		}
	}
	return patch
}

// load loads a patch where the predicate ok holds: the rows of the strip from row on, along K from
// p on. Elements outside the matrix, or from end on, are 0.
func (x *strip) load(patch [][]build.Reg, row build.Value, p build.Reg, end build.Value, ok build.Reg) {
	down, across := x.loads()
	word, each := x.word()
	for i := 0; i < len(patch); i += down {
		at := x.g.Add(x.g.Add(x.first, row), i)
		for j := 0; j < SkinnyPatch; j += across {
			q := x.g.Add(p, j)
			inside := x.g.And(x.g.And(ok, x.g.Lt(at, x.m.Rows)), x.g.Lt(q, end))
			from := x.m.At(at, q)
			if each > 1 {
				from = from.As(word)
			}
			for n, v := range from.LoadVecOr0(inside, down*across/each) {
				e := n * each
				x.g.Set(patch[i+e%down][j+e/down], v)
			}
		}
	}
}

// column returns column q of a patch in the type of the accumulators.
func (x *strip) column(patch [][]build.Reg, q int) []build.Reg {
	_, each := x.word()
	column := make([]build.Reg, len(patch))
	for i, row := range patch {
		n := i
		if x.kMajor {
			n = q
		}
		column[i] = x.g.ToAccType(x.unpack(row[q], n%each, each))
	}
	return column
}

// unpack returns element n of a word with the given number of elements.
func (x *strip) unpack(word build.Reg, n, elements int) build.Reg {
	if elements == 1 {
		return word
	}
	switch bits := x.g.Config.In.Bits(); {
	case bits == 16:
		return x.g.Bits(x.m.Elem(), x.g.To(ptx.U16, x.g.Shr(word, n*bits)))
	case x.m.Loaded() == ptx.S32: // the shift extends the sign
		return x.g.Shr(x.g.Shl(x.g.Bits(ptx.S32, x.g.To(ptx.U32, word)), 32-(n+1)*bits), 32-bits)
	default:
		return x.g.And(x.g.Shr(x.g.To(ptx.U32, word), n*bits), 1<<bits-1)
	}
}

// SkinnyStepsAhead returns the number of steps whose elements a thread has in flight. Registers
// limit them, and for 16-bit types the assembler, which spills if the slim operand has several
// rows. With serial parts an SM has fewer threads, so each has more in flight.
func SkinnyStepsAhead(s Tile, in dtype.Type) int {
	slim, _ := SkinnySides(s)
	sums := in.Info().Accum
	registers, many := 96, s.SerialK > 1 && in == sums
	if many {
		registers = 160
	}
	n := max(registers/(sums.Bytes((slim+SkinnyPatch)*SkinnyPatch)/4), 1)
	if slim == MaxSkinny || slim > 1 && !many {
		n = min(n, 2)
	}
	return n
}

// skinnyWriter writes kernel skinny.
type skinnyWriter struct {
	g            *Writer
	few, many    strip // the slim operand, with all rows of the tile, and the long operand
	slim, long   int   // the tile's sides
	across, down int   // threads along the long side, and along K
	// tl and tk are the thread's position along the long side, and along K.
	tl, tk     build.Reg
	row0, col0 build.Reg     // origin of the tile in C
	acc        [][]build.Reg // by row of the slim operand, SkinnyPatch rows of the long one
}

func writeSkinny(k *build.Kernel, c Config) {
	w, s := newSkinnyWriter(k, c), c.Tile
	first := w.multiply()
	switch {
	case s.SerialK > 1 && s.SplitK > 1:
		k.Comment("the parts of other blocks come between: the second launch adds all of them")
		k.If(k.Lt(first, w.g.KEnd), func() { w.storeParts(k.Mul(w.tl, SkinnyPatch), k.Div(first, w.g.partLength)) })
	case s.SerialK > 1:
		w.storeTotals(w.shareSums(slices.Concat(w.acc...), k.To(ptx.U32, 0), k.Eq(0, 0), 1))
	default:
		w.storeTotals(w.shareSums(w.reduceWarp()))
	}
}

// newSkinnyWriter partitions the tile among the threads of a block.
func newSkinnyWriter(k *build.Kernel, c Config) *skinnyWriter {
	w, s := &skinnyWriter{g: DeclareParams(k, c)}, c.Tile
	k.Threads(skinnyThreads(s), 1, 1)
	w.row0, w.col0 = w.g.TileOrigin()
	w.few = strip{g: w.g, m: w.g.A, kMajor: !c.TransA, first: w.row0, vec: c.VecA}
	w.many = strip{g: w.g, m: w.g.B.T(), kMajor: c.TransB, first: w.col0, vec: c.VecB}
	if !HasSlimRows(s) {
		w.few, w.many = w.many, w.few
	}
	w.slim, w.long = SkinnySides(s)
	w.few.rows, w.many.rows = w.slim, SkinnyPatch

	k.Comment("neighbouring threads take neighbouring vectors of the long operand")
	tid := k.ThreadIdx(build.X)
	w.across, w.down = w.long/SkinnyPatch, s.K/SkinnyPatch
	w.tl, w.tk = k.Rem(tid, w.across), k.Div(tid, w.across)
	if w.many.kMajor {
		w.tk, w.tl = k.Rem(tid, w.down), k.Div(tid, w.down)
	}
	w.tl, w.tk = k.Named("tl", w.tl), k.Named("tk", w.tk)
	w.acc = make([][]build.Reg, w.slim)
	for i := range w.acc {
		w.acc[i] = k.Vars(fmt.Sprintf("acc%d_", i), w.g.AccType, SkinnyPatch, 0)
	}
	return w
}

// multiply multiplies the thread's part of K, with several steps in flight. It returns the first
// element of that part. The threads along K take steps in turns or, with serial parts, a part each.
func (w *skinnyWriter) multiply() (first build.Reg) {
	k, s := w.g.Kernel, w.g.Config.Tile
	ahead := SkinnyStepsAhead(s, w.g.Config.In)
	busy := k.Lt(k.Add(w.many.first, k.Mul(w.tl, SkinnyPatch)), w.many.m.Rows)
	first, advance, end := k.Mad(w.tk, SkinnyPatch, w.g.KBegin), s.K, w.g.KEnd
	turns := func() build.Reg { return k.CeilDiv(k.Sub(w.g.KEnd, w.g.KBegin), s.K*ahead) }
	if s.SerialK > 1 {
		first, advance = k.Mad(k.To(w.g.IndexType, w.tk), w.g.partLength, w.g.KBegin), SkinnyPatch
		end = k.Min(k.Add(first, w.g.partLength), w.g.KEnd)
		turns = func() build.Reg { // a part can be longer than K
			return k.CeilDiv(k.Min(w.g.partLength, k.Sub(w.g.KEnd, w.g.KBegin)), SkinnyPatch*ahead)
		}
	}
	next := k.Var("next", w.g.IndexType, first) // the k of the elements to load next
	few, many := make([][][]build.Reg, ahead), make([][][]build.Reg, ahead)
	load := func(n int) {
		w.many.load(many[n], k.Mul(w.tl, SkinnyPatch), next, end, k.Eq(0, 0))
		w.few.load(few[n], 0, next, end, busy)
		k.Set(next, k.Add(next, advance))
	}
	for n := range ahead {
		few[n], many[n] = w.few.registers(), w.many.registers()
		load(n)
	}
	k.For(0, turns(), func(build.Reg) {
		for n := range ahead {
			for q := range SkinnyPatch {
				ys := w.many.column(many[n], q)
				for i, x := range w.few.column(few[n], q) {
					for j, y := range ys {
						k.FMA(w.acc[i][j], x, y)
					}
				}
			}
			load(n)
		}
	})
	return first
}

// storeParts stores the thread's sums to the partial sums of a part of K. The thread has all rows
// or columns of the slim side and, from at on, a patch along the long side.
func (w *skinnyWriter) storeParts(at, part build.Reg) {
	row0, col0, sums := w.row0, w.col0, w.acc
	if HasSlimRows(w.g.Config.Tile) {
		col0 = w.g.Add(col0, at)
	} else {
		row0, sums = w.g.Add(row0, at), make([][]build.Reg, SkinnyPatch)
		for j := range sums {
			for _, column := range w.acc {
				sums[j] = append(sums[j], column[j])
			}
		}
	}
	width := min(VectorOf(w.g.Config.Accum()), len(sums[0])) // rows of partial sums have whole vectors
	for i, row := range sums {
		row0 := w.g.Add(row0, i)
		for j := 0; j < len(row); j += width {
			col := w.g.Add(col0, j)
			w.g.If(w.g.C.InBounds(row0, col), func() {
				w.g.sums.At(w.g.partRow(part, row0), col).StoreVec(values(row[j : j+width])...)
			})
		}
	}
}

// shareSums writes held, the sums of each thread from number begin on where the predicate mine
// holds, to shared memory. It returns the array and the number of sums of each element of C, one
// for each group of lanes threads along K.
func (w *skinnyWriter) shareSums(held []build.Reg, begin, mine build.Reg, lanes int) (shares build.Array, count int) {
	k := w.g.Kernel
	k.Comment("and those of all warps")
	count = w.down / lanes
	shares = k.Shared("shares", w.g.AccType, count, w.slim*w.long)
	k.If(mine, func() {
		for e, sum := range held {
			at := k.Mad(k.Add(begin, e), w.across, w.tl) // adjacent threads access adjacent banks
			if w.many.kMajor {
				at = k.Mad(w.tl, w.slim*SkinnyPatch, k.Add(begin, e))
			}
			shares.Store(k.Div(w.tk, lanes), at, sum)
		}
	})
	k.Barrier()
	return shares, count
}

// storeTotals adds count sums of each element of C, in ascending order, and stores the totals. Each
// thread has one element.
func (w *skinnyWriter) storeTotals(shares build.Array, count int) {
	k, s, tid := w.g.Kernel, w.g.Config.Tile, w.g.ThreadIdx(build.X)
	group, n := k.Rem(tid, w.across), k.Div(tid, w.across)
	if w.many.kMajor {
		group, n = k.Div(tid, w.slim*SkinnyPatch), k.Rem(tid, w.slim*SkinnyPatch)
	}
	i, j := k.Div(n, SkinnyPatch), k.Mad(group, SkinnyPatch, k.Rem(n, SkinnyPatch))
	if !HasSlimRows(s) {
		i, j = j, i
	}
	row, col := k.Add(w.row0, i), k.Add(w.col0, j)
	k.If(k.And(k.Lt(tid, w.slim*w.long), w.g.C.InBounds(row, col)), func() {
		total := k.Var("total", w.g.AccType, shares.Load(0, tid))
		if s.SerialK > 1 { // other kernels add the first part to zero
			k.Set(total, k.Add(total, 0))
		}
		for n := 1; n < count; n++ {
			k.Set(total, k.Add(total, shares.Load(n, tid)))
		}
		w.g.StoreSums(row, col, []build.Reg{total})
	})
}

// reduceWarp adds the sums of a warp's lanes along K, whose lane numbers differ by multiples of
// apart. In each round, a lane exchanges half of its sums for another lane's share of the other
// half (a reduce-scatter), so in the end each lane holds the totals of a part of the sums. It
// returns these totals, the index of the first, and the number of lanes. If there are more lanes
// than sums, the predicate mine selects the lane that holds a total.
func (w *skinnyWriter) reduceWarp() (sums []build.Reg, first, mine build.Reg, lanes int) {
	lanes, apart := max(frag.Lanes/w.across, 1), w.across
	if w.many.kMajor {
		lanes, apart = min(w.down, frag.Lanes), 1
	}
	sums = slices.Concat(w.acc...)
	w.g.Comment("the sums of a warp's threads that have the same elements of C")
	lane := w.g.Rem(w.g.ThreadIdx(build.X), frag.Lanes)
	first, mine = w.g.To(ptx.U32, 0), w.g.Eq(0, 0)
	for n := apart; n < lanes*apart; n *= 2 {
		bit := w.g.Rem(w.g.Div(lane, n), 2)
		upper := w.g.Eq(bit, 1)
		if len(sums) == 1 {
			sums = []build.Reg{w.g.Add(sums[0], w.g.ShuffleXor(sums[0], n))}
			mine = w.g.And(mine, w.g.Not(upper))
			continue
		}
		low, high := sums[:len(sums)/2], sums[len(sums)/2:]
		sums = make([]build.Reg, len(low))
		for i := range sums {
			kept, given := w.g.Select(upper, high[i], low[i]), w.g.Select(upper, low[i], high[i])
			sums[i] = w.g.Add(kept, w.g.ShuffleXor(given, n))
		}
		first = w.g.Mad(bit, len(sums), first)
	}
	return sums, first, mine, lanes
}
