package kernel

import (
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// A batch is one launch. This file alone assigns products to blocks. A block that computes one tile
// belongs to the product at its position in the grid. A persistent block walks through the tiles of
// all products with a [TileScheduler], so that small or ragged products share the SMs like the
// tiles of one large product.
//
// The kernel reads the ends of the groups of rows from device memory, where a router leaves them,
// so the host need not wait for them. A grid therefore has as many rows of tiles as any grouping
// could have. Blocks that find no tile return at once.

// batchAlign returns the alignment, in bytes, that the strides of a batch leave to its A, B and C.
func batchAlign(p *gemm.Problem) Align {
	unit := func(stride int, l gemm.Layout) int {
		bytes := l.Type.Bytes(stride)
		return min(bytes&-bytes, MaxVectorBytes)
	}
	return Align{gemm.A: unit(p.Batch.Stride[gemm.A], p.Layouts[gemm.A]),
		gemm.B: unit(p.Batch.Stride[gemm.B], p.Layouts[gemm.B]), gemm.C: unit(p.Batch.Stride[gemm.C], p.Layouts[gemm.C])}
}

// TileCount returns the number of tiles of all products; a gated product counts those of both
// factors. Each tile of a cluster counts. As groups end at any row, half of their last
// tiles are assumed empty, and every group is assumed to have rows. It is at least 1: an empty
// batch is planned like one product.
func TileCount(p *gemm.Problem, s Tile) int {
	height, width := SwapAB(s, s.M*s.BlocksM(), s.N*s.BlocksN())
	across := Tiles(p.Columns(), width) * s.BlocksM() * s.BlocksN()
	if p.Batch.Kind == gemm.Grouped {
		return max(p.M/height+Tiles(p.Batch.Count, 2), min(p.Batch.Count, p.M)) * across
	}
	return max(p.Products(), 1) * Tiles(p.M, height) * across
}

// MaxTileRows returns the maximum number of rows of tiles of all products, for tiles with height
// rows. Each group can have one partial row of tiles.
func MaxTileRows(p *gemm.Problem, height int) int {
	switch p.Batch.Kind {
	case gemm.Strided:
		return p.Batch.Count * Tiles(p.M, height)
	case gemm.Grouped:
		return p.M/height + p.Batch.Count
	}
	return Tiles(p.M, height)
}

// inBatch returns the matrix of product n. The matrix m of operand o belongs to product 0.
func (g *Writer) inBatch(o gemm.Operand, m build.Matrix, n build.Reg) build.Matrix {
	m.Ptr = m.Skip(g.Mul(g.To(ptx.U64, n), g.Strides[o]))
	return m
}

// selectProduct replaces the matrices by those of the block's product, for a kernel with one tile
// per block. It returns the first row of the product, the number of the block's row of tiles in
// that product, and the product's number of rows of tiles.
func (g *Writer) selectProduct() (first build.Value, row, down build.Reg) {
	k := g.Kernel
	switch g.Config.Batch {
	case gemm.Strided:
		n := k.BlockIdx(build.Z)
		g.A, g.B, g.C = g.inBatch(gemm.A, g.A, n), g.inBatch(gemm.B, g.B, n), g.inBatch(gemm.C, g.C, n)
		return 0, k.BlockIdx(build.Y), k.GridDim(build.Y)
	case gemm.Grouped:
		x, at := g.newGroupFinder(g.Config.Tile.M), g.blockRow()
		x.seek(at)
		row = k.Sub(at, x.tileRowsBefore)
		k.If(k.Ge(row, x.tileRows), k.Return)
		g.B = g.inBatch(gemm.B, g.B, x.group())
		g.A.Rows, g.C.Rows = x.to, x.to
		return x.from, row, x.tileRows
	}
	row, down = g.blockRow(), k.GridDim(build.Y)
	if g.Config.Tile.SplitK < 2 {
		down = k.Mul(down, k.GridDim(build.Z))
	}
	return 0, row, down
}

// groupFinder finds the group that a row of tiles belongs to.
type groupFinder struct {
	g        *Writer
	height   int
	next     build.Reg // the number of the next group
	from, to build.Reg // the rows of the current group, which precedes next
	// tileRowsBefore is the number of rows of tiles of the groups before the current one. tileRows
	// is that of the current group.
	tileRowsBefore, tileRows build.Reg
}

func (g *Writer) newGroupFinder(height int) *groupFinder {
	variable := func(name string) build.Reg { return g.Var(name, ptx.U32, 0) }
	return &groupFinder{
		g: g, height: height, next: variable("nextGroup"), from: variable("fromRow"), to: variable("toRow"),
		tileRowsBefore: variable("before"), tileRows: variable("down"),
	}
}

// group returns the number of the current group.
func (x *groupFinder) group() build.Reg { return x.g.Sub(x.next, 1) }

// seek advances to the group that contains a row of tiles, or to the last group if none does. Calls
// must have ascending rows. Invalid ends are clamped, so that groups never overlap and never exceed
// the rows of C.
func (x *groupFinder) seek(row build.Reg) {
	k := x.g.Kernel
	k.While(func() build.Reg {
		return k.And(k.Ge(k.Sub(row, x.tileRowsBefore), x.tileRows), k.Lt(x.next, x.g.count))
	}, func() {
		k.Set(x.tileRowsBefore, k.Add(x.tileRowsBefore, x.tileRows))
		k.Set(x.from, x.to)
		k.Set(x.to, k.Min(k.Max(x.g.ends.At(x.next).Load(), x.from), x.g.M))
		k.Set(x.tileRows, k.CeilDiv(k.Sub(x.to, x.from), x.height))
		k.Set(x.next, k.Add(x.next, 1))
	})
}

// TileScheduler assigns the tiles of all products, one product after the other, to a persistent
// block.
type TileScheduler struct {
	g           *Writer
	WholeC      build.Matrix // C of the first product, or of all groups
	TilesAcross build.Reg    // the number of columns of tiles
	Tiles       build.Reg    // the number of tiles of all products; unset for groups
	TileRows    build.Reg    // rows of tiles per product; unset for groups
	groups      *groupFinder
}

// Scheduler returns a scheduler for tiles of height×width. Call Seek before using a tile.
func (g *Writer) Scheduler(height, width int) *TileScheduler {
	x := &TileScheduler{g: g, WholeC: g.C}
	if g.Config.Batch == gemm.Grouped {
		x.groups = g.newGroupFinder(height)
	} else {
		x.TileRows = g.To(ptx.U32, g.CeilDiv(g.M, height))
	}
	x.TilesAcross = g.To(ptx.U32, g.CeilDiv(g.N, width))
	switch g.Config.Batch {
	case gemm.Single:
		x.Tiles = g.Mul(x.TileRows, x.TilesAcross)
	case gemm.Strided:
		x.Tiles = g.Mul(g.Mul(x.TileRows, x.TilesAcross), g.count)
	}
	return x
}

// Seek advances to tile n and returns a predicate that reports whether the tile exists. Calls must
// have ascending n.
func (x *TileScheduler) Seek(n build.Reg) build.Reg {
	if x.groups == nil {
		return x.g.Lt(n, x.Tiles)
	}
	row := x.g.Div(n, x.TilesAcross)
	x.groups.seek(row)
	return x.g.Lt(x.g.Sub(row, x.groups.tileRowsBefore), x.groups.tileRows)
}

// WorkTile is the position of a tile.
type WorkTile struct {
	Product         build.Value // the number of the product; nil without a batch
	Index, TileRows build.Reg   // the number of the tile in its product, and the product's number of rows of tiles
	FirstRow        build.Value // the first row of the product
	C               build.Matrix
}

// WorkTileAt returns the position of tile n, the argument of the last Seek.
func (x *TileScheduler) WorkTileAt(n build.Reg) WorkTile {
	switch x.g.Config.Batch {
	case gemm.Strided:
		each := x.g.Mul(x.TileRows, x.TilesAcross)
		product := x.g.Div(n, each)
		return WorkTile{product, x.g.Rem(n, each), x.TileRows, 0, x.g.inBatch(gemm.C, x.WholeC, product)}
	case gemm.Grouped:
		c := x.WholeC
		c.Rows = x.groups.to
		return WorkTile{x.groups.group(), x.g.Sub(n, x.g.Mul(x.groups.tileRowsBefore, x.TilesAcross)),
			x.groups.tileRows, x.groups.from, c}
	}
	return WorkTile{nil, n, x.TileRows, 0, x.WholeC}
}

// TMA boxes of a batch use tensors of three dimensions. The third dimension counts matrices, so
// that no box reaches into the next matrix.
//
// The matrices A and C of groups are adjacent in memory. A box of A may contain rows of the next
// group: they yield rows of C that are not stored. A box of C must end with its group. This needs a
// tensor with overlapping rows: row y of matrix z is row y + z - height of C, where y is less than
// the height of a box. The box that begins at row height-n of matrix r+n contains the n rows from r
// on, and nothing else.

// BatchTensorMaps adapts the tensor maps of A, B and, if present, C to p's batch. Boxes of C have
// height rows.
func BatchTensorMaps(list []ptx.TensorMap, p *gemm.Problem, height int) []ptx.TensorMap {
	b := p.Batch
	for i := range list {
		t, o := &list[i], gemm.Operand(i)
		stride := p.Layouts[o].Type.Bytes(b.Stride[o])
		row := t.Strides[0]
		switch {
		case b.Kind == gemm.Strided, b.Kind == gemm.Grouped && o == gemm.B:
			count := b.Count
			if stride == 0 {
				count, stride = 1, row
			}
			t.Dims, t.Strides, t.Box = append(t.Dims, count), append(t.Strides, stride), append(t.Box, 1)
		case b.Kind == gemm.Grouped && o == gemm.C:
			t.Base -= uint64(height * row)
			t.Dims, t.Strides, t.Box = []int{t.Dims[0], height, t.Dims[1] + 1}, []int{row, row}, append(t.Box, 1)
		}
	}
	return list
}
