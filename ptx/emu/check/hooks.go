package check

import "tilework/ptx/emu"

// hooksOf returns the hooks of the block with the given rank. They pass events on with warps
// numbered in the cluster instead of in the block.
func (w *worker) hooksOf(rank int) *emu.Hooks {
	for len(w.hooks) <= rank {
		w.hooks = append(w.hooks, w.newHooks(len(w.hooks)))
	}
	return w.hooks[rank]
}

func (w *worker) newHooks(rank int) *emu.Hooks {
	enabled := &w.checks.enabled
	h := &emu.Hooks{End: func() { w.enter(rank); w.end() }}
	if enabled[Race] {
		r := w.race
		h.Fence = func(e *emu.Fence) { event := *e; event.Warp += w.enter(rank); r.fence(&event) }
		h.CopyDone = func(e *emu.CopyDone) { event := *e; event.Warp += w.enter(rank); r.copyDone(&event) }
		h.Exit = func() { w.enter(rank); r.exit(rank) }
		h.Mbarrier = func(e *emu.Mbarrier) { event := *e; event.Warp += w.enter(rank); r.mbarrier(&event) }
	}
	if enabled[Race] || enabled[Barrier] {
		h.Barrier = func(e *emu.Barrier) {
			event := *e
			event.Warp += w.enter(rank)
			event.ID += rank * barriersOfBlock
			w.barrier(&event)
		}
		h.WarpSync = func(e *emu.WarpSync) { event := *e; event.Warp += w.enter(rank); w.warpSync(&event) }
		h.ClusterSync = func(e *emu.ClusterSync) { event := *e; event.Warp += w.enter(rank); w.clusterSync(&event) }
	}
	if enabled[Bounds] {
		h.Fault = func(e *emu.Fault) bool { w.enter(rank); return w.fault(e) }
	}
	if enabled[Uninit] {
		h.Undefined = func(e *emu.Undefined) {
			event := *e
			event.Warp += w.enter(rank)
			event.Cause.Warp += rank * w.block.Warps
			w.uninit.undefined(&event)
		}
	}
	if enabled[Race] || enabled[Banks] || enabled[Coalesce] || enabled[Count] {
		h.Access = func(e *emu.Access) {
			if first := w.enter(rank); first > 0 {
				event := *e
				event.Warp += first
				e = &event
			}
			w.access(e)
		}
		h.Bulk = func(e *emu.Bulk) { event := *e; event.Warp += w.enter(rank); w.bulk(&event) }
	}
	return h
}

// barriersOfBlock is the number of barriers per block.
const barriersOfBlock = 16

// enter makes the block with the given rank the current one. It returns the number of the block's
// first warp in the cluster.
func (w *worker) enter(rank int) int {
	w.block = w.blocks[rank]
	return rank * w.block.Warps
}

// thread returns the index in its block of thread n of the cluster.
func (w *worker) thread(n int) emu.Dim3 {
	return thread(w.blocks[0], n%(w.blocks[0].Warps*32))
}

// blockOf returns the block of thread n of the cluster.
func (w *worker) blockOf(n int) *emu.BlockInfo { return w.blocks[n/(w.blocks[0].Warps*32)] }

// bulk records an access of the async proxy.
func (w *worker) bulk(b *emu.Bulk) {
	if w.race != nil {
		w.race.bulk(b)
	}
	if w.counter != nil && b.Alloc != nil {
		w.counter.bulk(b)
		w.touched.of(b.Alloc).bulk(b)
	}
}
