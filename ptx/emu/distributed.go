package emu

import (
	"math/bits"
)

// Clusters: what the threads of several blocks do together.

// index is the cluster's place in the grid of clusters.
func (c *cluster) gridIndex() Dim3 { return c.run.clusterGrid().coords(c.number) }

// clusterGrid is the size of the grid in clusters.
func (r *run) clusterGrid() Dim3 { return r.cluster.tilesIn(r.launch.Grid) }

// place is the block's place in its cluster.
func (b *block) indexInCluster() Dim3 { return b.run.cluster.coords(b.rank) }

// rankOf is the rank of the block that an address in shared::cluster points into; it may be
// one that the cluster does not have.
func rankOf(addr uint64) int { return int(addr >> peerShift) }

// sharedAt is the shared memory that an address points into, and whose it is. There is none
// if the block has exited or the cluster has no such one.
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

// peerAddress is the address of the byte at an offset in the shared memory of the block of
// the given rank.
func peerAddress(rank int, off uint64) uint64 { return uint64(rank)<<peerShift | off }

// decodeMapa gives the address that a variable of shared memory has in another block.
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
				w.misuse(in, "rank %d in a cluster of %d", n, len(w.block.cluster.blocks))
				return
			}
		}
		at := func(a uint64, rank uint32) uint64 {
			return peerAddress(int(rank), (a-window)&(1<<peerShift-1)) + window
		}
		if narrow {
			map2(dst[uint32](w, in), reg[uint32](w, in.a), ranks, func(a, rank uint32) uint32 { return uint32(at(uint64(a), rank)) })
			return
		}
		map2(dst[uint64](w, in), reg[uint64](w, in.a), ranks, at)
	}
}

// decodeRank is getctarank: the rank of the block that an address points into.
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

// clusterLanes is where the lanes of a warp are with regard to the cluster's barrier.
type clusterLanes struct {
	arrived uint32 // at the phase under way
	open    uint32 // arrived, and not yet waited
}

// clusterBarrier is what an instruction does at the barrier of the cluster.
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
		w.misuse(in, "lanes %#08x arrive again and have not waited", twice)
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
		w.misuse(in, "lanes %#08x wait and have not arrived", early)
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

// completeBarrier lets the threads that wait at the cluster's barrier go on if all have
// arrived that have not exited.
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

// wake lets the groups in a state run again: the instruction that they wait at.
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

// tellCluster tells the first block's observers of what has no thread of its own.
func (c *cluster) emitClusterComplete(e *ClusterSync) {
	for _, f := range c.blocks[0].clusterSync {
		f(e)
	}
}

// missing counts the threads that the cluster's barrier waits for.
func (c *cluster) missing() int {
	n := 0
	for _, b := range c.blocks {
		for _, w := range b.warps {
			n += bits.OnesCount32(w.live &^ w.atCluster.arrived)
		}
	}
	return n
}
