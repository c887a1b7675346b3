package check

import "tilework/ptx/emu"

// hooksOf is the hooks of the block of a rank. What they hand on has the warps' numbers in
// the cluster.
func (w *worker) hooksOf(rank int) *emu.Hooks {
	for len(w.hooks) <= rank {
		w.hooks = append(w.hooks, w.newHooks(len(w.hooks)))
	}
	return w.hooks[rank]
}

func (w *worker) newHooks(rank int) *emu.Hooks {
	runs := &w.checks.runs
	h := &emu.Hooks{End: func() { w.enter(rank); w.end() }}
	if runs[Race] {
		r := w.race
		h.WarpSync = func(e *emu.WarpSync) { moved := *e; moved.Warp += w.enter(rank); r.warpSync(&moved) }
		h.Fence = func(e *emu.Fence) { moved := *e; moved.Warp += w.enter(rank); r.fence(&moved) }
		h.CopyDone = func(e *emu.CopyDone) { moved := *e; moved.Warp += w.enter(rank); r.copyDone(&moved) }
		h.Mbarrier = func(e *emu.Mbarrier) { moved := *e; moved.Warp += w.enter(rank); r.mbarrier(&moved) }
	}
	if runs[Race] || runs[Barrier] {
		h.Barrier = func(e *emu.Barrier) {
			moved := *e
			moved.Warp += w.enter(rank)
			moved.ID += rank * barriersOfBlock
			w.barrier(&moved)
		}
		h.ClusterSync = func(e *emu.ClusterSync) { moved := *e; moved.Warp += w.enter(rank); w.clusterSync(&moved) }
	}
	if runs[Bounds] {
		h.Fault = func(e *emu.Fault) bool { w.enter(rank); return w.fault(e) }
	}
	if runs[Uninit] {
		h.UninitRead = func(e *emu.UninitRead) { moved := *e; moved.Warp += w.enter(rank); w.uninit.register(&moved) }
	}
	if runs[Race] || runs[Uninit] || runs[Banks] || runs[Coalesce] || runs[Count] {
		h.Access = func(e *emu.Access) {
			if first := w.enter(rank); first > 0 {
				moved := *e
				moved.Warp += first
				e = &moved
			}
			w.access(e)
		}
		h.Bulk = func(e *emu.Bulk) { moved := *e; moved.Warp += w.enter(rank); w.bulk(&moved) }
	}
	return h
}

// barriersOfBlock is how many barriers a block has.
const barriersOfBlock = 16

// enter makes the block of a rank the one whose event is under way, and returns the number
// of its first warp in the cluster.
func (w *worker) enter(rank int) int {
	w.block = w.blocks[rank]
	return rank * w.block.Warps
}

// thread is a thread of the cluster, in its block.
func (w *worker) thread(n int) emu.Dim3 {
	return thread(w.blocks[0], n%(w.blocks[0].Warps*32))
}

// blockOf is the block of a thread of the cluster.
func (w *worker) blockOf(n int) *emu.BlockInfo { return w.blocks[n/(w.blocks[0].Warps*32)] }

// bulk enters an access of the async proxy.
func (w *worker) bulk(b *emu.Bulk) {
	if w.race != nil {
		w.race.bulk(b)
	}
	if w.uninit != nil {
		w.uninit.bulk(b)
	}
	if w.counter != nil && b.Alloc != nil {
		w.counter.bulk(b)
		w.touched.of(b.Alloc).bulk(b)
	}
}
