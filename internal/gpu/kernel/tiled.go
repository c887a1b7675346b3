package kernel

import (
	"tilework/internal/device"
	"tilework/internal/gpu/frag"
	"tilework/ptx/build"
)

// Tiled is the textbook's second kernel (shared-memory tiling). A block loads a tile of A and a
// tile of B into shared memory, one element of each per thread, and multiplies them from there.
// Each loaded element serves a whole row or column of threads, so the arithmetic intensity grows in
// proportion to the tile size: 4 operations per byte in float32 at 16.
//
// Limit: shared memory, with two loads per multiply-add.
//
// Beyond the edges of A and B the tiles are filled with zeros, which add nothing.
var Tiled = &Kernel{
	Name:         "tiled",
	Adds:         "tiles of A and B in shared memory, read once by the block for all its threads",
	SM:           75,
	OrderFor:     fusedOrder,
	Tiles:        []Tile{Square(32, 32), Square(16, 16), Square(8, 8), Square(2, 2)},
	CheckTile:    func(s Tile) *Reason { return checkSquare(s, s.M) },
	Write:        writeTiled,
	AccessLimits: func(c Config) AccessLimits { return AccessLimits{Scatter: rowScatter(c, c.Tile.M, c.Tile.M)} },
	BlockThreads: func(s Tile) device.Dim3 { return device.Dim3{X: s.N, Y: s.M, Z: 1} },
}

func writeTiled(k *build.Kernel, c Config) {
	g := DeclareParams(k, c)
	tile := c.Tile.M
	k.Threads(tile, tile, 1)
	as := k.Shared("As", g.AccType, tile, tile+g.padding(c.TransA))
	bs := k.Shared("Bs", g.AccType, tile, tile+g.padding(c.TransB))
	tx, ty := k.ThreadIdx(build.X), k.ThreadIdx(build.Y)
	row0, col0 := g.TileOrigin()
	row, col := k.Named("row", k.Add(row0, ty)), k.Named("col", k.Add(col0, tx))
	acc := k.Var("acc", g.AccType, 0)

	k.For(0, k.CeilDiv(g.K, tile), func(p build.Reg) {
		k.Comment("load phase: a tile of A and one of B, an element of each by each thread")
		if c.TransA { // coalescing: adjacent threads read down a column, which is contiguous in memory
			as.Store(tx, ty, g.ToAccType(g.A.LoadOr0(k.Add(row0, tx), k.Mad(p, tile, ty))))
		} else {
			as.Store(ty, tx, g.ToAccType(g.A.LoadOr0(row, k.Mad(p, tile, tx))))
		}
		if c.TransB {
			bs.Store(tx, ty, g.ToAccType(g.B.LoadOr0(k.Mad(p, tile, tx), k.Add(col0, ty))))
		} else {
			bs.Store(ty, tx, g.ToAccType(g.B.LoadOr0(k.Mad(p, tile, ty), col)))
		}
		k.Barrier() // both tiles are complete
		k.Comment("compute phase: a row of one tile times a column of the other")
		for i := range tile {
			k.FMA(acc, as.Load(ty, i), bs.Load(i, tx))
		}
		k.Barrier() // all threads have read both tiles
	})
	k.If(g.C.InBounds(row, col), func() { g.store(row, col, acc) })
}

// padding returns the number of unused columns that pad a row of a tile that is stored by columns.
// The threads of a warp store into BankBytes/(tile row bytes) adjacent columns at the same time.
// Rows that are longer by as many elements as there are such columns have no bank conflicts.
func (g *Writer) padding(trans bool) int {
	if !trans {
		return 0
	}
	return max(1, frag.BankBytes/g.AccType.Bytes()/g.Config.Tile.M)
}
