package emu

import (
	"slices"

	"tilework/ptx"
)

// tensorPipe is the queue of a thread's tcgen05.mma, tcgen05.cp and tcgen05.commit. They run in
// order. The manual orders a commit only after the operations that it tracks, but GPUs also keep
// the order of commits: Triton invalidates the mbarrier of one after it waited for the next.
type tensorPipe struct {
	ops []*tensorOp // oldest first
}

type tensorOp struct {
	run   func()
	async *asyncOp
}

// finish runs the operations up to op, unless it has run.
func (p *tensorPipe) finish(op *tensorOp) {
	for slices.Contains(p.ops, op) {
		next := p.ops[0]
		p.ops = p.ops[1:]
		next.run()
		next.async.parts = nil
	}
}

// pairOf returns the blocks whose memory an instruction accesses: that of the warp, or with pair
// those of its pair, in order of rank. It returns nil after a misuse.
func (w *warp) pairOf(in *inst, pair bool) []*block {
	b := w.block
	if !pair {
		return []*block{b}
	}
	peer := b.peer()
	switch {
	case peer == nil:
		w.misuse(in, "cta_group::2 in a cluster of %d blocks: want an even number", len(b.cluster.blocks))
		return nil
	case peer.done:
		w.misuse(in, "cta_group::2 after block %v, the other one of the pair, has exited", peer.index)
		return nil
	case peer.rank < b.rank:
		return []*block{peer, b}
	}
	return []*block{b, peer}
}

// sharedRead is the shared memory of a block that an operation reads.
type sharedRead struct {
	block *block
	spans []Span
}

// issueTensor adds an operation of a lane to its thread's pipe. The operation reads shared memory
// and tensor memory, and writes tensor memory.
func (w *warp) issueTensor(in *inst, lane int, shared []sharedRead, reads, writes []*tensorPart, run func()) {
	c := w.block.cluster
	for _, list := range [][]*tensorPart{reads, writes} {
		for _, p := range list {
			if err := p.check(); err != nil {
				w.misuse(in, "%v", err)
				return
			}
		}
	}
	c.operations++
	f := &asyncOp{id: c.operations, origin: w.origin(in), warp: w}
	for _, s := range shared {
		f.uses = append(f.uses, s.block)
		if len(w.block.bulk) > 0 || w.tracks {
			w.emitBulk(&Bulk{Origin: w.origin(in), Kind: AsyncRead, Space: ptx.Shared, Rank: s.block.rank, Spans: s.spans,
				Copy: f.id})
		}
	}
	for _, p := range reads {
		w.emitBulk(p.event(f.origin, f.id, AsyncRead))
	}
	for _, p := range writes {
		f.uses = append(f.uses, p.block)
		w.emitBulk(p.event(f.origin, f.id, AsyncWrite))
	}
	pipe := w.tensorPipe(lane)
	op := &tensorOp{run: run, async: f}
	f.parts = []func(){func() { pipe.finish(op) }}
	pipe.ops = append(pipe.ops, op)
	c.startAsync(f)
}

// tensorPipe returns the pipe of a lane's thread.
func (w *warp) tensorPipe(lane int) *tensorPipe {
	t, n := &w.block.tensor, w.index*lanes+lane
	p := t.pipes[n]
	if p == nil {
		if t.pipes == nil {
			t.pipes = map[int]*tensorPipe{}
		}
		p = &tensorPipe{}
		t.pipes[n] = p
	}
	return p
}

// tensorCommit decodes tcgen05.commit, which arrives at an mbarrier, or at that of each block in a
// mask, once the operations of the thread are complete.
func (d *decoder) tensorCommit() execFunc {
	ac := d.mbarrierAccess(0, Atomic)
	if ac.space == ptx.Shared {
		ac.space = ptx.SharedCluster
	}
	d.in.access = ac
	mask := uint32(always)
	if d.i.Has("multicast::cluster") {
		mask = d.source(1)
	}
	return func(w *warp, in *inst) {
		w.eachLane(func(lane int) {
			to, ok := w.sharedAddr(in, ac, lane, mbarrierBytes, mbarrierBytes)
			if !ok {
				return
			}
			targets := []*block{to.block}
			if mask != always {
				targets, _ = w.multicast(in, mask, lane)
			}
			if len(targets) > 0 {
				w.commitTensor(in, lane, to.off, targets)
			}
		})
	}
}

// commitTensor arrives at the mbarriers at an offset of the targets' shared memory when the
// operations that the lane has issued are complete.
func (w *warp) commitTensor(in *inst, lane int, off uint64, targets []*block) {
	pipe, c, origin := w.tensorPipe(lane), w.block.cluster, w.origin(in)
	c.operations++
	f := &asyncOp{id: c.operations, origin: origin, warp: w, uses: targets}
	op := &tensorOp{run: func() { f.runUntil(0) }, async: f}
	mbarrierAt{origin, w, targets[0], off}.emit(MbarrierCommit, f.id)
	if n := len(pipe.ops); n > 0 {
		before := pipe.ops[n-1]
		f.parts = append(f.parts, func() { pipe.finish(before) })
	}
	for _, b := range targets {
		f.parts = append(f.parts, func() {
			mbarrierAt{origin, w, b, off}.complete(w, in, func(m *mbarrier) error { return m.arrive(1) }, f.id)
			if len(f.parts) == 0 {
				pipe.finish(op)
			}
		})
	}
	pipe.ops = append(pipe.ops, op)
	c.startAsync(f)
}
