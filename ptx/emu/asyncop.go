package emu

import (
	"fmt"
	"slices"
)

// asyncOp is an asynchronous operation in flight. Its parts run in order, each at a random time.
type asyncOp struct {
	id     uint64
	origin Origin
	warp   *warp // the warp that issued it
	parts  []func()
	due    uint64   // time of the next part on the cluster's clock
	uses   []*block // blocks whose shared memory its other parts access, once for each access
}

// release notes that an access to the shared memory of block b is done, so that the block may exit.
func (f *asyncOp) release(b *block) {
	at := slices.Index(f.uses, b)
	f.uses = slices.Delete(f.uses, at, at+1)
}

// maxDelayLog2 is the binary logarithm of the maximum delay, in instructions of the cluster, before
// the next part of an asynchronous operation.
const maxDelayLog2 = 11

// startAsync starts an asynchronous operation. One in four completes immediately.
func (c *cluster) startAsync(f *asyncOp) {
	if c.rng.below(4) == 0 {
		f.runUntil(0)
		return
	}
	f.due = c.delay()
	c.asyncOps = append(c.asyncOps, f)
}

func (c *cluster) delay() uint64 { return c.executed + 1<<c.rng.below(maxDelayLog2+1) }

// runUntil runs parts of f until only n parts remain.
func (f *asyncOp) runUntil(n int) {
	for len(f.parts) > n {
		part := f.parts[0]
		f.parts = f.parts[1:]
		part()
	}
}

// runDue runs the parts of asynchronous operations that are due.
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

// advanceTime runs the next part of an asynchronous operation when no warp can run. It reports
// whether there was one.
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

// checkLeftovers ends the launch if block b has exited while an operation in flight uses its shared
// memory, or without a wait that observed the reads of its bulk copies. A missing wait is an error
// even if the copy has already read its source.
func (c *cluster) checkLeftovers(b *block) {
	for _, w := range b.warps {
		for _, o := range w.bulk.open {
			if !o.read {
				c.fail(fmt.Errorf("%v: warp %d of block %v exits without waiting until this copy has read its shared memory "+
					"(cp.async.bulk.wait_group.read): %w", o.origin.Site, w.index, b.index, ErrMisuse))
				return
			}
		}
	}
	for _, f := range c.asyncOps {
		if len(f.parts) > 0 && slices.Contains(f.uses, b) {
			c.fail(fmt.Errorf("%v: warp %d of block %v: block %v exits while this operation in flight uses "+
				"its shared memory: %w", f.origin.Site, f.origin.Warp, f.warp.block.index, b.index, ErrMisuse))
			return
		}
	}
}
