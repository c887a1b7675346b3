package emu

import (
	"fmt"
	"slices"
)

// cluster is the set of blocks that a worker runs together: a thread block cluster, or a single
// block in a launch without clusters. A worker reuses one cluster for all that it runs.
type cluster struct {
	run          *run
	worker       *worker
	number       int      // linear index of the cluster in the grid
	blocks       []*block // by rank
	runnable     []*warp
	rng          random
	executed     uint64 // instructions
	favored      int    // rank of the block that the scheduler favors
	favoredUntil uint64 // value of executed at which favored changes
	err          error
	operations   uint64 // number of asynchronous operations so far
	asyncOps     []*asyncOp
	writes       uint64 // accesses that may have changed shared or global memory
	spin         spinWatch
}

// random is the SplitMix64 generator (Steele et al., "Fast splittable pseudorandom number
// generators", 2014).
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a random number from 0 to n-1.
func (r *random) below(n int) int { return int(r.next() >> 33 % uint64(n)) }

// order returns a random permutation of the numbers from 0 to n-1.
func (r *random) order(n int) []int {
	p := make([]int, n)
	for i := range p {
		k := r.below(i + 1)
		p[i], p[k] = p[k], i
	}
	return p
}

// maxSliceLog2 is the binary logarithm of the maximum number of instructions that a warp executes
// before the scheduler picks another one.
const maxSliceLog2 = 8

// maxFavorLog2 is the binary logarithm of the maximum number of instructions for which the
// scheduler favors one block of a cluster.
const maxFavorLog2 = 14

// begin initializes the blocks for the cluster with the given number.
func (c *cluster) begin(number int) {
	c.number = number
	seed := random(c.run.launch.Seed)
	c.rng = random(seed.next() + uint64(number))
	c.executed, c.favoredUntil, c.operations, c.err = 0, 0, 0, nil
	c.runnable, c.asyncOps, c.spin = c.runnable[:0], nil, spinWatch{next: firstSnapshot}
	for _, b := range c.blocks {
		b.begin()
	}
}

// execute runs the blocks until all have exited or one has failed.
func (c *cluster) execute() error {
	for c.step() {
	}
	return c.end()
}

// step runs a time slice of a warp. It reports whether the cluster must go on.
func (c *cluster) step() bool {
	if len(c.runnable) == 0 {
		if c.advanceTime() {
			return c.err == nil
		}
		c.err = c.deadlock()
		return false
	}
	n := c.pickWarp()
	w := c.runnable[n]
	length := 1 << c.rng.below(maxSliceLog2+1)
	w.runSlice(length)
	if !w.canRun() {
		w.queued = false
		c.runnable = slices.Delete(c.runnable, n, n+1)
	}
	c.executed += uint64(length - w.sliceLeft)
	if err := c.worker.spend(length - w.sliceLeft); err != nil {
		c.fail(err)
	}
	if c.executed >= firstSnapshot && c.spins(w) && c.run.allSpin() {
		c.fail(c.spinError())
	}
	if len(c.asyncOps) > 0 {
		c.runDue()
	}
	return c.err == nil
}

// end tells the observers that the blocks have ended, and returns the error of the cluster.
func (c *cluster) end() error {
	for _, b := range c.blocks {
		for _, end := range b.end {
			end()
		}
	}
	return c.err
}

// pickWarp returns the index in c.runnable of the warp that runs next. In a cluster of several
// blocks, one block at a time is favored so that it gets ahead of the others, as blocks on
// different multiprocessors do.
func (c *cluster) pickWarp() int {
	n := c.rng.below(len(c.runnable))
	if len(c.blocks) == 1 {
		return n
	}
	if c.executed >= c.favoredUntil {
		c.favored = c.rng.below(len(c.blocks))
		c.favoredUntil = c.executed + 1<<c.rng.below(maxFavorLog2+1)
	}
	for tries := 0; tries < 4 && c.runnable[n].block.rank != c.favored; tries++ {
		n = c.rng.below(len(c.runnable))
	}
	return n
}

// fail ends the cluster with err. Only the first error is kept.
func (c *cluster) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// printed returns the output of all blocks, in order of their ranks.
func (c *cluster) printed() []byte {
	if len(c.blocks) == 1 {
		return c.blocks[0].printed
	}
	var all []byte
	for _, b := range c.blocks {
		all = append(all, b.printed...)
	}
	return all
}

// clock returns the number of instructions that the cluster executed before this time slice.
func (w *warp) clock() uint64 { return w.block.cluster.executed }

// enqueue adds w to the runnable warps.
func (w *warp) enqueue() {
	if c := w.block.cluster; !w.queued {
		w.queued = true
		c.runnable = append(c.runnable, w)
	}
}

// deadlock returns an error that lists the waiting warps, or nil if all warps have exited.
func (c *cluster) deadlock() error {
	var waits []string
	var first *block
	for _, b := range c.blocks {
		for _, w := range b.warps {
			for n := range w.groups {
				if first == nil {
					first = b
				}
				waits = append(waits, w.waitText(&w.groups[n], b != first))
			}
		}
	}
	if waits == nil {
		return nil
	}
	return fmt.Errorf("block %v: %s: %w", first.index, few(waits), ErrDeadlock)
}

// waitText describes why group g cannot run.
func (w *warp) waitText(g *group, nameBlock bool) string {
	in := &g.frame.fn.code[g.pc]
	reason := fmt.Sprintf("for lanes %#08x", g.need&w.live&^g.mask)
	switch g.state {
	case atBarrier:
		reason = w.barrierText(g)
	case atWarpgroup:
		reason = "for the other warps of its warpgroup"
	case atTensorMemory:
		reason = fmt.Sprintf("for free columns of tensor memory, of which the block has allocated %v", &w.block.tensor)
	case atMbarrier:
		reason = w.mbarrierText(g)
	case atClusterBarrier:
		reason = fmt.Sprintf("at the cluster barrier, where %d threads have not arrived", w.block.cluster.missing())
	}
	of := ""
	if nameBlock {
		of = fmt.Sprintf(" of block %v", w.block.index)
	}
	return fmt.Sprintf("warp %d%s (lanes %#08x) at %v waits %s", w.index, of, g.mask, in.site, reason)
}
