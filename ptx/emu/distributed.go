package emu

import (
	"math/bits"
)

// Clusters: distributed shared memory and the cluster barrier.

// gridIndex returns the index of the cluster in the grid of clusters.
func (c *cluster) gridIndex() Dim3 { return c.run.clusterGrid().coords(c.number) }

// clusterGrid returns the size of the grid in clusters.
func (r *run) clusterGrid() Dim3 { return r.cluster.tilesIn(r.launch.Grid) }

// indexInCluster returns the index of the block in its cluster.
func (b *block) indexInCluster() Dim3 { return b.run.cluster.coords(b.rank) }

// rankOf returns the block rank of an address in shared::cluster, which can exceed the size of the
// cluster.
func rankOf(addr uint64) int { return int(addr >> peerShift) }

// sharedAt returns the shared memory at addr and the block that owns it. The region is empty if the
// block has exited. The block is nil if the cluster has no block of that rank.
func (c *cluster) sharedAt(addr uint64) (region, *block) {
	n := rankOf(addr)
	if n >= len(c.blocks) {
		return region{base: addr &^ (1<<peerShift - 1)}, nil
	}
	owner := c.blocks[n]
	r := owner.shared
	if owner.done {
		r.size = 0
	}
	return r, owner
}

// peerAddress returns the address of an offset in the shared memory of the block with the given
// rank.
func peerAddress(rank int, off uint64) uint64 { return uint64(rank)<<peerShift | off }

// decodeMapa decodes mapa, which maps a shared memory address to another block of the cluster.
func decodeMapa(d *decoder) execFunc {
	d.operands()
	window := uint64(0)
	if !d.i.Has("shared::cluster") {
		window = sharedWindow
	}
	narrow := d.i.Type(0).Bits() == 32
	return func(w *warp, in *inst) {
		ranks := reg[uint32](w, in.b)
		for m := w.active; m != 0; m &= m - 1 {
			if n := ranks[firstLane(m)]; n >= uint32(len(w.block.cluster.blocks)) {
				w.misuse(in, "rank is %d in a cluster of %d blocks", n, len(w.block.cluster.blocks))
				return
			}
		}
		at := func(a uint64, rank uint32) uint64 {
			return peerAddress(int(rank), (a-window)&(1<<peerShift-1)) + window
		}
		if narrow {
			map2(dst[uint32](w, in), reg[uint32](w, in.a), ranks,
				func(a, rank uint32) uint32 { return uint32(at(uint64(a), rank)) })
			return
		}
		map2(dst[uint64](w, in), reg[uint64](w, in.a), ranks, at)
	}
}

// decodeRank decodes getctarank, which returns the rank of the block that owns an address.
func decodeRank(d *decoder) execFunc {
	d.operands()
	window := uint64(0)
	if !d.i.Has("shared::cluster") {
		window = sharedWindow
	}
	narrow := d.i.Type(1).Bits() == 32
	return func(w *warp, in *inst) {
		if narrow {
			map1(dst[uint32](w, in), reg[uint32](w, in.a), func(a uint32) uint32 { return uint32(rankOf(uint64(a))) })
			return
		}
		map1(dst[uint32](w, in), reg[uint64](w, in.a), func(a uint64) uint32 { return uint32(rankOf(a - window)) })
	}
}

// clusterLanes is the state of a warp's lanes at the cluster barrier.
type clusterLanes struct {
	arrived uint32 // in the current phase
	open    uint32 // arrived without a wait since
}

// clusterBarrier holds the kind of a cluster barrier instruction.
type clusterBarrier struct{ waits, aligned bool }

func decodeClusterBarrier(d *decoder) execFunc {
	b := &clusterBarrier{waits: d.i.Has("wait"), aligned: d.i.Has("aligned")}
	relaxed := d.i.Has("relaxed")
	d.in.x = b
	return func(w *warp, in *inst) {
		switch {
		case b.aligned && !w.converge(in, full):
		case b.waits:
			w.waitCluster(in)
		default:
			w.arriveCluster(in, relaxed)
		}
	}
}

func (w *warp) arriveCluster(in *inst, relaxed bool) {
	l := &w.atCluster
	if twice := l.open & w.active; twice != 0 {
		w.misuse(in, "lanes %#08x arrive a second time without a wait", twice)
		return
	}
	l.arrived |= w.active
	l.open |= w.active
	w.emitClusterSync(in, ClusterArrive, relaxed)
	w.block.cluster.completeBarrier()
}

func (w *warp) waitCluster(in *inst) {
	l := &w.atCluster
	if early := w.active &^ l.open; early != 0 {
		w.misuse(in, "lanes %#08x wait without an arrival", early)
		return
	}
	if w.active&l.arrived != 0 {
		w.uncount(in)
		w.suspend(in, atClusterBarrier)
		w.pick()
		return
	}
	l.open &^= w.active
	w.emitClusterSync(in, ClusterWait, false)
}

// completeBarrier completes the cluster barrier if all live threads have arrived.
func (c *cluster) completeBarrier() {
	some := false
	for _, b := range c.blocks {
		for _, w := range b.warps {
			if w.live&^w.atCluster.arrived != 0 {
				return
			}
			some = some || w.atCluster.arrived != 0
		}
	}
	if !some {
		return
	}
	for _, b := range c.blocks {
		for _, w := range b.warps {
			w.atCluster.arrived = 0
			w.wake(atClusterBarrier)
		}
	}
	c.emitClusterComplete(&ClusterSync{Kind: ClusterComplete})
}

// wake makes the groups in the given state ready. They execute their instruction again.
func (w *warp) wake(state groupState) {
	for n := range w.groups {
		if g := &w.groups[n]; g.state == state {
			g.state = ready
			w.enqueue()
		}
	}
}

func (w *warp) emitClusterSync(in *inst, kind ClusterKind, relaxed bool) {
	if len(w.block.clusterSync) > 0 {
		e := ClusterSync{Origin: w.origin(in), Kind: kind, Relaxed: relaxed}
		if in.x.(*clusterBarrier).aligned {
			e.Missing = w.missingLanes(in)
		}
		for _, f := range w.block.clusterSync {
			f(&e)
		}
	}
}

// emitClusterComplete reports an event that no thread caused to the observers of the first block.
func (c *cluster) emitClusterComplete(e *ClusterSync) {
	for _, f := range c.blocks[0].clusterSync {
		f(e)
	}
}

// missing returns the number of threads that the cluster barrier waits for.
func (c *cluster) missing() int {
	n := 0
	for _, b := range c.blocks {
		for _, w := range b.warps {
			n += bits.OnesCount32(w.live &^ w.atCluster.arrived)
		}
	}
	return n
}
