package sm90

import (
	"tilework/internal/gpu/frag"
	"tilework/ptx/build"
)

// A clusterReduction emits the epilogue of a cluster along K, whose blocks divide K. Every block
// writes its partial sums to subtiles. Each block then finishes its share of the rows: it reads the
// partial sums of all blocks from distributed shared memory and adds them in the order of the
// ranks.
type clusterReduction struct {
	*epilogue
	row, col build.Reg // of the warpgroup's part of C
	width    int       // columns of a subtile
	across   int       // subtiles of 64 rows
	// rowsPerWarp is the number of rows of a subtile that a warp of a block finishes, and firstRow
	// the first one. ahead rows are in flight at a time.
	rowsPerWarp, ahead int
	firstRow           build.Reg
	peers              []build.Ptr // the subtiles of each block, by rank
}

// reduceCluster stores the sums over the blocks of a cluster along K. acc holds the partial sums of
// the warpgroup's part of C, which begins at (row, col), by 64 rows.
func (ep *epilogue) reduceCluster(row, col build.Reg, acc [][]build.Reg) {
	k, blocks := ep.w.Kernel, ep.w.Config.Tile.ClusterK
	ep.setBarrier()
	width := frag.SwizzleBytes / ep.w.AccType.Bytes()
	x := &clusterReduction{epilogue: ep, row: row, col: col, width: width, across: len(acc[0]) * 2 / width}
	x.writePartials(acc)
	for rank := range blocks {
		x.peers = append(x.peers, k.Peer(ep.buffer(0).Ptr, rank))
	}
	warps := WarpgroupThreads / frag.Lanes
	x.rowsPerWarp = validRows(ep.w.Config.Tile) / warps / blocks
	x.firstRow = k.Mul(k.Mad(k.ClusterRank(), warps, ep.warp), x.rowsPerWarp)
	x.ahead = min(x.rowsPerWarp, 4)
	k.ForStep(0, len(acc)*x.across*x.rowsPerWarp, x.ahead, x.finishRows)
	x.arriveAtPeers(ep.w.partialsRead.ArrivePeer)
}

// writePartials writes the partial sums of this block, once all blocks have read those of the tile
// before, and waits until all blocks have written theirs.
func (x *clusterReduction) writePartials(acc [][]build.Reg) {
	k := x.w.Kernel
	k.Comment("once all have read what was there")
	x.waitPartialsRead()
	for m := range acc {
		for n := range x.across {
			x.write32Bit(x.buffer(m*x.across+n), acc[m][n*x.width/2:][:x.width/2])
		}
	}
	x.arriveAtPeers(x.w.partialsWritten.ArrivePeerRelease)
	x.w.partialsWritten.WaitAcquire(x.warpgroup, x.reducePhase)
	k.Set(x.reducePhase, k.Xor(x.reducePhase, 1))
}

// waitPartialsRead waits until all blocks have read the partial sums that this block wrote last. A
// block must not exit before.
func (ep *epilogue) waitPartialsRead() {
	ep.w.partialsRead.WaitAcquire(ep.warpgroup, ep.w.Xor(ep.reducePhase, 1))
}

// arriveAtPeers arrives once for the warpgroup at a mbarrier of each block.
func (x *clusterReduction) arriveAtPeers(arrive func(i, rank build.Value)) {
	x.syncWarpgroup()
	x.w.If(x.w.Lt(x.thread, x.w.Config.Tile.ClusterK), func() { arrive(x.warpgroup, x.thread) })
}

// finishRows adds the partial sums of the warp's rows from number i on, and stores them. Each lane
// has a column of a subtile.
func (x *clusterReduction) finishRows(i build.Reg) {
	k := x.w.Kernel
	subtile, first := k.Div(i, x.rowsPerWarp), k.Add(x.firstRow, k.Rem(i, x.rowsPerWarp))
	down := k.Mul(k.Div(subtile, x.across), WarpgroupRows)
	across := k.Mad(k.Rem(subtile, x.across), x.width, x.lane)
	var rows, cols []build.Reg
	var partials, totals [][]build.Reg
	for n := range x.ahead {
		line := k.Add(first, n)
		partials = append(partials, x.partials(subtile, line))
		rows = append(rows, k.Add(x.row, k.To(x.w.IndexType, k.Add(down, line))))
		cols = append(cols, k.Add(x.col, k.To(x.w.IndexType, across)))
	}
	for _, p := range partials {
		total := p[0]
		for _, other := range p[1:] {
			total = k.Add(total, other)
		}
		totals = append(totals, []build.Reg{total})
	}
	x.w.StoreAll(rows, cols, totals)
}

// partials loads the lane's partial sums in a row of a subtile, one of each block.
func (x *clusterReduction) partials(subtile, row build.Reg) (sums []build.Reg) {
	k := x.w.Kernel
	swizzled := k.Xor(k.Mul(x.lane, x.w.AccType.Bytes()), k.Mul(k.Rem(row, 8), 16))
	at := k.Add(k.Mul(k.Mad(subtile, WarpgroupRows, row), frag.SwizzleBytes), swizzled)
	for _, p := range x.peers {
		sums = append(sums, p.Skip(at).Load())
	}
	return sums
}
