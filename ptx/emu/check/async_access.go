package check

import (
	"slices"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// Asynchronous accesses are in flight until a thread has observed their completion.

// copyKey identifies one half of an asynchronous copy: its read or its write.
type copyKey struct {
	copy  uint64
	write bool
}

// pendingCopy is one half of a cp.async in flight.
type pendingCopy struct {
	mask   uint32 // lanes in flight
	addr   [32]uint64
	size   int
	epoch  epoch // epoch of lane 0
	region *region
	base   uint64 // address of offset 0 of region
}

// pendingBulk is one half of a bulk copy, or an operand of a wgmma, in flight.
type pendingBulk struct {
	epoch  epoch
	region *region
	base   uint64
	spans  []emu.Span
	write  bool
}

// startCopy records the start of a cp.async.
func (r *raceDetector) startCopy(a *emu.Access) {
	r.copies[copyKey{a.Copy, r.cur.write}] = &pendingCopy{
		mask: a.Mask, addr: *a.Addr, size: a.Size, region: r.cur.region, base: r.cur.base,
		epoch: makeEpoch(maxTime, a.Warp*32, a.Site.Index, async),
	}
}

// copyDone attributes the completed copies to the threads that waited for them, and the completed
// wgmma to the agent of the warpgroup.
func (r *raceDetector) copyDone(d *emu.CopyDone) {
	r.resolveReads()
	r.step()
	if isMatrix(d.Site) {
		n := r.agentOf(agent{group: d.Warp/groupWarps + 1})
		for _, done := range d.Copies {
			r.completeBulk(done.Copy, n, false)
		}
		r.step()
		r.joinLanes(d.Warp, d.Mask, r.at(n))
		return
	}
	for _, done := range d.Copies {
		r.completeCopy(copyPart{copy: done.Copy, mask: done.Mask}, none)
		lanesOf(done.Mask, func(lane int) { r.completeBulk(done.Copy, d.Warp*32+lane, d.Read) })
	}
}

// none means that a copy is attributed to its threads instead of an agent.
const none = -1

// completeCopy completes the parts of a cp.async that belong to lanes, as work of an agent or of
// the threads.
func (r *raceDetector) completeCopy(done copyPart, agent int) {
	for _, write := range []bool{false, true} {
		k := copyKey{done.copy, write}
		h := r.copies[k]
		if h == nil {
			continue
		}
		lanesOf(done.mask&h.mask, func(lane int) {
			under := h.epoch + epoch(lane)<<threadShift
			by := under.thread()
			if agent != none {
				by = agent
			}
			r.retire(h.region, h.addr[lane]-h.base, h.size, under, makeEpoch(r.now, by, under.site(), 0))
		})
		if h.mask &^= done.mask; h.mask == 0 {
			delete(r.copies, k)
		}
	}
}

// completeBulk completes a bulk copy or the reads of a wgmma as work of a thread or an agent. With
// readOnly it completes only the read half.
func (r *raceDetector) completeBulk(copy uint64, by int, readOnly bool) {
	halves := r.bulks[copy]
	if halves == nil {
		return
	}
	var left []pendingBulk
	for _, h := range halves {
		if h.write && readOnly {
			left = append(left, h)
			continue
		}
		after := makeEpoch(r.now, by, h.epoch.site(), h.epoch&(strong|wide|proxied|repeats))
		for _, s := range h.spans {
			r.retire(h.region, s.Addr-h.base, s.Size, h.epoch, after)
		}
	}
	if delete(r.bulks, copy); left != nil {
		r.bulks[copy] = left
	}
}

func (r *raceDetector) mbarrier(e *emu.Mbarrier) {
	r.resolveReads()
	r.trackArrival(e)
	r.order.mbarrier(e, func(c copyPart, agent int) {
		if c.pipe > 0 {
			r.completePipe(c, agent)
			return
		}
		r.completeCopy(c, agent)
		r.completeBulk(c.copy, agent, false)
	})
}

func (r *raceDetector) clusterSync(e *emu.ClusterSync) {
	r.resolveReads()
	r.order.clusterSync(e)
}

// retire replaces the epoch of an access in flight with the epoch of its completion.
func (r *raceDetector) retire(region *region, off uint64, size int, under, landed epoch) {
	for end := off + uint64(size); off < end; {
		p := region.page(int(off>>pageShift), coarsest, &r.pool)
		c := &p.cells[int(off%pageBytes)>>p.shift]
		for i := range c.w {
			if c.w[i] == under {
				c.w[i] = landed
				if p.pending--; p.pending == 0 {
					p.wrote = landed
				}
			}
			if c.r[i] == under {
				c.r[i] = landed
			}
		}
		off = off&^(1<<p.shift-1) + 1<<p.shift
	}
}

// bulk checks an access of the async proxy, which is in flight from now on.
func (r *raceDetector) bulk(b *emu.Bulk) {
	r.resolveReads()
	first := threadOf(b.Origin)
	thread, flags := first, async|proxied
	if isMatrix(b.Site) { // the four warps of the group execute it as one operation
		thread = b.Warp / groupWarps * groupWarps * 32
	}
	switch {
	case b.Atomic:
		flags |= strong | wide
	case b.Unchanged():
		flags |= repeats
	}
	e := makeEpoch(maxTime, thread, b.Site.Index, flags)
	r.cur = current{
		space: b.Space, alloc: b.Alloc, rank: b.Rank, write: b.Kind == emu.AsyncWrite, stale: r.stale(),
		from: 1 << timeShift, by: first,
	}
	switch b.Space {
	case ptx.Global:
		r.cur.region, r.cur.base = r.regionOf(b.Alloc), b.Alloc.Base
	case ptx.Shared:
		r.cur.region = r.shared[b.Rank]
	case ptx.Tensor:
		r.cur.region = r.tensor[b.Rank]
	}
	r.repeated = nil
	r.executed(b.Origin)
	if r.bulkSites == nil {
		r.bulkSites = map[int]*emu.Site{}
	}
	r.bulkSites[b.Site.Index] = b.Site
	for _, s := range b.Spans {
		r.cur.size = s.Size
		r.span(s.Addr-r.cur.base, s.Size, e, oneLane, 0)
	}
	if isPipelined(b.Site) && !slices.Contains(r.pipes[first], b.Copy) {
		r.pipes[first] = append(r.pipes[first], b.Copy)
	}
	r.bulks[b.Copy] = append(r.bulks[b.Copy], pendingBulk{e, r.cur.region, r.cur.base, b.Spans, r.cur.write})
	if b.HasMbarrier {
		r.checkMbarrier(b, e)
	}
}

// checkMbarrier checks that the initialization of a copy's mbarrier is ordered before the copy.
func (r *raceDetector) checkMbarrier(b *emu.Bulk, e epoch) {
	r.cur.size = mbarrierBytes
	p := r.shared[b.Rank].page(int(b.Mbarrier>>pageShift), grain(b.Mbarrier, mbarrierBytes), &r.pool)
	k := int(b.Mbarrier%pageBytes) >> p.shift
	for i := range p.cells[k : k+max(mbarrierBytes>>p.shift, 1)] {
		if c := &p.cells[k+i]; c.w[0]&strong == 0 || c.w[1]&strong == 0 {
			weak := [2]epoch{c.w[0], c.w[1]}
			for n := range weak {
				if weak[n]&strong != 0 {
					weak[n] = 0
				}
			}
			r.compare(&weak, true, e, b.Mbarrier)
		}
	}
}

// mbarrierBytes is the size of an mbarrier. groupWarps is the number of warps in a warpgroup.
const (
	mbarrierBytes = 8
	groupWarps    = 4
)

// isMatrix reports whether an access of the async proxy belongs to a wgmma instead of a copy.
func isMatrix(s *emu.Site) bool { return s.Instr != nil && s.Instr.Op == "wgmma" }
