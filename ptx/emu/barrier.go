package emu

import (
	"fmt"
	"math/bits"

	"tilework/ptx"
)

// barrierCount is the number of barriers of a block.
const barrierCount = 16

// barrier is the state of a barrier of a block since its last completion.
type barrier struct {
	arrived    int // threads; a warp that has arrived as a whole counts as 32
	expected   int // threads; 0 for all threads of the block
	generation int
	// parts holds the arrived lanes of each warp that has not arrived as a whole. whole has a bit
	// for each warp that has.
	parts [maxBlockThreads / lanes]uint32
	whole uint32
	// Number of threads whose predicate in the reduction is true and false.
	ones, zeros int
	waits       []*warp // to release
	last        Origin
	kernelPC    int32 // position of the last arrival in the kernel
	unaligned   bool  // not all arrivals were aligned instructions
}

// barrierInst holds the operands of a barrier instruction.
type barrierInst struct {
	kind    BarrierKind // BarrierArrive or BarrierSync
	aligned bool
	id      uint32 // slot of the barrier number
	count   uint32 // slot of the number of threads
	counted bool
	reduce  string // popc, and, or; empty without a reduction
}

func isBarrier(in *inst) bool {
	_, ok := in.x.(*barrierInst)
	return ok
}

func decodeBarrier(d *decoder) execFunc {
	i := d.i
	switch {
	case i.Has("warp"):
		d.in.a = d.source(0)
		return execWarpSync
	case i.Has("cluster"):
		return decodeClusterBarrier(d)
	}
	b := &barrierInst{kind: BarrierSync, aligned: i.Op == "bar" || i.Has("aligned"), reduce: i.Mod("op")}
	if i.Has("arrive") {
		b.kind = BarrierArrive
	}
	first := 0
	if b.reduce != "" {
		d.in.d = d.result(0)
		d.in.blend = 0
		first = 1
		last := len(i.Args) - 1
		d.in.c = d.source(last)
		b.counted = last == 3
	} else {
		b.counted = len(i.Args) == 2
	}
	b.id = d.value(i.Args[first], ptx.U32)
	if b.counted {
		b.count = d.value(i.Args[first+1], ptx.U32)
	}
	d.in.x = b
	return execBarrier
}

func execBarrier(w *warp, in *inst) {
	b := in.x.(*barrierInst)
	if b.aligned && !w.groups[w.group].passesBarrier && !w.converge(in, full) {
		return
	}
	w.groups[w.group].passesBarrier = false
	s, expected, ok := w.barrier(in, b)
	if !ok {
		return
	}
	s.expected = expected
	s.arrive(w, w.active)
	s.last, s.kernelPC = w.origin(in), w.kernelPC(in.pc)
	s.unaligned = s.unaligned || !b.aligned
	if b.reduce != "" {
		p := *pred(w, in.c)
		s.ones += bits.OnesCount32(p & w.active)
		s.zeros += bits.OnesCount32(^p & w.active)
	}
	id := s.id(w.block)
	if len(w.block.barrier) > 0 {
		e := Barrier{
			Origin: s.last, Kind: b.kind, ID: id, Expected: w.block.expects(s), Arrived: s.arrived,
			Generation: s.generation, Aligned: b.aligned,
		}
		if b.aligned {
			e.Missing = w.missingLanes(in)
		}
		w.block.emitBarrier(&e)
	}
	if b.kind == BarrierArrive {
		w.block.complete(s)
		return
	}
	s.waits = append(s.waits, w)
	w.suspend(in, atBarrier).barrier = id
	w.block.complete(s)
	w.pick()
}

// barrier returns the barrier of an instruction and its number of threads.
func (w *warp) barrier(in *inst, b *barrierInst) (s *barrier, expected int, ok bool) {
	lane := firstLane(w.active)
	id := reg[uint32](w, b.id)[lane]
	if id >= barrierCount {
		w.misuse(in, "barrier number is %d: want 0 to %d", id, barrierCount-1)
		return nil, 0, false
	}
	s = &w.block.barriers[id]
	if b.counted {
		expected = int(reg[uint32](w, b.count)[lane])
		if expected%lanes != 0 || expected == 0 || expected > maxBlockThreads {
			w.misuse(in, "barrier %d for %d threads: want a positive multiple of %d up to %d", id, expected, lanes,
				maxBlockThreads)
			return nil, 0, false
		}
	}
	if s.arrived > 0 && s.expected != expected {
		w.misuse(in, "barrier %d for %s: other threads arrived at it for %s", id, threadsText(expected),
			threadsText(s.expected))
		return nil, 0, false
	}
	return s, expected, true
}

// id returns the number of the barrier.
func (s *barrier) id(b *block) int {
	for id := range b.barriers {
		if s == &b.barriers[id] {
			return id
		}
	}
	return none
}

// arrive adds lanes of a warp. When all live lanes of a warp have arrived, the warp counts as 32
// threads, including lanes that exited or never existed.
func (s *barrier) arrive(w *warp, mask uint32) {
	s.arrived += bits.OnesCount32(mask)
	if all := s.parts[w.index] | mask; all&w.live == w.live {
		s.arrived += lanes - bits.OnesCount32(all)
		s.parts[w.index] = 0
		s.whole |= 1 << w.index
	} else {
		s.parts[w.index] = all
	}
}

// expects returns the number of threads that barrier s waits for.
func (b *block) expects(s *barrier) int {
	if s.expected > 0 {
		return s.expected
	}
	return len(b.warps) * lanes
}

// complete releases the waiting threads of a barrier if all have arrived. A barrier for all threads
// does not wait for threads that have exited.
func (b *block) complete(s *barrier) {
	arrived := s.arrived
	if s.expected == 0 {
		for n, w := range b.warps {
			if part := s.parts[n]; s.whole>>n&1 == 0 && part&w.live == w.live {
				arrived += lanes - bits.OnesCount32(part)
			}
		}
	}
	if s.arrived == 0 || arrived < b.expects(s) {
		return
	}
	id := s.id(b)
	if len(b.barrier) > 0 {
		e := Barrier{
			Origin: s.last, Kind: BarrierComplete, ID: id, Expected: b.expects(s), Arrived: arrived,
			Generation: s.generation, Aligned: !s.unaligned,
		}
		if e.Aligned && s.expected == 0 {
			e.Missing = b.missingWarps(s)
		}
		b.emitBarrier(&e)
	}
	for _, w := range s.waits {
		w.releaseBarrier(id, s)
	}
	*s = barrier{generation: s.generation + 1}
}

// releaseBarrier makes the groups of the warp that wait at barrier id ready.
func (w *warp) releaseBarrier(id int, s *barrier) {
	for n := range w.groups {
		g := &w.groups[n]
		if g.state != atBarrier || g.barrier != id {
			continue
		}
		in := &g.frame.fn.code[g.pc]
		switch b := in.x.(*barrierInst); b.reduce {
		case "popc":
			d := (*[lanes]uint32)(g.frame.at(in.d))
			for m := g.mask; m != 0; m &= m - 1 {
				d[firstLane(m)] = uint32(s.ones)
			}
		case "and", "or":
			p := (*uint32)(g.frame.at(in.d))
			*p &^= g.mask
			if b.reduce == "and" && s.zeros == 0 || b.reduce == "or" && s.ones > 0 {
				*p |= g.mask
			}
		}
		g.state = ready
		g.pc++
		w.enqueue()
	}
}

// threadsExited completes the barriers that waited only for threads that have now exited.
func (b *block) threadsExited() {
	for id := range b.barriers {
		b.complete(&b.barriers[id])
	}
	b.done = true
	for _, w := range b.warps {
		b.done = b.done && w.live == 0
	}
	if b.done {
		for _, exit := range b.exit {
			exit()
		}
		b.cluster.checkLeftovers(b)
		b.cluster.checkTensorLeftovers(b)
	}
	b.cluster.completeBarrier()
}

func (b *block) emitBarrier(e *Barrier) {
	for _, f := range b.barrier {
		f(e)
	}
}

func threadsText(expected int) string {
	if expected == 0 {
		return "all threads of the block"
	}
	return fmt.Sprintf("%d threads", expected)
}

// barrierText describes the barrier that a group waits at.
func (w *warp) barrierText(g *group) string {
	s := &w.block.barriers[g.barrier]
	return fmt.Sprintf("at barrier %d, where %d of %d threads have arrived", g.barrier, s.arrived, w.block.expects(s))
}
