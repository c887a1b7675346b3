package kernel

import (
	"slices"
)

// MMATile is a tile of kernel mma with its measured performance on an H200.
type MMATile struct {
	Tile Tile
	// Rate is the fraction of the tensor cores' peak rate that large products reach. Narrow is the
	// fraction if both operands are copied one element at a time.
	Rate, Narrow float64
	// Edge is the fixed cost of a block in cycles: the latency of the first tiles and the store of
	// C, which no other block of the SM hides.
	Edge float64
}

// MMATiles lists the tiles for elements of up to four bytes, the best for large products first. K
// is given for 2-byte elements; other types have the same number of bytes. Rate and Edge are
// estimates from figures of other kernels of this kind, which guided the heuristic.
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

// MMATilesF64 lists the tiles for float64, the best for large products first. More stages hide the
// latency of memory better if an SM has few blocks. But copies of single elements go through the L1
// cache, whose size is what shared memory leaves.
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
