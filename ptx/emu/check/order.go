package check

import (
	"math/bits"
	"slices"

	"tilework/ptx/emu"
)

// order knows which accesses of a block happened before which: it keeps the block's
// time, which steps on whenever threads synchronise, and what each thread knows of
// the others.
//
// That is mostly one number: a barrier of the whole block makes everything before it
// known to all. Beyond it there is what lanes of a warp know of one another through
// bar.warp.sync, and clocks, which say for each thread of a block up to when it is
// known, from barriers of a part of the block and from acquired releases.
//
// What is asynchronous is done by agents, which are numbered behind the threads: one for
// each mbarrier and each warpgroup. An agent's accesses happen when a thread first
// sees them complete.
type order struct {
	self     int // the cluster
	threads  int // those that its warps have room for
	agents   map[agent]int
	now      uint32
	base     uint32 // what happened before it is known to all threads of the block
	warps    []warpOrder
	clocks   []*clock // for each thread; nil: nothing beyond base
	special  int      // how many of them are not nil
	meetings []meeting
	asyncs
	syncs
}

// warpOrder is what the lanes of a warp know of one another.
type warpOrder struct {
	all   uint32 // the lanes that the warp has
	base  uint32 // what happened before it is known to all of them
	lanes *[32][32]uint32
}

// meeting is the threads that have arrived at a barrier.
type meeting struct {
	arrived, waiting []uint32 // lanes, for each warp
	times            []uint32 // of arrival, for each thread
	counted          bool     // whether an arrival named a number of threads
}

func (m *meeting) open(warps int) {
	if m.arrived == nil {
		m.arrived, m.waiting, m.times = make([]uint32, warps), make([]uint32, warps), make([]uint32, 32*warps)
	}
}

// clock is what is known of blocks' threads. It does not change.
type clock struct {
	parts []part // in the order of their blocks
}

// part says that of a cluster, or of a block without one, everything before base is
// known, and of each thread everything before its upTo, where that is later; and that
// what each thread did before its visible can be seen by the async proxy.
type part struct {
	block   int
	base    uint32
	upTo    []uint32 // nil, or short: nothing beyond base
	visible []uint32 // nil, or short: nothing
}

func (o *order) reset(info *emu.BlockInfo) {
	ranks := max(info.Ranks, 1)
	o.self = info.Cluster
	o.now, o.base, o.special = 1, 1, 0 // an epoch of 0 is older than any access
	o.warps = cleared(o.warps, info.Warps*ranks)
	threads := info.BlockDim.X * info.BlockDim.Y * info.BlockDim.Z
	for w := range o.warps {
		o.warps[w].all = uint32(1<<min(32, threads-32*(w%info.Warps)) - 1)
	}
	o.threads = 32 * len(o.warps)
	o.clocks = cleared(o.clocks, o.threads)
	o.meetings = cleared(o.meetings, barriersOfBlock*ranks)
	o.agents = map[agent]int{}
	o.asyncs.reset()
	o.syncs.reset(o.threads)
}

// step lets the time go on, and returns it: what has happened is before it, what
// will happen is not.
func (o *order) step() uint32 {
	if o.now < maxTime-1 {
		o.now++
	}
	return o.now
}

// stale is the epoch that everything known to all threads of the block lies below.
func (o *order) stale() epoch { return epoch(o.base) << timeShift }

// before reports whether the access e of this block is ordered before what thread t
// does now.
func (o *order) before(e epoch, t int) bool {
	switch {
	case e&async != 0:
		return false
	case e.time() < o.base || e.thread() == t:
		return true
	}
	if w := t >> 5; w == e.warp() {
		warp := &o.warps[w]
		if e.time() < warp.base || warp.lanes != nil && e.time() < warp.lanes[t&31][e.thread()&31] {
			return true
		}
	}
	return o.clocks[t].covers(o.self, e)
}

func (c *clock) covers(block int, e epoch) bool {
	if c == nil {
		return false
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.block == block {
			return e.time() < p.base || e.time() < p.of(e.thread())
		}
	}
	return false
}

// join is what a and b know together.
func join(a, b *clock) *clock {
	switch {
	case a == nil || a == b:
		return b
	case b == nil:
		return a
	}
	c := &clock{parts: make([]part, 0, len(a.parts)+len(b.parts))}
	x, y := a.parts, b.parts
	for len(x) > 0 && len(y) > 0 {
		switch {
		case x[0].block < y[0].block:
			c.parts, x = append(c.parts, x[0]), x[1:]
		case x[0].block > y[0].block:
			c.parts, y = append(c.parts, y[0]), y[1:]
		default:
			c.parts, x, y = append(c.parts, joinParts(x[0], y[0])), x[1:], y[1:]
		}
	}
	c.parts = append(append(c.parts, x...), y...)
	return c
}

func joinParts(a, b part) part {
	return part{a.block, max(a.base, b.base), joinTimes(a.upTo, b.upTo), joinTimes(a.visible, b.visible)}
}

// joinTimes is the later ones of two lists.
func joinTimes(a, b []uint32) []uint32 {
	if len(a) < len(b) {
		a, b = b, a
	}
	if len(b) == 0 {
		return a
	}
	c := slices.Clone(a)
	for i, t := range b {
		c[i] = max(c[i], t)
	}
	return c
}

// of is up to when a thread or an agent is known, beyond base.
func (p *part) of(n int) uint32 {
	if n >= len(p.upTo) {
		return 0
	}
	return p.upTo[n]
}

// learn gives thread t a clock's knowledge.
func (o *order) learn(t int, c *clock) {
	o.set(t, join(o.clocks[t], c))
}

// set gives thread t a clock that knows all that its own does.
func (o *order) set(t int, c *clock) {
	old := o.clocks[t]
	if c == old {
		return
	}
	if old == nil {
		o.special++
	}
	o.clocks[t] = c
	o.record(t, c)
}

// knows is all that thread t knows of the block, what t itself did before upTo
// included, and what it knows of other blocks.
func (o *order) knows(t int, upTo uint32) *clock {
	p := part{block: o.self, base: o.base, upTo: make([]uint32, o.threads)}
	o.addWarp(p.upTo, t)
	p.upTo[t] = upTo
	return join(o.clocks[t], &clock{parts: []part{p}})
}

// addWarp enters what thread t knows of its warp.
func (o *order) addWarp(upTo []uint32, t int) {
	warp, first := &o.warps[t>>5], t&^31
	for u := first; u < min(first+32, o.threads); u++ {
		upTo[u] = max(upTo[u], warp.base)
		if warp.lanes != nil {
			upTo[u] = max(upTo[u], warp.lanes[t&31][u&31])
		}
	}
}

// warpSync orders the lanes of a warp that have waited for one another.
func (o *order) warpSync(w int, mask uint32) {
	warp := &o.warps[w]
	now := o.step()
	var known *clock
	same := true
	lanesOf(mask, func(lane int) {
		c := o.clocks[w*32+lane]
		same = same && (known == c || lane == bits.TrailingZeros32(mask))
		known = join(known, c)
	})
	if !same {
		lanesOf(mask, func(lane int) { o.set(w*32+lane, known) })
	}
	if mask == warp.all {
		warp.base = now
		return
	}
	if warp.lanes == nil {
		warp.lanes = new([32][32]uint32)
	}
	var row [32]uint32
	lanesOf(mask, func(lane int) {
		for u := range row {
			row[u] = max(row[u], warp.lanes[lane][u])
		}
	})
	lanesOf(mask, func(lane int) { row[lane] = now })
	lanesOf(mask, func(lane int) { warp.lanes[lane] = row })
}

// arrive enters the arrival of threads at a barrier of the block.
func (o *order) arrive(b *emu.Barrier) {
	m := &o.meetings[b.ID]
	m.open(len(o.warps))
	m.counted = m.counted || counted(b.Site)
	m.arrived[b.Warp] |= b.Mask
	if b.Kind == emu.BarrierSync {
		m.waiting[b.Warp] |= b.Mask
	}
	o.come(m, b.Warp, b.Mask)
}

// come enters when lanes of a warp arrive.
func (o *order) come(m *meeting, warp int, mask uint32) {
	now := o.step()
	lanesOf(mask, func(lane int) { m.times[warp*32+lane] = now })
}

// complete orders what the arrived threads did before what the waiting ones will do. It
// reports whether these are all threads of the block.
func (o *order) complete(id int) (whole bool) {
	m := &o.meetings[id]
	whole = len(o.meetings) == barriersOfBlock // the cluster is one block
	for w := range m.waiting {
		// Threads that do not come to a barrier of the whole block have exited.
		whole = whole && (m.waiting[w] == o.warps[w].all || !m.counted && m.waiting[w] == m.arrived[w])
	}
	if whole {
		o.completeWhole()
	} else {
		o.completePart(m)
	}
	clear(m.arrived)
	clear(m.waiting)
	m.counted = false
	return whole
}

func (o *order) completeWhole() {
	o.passOn()
	o.base = o.step()
	if o.special == 0 {
		return
	}
	// What was known of the block is known to all now; what was known of other
	// blocks passes on.
	var all, last *clock
	for _, c := range o.clocks {
		if c != last {
			all, last = join(all, c), c
		}
	}
	others := &clock{}
	for _, p := range all.parts {
		if p.block == o.self {
			p = part{block: o.self, visible: p.visible}
		}
		if p.block != o.self || p.visible != nil {
			others.parts = append(others.parts, p)
		}
	}
	o.special = 0
	if len(others.parts) == 0 {
		others = nil
	} else {
		o.special = o.threads
		o.record(everyone, others)
	}
	for t := range o.clocks {
		o.clocks[t] = others
	}
}

func (o *order) completePart(m *meeting) {
	all := o.known(m)
	o.step()
	for w, mask := range m.waiting {
		lanesOf(mask, func(lane int) { o.set(w*32+lane, join(o.clocks[w*32+lane], all)) })
	}
}

// known is what the threads that have arrived at a barrier knew then, together.
func (o *order) known(m *meeting) *clock {
	p := part{block: o.self, base: o.base, upTo: make([]uint32, o.threads)}
	var all, last *clock
	for w, mask := range m.arrived {
		lanesOf(mask, func(lane int) {
			t := w*32 + lane
			o.addWarp(p.upTo, t)
			p.upTo[t] = max(p.upTo[t], m.times[t])
			if c := o.clocks[t]; c != last {
				all, last = join(all, c), c
			}
		})
	}
	return join(all, &clock{parts: []part{p}})
}

// counted reports whether a barrier instruction names a number of threads.
func counted(s *emu.Site) bool {
	if s == nil || s.Instr == nil {
		return false
	}
	for k := range s.Instr.Args {
		if s.Instr.Operand(k).Name == "b" {
			return true
		}
	}
	return false
}

// cleared is a slice of n zeros, in s's memory if it has room.
func cleared[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
