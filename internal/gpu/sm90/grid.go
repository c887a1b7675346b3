package sm90

import (
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/ptx"
	"tilework/ptx/build"
)

// evenRounds is the smallest number of rounds in which fewer blocks than SMs compute equally many
// tiles each. Every round is then a whole part of the raster order, and the blocks load less of A
// and B: at 8192³ in 16-bit types 18 % less from L2 and 12 % less from memory. With a single row of
// tiles no two blocks load the same part of B. Memory is the limit then, and delivers less to fewer
// SMs: bfloat16 13×27648×5120 takes 74.8 µs with 108 blocks and 71.4 µs with 132.
const evenRounds = 4

// Grid returns the grid and the cluster of a launch. The grid has one persistent block per SM that
// clusters can fill (see [ClustersAtOnce]), or fewer if there are fewer tiles or if fewer need as
// many rounds (see evenRounds). The slices of split-K are along z.
func Grid(c kernel.Config, p *gemm.Problem, d *device.Info) (grid, cluster device.Dim3, err error) {
	s, n := c.Tile, c.Tile.ClusterBlocks()
	height, width := kernel.SwapAB(s, s.M*s.BlocksM(), s.N*s.BlocksN())
	clusters := kernel.MaxTileRows(p, height) * ints.CeilDiv(p.Columns(), width)
	if clusters > 1<<31-1-d.SMs {
		return grid, cluster, fmt.Errorf("%w: C of %d×%d has too many tiles of %d×%d to count in 32 bits",
			gemm.ErrUnsupported, p.M, p.N, s.M, s.N)
	}
	atOnce := min(clusters, ClustersAtOnce(d.SMs, n))
	rounds := ints.CeilDiv(clusters, max(atOnce, 1))
	known := s.SplitK < 2 && !s.StreamK && p.Batch.Kind != gemm.Grouped // the number of tiles; groups may have fewer
	if known && rounds >= evenRounds && clusters%rounds == 0 && kernel.Tiles(p.M, height) > 1 {
		atOnce = clusters / rounds
	}
	grid = device.Dim3{X: atOnce * n, Y: 1, Z: 1}
	if s.SplitK > 1 {
		grid.Z = kernel.SplitCount(p, s)
	}
	if n > 1 {
		cluster = device.Dim3{X: n, Y: 1, Z: 1}
	}
	return grid, cluster, nil
}

// ClustersAtOnce returns the number of clusters of n blocks that run at once on a GPU with the
// given number of SMs. Each SM has room for one block. A cluster stays in a GPC of up to 18 SMs:
// pairs fill it, and clusters of four leave some SMs idle. On 132 SMs cuBLASLt starts 30 of them.
// If a grid had more clusters than fit, the rest would begin when the others have finished.
func ClustersAtOnce(sms, n int) int {
	if n > 2 {
		sms -= sms / 11
	}
	return max(sms/n, 1)
}

// rasterRows returns the number of rows of tiles or clusters in a raster group. With 132 tiles of
// 128×256 in flight, a block of 16 rows and 8 columns of tiles reads the least from A and B. Tiles
// with swapAB, which may be high, have as many rows of C in a group.
func rasterRows(s kernel.Tile) int {
	const rows = 16
	if s.SwapAB {
		return max(rows*2*WarpgroupRows/s.N, 1)
	}
	return rows / s.BlocksM()
}

// forEachTile emits the persistent loop over the tiles of the block. It starts at tile first of
// the raster order and advances by step. f emits the body for the tile that begins at (row, col)
// of C. With stream-K it is the loop over the pieces of tiles of the block.
func (w *writer) forEachTile(first, step build.Reg, f func(row, col build.Reg)) {
	k, s := w.Kernel, w.Config.Tile
	scheduler := w.Scheduler(kernel.SwapAB(s, s.M*s.BlocksM(), w.Config.ColumnsOfC()*s.BlocksN()))
	if s.StreamK {
		x := w.newShare(scheduler)
		w.blockBefore = k.Sub(k.BlockIdx(build.X), k.Mul(x.size, s.ClusterBlocks()))
		k.For(0, x.pieces, func(i build.Reg) { w.atTile(scheduler, x.piece(i), f) })
		w.first, w.steps = 0, w.allSteps
		return
	}
	n := k.Var("tile", ptx.U32, first)
	k.While(func() build.Reg { return scheduler.Seek(n) }, func() {
		w.atTile(scheduler, n, f)
		k.Set(n, k.Add(n, step))
	})
}

// atTile emits f for tile n.
func (w *writer) atTile(scheduler *kernel.TileScheduler, n build.Reg, f func(row, col build.Reg)) {
	k, s := w.Kernel, w.Config.Tile
	t := scheduler.WorkTileAt(n)
	i, j := w.GroupedTile(t.Index, t.TileRows, scheduler.TilesAcross, rasterRows(s))
	w.C, w.batchIndex = t.C, t.Product
	left := func(n build.Reg) build.Reg { return k.Mad(k.Mad(n, s.BlocksM(), w.rankM), s.M, t.FirstRow) }
	right := func(n build.Reg) build.Reg { return k.Mul(k.Mad(n, s.BlocksN(), w.rankN), w.Config.ColumnsOfC()) }
	row, col := kernel.SwapAB(s, left, right)
	f(k.Named("row", k.To(w.IndexType, row(i))), k.Named("col", k.To(w.IndexType, col(j))))
	w.C = scheduler.WholeC
}
