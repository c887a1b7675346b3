package emu

import (
	"fmt"
	"slices"
)

// flight is an asynchronous operation under way: parts that happen one after the other,
// each at a time that is left to chance.
type asyncOp struct {
	id     uint64
	origin Origin
	warp   *warp // whose threads began it
	parts  []func()
	due    uint64   // when the next part happens, on the cluster's clock
	uses   []*block // whose shared memory it reads or writes
}

// longestDelay is the most instructions, as a power of two, that the cluster executes
// before the next part of an asynchronous operation happens.
const maxDelayLog2 = 11

// fly starts an asynchronous operation. Some are over at once.
func (c *cluster) startAsync(f *asyncOp) {
	if c.rng.below(4) == 0 {
		f.runUntil(0)
		return
	}
	f.due = c.delay()
	c.asyncOps = append(c.asyncOps, f)
}

func (c *cluster) delay() uint64 { return c.executed + 1<<c.rng.below(maxDelayLog2+1) }

// finish does the parts of an operation until so many are left.
func (f *asyncOp) runUntil(left int) {
	for len(f.parts) > left {
		part := f.parts[0]
		f.parts = f.parts[1:]
		part()
	}
}

// progress does what is due of the asynchronous operations.
func (c *cluster) runDue() {
	over := false
	for _, f := range c.asyncOps {
		if f.due <= c.executed && len(f.parts) > 0 {
			f.runUntil(len(f.parts) - 1)
			f.due = c.delay()
		}
		over = over || len(f.parts) == 0
	}
	if over {
		c.asyncOps = slices.DeleteFunc(c.asyncOps, func(f *asyncOp) bool { return len(f.parts) == 0 })
	}
}

// passTime lets time pass until something happens, when no warp can run. It reports
// whether anything can.
func (c *cluster) advanceTime() bool {
	c.runDue()
	if len(c.asyncOps) == 0 {
		return false
	}
	next := c.asyncOps[0]
	for _, f := range c.asyncOps[1:] {
		if f.due < next.due {
			next = f
		}
	}
	next.due = c.executed
	c.runDue()
	return true
}

// left looks whether a block that has exited leaves operations behind that use its shared
// memory, or bulk copies that no wait has seen read it, whenever they happened to.
func (c *cluster) checkLeftovers(b *block) {
	for _, w := range b.warps {
		for _, o := range w.bulk.open {
			if !o.read {
				c.fail(fmt.Errorf("%v: warp %d of block %v exits, and no wait has seen that this copy has read its shared memory (cp.async.bulk.wait_group.read): %w",
					o.origin.Site, w.index, b.index, ErrMisuse))
				return
			}
		}
	}
	for _, f := range c.asyncOps {
		if len(f.parts) > 0 && slices.Contains(f.uses, b) {
			c.fail(fmt.Errorf("%v: warp %d of block %v: block %v exits while this operation, which is under way, uses its shared memory: %w",
				f.origin.Site, f.origin.Warp, f.warp.block.index, b.index, ErrMisuse))
			return
		}
	}
}
