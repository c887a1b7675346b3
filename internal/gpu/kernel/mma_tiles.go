package kernel

import "slices"

// MMATiles lists the tiles of mma for elements of up to four bytes. K is that of 2-byte
// elements. Other types have as many bytes along K.
var MMATiles = []Tile{
	{M: 128, N: 256, K: 32, RowsPerThread: 8, ColsPerThread: 16, Stages: 4},
	{M: 256, N: 128, K: 32, RowsPerThread: 8, ColsPerThread: 16, Stages: 4},
	{M: 128, N: 128, K: 32, RowsPerThread: 8, ColsPerThread: 8, Stages: 4},
	{M: 64, N: 128, K: 64, RowsPerThread: 4, ColsPerThread: 8, Stages: 4},
	{M: 128, N: 64, K: 64, RowsPerThread: 4, ColsPerThread: 8, Stages: 4},
	{M: 64, N: 64, K: 64, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
	{M: 16, N: 128, K: 64, RowsPerThread: 2, ColsPerThread: 8, Stages: 6},
	{M: 128, N: 16, K: 64, RowsPerThread: 4, ColsPerThread: 4, Stages: 6},
	{M: 32, N: 32, K: 64, RowsPerThread: 2, ColsPerThread: 4, Stages: 4},
}

// MMATilesF64 lists the tiles of mma for float64. More stages hide more of the memory latency
// where an SM has few blocks. But copies of single elements go through the L1 cache, which is
// smaller if the kernel uses more shared memory.
var MMATilesF64 = []Tile{
	{M: 128, N: 128, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3},
	{M: 128, N: 64, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3},
	{M: 64, N: 128, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3},
	{M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 8, Stages: 4},
	{M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 8, Stages: 3},
	{M: 32, N: 64, K: 32, RowsPerThread: 2, ColsPerThread: 8, Stages: 4},
	{M: 64, N: 32, K: 32, RowsPerThread: 4, ColsPerThread: 4, Stages: 3},
	{M: 16, N: 64, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 6},
	{M: 16, N: 32, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 8},
	{M: 32, N: 16, K: 32, RowsPerThread: 4, ColsPerThread: 2, Stages: 8},
	{M: 32, N: 32, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 4},
}

func mmaTiles() []Tile { return slices.Concat(MMATiles, MMATilesF64) }
