package kernel

import (
	"tilework/internal/device"
	"tilework/ptx/build"
)

// Naive is the introductory kernel: one thread per element of C. Threads along x compute adjacent
// columns, so their loads of B and stores to C are coalesced, and their loads of A are a broadcast.
//
// Limit: global memory. Each thread reads a row of A and a column of B from it, two loads per
// multiply-add. The arithmetic intensity is 0.25 operations per byte in float32.
var Naive = &Kernel{
	Name:        "naive",
	Adds:        "one thread for each element of C, straight from global memory",
	SM:          75,
	OrderFor:    fusedOrder,
	BlockScales: true,
	Tiles:       []Tile{Square(16, 0)},
	CheckTile:   func(s Tile) *Reason { return checkSquare(s, 0) },
	Write:       writeNaive,
	AccessLimits: func(c Config) AccessLimits {
		if c.TransB {
			return AccessLimits{Scatter: rowScatter(c, 1, c.Tile.N)} // adjacent threads read adjacent rows of a column-major B
		}
		return AccessLimits{Scatter: rowScatter(c, c.Tile.N, c.Tile.N)}
	},
	BlockThreads: func(s Tile) device.Dim3 { return device.Dim3{X: s.N, Y: s.M, Z: 1} },
}

// NaiveUnroll is the number of iterations of the loop over K whose loads are in flight together. On
// an H200 the kernel is a tenth slower with 8, and slower still without unrolling.
const NaiveUnroll = 16

func writeNaive(k *build.Kernel, c Config) {
	g := DeclareParams(k, c)
	k.Threads(c.Tile.N, c.Tile.M, 1)
	row0, col0 := g.TileOrigin()
	row := k.Named("row", k.Add(row0, k.ThreadIdx(build.Y)))
	col := k.Named("col", k.Add(col0, k.ThreadIdx(build.X)))
	k.If(g.C.InBounds(row, col), func() {
		sum := k.Var("sum", g.AccType, 0)
		k.ForUnrolled(0, g.K, NaiveUnroll, func(p build.Reg) {
			k.FMA(sum, g.elementA(row, p), g.elementB(p, col))
		})
		g.store(row, col, sum)
	})
}

// Square returns an n×n tile with one thread per element.
func Square(n, depth int) Tile {
	return Tile{M: n, N: n, K: depth, RowsPerThread: 1, ColsPerThread: 1}
}

// maxThreads is the maximum number of threads in a block, on every GPU.
const maxThreads = 1024

// checkSquare returns a reason unless s is a square tile whose threads fit in a block.
func checkSquare(s Tile, depth int) *Reason {
	switch {
	case s != Square(s.M, depth):
		return Because("want a square tile with one thread per element")
	case s.M < 1:
		return Because("size %d: want at least 1", s.M)
	case s.M > maxThreads || s.M*s.M > maxThreads:
		return Because("size %d×%d with one thread per element: want at most %d threads", s.M, s.M, maxThreads)
	}
	return nil
}
