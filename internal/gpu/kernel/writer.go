package kernel

import (
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// Writer writes a kernel that computes a product. It holds the kernel's parameters.
type Writer struct {
	*build.Kernel
	Config       Config
	AccType      ptx.Type // of the accumulators
	EpilogueType ptx.Type // of alpha, beta and the epilogue
	IndexType    ptx.Type // of row and column numbers
	M, N, K      build.Reg
	A, B, C      build.Matrix // op(A), op(B) and C
	// KBegin and KEnd delimit the part of K that the block multiplies. With split-K, sums receives
	// the partial sums, and splitLen is the length of a part.
	KBegin, KEnd build.Value
	sums         build.Matrix
	splitLen     build.Reg
	// partLength is the length of a part of K, with serial parts.
	partLength build.Reg
	// handed points to the accumulators of tiles that blocks hand over with stream-K, and flags to a
	// flag for each warp.
	handed, flags build.Ptr

	alpha, beta build.Reg
	// ReadC is a predicate: beta is not 0.
	ReadC build.Reg

	// count is the number of products of a batch. Strides are the distances in bytes between the A,
	// B and C of one product and of the next. ends points to the ends of the groups of rows.
	count   build.Reg
	Strides [gemm.C + 1]build.Reg
	ends    build.Ptr

	ScalesA, ScalesB blockScales
	vectors          [gemm.Operands]build.Ptr // bias, scales, and the data of a custom epilogue function
	rowSums, colSums build.Ptr                // along K of A and B, for zero points
	Residual         build.Matrix
	// factor is the factor of a gated product that another launch computed.
	factor build.Matrix
	// row0 and col0 are the offset of C in the caller's C, for a custom epilogue function.
	row0, col0 build.Reg
}

// blockRow returns the number of the block's row of tiles. Grids have rows of tiles along y and, if
// there are too many, along z. With split-K, z holds the parts of K instead.
func (g *Writer) blockRow() build.Reg {
	if g.Config.Tile.SplitK > 1 {
		return g.BlockIdx(build.Y)
	}
	return g.Mad(g.BlockIdx(build.Z), g.GridDim(build.Y), g.BlockIdx(build.Y))
}

// TileOrigin returns the first row and the first column of C that the block computes.
func (g *Writer) TileOrigin() (row, col build.Reg) {
	s := g.Config.Tile
	first, row, _ := g.selectProduct()
	return g.Mad(g.To(g.IndexType, row), s.M, first), g.Mul(g.To(g.IndexType, g.BlockIdx(build.X)), s.N)
}

// groupedTileOrigin returns TileOrigin with a swizzled rasterization for L2 reuse: blocks that run
// at the same time compute adjacent tiles from up to rows rows of tiles, so that they share tiles
// of A and B in the L2 cache.
func (g *Writer) groupedTileOrigin(rows int) (row, col build.Reg) {
	k := g.Kernel
	across := k.GridDim(build.X)
	first, at, down := g.selectProduct()
	i, j := g.GroupedTile(k.Mad(at, across, k.BlockIdx(build.X)), down, across, rows)
	s := g.Config.Tile
	return k.Mad(k.To(g.IndexType, i), s.M, first), k.Mul(k.To(g.IndexType, j), s.N)
}

// GroupedTile returns the row and column of tile n among tileRows×tileCols tiles, in the
// rasterization order of groupedTileOrigin.
func (g *Writer) GroupedTile(n, tileRows, tileCols build.Reg, rows int) (i, j build.Reg) {
	k := g.Kernel
	whole := k.Mul(tileCols, rows) // the tiles of a group
	first := k.Mul(k.Div(n, whole), rows)
	in := k.Rem(n, whole)
	height := k.Min(k.Sub(tileRows, first), rows)
	return k.Add(first, k.Rem(in, height)), k.Div(in, height)
}

// ToAccType converts a loaded element of A or B to the type of the accumulators.
func (g *Writer) ToAccType(x build.Reg) build.Reg { return g.converted(x, g.AccType) }

// SumToEpilogueType converts a sum to the type of the epilogue. The sum of a row-invariant product
// is not -0: products that underflow can sum to -0, but not in a kernel that fills its last step
// along K with zeros.
func (g *Writer) SumToEpilogueType(sum build.Reg) build.Reg {
	if g.Config.RowInvariant && g.AccType.Class() == ptx.Float {
		sum = g.Add(sum, g.Var("", g.AccType, 0))
	}
	if g.AccType == g.EpilogueType {
		return sum
	}
	return g.To(g.EpilogueType, sum)
}

// ToEpilogueType converts a loaded element of C, or of an operand of the epilogue, to the type of
// the epilogue.
func (g *Writer) ToEpilogueType(x build.Reg) build.Reg { return g.converted(x, g.EpilogueType) }

// converted converts x, an element as it was loaded, to another type. An 8-bit float is loaded as a
// U32.
func (g *Writer) converted(x build.Reg, to ptx.Type) build.Reg {
	if x.Type() != ptx.U32 {
		return g.To(to, x)
	}
	return FromFloat8(g.Kernel, x, g.Config.In, to)
}

// values returns registers as operands of an instruction.
func values(regs []build.Reg) []build.Value {
	all := make([]build.Value, len(regs))
	for i, r := range regs {
		all[i] = r
	}
	return all
}
