package sm90

import (
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/build"
)

// A consumer emits the work of one consumer warpgroup on each of its tiles.
type consumer struct {
	w                 *writer
	warpgroup, thread build.Reg   // index of the warpgroup among the consumers, and of the thread in it
	firstRow          build.Value // first row of the warpgroup's part of a tile
	loop              *mainloop
	epilogue          *epilogue
	// firstTile and tileStep are the first tile of the warpgroup in raster order and the distance
	// to the next one.
	firstTile, tileStep build.Reg
	// tileStages is the number of stages that a tile passes through, and turn the phase of the
	// warpgroup's mbarrier in mmaOrder. Both are for ping-pong.
	tileStages, turn build.Reg
}

// newConsumer computes the positions of the warpgroup and declares its accumulators and variables.
func (w *writer) newConsumer() *consumer {
	k, s := w.Kernel, w.Config.Tile
	c := &consumer{w: w, firstRow: 0, firstTile: w.cluster, tileStep: w.numClusters}
	// The shuffle tells ptxas that all lanes of a warp have the same value. It then computes matrix
	// descriptors in uniform registers, instead of copying them there before each wgmma.
	c.warpgroup = k.Named("group", k.Shuffle(k.Sub(k.Div(w.tid, WarpgroupThreads), 1), 0, 0))
	c.thread = k.Named("member", k.Rem(w.tid, WarpgroupThreads))
	if !PingPong(s) {
		rows, _ := WarpgroupTile(s)
		c.firstRow = k.Mul(c.warpgroup, rows)
	}
	c.loop = w.newMainloop(c.thread, c.firstRow)
	c.epilogue = w.newEpilogue(c.warpgroup, c.thread)
	c.epilogue.fragA = c.loop.fragA
	c.loop.scales = w.newTileScales(c.epilogue)
	if PingPong(s) {
		c.alternateTiles()
	}
	return c
}

// alternateTiles gives every second tile to the warpgroup, and the first turn to warpgroup 0.
func (c *consumer) alternateTiles() {
	k := c.w.Kernel
	c.tileStages = k.Mul(c.w.allSteps, len(c.w.Terms))
	c.firstTile = k.Mad(c.warpgroup, c.w.numClusters, c.w.cluster)
	c.tileStep = k.Mul(c.w.numClusters, Consumers(c.w.Config.Tile))
	c.loop.state.Skip(k.Mul(c.warpgroup, c.tileStages))
	c.turn = k.Var("mine", ptx.U32, k.Xor(c.warpgroup, 1))
}

// prefetch begins to load the operands of the epilogue and the block scales of the first step, for
// the tile at (row, col).
func (c *consumer) prefetch(row, col build.Reg) {
	row = c.w.Add(row, c.firstRow)
	c.epilogue.prefetch(row, col)
	if c.loop.scales != nil {
		c.loop.scales.startTile(row, col, c.epilogue)
	}
}

// waitForTurn waits, with ping-pong, for the tensor cores.
func (c *consumer) waitForTurn() {
	if !PingPong(c.w.Config.Tile) {
		return
	}
	k := c.w.Kernel
	k.Comment("once the other warpgroup has had all of its tile multiplied")
	c.w.mmaOrder.Wait(c.warpgroup, c.turn)
	k.Set(c.turn, k.Xor(c.turn, 1))
}

// passTurn passes the tensor cores to the other warpgroup, with ping-pong, and skips the stages of
// that warpgroup's tile.
func (c *consumer) passTurn() {
	if !PingPong(c.w.Config.Tile) {
		return
	}
	k := c.w.Kernel
	// Every warp arrives. With a single arrival, a slow warp could still wait for this phase of its
	// mbarrier when the next phase completes.
	k.If(k.Eq(k.Rem(c.thread, frag.Lanes), 0), func() { c.w.mmaOrder.Arrive(k.Xor(c.warpgroup, 1)) })
	c.loop.state.Skip(c.tileStages)
}

// finish stores the warpgroup's part of the tile at (row, col) or, if the next block multiplies
// further steps of it with stream-K, hands its sums over.
func (c *consumer) finish(row, col build.Reg, sums [][]build.Reg) {
	if c.loop.handover == nil {
		c.store(row, col, sums)
		return
	}
	c.w.If(c.w.endsTile(), func() { c.store(row, col, sums) }).Else(func() { c.loop.handover.give(sums) })
}

// store emits the epilogue for the warpgroup's part of the tile at (row, col), whose sums are given
// by 64 rows.
func (c *consumer) store(row, col build.Reg, sums [][]build.Reg) {
	k, s := c.w.Kernel, c.w.Config.Tile
	k.Comment("the warpgroup's part of C")
	if s.BlocksK() > 1 {
		c.epilogue.reduceCluster(k.Add(row, c.firstRow), col, sums)
		return
	}
	for m, acc := range sums {
		if from := k.Add(c.firstRow, m*WarpgroupRows); s.SwapAB {
			c.epilogue.storeSwapAB(row, k.Add(col, from), acc)
		} else {
			c.epilogue.store(m*WarpgroupRows, k.Add(row, from), col, acc)
		}
	}
}
