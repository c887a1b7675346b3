package choose

import (
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
)

// predictBlocked: an SM issues the instructions of its blocks and moves their elements through
// shared memory. Each block waits for its tiles. The L2 cache and memory deliver the operands. All
// of these overlap. The store of C overlaps with nothing.
func predictBlocked(j *job, c *kernel.Config) prediction {
	n, s := &j.costs.Blocked, c.Tile
	parts, depth := j.parts(s)
	tiles := kernel.TileCount(j.Problem, s)
	x := prediction{blocks: tiles * parts, launch: n.Launch}
	busiest, held := ints.CeilDiv(x.blocks, j.sms), kernel.ResidentBlocks(*c)
	x.rounds = ints.CeilDiv(busiest, held)
	w := n.blockWork(j, c, kernel.Tiles(depth, s.K))
	busy := w.rounds(busiest, held)
	memory := j.deliver(n.fetched(j, s), n.Memory)
	cache := j.perSM(float64(j.In().Bytes(max(j.K, 1)))*linesRead(j, s, tiles), n.L2Rate)
	total := overlap(busy, memory, cache)
	if parts == 1 { // partial sums stay in the L2 cache
		total += j.perSM(j.resultBytes(), n.StoreRate)
	}
	if x.multiply, x.load = total, memory; memory > busy {
		x.multiply, x.load = busy, total
	}
	x.sum = j.sum(c, parts)
	return x
}

// linesRead returns the number of rows of A and columns of B that all tiles read together, counted
// anew for each tile. Tiles read nothing outside the matrices.
func linesRead(j *job, s kernel.Tile, tiles int) float64 {
	height := float64(j.M) / float64(kernel.Tiles(j.M, s.M))
	width := float64(j.N) / float64(kernel.Tiles(j.N, s.N))
	return float64(tiles) * (height + width)
}

// fetched returns the bytes that memory delivers: each operand once, and shortRun sectors in vain
// where a step reads only one sector of each row of a K-major operand.
func (n *blockedCosts) fetched(j *job, s kernel.Tile) float64 {
	a, b, short := float64(j.A().Bytes()), float64(j.B().Bytes()), 0.0
	if !j.A().Trans {
		short += a
	}
	if j.B().Trans {
		short += b
	}
	wasted := n.ShortRun * kernel.SectorBytes / float64(max(j.In().Bytes(s.K), kernel.SectorBytes))
	return j.operandBytes() * (1 + wasted*short/max(a+b, 1))
}

// blockWork is the work of a block, or of a warp in one step, in cycles.
type blockWork struct {
	issue  float64 // in which its instructions are issued
	shared float64 // of the pipeline of shared memory
	wait   float64 // from start to end where nothing else works
}

// round returns the time of blocks that an SM holds at the same time.
func (w *blockWork) round(blocks int) float64 {
	return overlap(float64(blocks)*w.issue, float64(blocks)*w.shared, w.wait)
}

// rounds returns the time of the blocks of an SM that holds some of them at the same time.
func (w *blockWork) rounds(blocks, held int) float64 {
	t := float64(blocks/held) * w.round(held)
	if left := blocks % held; left > 0 {
		t += w.round(left)
	}
	return t
}

// blockWork returns the work of a block that takes a number of steps and stores its sums.
func (n *blockedCosts) blockWork(j *job, c *kernel.Config, steps int) blockWork {
	s, width := c.Tile, float64(kernel.VectorOf(j.Accum()))
	sums := float64(s.RowsPerThread * s.ColsPerThread)
	stores := sums / float64(c.VecC)
	if s.SplitK > 1 {
		stores = sums / width
	}
	through := sums * (1 + 4/width) // cycles in which the sums pass through shared memory
	step, warps := n.stepWork(j, c), float64(kernel.BlockedThreads(s))/frag.Lanes
	return blockWork{
		issue:  warps / schedulers * (float64(steps)*step.issue + stores*n.StoreIssue),
		shared: warps * (float64(steps)*step.shared + through),
		wait:   float64(steps)*step.wait + stores*n.StoreWait,
	}
}

// stepWork returns the work of a warp in a step.
func (n *blockedCosts) stepWork(j *job, c *kernel.Config) (w blockWork) {
	s, depth := c.Tile, float64(c.Tile.K)
	a, b := newCopyWork(c, s.M, c.VecA, !c.TransA), newCopyWork(c, s.N, c.VecB, c.TransB)
	sumBytes := j.Accum().Bytes(s.RowsPerThread * s.ColsPerThread)
	fragments := float64(s.RowsPerThread+s.ColsPerThread) / float64(kernel.VectorOf(j.Accum()))
	multiply := n.MultiplyAdd*float64(sumBytes)/4 + fragments
	w.shared = depth*fragments*n.Fragment + (a.lines+b.lines)*n.Line
	w.issue, w.wait = depth*multiply, depth*multiply+n.StepWait
	if kernel.HasFewWarps(c) {
		exposed := n.CopyIssue * (a.copies + b.copies)
		w.issue += exposed / float64(kernel.ResidentBlocks(*c)) // other blocks multiply meanwhile
		w.wait += exposed
	}
	if kernel.CopiesAsync(c) {
		w.wait = max(w.wait, n.CopyWait/float64(kernel.BlockedStages(c)-1))
		return w
	}
	convert := n.Convert * (a.elements + b.elements)
	w.issue, w.wait = w.issue+convert, w.wait+convert+n.LoadWait
	return w
}

// copyWork is the work of copying an operand in a step, on average over all threads.
type copyWork struct {
	copies   float64 // copies of a thread
	elements float64 // elements that they copy
	lines    float64 // lines of the L1 cache that the copies of a warp touch
}

// newCopyWork returns the copies of side rows of A or columns of B in vectors of vec elements. A
// warp copies runs of adjacent elements, of several rows or columns at a time.
func newCopyWork(c *kernel.Config, side, vec int, kMajor bool) copyWork {
	x := kernel.NewPanelCopies(c, vec, kMajor)
	run := min(x.Run, frag.Lanes*x.Vec)
	runs := frag.Lanes * x.Vec / run
	if kMajor {
		runs = min(runs, x.Step)
	}
	copies := float64(ints.CeilDiv(side, x.Step)) * min(1, float64(side)/float64(x.Step))
	lines := float64(runs) * max(1, float64(c.In.Bytes(run))/lineBytes)
	return copyWork{copies: copies, elements: copies * float64(x.Vec), lines: copies * lines}
}
