package kernel

import (
	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/ptx"
	"tilework/ptx/build"
)

// Split-K is for a C with fewer tiles than the GPU has SMs. Block (x, y, z) multiplies part z of K
// and stores its partial sums to scratch memory. A second launch, of kernel [SplitKSum], adds the
// parts in ascending order and applies alpha and the epilogue. The result does not depend on the
// order in which blocks finish, so it is reproducible bit for bit.

// SplitLen returns the length of a part of K in whole steps. The last part may be shorter. Parts of
// row-invariant products are as long in every tile: they are whole steps of each.
func SplitLen(p *gemm.Problem, s Tile) int {
	unit := s.K
	if p.Invariance != gemm.NotInvariant && s.ClusterK < 2 {
		unit = p.In().Elements(longestStepBytes(p.In()))
	}
	steps := Tiles(p.K, unit)
	return ints.CeilDiv(steps, s.PartsOfK()) * unit
}

// longestStepBytes returns the length of the longest step along K of a kernel with parts of K. In
// float64 it is that of mma. The threads of skinny have steps of their own.
func longestStepBytes(in dtype.Type) int {
	if in.Bits() == 64 {
		return 256
	}
	return 128
}

// SplitCount returns the number of parts of K, none of them empty.
func SplitCount(p *gemm.Problem, s Tile) int {
	if !p.ReadsAB() {
		return 1
	}
	return Tiles(p.K, SplitLen(p, s))
}

// SplitBlocks returns the number of blocks that have parts of K for a tile of C.
func SplitBlocks(p *gemm.Problem, s Tile) int {
	return ints.CeilDiv(SplitCount(p, s), max(s.SerialK, 1))
}

// PartialSumLD returns the leading dimension of the partial sums, a multiple of the vector length.
func PartialSumLD(p *gemm.Problem) int {
	width := VectorOf(p.Accum())
	return ints.RoundUp(p.N, width)
}

// PartialSums returns the configuration of the first launch of c. The second launch has the
// epilogue.
func (c Config) PartialSums() Config {
	c.Out, c.VecC, c.VecResidual, c.Factor, c.Epilogue = c.Accum(), 1, 0, 0, gemm.Epilogue{}
	c.UnsignedA, c.UnsignedB = false, false
	return c
}

// CompileKey returns c without the number of parts of K, which does not affect the PTX.
func (c Config) CompileKey() Config {
	c.Tile.SplitK, c.Tile.SerialK = min(c.Tile.SplitK, 2), min(c.Tile.SerialK, 2)
	return c
}

// splitKSumParams lists the parameters of SplitKSum that follow those of every kernel.
var splitKSumParams = append(splitParams(nil), zeroParams...)

// splitParams returns the parameters of split-K: the length of a part, and the partial sums.
func splitParams(when func(*Config) bool) []Param[Args] {
	return []Param[Args]{
		{Name: "part", Type: typeIndex, When: when, Value: func(a *Args) uint64 { return uint64(a.SplitLen) }},
		{Name: "sums", Type: typeSum, Pointer: true, When: when,
			Value: func(a *Args) uint64 { return uint64(a.PartialSums) }},
	}
}

// declareSplit declares the parameters of split-K. The block's position along z selects its part of
// K.
func (g *Writer) declareSplit(d *Declarer[Args]) {
	g.splitLen = d.Value("part")
	sums := d.Pointer("sums")
	width := VectorOf(g.Config.Accum())
	row := g.Mul(g.CeilDiv(g.N, width), width)
	z := g.To(g.IndexType, g.BlockIdx(build.Z))
	g.KBegin = g.Mul(z, g.splitLen)
	g.KEnd = g.Min(g.Add(g.KBegin, g.splitLen), g.K)
	g.sums = g.Matrix(sums, g.M, g.N, row)
}

// StoreSums stores the sums of consecutive elements of a row: to C after the epilogue or, with
// split-K, to the partial sums.
func (g *Writer) StoreSums(row, col build.Reg, sums []build.Reg) {
	if g.Config.Tile.SplitK < 2 {
		g.storeVec(row, col, sums)
		return
	}
	g.sums.At(g.partRow(g.BlockIdx(build.Z), row), col).StoreVec(values(sums)...)
}

// partRow returns the row of the partial sums that holds a part's sums for a row of C.
func (g *Writer) partRow(part, row build.Reg) build.Reg {
	return g.Mad(g.To(ptx.U64, part), g.To(ptx.U64, g.M), g.To(ptx.U64, row))
}

// SplitKSum sums the partial sums of split-K. A lane of a warp has one vector of a row. The warps
// of a block partition the rows or, if K has many parts, the parts of each row.
var SplitKSum = &Kernel{
	Name:         "sum",
	Adds:         "the sums of parts of K, in their order",
	SM:           75,
	Write:        writeSplitKSum,
	BlockThreads: func(Tile) device.Dim3 { return device.Dim3{X: 32, Y: SplitKSumWarps, Z: 1} },
	Params:       splitKSumParams,
}

// SplitKSumWarps is the number of warps per block.
const SplitKSumWarps = 8

// splitKSumLoads is the number of loads that each thread has in flight. invariantSumLoads is that
// of a row-invariant product with many parts, which a single thread adds.
const splitKSumLoads, invariantSumLoads = 4, 16

// splitKSumWarps returns the number of warps that partition the parts of a row. It grows only while
// each warp has several parts, and not in a row-invariant product, whose parts are added in their
// order.
func splitKSumWarps(s Tile, invariant bool) int {
	warps := 1
	for !invariant && warps < SplitKSumWarps && 2*warps*splitKSumLoads <= s.PartsOfK() {
		warps *= 2
	}
	return warps
}

// SplitKSumConfig returns the configuration that sums the parts that c leaves. The tile's Stages is
// the number of loads that a thread has in flight. The tile's K is the number of warps that
// partition the parts of a row.
func SplitKSumConfig(c Config) Config {
	warps, loads := splitKSumWarps(c.Tile, c.RowInvariant), splitKSumLoads
	if c.RowInvariant && c.Tile.PartsOfK() > loads {
		loads = invariantSumLoads
	}
	c.VecC = min(c.VecC, VectorOf(c.Accum()))
	c.Tile = Tile{M: SplitKSumWarps / warps, N: 32 * c.VecC, K: warps, RowsPerThread: 1, ColsPerThread: c.VecC,
		Stages: loads}
	return c
}

func writeSplitKSum(k *build.Kernel, c Config) {
	g := DeclareParams(k, c)
	d := &Declarer[Args]{k, &c, splitKSumParams}
	g.declareSplit(d)
	g.declareZeros(d)
	s := c.Tile
	k.Threads(32, SplitKSumWarps, 1)
	lane, warp := k.ThreadIdx(build.X), k.ThreadIdx(build.Y)
	row0, col0 := g.TileOrigin()
	row := k.Named("row", k.Add(row0, k.Div(warp, s.K)))
	col := k.Named("col", k.Add(col0, k.Mul(lane, c.VecC)))
	share := k.Rem(warp, s.K)

	total := k.Vars("sum", g.AccType, c.VecC, 0)
	inside := g.C.InBounds(row, col)
	parts := k.CeilDiv(g.K, g.splitLen)
	k.For(0, k.CeilDiv(parts, s.K*s.Stages), func(round build.Reg) {
		var vectors [][]build.Reg
		for n := range s.Stages {
			part := k.Add(k.Mul(k.Mad(round, s.Stages, n), s.K), share)
			vectors = append(vectors, g.sums.At(g.partRow(part, row), col).LoadVecOr0(k.And(inside, k.Lt(part, parts)), c.VecC))
		}
		for _, v := range vectors {
			for e, x := range v {
				k.Set(total[e], k.Add(total[e], x))
			}
		}
	})
	if s.K > 1 {
		shares := k.Shared("shares", g.AccType, SplitKSumWarps, 32*c.VecC)
		shares.At(warp, k.Mul(lane, c.VecC)).StoreVec(values(total)...)
		k.Barrier()
		inside = k.And(inside, k.Eq(share, 0))
		k.If(inside, func() {
			for n := 1; n < s.K; n++ {
				for e, x := range shares.From(warp, k.Mul(lane, c.VecC)).LoadVec(n, 0, c.VecC) {
					k.Set(total[e], k.Add(total[e], x))
				}
			}
		})
	}
	k.If(inside, func() { g.storeVec(row, col, g.withoutZeros(row, col, total)) })
}
