package kernel

import (
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// naive is the kernel of every introduction. What limits it: each thread reads a row
// of A and a column of B from global memory, two loads for one multiply-add, so its
// arithmetic intensity is 0.25 operations a byte in float32. Threads along x take
// neighbouring columns, so that their loads of B and stores to C are coalesced and
// that of A is one for all of them.
var Naive = &Kernel{
	Name:        "naive",
	Adds:        "one thread for each element of C, straight from global memory",
	SM:          75,
	BlockScales: true,
	Tiles:       []Tile{Square(16, 0)},
	CheckTile: func(s Tile) error {
		return checkSquare("naive", s, 0)
	},
	BlockThreads: func(s Tile) device.Dim3 { return device.Dim3{X: s.N, Y: s.M, Z: 1} },
	AccessLimits: func(c Config) AccessLimits {
		if c.TransB {
			return AccessLimits{Scatter: rowScatter(c, 1, c.Tile.N)} // neighbours read down a column
		}
		return AccessLimits{Scatter: rowScatter(c, c.Tile.N, c.Tile.N)}
	},
	Write: writeNaive,
}

// naiveUnroll is how many rounds of the loop over K have their loads under way
// together. On an H200 the kernel is a tenth slower at 8 and slower yet without.
const naiveUnroll = 16

func writeNaive(k *build.Kernel, c Config) {
	g := DeclareParams(k, c)
	k.Threads(c.Tile.N, c.Tile.M, 1)
	row0, col0 := g.TileOrigin()
	row := k.Named("row", k.Add(row0, k.ThreadIdx(build.Y)))
	col := k.Named("col", k.Add(col0, k.ThreadIdx(build.X)))
	k.If(g.C.InBounds(row, col), func() {
		sum := k.Var("sum", g.AccType, 0)
		k.ForUnrolled(0, g.K, naiveUnroll, func(p build.Reg) {
			k.FMA(sum, g.elementA(row, p), g.elementB(p, col))
		})
		g.store(row, col, sum)
	})
}

// square is a tile of n×n with a thread for each element.
func Square(n, depth int) Tile {
	return Tile{M: n, N: n, K: depth, RowsPerThread: 1, ColsPerThread: 1}
}

// maxThreads is the most threads that a block has, on every GPU.
const maxThreads = 1024

// checkSquare refuses what is no square of threads that a block can have.
func checkSquare(kernel string, s Tile, depth int) error {
	switch {
	case s != Square(s.M, depth):
		return fmt.Errorf("%w: kernel %s has square tiles with a thread for each element, not %v", gemm.ErrUnsupported, kernel, s)
	case s.M < 1:
		return fmt.Errorf("%w: kernel %s with a tile of %d", gemm.ErrUnsupported, kernel, s.M)
	case s.M > maxThreads || s.M*s.M > maxThreads:
		return fmt.Errorf("%w: kernel %s with a tile of %d×%d, a thread for each element: a block has at most %d threads, not %d",
			gemm.ErrUnsupported, kernel, s.M, s.M, maxThreads, s.M*s.M)
	}
	return nil
}
