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

// MMA multiplies on the tensor cores with mma.sync. A warp computes a tile of about 64×32 elements
// of C, 64 accumulators per lane, with instructions of 16×8 or 8×8 elements, depending on the type.
// Tiles of A and B are copied to shared memory with cp.async several steps ahead, with one barrier
// per step. Tiles keep the operand's order in memory, K-major or MN-major. Package frag transposes
// and converts elements as the instructions require on their way to registers.
//
// Limit: the tensor cores, provided that C has enough tiles for all SMs.
var MMA = &Kernel{
	Name:           "mma",
	Adds:           "tensor cores with mma.sync, the tiles of several steps loaded ahead with cp.async",
	SM:             80,
	BetterSM:       []int{89, 90},
	NativeTypes:    []dtype.Type{dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E5M2, dtype.I8, dtype.F64},
	PrecisionTypes: map[gemm.Precision][]dtype.Type{gemm.TF32: {dtype.F32}, gemm.Fast: {dtype.F8E4M3, dtype.F8E5M2}},
	AccuracyFor:    accuracyMMA,
	OrderFor:       orderMMA,
	Tensor:         true,
	SplitsK:        true,
	Tiles:          mmaTiles(),
	CheckTile:      checkMMA,
	CheckFit:       checkFitMMA,
	SetVectors:     mmaVectors,
	Write:          writeMMA,
	AccessLimits:   limitsMMA,
	BlockThreads:   func(s Tile) device.Dim3 { return device.Dim3{X: MMAThreads(s), Y: 1, Z: 1} },
	SharedFor: func(c Config) int {
		a, b := operandTiles(c)
		return max(a.Bytes()+b.Bytes(), rowPatchBytes(c))
	},
}

// accuracyMMA returns the error bounds of p. Tensor cores truncate sums. On some GPUs accumulators
// of 8-bit floats have only 13 bits after the first.
func accuracyMMA(p *gemm.Problem) gemm.Accuracy {
	acc := gemm.AccuracyOf(p)
	if p.Accum() == dtype.F32 {
		acc.Roundoff, acc.Truncates, acc.Terms, acc.Bits = 2*acc.Roundoff, true, 16, F32SumBits
	}
	switch p.Precision {
	case gemm.TF32:
		acc.Terms = 8
	case gemm.Fast:
		acc.Roundoff, acc.Terms, acc.Bits = 0x1p-13, 32, FP8SumBits
	}
	return acc
}

// orderMMA returns the order of summation. An instruction adds its products to the accumulators or,
// of 8-bit floats, to zero.
func orderMMA(p *gemm.Problem, sm int) Order {
	as, _ := mmaElements(p.In(), sm)
	in, _ := frag.Best(as, sm)
	switch {
	case p.In() == dtype.F64:
		return fusedOrder(p, sm)
	case promotesAccumulators(p) && as == PTXTypes[p.In()]:
		return Order{Terms: in.K, Bits: F32SumBits, Chunk: in.K}
	}
	return Order{Terms: in.K, Bits: F32SumBits}
}

const (
	// F32SumBits is the number of bits after the first one that Hopper's tensor cores keep of
	// aligned products. FP8SumBits is that of wgmma with 8-bit floats, and of mma on some GPUs.
	// Package ptx/emu reproduces both bit for bit.
	F32SumBits, FP8SumBits = 25, 13
	// WGMMABytesK is the number of bytes along K that one wgmma multiplies of each row of A.
	WGMMABytesK = 32
)

// warpTile returns the rows and columns of C that a warp computes.
func warpTile(s Tile) (rows, cols int) {
	return s.RowsPerThread * frag.Eight, s.ColsPerThread * frag.Quad
}

// MMAThreads returns the number of threads in a block of kernel mma.
func MMAThreads(s Tile) int {
	rows, cols := warpTile(s)
	return s.M / rows * (s.N / cols) * frag.Lanes
}

// operandTiles returns the shapes of the tiles of A and B in shared memory.
func operandTiles(c Config) (a, b frag.TileShape) {
	s, elem := c.Tile, PTXTypes[c.In]
	a = frag.TileShape{Elem: elem, Side: s.M, Depth: s.K, Stages: s.Stages, KMajor: !c.TransA}
	b = frag.TileShape{Elem: elem, Side: s.N, Depth: s.K, Stages: s.Stages, KMajor: c.TransB}
	return a, b
}

// mmaElements returns the type that the instruction multiplies on architecture sm, and the type
// whose fragment layout the elements are read in. They differ for 8-bit floats before sm_89, which
// are converted to float16 in registers.
func mmaElements(in dtype.Type, sm int) (as, read ptx.Type) {
	switch t := PTXTypes[in]; {
	case t == ptx.F32:
		return ptx.TF32, ptx.TF32
	case (t == ptx.E4M3 || t == ptx.E5M2) && sm < 89:
		return ptx.F16, t
	default:
		return t, t
	}
}

// newestSM is an architecture that has every instruction.
const newestSM = 90

func checkMMA(s Tile) *Reason {
	if why := checkPowersOfTwo(maxThreads, s.M, s.N, s.K, s.RowsPerThread, s.ColsPerThread); why != nil {
		return why
	}
	rows, cols := warpTile(s)
	switch {
	case s.RowsPerThread < 2 || s.ColsPerThread < 2 || s.RowsPerThread*s.ColsPerThread < 8:
		// With one instruction's accumulators only, each instruction depends on the previous one.
		// Across iterations of a loop NVIDIA's assemblers (seen in 12.9 to 13.5) omit the wait for
		// the previous addition, and sums are lost. For two instructions see multiplyBeforeWait.
		return Because("%d×%d elements per thread: want at least 2×4 or 4×2", s.RowsPerThread, s.ColsPerThread)
	case s.RowsPerThread*s.ColsPerThread > maxSumRegisters:
		return Because("%d accumulators per thread: want at most %d", s.RowsPerThread*s.ColsPerThread, maxSumRegisters)
	case s.M < rows || s.N < cols:
		return Because("want at least the tile of one warp, %d×%d", rows, cols)
	case s.K < 16:
		return Because("K is %d: want at least 16", s.K)
	case s.Stages < 2 || s.Stages > 16:
		return Because("%d stages: want 2 to 16", s.Stages)
	case MMAThreads(s) > maxThreads:
		return Because("a block of %d threads: want at most %d", MMAThreads(s), maxThreads)
	}
	return nil
}

// maxTileRowBytes is the maximum length of a K-major row of a tile. maxSharedBytes is the largest
// shared memory per block of any GPU.
const maxTileRowBytes, maxSharedBytes = 256, 227 << 10

// checkFitMMA returns why the tile of c does not fit p. A float64 accumulator takes two registers.
// Instructions for narrow types need a larger K, and their fragments of B are loaded in pairs.
func checkFitMMA(p *gemm.Problem, c *Config) *Reason {
	t, s := p.In(), c.Tile
	in, _ := frag.Best(mmaElement(t), newestSM)
	switch {
	case s.SerialK > 1 && p.Accum().Bytes(2*s.RowsPerThread*s.ColsPerThread)/4 > maxSumRegisters:
		return Because("%d accumulators per thread: too few registers for the totals of serial parts",
			s.RowsPerThread*s.ColsPerThread)
	case s.K < in.K || t.Bytes(s.K) > maxTileRowBytes:
		return Because("K is %d: want %d to %d in %v", s.K, in.K, t.Elements(maxTileRowBytes), t)
	case p.Accum().Bytes(s.RowsPerThread*s.ColsPerThread)/4 > maxSumRegisters:
		return Because("%d accumulators per thread: want at most %d in %v", s.RowsPerThread*s.ColsPerThread,
			p.Accum().Elements(maxSumRegisters*4), p.Accum())
	case s.RowsPerThread*s.ColsPerThread == maxSumRegisters && (promotesAccumulators(p) || CountOperands(p.Epilogue) > 1 &&
		(p.Epilogue.OutScale || p.Epilogue.Activation > gemm.ActReLU)):
		return Because("too few registers for %v with epilogue %v", t, p.Epilogue)
	case s.RowsPerThread*s.ColsPerThread == maxSumRegisters && p.Converts() && CountOperands(p.Epilogue) > 2:
		return Because("too few registers for the conversion of %v and the operands of epilogue %v", t, p.Epilogue)
	case s.ColsPerThread < 4 && t != dtype.F64:
		return Because("%d columns per thread: want at least 4 in %v", s.ColsPerThread, t)
	}
	a, b := operandTiles(*c)
	if n := a.Bytes() + b.Bytes(); n > maxSharedBytes {
		return Because("in %v a block takes %d bytes of shared memory: want at most %d", t, n,
			maxSharedBytes)
	}
	for _, tile := range []frag.TileShape{a, b} {
		for vec := 1; t.Bytes(vec) <= MaxVectorBytes; vec *= 2 {
			if err := tile.Check(vec, MMAThreads(s)); err != nil && (vec == 1 || t.Bytes(vec) >= frag.MinAsyncCopy) {
				return Because("%v", err)
			}
		}
	}
	return nil
}

func mmaElement(t dtype.Type) ptx.Type {
	as, _ := mmaElements(t, newestSM)
	return as
}

// mmaVectors sets the vector lengths. A copy of A or B begins where rows of the matrix can begin,
// and may extend past the end of a row.
func mmaVectors(c *Config, p *gemm.Problem) {
	c.VecA, c.VecB, c.VecC = CopiedElements(p.Layouts[gemm.A]), CopiedElements(p.Layouts[gemm.B]),
		VectorLen(p.Layouts[gemm.C], SumsPerRow(*c))
}

// SumsPerRow returns the number of accumulators of a lane in kernel mma that are adjacent in a row
// of C.
func SumsPerRow(c Config) int {
	if c.In.Bits() == 8 && !c.TransB {
		return 4 // byte pairs that ldmatrix transposes; see [frag.Reader]
	}
	return 2
}

// CopiedElements returns the number of elements of a matrix's rows that one asynchronous copy
// moves: a power of two that divides the leading dimension, and at most 16 bytes.
func CopiedElements(l gemm.Layout) int {
	n := l.Type.Elements(MaxVectorBytes)
	for n > 1 && l.LD%n != 0 {
		n /= 2
	}
	return n
}

// wholeVector returns vec, or 1 if vec elements are smaller than the minimum copy of cp.async.
// Elements then pass through registers one at a time, because a row may end within a vector.
func wholeVector(vec int, t dtype.Type) int {
	if t.Bytes(vec) < frag.MinAsyncCopy {
		return 1
	}
	return vec
}

// limitsMMA returns the bounds of mma's memory accesses. The columns of C that a warp stores at
// once can be less than a sector, and so can a tile's rows. MN-major tiles have bank conflicts if
// their rows have fewer than 64 bytes of an 8-bit type or fewer than 32 elements of float32.
func limitsMMA(c Config) AccessLimits {
	s := c.Tile
	l := AccessLimits{Scatter: rowScatter(c, s.K, frag.Quad*SumsPerRow(c))}
	if StoresRows(c) {
		l.Scatter = rowScatter(c, s.K, RowStore(c))
		if _, cols := warpTile(s); cols < frag.Lanes {
			l.Conflicts = 2 // several rows of a patch are read at once
		}
	}
	for _, x := range []struct {
		across bool
		side   int
	}{{c.TransA, s.M}, {!c.TransB, s.N}} {
		if !x.across {
			continue
		}
		l.Scatter = max(l.Scatter, rowScatter(c, x.side, SectorBytes))
		if c.In.Bits() == 8 && x.side < 64 || c.In == dtype.F32 && x.side < 32 {
			l.Conflicts = 4 // one for each matrix of an ldmatrix, or each row of a copy
		}
	}
	return l
}

func writeMMA(k *build.Kernel, c Config) {
	g := DeclareParams(k, c)
	s := c.Tile
	threads := MMAThreads(s)
	k.Threads(threads, 1, 1)
	k.MinBlocks(1) // without it the compiler limits registers and spills
	row0, col0 := g.groupedTileOrigin(mmaGroup)
	shapeA, shapeB := operandTiles(c)
	a := frag.NewTiles(k, "A", g.A, row0, g.KBegin, g.KEnd, shapeA, wholeVector(c.VecA, c.In), threads)
	b := frag.NewTiles(k, "B", g.B.T(), col0, g.KBegin, g.KEnd, shapeB, wholeVector(c.VecB, c.In), threads)
	w := g.warp(a, b)

	k.Comment("the first tiles set out; behind K they are zeros")
	ring := frag.NewRing(k, s.Stages, a, b)
	ring.Start()
	sets := [2]mmaFragments{w.fragments(), w.fragments()} // one set is multiplied while the other is loaded
	emit(w.loads(sets[0], ring.Use(), 0))
	steps := s.K / w.read.K
	g.forSteps(k.CeilDiv(k.Sub(g.KEnd, g.KBegin), s.K), slices.Concat(slices.Concat(w.acc...)...), false, func(build.Reg) {
		for n := range steps {
			var copies []func()
			if n == 0 {
				copies = ring.Fill()
			}
			if steps == 1 {
				emit(copies) // ring.Next waits for a number of copies that includes them
				copies = nil
			}
			now, next := sets[n%2], sets[(n+1)%2]
			switch {
			case n+1 < steps:
				// The next fragments are loaded early during these multiplications, and the next
				// tiles are copied late.
				w.multiply(now, w.loads(next, ring.Use(), (n+1)*w.read.K), copies)
			case multiplyBeforeWait(c):
				w.multiply(now, nil, copies)
				ring.Next()
				emit(w.loads(next, ring.Use(), 0))
			default:
				k.Comment("the last fragments are in registers: on to the next tiles")
				ring.Next()
				w.multiply(now, w.loads(next, ring.Use(), 0), copies)
			}
		}
		if steps%2 == 1 { // the next iteration begins with set 0 again
			w.move(sets[0], sets[1])
		}
	})
	ring.End()
	if StoresRows(c) {
		k.Comment("write the warp's part of C by rows, through the memory of the tiles")
		k.Barrier()
		w.storeRows(row0, col0)
		return
	}
	k.Comment("write the warp's part of C")
	w.store(row0, col0)
}

// multiplyBeforeWait reports whether the last multiplications of a step are issued before the wait
// for the next tiles, because the instruction's latency is long: that of float64. In the other
// order ptxas 12.4 to 13.0, and the driver 580.159.04 with it, compiled a few kernels with two
// instructions per step so that the next step did not wait for these sums, whose last 8 columns
// were lost: docs/results/proof-h200.md, TestSumsAwaited. With four instructions per step (16 sums)
// the problem does not occur, and this order is a sixth slower at 512³.
func multiplyBeforeWait(c Config) bool {
	return c.In == dtype.F64 && c.Tile.RowsPerThread*c.Tile.ColsPerThread != 16
}

// mmaGroup is the number of rows of tiles in a group of the rasterization order. The tiles of A and
// B that a group reads at the same time fit in the L2 cache.
const mmaGroup = 8

// warp is the part of the product that a warp computes, as seen by each lane.
type warp struct {
	g        *Writer
	in, read frag.Instruction // the instruction that multiplies, and the one whose fragments are read
	a, b     *frag.Reader
	acc      [][][]build.Reg // the lane's accumulators, by row and column of instructions
	// row and col are the position of the warp's part in the tile. eight and quad are the lane's
	// groupID and threadID_in_group in the fragments of the PTX manual.
	row, col, eight, quad build.Reg
}

func (g *Writer) warp(a, b *frag.Tiles) *warp {
	s := g.Config.Tile
	w := &warp{g: g}
	as, read := mmaElements(g.Config.In, g.Config.SM)
	w.in, _ = frag.Best(as, g.Config.SM) // exists for all of the kernel's types
	if w.read = w.in; as != read {
		w.read, _ = frag.Best(read, newestSM)
	}
	tid := g.ThreadIdx(build.X)
	lane, n := g.Named("lane", g.Rem(tid, frag.Lanes)), g.Named("warp", g.Div(tid, frag.Lanes))
	w.eight, w.quad = g.Named("eight", g.Div(lane, frag.Quad)), g.Named("quad", g.Rem(lane, frag.Quad))
	rows, cols := warpTile(s)
	side := s.N / cols // warps in a row of the tile
	w.row, w.col = g.Mul(g.Div(n, side), rows), g.Mul(g.Rem(n, side), cols)
	w.a = a.ReadA(w.read, w.row, w.eight, w.quad, rows/w.in.M)
	w.b = b.ReadB(w.read, w.col, w.eight, w.quad, cols/w.in.N)

	w.acc = make([][][]build.Reg, rows/w.in.M)
	for i := range w.acc {
		w.acc[i] = make([][]build.Reg, cols/w.in.N)
		for j := range w.acc[i] {
			w.acc[i][j] = g.Vars(fmt.Sprintf("acc%d_%d_", i, j), g.AccType, len(w.in.C()), 0)
		}
	}
	return w
}

// mmaFragments are a lane's elements of A and B for one step of instructions along K: for each row
// and column of instructions, the operand registers of one instruction.
type mmaFragments struct{ a, b [][]build.Reg }

func (w *warp) fragments() mmaFragments { return mmaFragments{w.a.Registers(), w.b.Registers()} }

// move copies fragments to other registers.
func (w *warp) move(to, from mmaFragments) {
	for i, regs := range slices.Concat(from.a, from.b) {
		for e, x := range regs {
			w.g.Set(slices.Concat(to.a, to.b)[i][e], x)
		}
	}
}

// loads returns functions that emit the loads of the fragments that begin at element p along K of a
// stage's tiles.
func (w *warp) loads(f mmaFragments, stage build.Reg, p int) []func() {
	return append(w.b.Loads(f.b, stage, p), w.a.Loads(f.a, stage, p)...)
}

// multiply adds the products of fragments to the accumulators. An instruction occupies the tensor
// cores for many cycles, so other instructions are interleaved: those of early in the first half,
// those of late in the second.
func (w *warp) multiply(f mmaFragments, early, late []func()) {
	f = mmaFragments{w.a.Arrange(f.a), w.b.Arrange(f.b)}
	parts := w.read.K / w.in.K
	all := parts * len(w.acc) * len(w.acc[0])
	half, n := all/2, 0
	for part := range parts {
		x := w.operands(f, part)
		for i := range w.acc {
			for j := range w.acc[i] {
				if n < half {
					emit(slicePieces(early, n, half))
				} else {
					emit(slicePieces(late, n-half, all-half))
				}
				w.add(w.acc[i][j], x.a[i], x.b[j])
				n++
			}
		}
	}
}

// operands converts fragments to operands of the instruction. If the fragments hold more elements
// along K than one instruction takes, part selects some of them.
func (w *warp) operands(f mmaFragments, part int) mmaFragments {
	var convert func(build.Reg) build.Reg
	switch {
	case w.in.In == ptx.TF32:
		even := w.g.Config.RowInvariant && w.g.Config.SM >= 90 // has the bits of wgmma
		convert = func(x build.Reg) build.Reg { return frag.RoundTF32(w.g.Kernel, x, even) }
	case w.in.In != w.read.In:
		convert = func(x build.Reg) build.Reg { return frag.WidenFloat8(w.g.Kernel, w.read.In, x, part) }
	default:
		return f
	}
	converted := func(from [][]build.Reg) [][]build.Reg {
		all := make([][]build.Reg, len(from))
		for i, regs := range from {
			for _, x := range regs {
				all[i] = append(all[i], convert(x))
			}
		}
		return all
	}
	return mmaFragments{converted(f.a), converted(f.b)}
}

// promotesAccumulators reports whether each instruction sums into accumulators of its own, which
// are then added to float32 accumulators (accumulator promotion).
func promotesAccumulators(p *gemm.Problem) bool {
	return p.In().Bits() == 8 && p.Accum() == dtype.F32 && p.Precision != gemm.Fast
}

// add adds one instruction's product to the accumulators. If the tensor cores' accumulators are
// shorter than float32, it uses accumulator promotion unless the precision is Fast.
func (w *warp) add(acc, a, b []build.Reg) {
	if w.in.In.Bits() > 8 || w.in.Sum != ptx.F32 || w.g.Config.Precision == gemm.Fast {
		w.g.MMA(w.in.Shape(), w.in.In, acc, a, b)
		return
	}
	own := make([]build.Reg, len(acc))
	for i := range own {
		own[i] = w.g.Var("", ptx.F32, 0)
	}
	w.g.MMA(w.in.Shape(), w.in.In, own, a, b)
	for i, sum := range own {
		w.g.Set(acc[i], w.g.Add(acc[i], sum))
	}
}

// slicePieces returns the n-th of the given number of nearly equal slices of pieces.
func slicePieces(pieces []func(), n, of int) []func() {
	return pieces[n*len(pieces)/of : (n+1)*len(pieces)/of]
}

func emit(pieces []func()) {
	for _, piece := range pieces {
		piece()
	}
}

// store stores the accumulators to the tile of C that begins at (row, col) or, with split-K, to the
// partial sums.
func (w *warp) store(row, col build.Reg) {
	row, col = w.g.Add(row, w.row), w.g.Add(col, w.col)
	for i := range w.acc {
		for r := range w.in.M / frag.Eight {
			times, more := w.a.Rows(i, r)
			at := w.g.Add(w.g.Mad(w.eight, times, row), more)
			var cols []build.Reg
			var sums [][]build.Reg
			for _, run := range w.b.Runs() {
				c := w.g.Add(w.g.Mad(w.quad, run.Times, col), run.More)
				var side []build.Reg
				for _, p := range run.Sums {
					side = append(side, w.acc[i][p.Row][2*r+p.Col])
				}
				if w.g.Config.Tile.SplitK > 1 { // partial sums always have whole vectors
					w.g.If(w.g.C.InBounds(at, c), func() { w.g.StoreSums(at, c, side) })
					continue
				}
				cols, sums = append(cols, c), append(sums, side)
			}
			if len(cols) > 0 {
				w.g.storeRow(at, cols, sums)
			}
		}
	}
}
