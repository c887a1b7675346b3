package check

import (
	"fmt"

	"tilework/ptx/emu"
)

// The kinds of findings about barriers.
const (
	divergent uint8 = iota
	otherSite
	stuck
)

// barriers finds barriers that a part of a warp comes to, barriers of the whole block
// at which threads wait at different instructions, and those that wait for ever. One
// that threads come to with different numbers ends the launch ([emu.ErrMisuse]).
type barriers struct {
	*worker
	open []openBarrier // by number, those of the cluster's first block first
}

// openBarrier is a barrier at which threads have arrived.
type openBarrier struct {
	site     *emu.Site // of the first arrival; nil: none yet
	warp     int
	lane     int
	expected int
	arrived  int
}

func (b *barriers) start() { b.open = b.open[:0] }

func (b *barriers) event(e *emu.Barrier) {
	for len(b.open) <= e.ID {
		b.open = append(b.open, openBarrier{})
	}
	o := &b.open[e.ID]
	if e.Kind == emu.BarrierComplete {
		*o = openBarrier{}
		return
	}
	lane := 0
	for e.Mask>>lane&1 == 0 {
		lane++
	}
	first := b.thread(e.Warp*32 + lane)
	if e.Aligned && e.Divergent {
		b.found.add(b.block, key{checker: Barrier, kind: divergent, site: e.Site}, func(f *Finding) {
			f.Thread = first
			f.Message = fmt.Sprintf("of warp %d only some threads, thread %v among them, come to the barrier, which all of them must reach together: does the __syncthreads() stand in an if or a loop that not all threads take alike?",
				e.Warp%b.block.Warps, first)
		})
	}
	switch {
	case o.site == nil:
		*o = openBarrier{site: e.Site, warp: e.Warp, lane: lane, expected: e.Expected}
	case o.site != e.Site && !counted(e.Site) && !counted(o.site):
		b.found.add(b.block, key{checker: Barrier, kind: otherSite, site: e.Site, other: o.site}, func(f *Finding) {
			f.Thread, f.OtherThread = first, b.thread(o.warp*32+o.lane)
			f.Message = fmt.Sprintf("thread %v waits for the whole block here while thread %v waits at %s: all threads must come to the same __syncthreads(), so that it cannot stand in an if or a loop that they take differently",
				first, f.OtherThread, line(o.site))
		})
	}
	o.arrived = e.Arrived
}

// end notes barriers that are still waited at. They count only if the launch ended in
// a deadlock.
func (b *barriers) end() {
	for id := range b.open {
		o := &b.open[id]
		if o.site == nil {
			continue
		}
		of := b.blockOf(o.warp * 32)
		b.found.add(of, key{checker: Barrier, kind: stuck, site: o.site}, func(f *Finding) {
			f.Thread = b.thread(o.warp*32 + o.lane)
			f.Message = fmt.Sprintf("deadlock: %d threads, thread %v of block %v among them, wait at barrier %d for %d to come, and the others never will: is its number of threads wrong, or does the barrier stand where not all of them pass?",
				o.arrived, f.Thread, of.Index, id%barriersOfBlock, o.expected)
		})
	}
}
