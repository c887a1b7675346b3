package check

import (
	"math/bits"
	"slices"

	"tilework/ptx/emu"
)

// order is the happens-before relation of a cluster's accesses. It keeps a logical time, which
// advances when threads synchronize, and for each thread the accesses of other threads that
// happened before its next one.
//
// For most kernels a single number is enough: a barrier of the whole block orders everything
// before it. In addition there are the times between lanes of a warp, from bar.warp.sync, and
// vector clocks, from barriers of a part of the block and from release and acquire.
//
// Asynchronous work is attributed to agents, which are numbered after the threads: one agent for
// each mbarrier and one for each warpgroup. An agent's accesses happen when a thread first
// observes their completion.
type order struct {
	self        int           // number of the cluster
	threads     int           // 32 for each warp of the cluster
	agents      map[agent]int // numbers of the agents
	now         uint32
	base        uint32 // accesses before base happened before every thread's next access
	warps       []warpOrder
	clocks      []*clock // vector clock of each thread; nil if it adds nothing to base
	special     int      // number of clocks that are not nil
	arrivalSets []arrivalSet
	asyncOrder
	fenceOrder
}

// warpOrder is the order between the lanes of a warp.
type warpOrder struct {
	all   uint32          // mask of the warp's lanes
	base  uint32          // accesses of the warp before base happened before every lane's next access
	lanes *[32][32]uint32 // lanes[i][j] is the time before which accesses of j are ordered before i's next
}

// arrivalSet holds the threads that have arrived at a barrier.
type arrivalSet struct {
	arrived, waiting []uint32 // masks of lanes, by warp
	times            []uint32 // time of arrival, by thread
	counted          bool     // an arrival has specified the number of threads
}

func (m *arrivalSet) open(warps int) {
	if m.arrived == nil {
		m.arrived, m.waiting, m.times = make([]uint32, warps), make([]uint32, warps), make([]uint32, 32*warps)
	}
}

// clock is an immutable vector clock over the threads of several clusters.
type clock struct {
	parts []part // ordered by block
}

// part is the part of a clock for one cluster, or for one block without clusters. Accesses before
// base are ordered, and those of thread t before upTo[t], if that is later. Writes of thread t
// before visible[t] are visible to the async proxy.
type part struct {
	block   int
	base    uint32
	upTo    []uint32 // missing elements count as base
	visible []uint32 // missing elements count as 0
}

func (o *order) reset(info *emu.BlockInfo) {
	ranks := max(info.Ranks, 1)
	o.self = info.Cluster
	o.now, o.base, o.special = 1, 1, 0 // time 0 is earlier than any access
	o.warps = cleared(o.warps, info.Warps*ranks)
	threads := info.BlockDim.X * info.BlockDim.Y * info.BlockDim.Z
	for w := range o.warps {
		o.warps[w].all = uint32(1<<min(32, threads-32*(w%info.Warps)) - 1)
	}
	o.threads = 32 * len(o.warps)
	o.clocks = cleared(o.clocks, o.threads)
	o.arrivalSets = cleared(o.arrivalSets, barriersOfBlock*ranks)
	o.agents = map[agent]int{}
	o.asyncOrder.reset()
	o.fenceOrder.reset(o.threads)
}

// step advances the time and returns the new time. All accesses so far have an earlier time.
func (o *order) step() uint32 {
	if o.now < maxTime-1 {
		o.now++
	}
	return o.now
}

// stale returns the epoch below which all accesses are ordered before those of every thread.
func (o *order) stale() epoch { return epoch(o.base) << timeShift }

// before reports whether access e of this cluster is ordered before the next access of thread t.
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

// join returns the clock that orders every access that a or b orders.
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

// joinTimes returns the element-wise maximum of a and b. It returns a or b itself if that is the
// maximum, which is common: threads that synchronize repeatedly know most of each other's times.
func joinTimes(a, b []uint32) []uint32 {
	if len(a) < len(b) {
		a, b = b, a
	}
	if !exceeds(b, a[:len(b)]) {
		return a
	}
	if len(a) == len(b) && !exceeds(a, b) {
		return b
	}
	c := slices.Clone(a)
	for i, t := range b {
		c[i] = max(c[i], t)
	}
	return c
}

// exceeds reports whether an element of a is greater than the same element of b.
func exceeds(a, b []uint32) bool {
	b = b[:len(a)]
	for i, t := range a {
		if t > b[i] {
			return true
		}
	}
	return false
}

// of returns the time of a thread or an agent in upTo.
func (p *part) of(n int) uint32 {
	if n >= len(p.upTo) {
		return 0
	}
	return p.upTo[n]
}

// joinClock joins c into the clock of thread t.
func (o *order) joinClock(t int, c *clock) {
	o.set(t, join(o.clocks[t], c))
}

// set sets the clock of thread t. c must include the previous clock.
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

// clockOf returns everything that is ordered before the next access of thread t as a clock,
// including its own accesses before upTo.
func (o *order) clockOf(t int, upTo uint32) *clock {
	p := part{block: o.self, base: o.base, upTo: make([]uint32, o.threads)}
	o.addWarp(p.upTo, t)
	p.upTo[t] = upTo
	return join(o.clocks[t], &clock{parts: []part{p}})
}

// addWarp adds the order between thread t and its warp to upTo.
func (o *order) addWarp(upTo []uint32, t int) {
	warp, first := &o.warps[t>>5], t&^31
	for u := first; u < min(first+32, o.threads); u++ {
		upTo[u] = max(upTo[u], warp.base)
		if warp.lanes != nil {
			upTo[u] = max(upTo[u], warp.lanes[t&31][u&31])
		}
	}
}

// warpSync orders the lanes of a warp that have synchronized.
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

// arrive records an arrival at a barrier of the block.
func (o *order) arrive(b *emu.Barrier) {
	m := &o.arrivalSets[b.ID]
	m.open(len(o.warps))
	m.counted = m.counted || counted(b.Site)
	m.arrived[b.Warp] |= b.Mask
	if b.Kind == emu.BarrierSync {
		m.waiting[b.Warp] |= b.Mask
	}
	o.recordTimes(m, b.Warp, b.Mask)
}

// recordTimes records the time at which lanes of a warp arrive.
func (o *order) recordTimes(m *arrivalSet, warp int, mask uint32) {
	now := o.step()
	lanesOf(mask, func(lane int) { m.times[warp*32+lane] = now })
}

// complete orders accesses of the arrived threads before later ones of the waiting threads. It
// reports whether these are all threads of the block.
func (o *order) complete(id int) (whole bool) {
	m := &o.arrivalSets[id]
	whole = len(o.arrivalSets) == barriersOfBlock // the cluster is one block
	for w := range m.waiting {
		// Threads that are missing at a barrier of the whole block have exited.
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
	o.fenceAtBarrier()
	o.base = o.step()
	if o.special == 0 {
		return
	}
	// base covers the order within the block. Keep the order with other blocks, and the
	// visibility to the async proxy, for all threads.
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

func (o *order) completePart(m *arrivalSet) {
	all := o.arrivedClock(m)
	o.step()
	for w, mask := range m.waiting {
		lanesOf(mask, func(lane int) { o.set(w*32+lane, join(o.clocks[w*32+lane], all)) })
	}
}

// arrivedClock returns the join of the clocks of the threads that have arrived at a barrier, as
// of their arrival.
func (o *order) arrivedClock(m *arrivalSet) *clock {
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

// counted reports whether a barrier instruction specifies the number of threads.
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

// cleared returns a slice of n zeros. It reuses the memory of s if it is large enough.
func cleared[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
