package check

import (
	"sync"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// fenceOrder tracks the order created by fences and strong accesses, after the manual's memory
// consistency model (section "memory-consistency-model"). A release is a strong write with
// .release, or any strong write after a fence. An acquire is a strong read with .acquire, or any
// strong read before a fence. If the read observes the write, everything ordered before the
// release is ordered before the acquiring thread.
//
// The checker is lenient where programs rely on more than the model guarantees. A barrier of the
// block acts as a fence for reads before it, and passes fenced writes on to all threads of the
// block, as reductions in the last block need. A strong read also synchronizes with values that
// have been overwritten.
type fenceOrder struct {
	fences  [2][]fenced         // last fence, by reach and thread
	seen    [2][]*clock         // observed by strong reads but not acquired by a fence, by reach and thread
	pending []pendingRead       // strong reads to resolve at the next event
	passed  *clock              // accesses fenced before the last barrier of the block
	fenced  bool                // a fence was executed since that barrier
	own     map[variable]*clock // releases within the block
	log     []acquired
	vars    *variables
}

// The reach of a fence or strong access: the threads of the block, or all threads.
const (
	toBlock = iota
	toAll
)

// fenced is a fence of a thread. A later strong write releases the accesses ordered before it.
type fenced struct {
	time, base uint32
	clock      *clock
}

// variable is a memory location used for synchronization.
type variable struct {
	space ptx.Space
	addr  uint64
}

// variables holds the releases in global memory to threads of all blocks.
type variables struct {
	mu       sync.Mutex
	released map[variable]*clock
}

// pendingRead is a strong read. The emulator reports accesses before they happen. The releases
// that the read observes are therefore looked up at the next event of the block, when they have
// been reported.
type pendingRead struct {
	v       variable
	thread  int
	reach   int
	acquire bool
}

// acquired is the order with other blocks that a thread, or every thread of the block, has from
// the given time on.
type acquired struct {
	time   uint32
	thread int
	clock  *clock
}

// everyone stands for all threads of the block in [acquired].
const everyone = -1

func (s *fenceOrder) reset(threads int) {
	for reach := range s.fences {
		s.fences[reach] = cleared(s.fences[reach], threads)
		s.seen[reach] = cleared(s.seen[reach], threads)
	}
	s.pending = s.pending[:0]
	s.passed, s.fenced = nil, false
	clear(s.own)
	s.log = nil
}

// record logs a clock that includes other blocks, for the comparison of blocks at the end.
func (o *order) record(t int, c *clock) {
	for _, p := range c.parts {
		if p.block != o.self {
			o.log = append(o.log, acquired{o.now, t, c})
			return
		}
	}
}

// fence records a fence of the lanes in f.Mask.
func (o *order) fence(f *emu.Fence) {
	if f.Proxy != "" {
		o.proxyFence(f)
		return
	}
	now := o.step()
	releases, acquires := f.Sem != emu.Acquire, f.Sem != emu.Release
	o.fenced = o.fenced || releases
	lanesOf(f.Mask, func(lane int) {
		t := f.Warp*32 + lane
		for reach := toBlock; reach <= toAll && (reach == toBlock || f.Scope != emu.CTA); reach++ {
			if releases {
				o.fences[reach][t] = fenced{now, o.base, o.clocks[t]}
			}
			if acquires {
				o.acquireSeen(t, reach)
			}
		}
	})
}

func (o *order) acquireSeen(t, reach int) {
	if c := o.seen[reach][t]; c != nil {
		o.seen[reach][t] = nil
		o.step()
		o.joinClock(t, c)
	}
}

// strongAccess records the releases and acquires of a strong access.
func (o *order) strongAccess(a *emu.Access) {
	reach := toAll
	if a.Space != ptx.Global || a.Scope == emu.CTA {
		reach = toBlock
	}
	if a.Kind == emu.Write || a.Kind == emu.Atomic {
		releases := a.Sem == emu.Release || a.Sem == emu.AcqRel || a.Sem == emu.SeqCst
		if releases {
			o.step()
		}
		lanesOf(a.Mask, func(lane int) {
			v, t := variable{a.Space, a.Addr[lane]}, a.Warp*32+lane
			for r := toBlock; r <= reach; r++ {
				c := o.fencedBy(t, r)
				if releases && r == reach {
					c = o.clockOf(t, o.now)
				}
				o.release(v, r, c)
			}
		})
	}
	if a.Kind == emu.Read || a.Kind == emu.Atomic {
		acquires := a.Sem == emu.Acquire || a.Sem == emu.AcqRel || a.Sem == emu.SeqCst
		lanesOf(a.Mask, func(lane int) {
			v := variable{a.Space, a.Addr[lane]}
			o.pending = append(o.pending, pendingRead{v, a.Warp*32 + lane, reach, acquires})
		})
	}
}

// fencedBy returns the clock that a strong write of thread t without .release passes on.
func (o *order) fencedBy(t, reach int) *clock {
	f := &o.fences[reach][t]
	if f.time == 0 {
		return o.passed
	}
	p := part{block: o.self, base: f.base, upTo: make([]uint32, o.threads)}
	o.addWarp(p.upTo, t)
	p.upTo[t] = f.time
	return join(o.passed, join(f.clock, &clock{parts: []part{p}}))
}

// release joins c into the clock that readers of v acquire.
func (o *order) release(v variable, reach int, c *clock) {
	switch {
	case c == nil:
	case reach == toBlock:
		if o.own == nil {
			o.own = map[variable]*clock{}
		}
		o.own[v] = join(o.own[v], c)
	default:
		o.vars.mu.Lock()
		o.vars.released[v] = join(o.vars.released[v], c)
		o.vars.mu.Unlock()
	}
}

// resolveReads resolves the pending strong reads.
func (o *order) resolveReads() {
	for _, r := range o.pending {
		for reach := toBlock; reach <= r.reach; reach++ {
			var c *clock
			if reach == toBlock {
				c = o.own[r.v]
			} else {
				o.vars.mu.Lock()
				c = o.vars.released[r.v]
				o.vars.mu.Unlock()
			}
			switch {
			case c == nil || o.clocks[r.thread].includes(c):
			case r.acquire:
				o.step()
				o.joinClock(r.thread, c)
			case o.seen[reach][r.thread] != c:
				o.seen[reach][r.thread] = join(o.seen[reach][r.thread], c)
			}
		}
	}
	o.pending = o.pending[:0]
}

// includes reports whether c orders every access that d orders.
func (c *clock) includes(d *clock) bool {
	if c == nil {
		return false
	}
	k := 0
	for i := range d.parts {
		for k < len(c.parts) && c.parts[k].block < d.parts[i].block {
			k++
		}
		if k == len(c.parts) || c.parts[k].block != d.parts[i].block || !c.parts[k].includes(&d.parts[i]) {
			return false
		}
	}
	return true
}

func (p *part) includes(q *part) bool {
	if q.base > p.base || len(q.visible) > len(p.visible) {
		return false
	}
	for t, upTo := range q.upTo {
		if upTo > p.base && upTo > p.of(t) {
			return false
		}
	}
	for t, upTo := range q.visible {
		if upTo > p.visible[t] {
			return false
		}
	}
	return true
}

// fenceAtBarrier gives a barrier of the block the effect of a fence, as described at fenceOrder.
// It must run before the barrier's own effect.
func (o *order) fenceAtBarrier() {
	for reach := range o.seen {
		for t, c := range o.seen[reach] {
			if c != nil {
				o.acquireSeen(t, reach)
			}
		}
	}
	if !o.fenced {
		return
	}
	o.fenced = false
	p := part{block: o.self, upTo: make([]uint32, o.threads)}
	var all *clock
	for t := range o.fences[toAll] {
		if f := &o.fences[toAll][t]; f.time > 0 {
			p.upTo[t] = f.time
			p.base = max(p.base, f.base)
			all = join(all, f.clock)
		}
	}
	o.passed = join(o.passed, join(all, &clock{parts: []part{p}}))
}
