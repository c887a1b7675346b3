package kernel

import (
	"fmt"
	"math"

	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// A batch is one launch. Which product a block computes is decided here alone: a block with one
// tile belongs to the product of its place in the grid, and one that stays on its SM comes to
// the next product's tiles behind the last one's, so that small or ragged products share the
// SMs as the tiles of one large product do.
//
// Where the rows of groups end is read by the kernel, as a router leaves it on the device,
// and nobody waits for it. A grid has therefore as many rows of tiles as any groups could
// have, and blocks that find none left end at once.

// batchable is nil if k can compute p's batch in one launch. The error is ErrUnsupported.
func (k *Kernel) checkBatch(p *gemm.Problem) error {
	b := p.Batch
	switch {
	case b.Kind == gemm.Single:
		return nil
	case b.Kind == gemm.Grouped && max(p.M, p.N, p.K) > math.MaxInt32:
		return fmt.Errorf("%w: groups of rows of a product with a side of more than 31 bits", gemm.ErrUnsupported)
	}
	if _, is := k.Repack(p, Tile{}, Align{}); is.Any() && b.Count > MaxGridRows {
		return fmt.Errorf("%w: kernel %s on a batch of %d products whose operands would have to be packed: up to %d are at once", gemm.ErrUnsupported, k.Name, b.Count, MaxGridRows)
	}
	return nil
}

// spacing is what a batch's matrices begin at multiples of, in bytes, as Align says it.
func batchAlign(p *gemm.Problem) Align {
	unit := func(stride int, l gemm.Layout) int {
		bytes := stride * l.Type.Size()
		return min(bytes&-bytes, MaxVectorBytes)
	}
	return Align{gemm.A: unit(p.Batch.Stride[gemm.A], p.Layouts[gemm.A]), gemm.B: unit(p.Batch.Stride[gemm.B], p.Layouts[gemm.B]), gemm.C: unit(p.Batch.Stride[gemm.C], p.Layouts[gemm.C])}
}

// tilesOf is how many tiles all products have, both of a gated one. Of a cluster's tiles, one below the other, all
// count. Groups end anywhere: each is taken to leave half of its last tiles empty, and to have
// some.
func TileCount(p *gemm.Problem, s Tile) int {
	height, width := SwapAB(s, s.M*s.BlocksM(), s.N)
	across := CeilDiv(p.Columns(), width) * s.BlocksM()
	if p.Batch.Kind == gemm.Grouped {
		return max(p.M/height+CeilDiv(p.Batch.Count, 2), min(p.Batch.Count, p.M)) * across
	}
	return p.Products() * CeilDiv(p.M, height) * across
}

// mostRowsOfTiles is how many rows of tiles, each of so many rows, all products have at the
// most: a group has one that is not full.
func MaxTileRows(p *gemm.Problem, height int) int {
	switch p.Batch.Kind {
	case gemm.Strided:
		return p.Batch.Count * CeilDiv(p.M, height)
	case gemm.Grouped:
		return p.M/height + p.Batch.Count
	}
	return CeilDiv(p.M, height)
}

// of is a matrix of product n, of operand x, whose first one is m.
func (g *Writer) inBatch(o gemm.Operand, m build.Matrix, n build.Reg) build.Matrix {
	m.Ptr = m.Skip(g.Mul(g.To(ptx.U64, n), g.Strides[o]))
	return m
}

// own makes the matrices those of the block's product, for a kernel whose blocks have one
// tile each. It returns the row at which that product begins, the number of the block's row of
// tiles in it, and how many it has.
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

// groups finds the group that a row of tiles belongs to, of tiles of so many rows.
type groupFinder struct {
	*Writer
	height   int
	next     build.Reg // the number of the next group
	from, to build.Reg // the rows of the one before it
	// before is how many rows of tiles the groups before that one have, and down how many
	// it has itself.
	tileRowsBefore, tileRows build.Reg
}

func (g *Writer) newGroupFinder(height int) *groupFinder {
	variable := func(name string) build.Reg { return g.Var(name, ptx.U32, 0) }
	return &groupFinder{
		Writer: g, height: height, next: variable("nextGroup"), from: variable("fromRow"), to: variable("toRow"),
		tileRowsBefore: variable("before"), tileRows: variable("down"),
	}
}

// group is the number of the group that was found.
func (x *groupFinder) group() build.Reg { return x.Sub(x.next, 1) }

// seek goes on to the group that has that row of tiles, or to the last if none has. Rows
// are sought in ascending order. Ends that make no sense are taken for ones that do: no
// row is C's that C does not have, and none two groups'.
func (x *groupFinder) seek(row build.Reg) {
	k := x.Kernel
	k.While(func() build.Reg { return k.And(k.Ge(k.Sub(row, x.tileRowsBefore), x.tileRows), k.Lt(x.next, x.count)) }, func() {
		k.Set(x.tileRowsBefore, k.Add(x.tileRowsBefore, x.tileRows))
		k.Set(x.from, x.to)
		k.Set(x.to, k.Min(k.Max(x.ends.At(x.next).Load(), x.from), x.M))
		k.Set(x.tileRows, k.CeilDiv(k.Sub(x.to, x.from), x.height))
		k.Set(x.next, k.Add(x.next, 1))
	})
}

// walk is the way of a block that stays, through tiles of all products, one product's behind
// the other's.
type TileScheduler struct {
	*Writer
	WholeC          build.Matrix // C of the first product, or of all groups
	TilesAcross     build.Reg    // tiles side by side
	tileRows, tiles build.Reg    // rows of tiles of a product, and tiles of all, unless they are groups
	groups          *groupFinder
}

// walk begins before the first tile, of tiles of that size.
func (g *Writer) Scheduler(height, width int) *TileScheduler {
	x := &TileScheduler{Writer: g, WholeC: g.C}
	if g.Config.Batch == gemm.Grouped {
		x.groups = g.newGroupFinder(height)
	} else {
		x.tileRows = g.To(ptx.U32, g.CeilDiv(g.M, height))
	}
	x.TilesAcross = g.To(ptx.U32, g.CeilDiv(g.N, width))
	switch g.Config.Batch {
	case gemm.Single:
		x.tiles = g.Mul(x.tileRows, x.TilesAcross)
	case gemm.Strided:
		x.tiles = g.Mul(g.Mul(x.tileRows, x.TilesAcross), g.count)
	}
	return x
}

// seek goes to tile n, and says whether there is one. Tiles are sought in ascending order.
func (x *TileScheduler) Seek(n build.Reg) build.Reg {
	if x.groups == nil {
		return x.Lt(n, x.tiles)
	}
	row := x.Div(n, x.TilesAcross)
	x.groups.seek(row)
	return x.Lt(x.Sub(row, x.groups.tileRowsBefore), x.groups.tileRows)
}

// tile is a tile's place.
type WorkTile struct {
	Product         build.Value // its number; nil if there is but one
	Index, TileRows build.Reg   // the tile's number in its product, and how many rows of tiles that has
	FirstRow        build.Value // the row at which the product begins
	C               build.Matrix
}

// enter is the place of tile n, which was sought.
func (x *TileScheduler) WorkTileAt(n build.Reg) WorkTile {
	switch x.Config.Batch {
	case gemm.Strided:
		each := x.Mul(x.tileRows, x.TilesAcross)
		product := x.Div(n, each)
		return WorkTile{product, x.Rem(n, each), x.tileRows, 0, x.inBatch(gemm.C, x.WholeC, product)}
	case gemm.Grouped:
		c := x.WholeC
		c.Rows = x.groups.to
		return WorkTile{x.groups.group(), x.Sub(n, x.Mul(x.groups.tileRowsBefore, x.TilesAcross)), x.groups.tileRows, x.groups.from, c}
	}
	return WorkTile{nil, n, x.tileRows, 0, x.WholeC}
}

// Boxes of a batch are copied from tensors of three dimensions, the last of which counts
// matrices, so that no box crosses from one to the next. Groups' rows of A and C have no
// bounds in memory. Of A a box may have the next group's rows: they give rows of C that are
// not stored. Of C a box ends with its group by way of a tensor whose rows overlap: row y
// of matrix z is C's row y + z - height, for as many rows y as a box is high. The box that begins
// at row height-n of matrix r+n has the n rows from r on, and nothing else.

// batchTensors makes maps of A, B and, if it is there, C those of p's batch. Boxes of C have
// so many rows.
func BatchTensorMaps(list []ptx.TensorMap, p *gemm.Problem, height int) []ptx.TensorMap {
	b := p.Batch
	for i := range list {
		t, o := &list[i], gemm.Operand(i)
		stride := b.Stride[o] * p.Layouts[o].Type.Size()
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
