package sm90

import (
	"slices"

	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
)

// BaseTiles lists the tiles of every element type, without K. Of two tiles with the same predicted
// time, the first is selected. A larger tile reads less of A and B from L2 per operation, and
// multicast in a cluster of two halves the reads of B. A smaller tile gives more SMs a tile.
// Measurements exclude some others: 256×128 with 128 rows per warpgroup and ping-pong 64×256 spill
// registers with a bias, and a cluster of more than two blocks along K loses more to the reduction
// than it gains.
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

// FurtherTiles lists further tiles by the number of elements along K in 128 bytes. The first one
// has 128 rows per warpgroup. Ping-pong hides its epilogue, which matters for the short main loops
// of 8-bit types and for 16-bit types with an activation. The cooperative tf32 tile gains 2 %.
//
// The clusters of 16-bit types share reads of B where a larger tile would give too few blocks, or
// blocks that do not fill the last round: 8192×200×4096 takes 29.9 µs with 128×128, and 36.4
// without. Clusters of four make up for rows that begin within lines of the L2 cache: 502×2776×2088
// takes 16.6 µs with them on an H100, and 19.4 with two blocks. Clusters along N share the reads of
// A, which matter where C has few rows of tiles: 78×9560×1832 takes 18.6 µs in clusters of 1×4 on
// an H100, and 25.6 without.
var FurtherTiles = map[int][]kernel.Tile{
	64: {
		{M: 128, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 6},
		clusterTile,
		{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6, ClusterM: 4},
		{M: 128, N: 192, RowsPerThread: 2, ColsPerThread: 48, Stages: 5, ClusterM: 2},
		{M: 64, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 8, ClusterM: 4},
		{M: 128, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 8, ClusterM: 2},
		{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6, ClusterM: 1, ClusterN: 4},
		{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6, ClusterM: 2, ClusterN: 2},
		{M: 128, N: 192, RowsPerThread: 2, ColsPerThread: 48, Stages: 5, ClusterM: 1, ClusterN: 2},
		{M: 64, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 12, ClusterM: 1, ClusterN: 2},
		{M: 64, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 12, ClusterM: 2, ClusterN: 2},
	},
	128: {{M: 128, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 6}},
	32:  {{M: 256, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 4}},
}

// narrowTile is a further tile of 8-bit and 32-bit types, for products that have few rows and that
// tiles of 64 columns would spread over less than half of the SMs. In 16 bits it is slower:
// 16×4096×4096 took 12.5 µs with it and 11.9 µs without.
var narrowTile = kernel.Tile{M: 16, N: 32, RowsPerThread: 2, ColsPerThread: 8, Stages: 12}

// clusterTile loads as little of B from L2 per operation as a tile of 128×256.
var clusterTile = kernel.Tile{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6, ClusterM: 2}

// PartTiles returns further tiles for row-invariant products with K in parts, where 128 bytes along
// K are k elements. Tiles of 128×256 leave no registers for the totals of serial parts. In 16 bits
// the cluster is for all products.
func PartTiles(k int) []kernel.Tile {
	if k == 64 {
		return nil
	}
	s := clusterTile
	s.K = k
	return []kernel.Tile{s}
}

// NarrowedColumns lists the N of narrowed tiles: multiples of 24, 40 or 56, whose subtiles TMA can
// store. By the predictions 48, 120 and 240 columns gain little, as do tiles of 32 rows.
var NarrowedColumns = []int{224, 160, 144, 112, 96, 80, 72, 56, 40, 24}

// narrowedTiles returns further tiles whose N is no multiple of 64, for 8- and 16-bit types with
// the given number of elements along K in 128 bytes. With them more SMs have equally many columns:
// 5120 columns are 128 tiles of 40. They have as many stages as shared memory holds, up to 12,
// beside C of 16 bits, or of 32 bits for operands of 8. With more than 16 rows, 8-bit types gain
// nothing over swapAB.
func narrowedTiles(k int) (all []kernel.Tile) {
	const room = 224 << 10
	heights, bytes := []int{128, 64, 16}, 2 // of an element of C
	if k == 128 {
		heights, bytes = []int{16}, 4
	}
	for _, m := range heights {
		for _, n := range NarrowedColumns {
			s := kernel.Tile{M: m, N: n, RowsPerThread: 2, ColsPerThread: n / frag.Quad}
			subtiles := 2 * 2 * WarpgroupRows * oddColumns(n) * bytes
			s.Stages = min((room-subtiles)/((max(m, WarpgroupRows)+n)*frag.SwizzleBytes), 12)
			all = append(all, s)
		}
	}
	return all
}

// IsNarrowed reports whether s is a narrowed tile: without swapAB, and with an N that is no
// multiple of 64, nor 16 or 32.
func IsNarrowed(s kernel.Tile) bool { return !s.SwapAB && s.IsRagged() }

// Tiles lists the tiles of products with any K by the number of elements along K in 128 bytes: of
// 8-bit, 32-bit and 16-bit elements.
var Tiles = map[int][]kernel.Tile{128: tilesOf(128), 32: tilesOf(32), 64: tilesOf(64)}

// TileList returns every tile of the kernel: those of 8-bit, 32-bit and 16-bit elements, in this
// order.
func TileList() []kernel.Tile {
	return slices.Concat(Tiles[128], PartTiles(128), Tiles[32], PartTiles(32), Tiles[64])
}

// tilesOf returns the tiles with 128 bytes along K of k elements.
func tilesOf(k int) []kernel.Tile {
	tiles := slices.Insert(slices.Clone(BaseTiles), 1, FurtherTiles[k]...)
	if k != 64 {
		tiles = append(tiles, narrowTile)
	}
	// For an MN-major B of tf32, swapAB comes first. The last tile is the smallest.
	at := len(tiles) - 1
	if k == 32 {
		at = 0
	}
	further := swapABTiles[k]
	if k != 32 {
		further = slices.Concat(narrowedTiles(k), further)
	}
	tiles = slices.Insert(tiles, at, further...)
	for i := range tiles {
		s := &tiles[i]
		if s.K = k; k != 64 && s.N == 192 && !s.SwapAB {
			// These types can have a C of 32 bits, whose subtiles take the shared memory of a stage.
			// Reads of B do not limit them, so a cluster gains nothing.
			s.Stages, s.ClusterM = s.Stages-1, 0
		}
	}
	return tiles
}
