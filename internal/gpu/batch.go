package gpu

import (
	"context"
	"fmt"
	"math"

	"tilework/internal/device"
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
func (k *Kernel) batchable(p *gemm.Problem) error {
	b := p.Batch
	switch {
	case b.Kind == gemm.Single:
		return nil
	case b.Kind == gemm.Grouped && max(p.M, p.N, p.K) > math.MaxInt32:
		return fmt.Errorf("%w: groups of rows of a product with a side of more than 31 bits", gemm.ErrUnsupported)
	case !k.boxed || !p.ReadsAB():
		return nil
	}
	_, packs := k.packing(p, Align{})
	for i, x := range []struct {
		name   string
		l      gemm.Layout
		stride int
	}{{"A", p.A, b.A}, {"B", p.B, b.B}} {
		if packs[i] || x.stride*x.l.Type.Size()%maxVector != 0 {
			return fmt.Errorf("%w: kernel %s on a batch whose %s would have to be packed: it wants rows, and matrices, that begin at multiples of %d bytes, of other than 16-bit types along K", gemm.ErrUnsupported, k.Name, x.name, maxVector)
		}
	}
	return nil
}

// spacing is what a batch's matrices begin at multiples of, in bytes, as Align says it.
func spacing(p *gemm.Problem) Align {
	unit := func(stride int, l gemm.Layout) int {
		bytes := stride * l.Type.Size()
		return min(bytes&-bytes, maxVector)
	}
	return Align{unit(p.Batch.A, p.A), unit(p.Batch.B, p.B), unit(p.Batch.C, p.C)}
}

// tilesOf is how many tiles all products have, of groups if their rows are equally many. Of
// a cluster's tiles, one below the other, all count.
func tilesOf(p *gemm.Problem, s Shape) int {
	rows := p.M
	if p.Batch.Kind == gemm.Grouped {
		rows = ceilDiv(p.M, p.Batch.Count)
	}
	return p.Products() * roundUp(ceilDiv(rows, s.M), s.cluster()) * ceilDiv(p.N, s.N)
}

// mostRowsOfTiles is how many rows of tiles, each of so many rows, all products have at the
// most: a group has one that is not full.
func mostRowsOfTiles(p *gemm.Problem, height int) int {
	switch p.Batch.Kind {
	case gemm.Strided:
		return p.Batch.Count * ceilDiv(p.M, height)
	case gemm.Grouped:
		return p.M/height + p.Batch.Count
	}
	return ceilDiv(p.M, height)
}

// declareBatch declares what a kernel knows of the batch, as batchArguments lays it out.
func (g *product) declareBatch() {
	switch g.config.Batch {
	case gemm.Strided:
		g.count = g.Param("count", ptx.U32)
		for i, name := range []string{"A", "B", "C"} {
			g.strides[i] = g.Param("stride"+name, ptx.U64)
		}
	case gemm.Grouped:
		g.count = g.Param("count", ptx.U32)
		g.ends = g.Pointer("ends", ptx.U32).ReadOnly()
		g.strides[inB] = g.Param("strideB", ptx.U64)
	}
}

func batchArguments(args *device.Params, p *gemm.Problem, m Memory) {
	b := p.Batch
	if b.Kind == gemm.Single {
		return
	}
	args.U32(uint32(b.Count))
	if b.Kind == gemm.Grouped {
		args.Ptr(m.Ends)
		args.U64(uint64(b.B * p.B.Type.Size()))
		return
	}
	args.U64(uint64(b.A * p.A.Type.Size()))
	args.U64(uint64(b.B * p.B.Type.Size()))
	args.U64(uint64(b.C * p.C.Type.Size()))
}

// of is a matrix of product n, of operand x, whose first one is m.
func (g *product) of(x int, m build.Matrix, n build.Reg) build.Matrix {
	m.Ptr = m.Skip(g.Mul(g.To(ptx.U64, n), g.strides[x]))
	return m
}

// own makes the matrices those of the block's product, for a kernel whose blocks have one
// tile each. It returns the row at which that product begins, the number of the block's row of
// tiles in it, and how many it has.
func (g *product) own() (first build.Value, row, down build.Reg) {
	k := g.Kernel
	switch g.config.Batch {
	case gemm.Strided:
		n := k.BlockIdx(build.Z)
		g.a, g.b, g.c = g.of(inA, g.a, n), g.of(inB, g.b, n), g.of(inC, g.c, n)
		return 0, k.BlockIdx(build.Y), k.GridDim(build.Y)
	case gemm.Grouped:
		x, at := g.groups(g.config.Shape.M), g.blockRow()
		x.seek(at)
		row = k.Sub(at, x.before)
		k.If(k.Ge(row, x.down), k.Return)
		g.b = g.of(inB, g.b, x.group())
		g.a.Rows, g.c.Rows = x.to, x.to
		return x.from, row, x.down
	}
	row, down = g.blockRow(), k.GridDim(build.Y)
	if g.config.Shape.Split < 2 {
		down = k.Mul(down, k.GridDim(build.Z))
	}
	return 0, row, down
}

// groups finds the group that a row of tiles belongs to, of tiles of so many rows.
type groups struct {
	*product
	height   int
	next     build.Reg // the number of the next group
	from, to build.Reg // the rows of the one before it
	// before is how many rows of tiles the groups before that one have, and down how many
	// it has itself.
	before, down build.Reg
}

func (g *product) groups(height int) *groups {
	variable := func(name string) build.Reg { return g.Var(name, ptx.U32, 0) }
	return &groups{
		product: g, height: height, next: variable("nextGroup"), from: variable("fromRow"), to: variable("toRow"),
		before: variable("before"), down: variable("down"),
	}
}

// group is the number of the group that was found.
func (x *groups) group() build.Reg { return x.Sub(x.next, 1) }

// seek goes on to the group that has that row of tiles, or to the last if none has. Rows
// are sought in ascending order. Ends that make no sense are taken for ones that do: no
// row is C's that C does not have, and none two groups'.
func (x *groups) seek(row build.Reg) {
	k := x.Kernel
	k.While(func() build.Reg { return k.And(k.Ge(k.Sub(row, x.before), x.down), k.Lt(x.next, x.count)) }, func() {
		k.Set(x.before, k.Add(x.before, x.down))
		k.Set(x.from, x.to)
		k.Set(x.to, k.Min(k.Max(x.ends.At(x.next).Load(), x.from), x.m))
		k.Set(x.down, k.CeilDiv(k.Sub(x.to, x.from), x.height))
		k.Set(x.next, k.Add(x.next, 1))
	})
}

// enqueueShares starts a batch of more products than a grid has places for.
func (pl *Plan) enqueueShares(ctx context.Context, m Memory) error {
	p := &pl.device
	for first := 0; first < p.Batch.Count; first += maxGridRows {
		share, at := *pl, m
		share.device.Batch.Count = min(p.Batch.Count-first, maxGridRows)
		at.A += device.Ptr(first * p.Batch.A * p.A.Type.Size())
		at.B += device.Ptr(first * p.Batch.B * p.B.Type.Size())
		at.C += device.Ptr(first * p.Batch.C * p.C.Type.Size())
		if err := share.enqueue(ctx, at); err != nil {
			return err
		}
	}
	return nil
}
