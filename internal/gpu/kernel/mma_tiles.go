package kernel

import (
	"slices"
)

// mmaTile is a shape of mma's tiles and what an H200 makes of it.
type MMATile struct {
	Tile Tile
	// rate is how much of the tensor cores' rate large products reach, and narrow how
	// much if both operands are copied element by element.
	Rate, Narrow float64
	// edge is the cycles that a block takes besides its products, for its first tiles
	// to come and its part of C to go, and that no other block of the SM uses.
	Edge float64
}

// mmaWordTiles are the tiles for elements of up to four bytes, the best for large products
// first, with K in elements of two bytes: others have as many bytes. What they reach is an
// estimate by the figures of other kernels of this kind, with which the choice was studied.
var MMATiles = []MMATile{
	{Tile{M: 128, N: 256, K: 32, RowsPerThread: 8, ColsPerThread: 16, Stages: 4}, 0.95, 0.5, 5000},
	{Tile{M: 256, N: 128, K: 32, RowsPerThread: 8, ColsPerThread: 16, Stages: 4}, 0.95, 0.5, 5000},
	{Tile{M: 128, N: 128, K: 32, RowsPerThread: 8, ColsPerThread: 8, Stages: 4}, 0.85, 0.5, 3000},
	{Tile{M: 64, N: 128, K: 64, RowsPerThread: 4, ColsPerThread: 8, Stages: 4}, 0.75, 0.45, 2000},
	{Tile{M: 128, N: 64, K: 64, RowsPerThread: 4, ColsPerThread: 8, Stages: 4}, 0.75, 0.45, 2000},
	{Tile{M: 64, N: 64, K: 64, RowsPerThread: 4, ColsPerThread: 4, Stages: 4}, 0.6, 0.4, 1500},
	{Tile{M: 16, N: 128, K: 64, RowsPerThread: 2, ColsPerThread: 8, Stages: 6}, 0.4, 0.3, 1200},
	{Tile{M: 128, N: 16, K: 64, RowsPerThread: 4, ColsPerThread: 4, Stages: 6}, 0.4, 0.3, 1200},
	{Tile{M: 32, N: 32, K: 64, RowsPerThread: 2, ColsPerThread: 4, Stages: 4}, 0.4, 0.3, 1000},
}

// mmaTiles are the tiles to choose from for float64, the best for large products first. More stages
// bear the distance to memory better where an SM has few blocks; but copies of single
// elements go through the L1 cache, which has what shared memory leaves.
var MMATilesF64 = []MMATile{
	{Tile{M: 128, N: 128, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3}, 0.94, 0.885, 9000},
	{Tile{M: 128, N: 64, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3}, 0.915, 0.85, 2500},
	{Tile{M: 64, N: 128, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3}, 0.91, 0.86, 2100},
	{Tile{M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 8, Stages: 4}, 0.855, 0.69, 1000},
	{Tile{M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 8, Stages: 3}, 0.85, 0.775, 1000},
	{Tile{M: 32, N: 64, K: 32, RowsPerThread: 2, ColsPerThread: 8, Stages: 4}, 0.80, 0.25, 800},
	{Tile{M: 64, N: 32, K: 32, RowsPerThread: 4, ColsPerThread: 4, Stages: 3}, 0.75, 0.60, 800},
	{Tile{M: 16, N: 64, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 6}, 0.50, 0.40, 1500},
	{Tile{M: 16, N: 32, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 8}, 0.50, 0.40, 1500},
	{Tile{M: 32, N: 16, K: 32, RowsPerThread: 4, ColsPerThread: 2, Stages: 8}, 0.50, 0.40, 1500},
	{Tile{M: 32, N: 32, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 4}, 0.70, 0.55, 600},
}

func mmaTiles() []Tile {
	var shapes []Tile
	for _, t := range slices.Concat(MMATiles, MMATilesF64) {
		shapes = append(shapes, t.Tile)
	}
	return shapes
}
