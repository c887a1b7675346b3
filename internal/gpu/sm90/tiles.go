package sm90

import (
	"slices"
	"tilework/internal/gpu/kernel"
)

// wgmmaTiles are the tiles to choose from; of two that are predicted alike the first is
// taken. The larger the tile, the less of A and B comes from the L2 cache for each product,
// and a cluster's blocks save half of B; the smaller, the more SMs have one. 256×128, with 128 rows a
// warpgroup, and 64×256 in turns spill registers with a bias. More blocks along K than
// two lose more to adding than they win.
var BaseTiles = []kernel.Tile{
	{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, Stages: 4},
	{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, Stages: 4, ClusterM: 2},
	{M: 192, N: 192, RowsPerThread: 2, ColsPerThread: 48, Stages: 4, ClusterM: 2},
	{M: 128, N: 192, RowsPerThread: 2, ColsPerThread: 48, Stages: 5},
	{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6},
	{M: 128, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 8},
	{M: 128, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 8, ClusterK: 2},
	{M: 64, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 8},
	{M: 64, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 8, ClusterM: 2},
	{M: 64, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 12},
	{M: 64, N: 16, RowsPerThread: 2, ColsPerThread: 4, Stages: 12},
	{M: 32, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 12},
	{M: 16, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 12},
}

// tallTiles are further ones where 128 bytes hold so many elements. Each warpgroup has 128
// rows. Products of 8-bit types are over so soon that it counts what handing over C takes, which
// in turns is hidden, and so are activations of those of 16-bit types; those of tf32 gain 2 %.
var TallTiles = map[int]kernel.Tile{
	64:  {M: 128, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 6},
	128: {M: 128, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 6},
	32:  {M: 256, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 4},
}

// thinTile is a further one of 8-bit and 32-bit types: few rows of so few columns that tiles of 64 would
// leave half of the SMs without one. In 16 bits 16×4096×4096 took 12.5 µs in it instead of 11.9.
var thinTile = kernel.Tile{M: 16, N: 32, RowsPerThread: 2, ColsPerThread: 8, Stages: 12}

// wgmmaShapes are the tiles with what 128 bytes hold along K: of 8-bit types, of 32-bit ones
// and of 16-bit ones, the kernel's first.
func TileList() (shapes []kernel.Tile) {
	for _, k := range []int{128, 32, 64} {
		tiles := BaseTiles
		if tall, ok := TallTiles[k]; ok {
			tiles = slices.Insert(slices.Clone(tiles), 1, tall)
		}
		if k != 64 {
			tiles = append(slices.Clip(tiles), thinTile)
		}
		if k == 32 {
			for _, s := range swapABTiles {
				s.K, s.SwapAB = k, true
				shapes = append(shapes, s)
			}
		}
		for _, s := range tiles {
			if s.K = k; k != 64 && s.N == 192 {
				// C has 32 bits, too, whose patches take the place of a stage, and what a
				// cluster saves is not what limits these types.
				s.Stages, s.ClusterM = s.Stages-1, 0
			}
			shapes = append(shapes, s)
		}
	}
	return shapes
}

// wgmmaLimits are what accesses cost beside bulk copies, which cost nothing that they need
// not. What C held comes in pairs of neighbours, of 16-bit types half a sector for four
// lanes. Sums of 32 bits are written to patches in pairs that two rows' lanes want at the
// same time.
func accessLimits(c kernel.Config) kernel.AccessLimits {
	l := kernel.AccessLimits{Scatter: 1}
	if c.Out.Size() == 2 || c.Tile.SwapAB { // a warp reads 16 bytes of a row of the old C
		l.Scatter = 2
	}
	if c.Out.Size() == 4 || !StoresWithTMA(c) { // as sums pass through patches
		l.Conflicts = 2
	}
	return l
}
