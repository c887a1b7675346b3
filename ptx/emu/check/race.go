package check

import (
	"bytes"
	"strings"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// raceDetector detects races in a cluster: two accesses to the same bytes by different threads,
// at least one of them a write, that are not ordered by a barrier, a bar.warp.sync between lanes
// of a warp, an mbarrier, or a release and an acquire. Lanes of a warp count as independent
// threads, because warps do not run in lockstep since Volta. At the end of a cluster, its
// accesses to global memory are passed to [globals], which compares clusters.
//
// Bulk copies and wgmma access memory through the async proxy. If they read or overwrite data
// written by threads, a fence.proxy.async is needed as well.
//
// The shadow memory keeps a limited number of accesses per [cell]. The detector can therefore
// miss a race where threads synchronize in parts of a block, but it reports no false races.
type raceDetector struct {
	*worker
	order
	pool   pool
	shared []*region // by rank
	tensor []*region // tensor memory, by rank
	allocs map[*emu.Allocation]*region
	// ran holds the serial number of the last execution of each instruction by each warp.
	// Numbers up to opened precede the last barrier of the whole block.
	ran            [][]uint64
	serial, opened uint64
	copies         map[copyKey]*pendingCopy
	bulks          map[uint64][]pendingBulk
	cur            current
	// repeated is the finding of the last race of the current access, with an access repeatedBy
	// that is a write if repeatedWrites is set. Races with accesses that differ only in lane and
	// time are the same finding.
	repeated       *ranked
	repeatedBy     epoch
	repeatedWrites bool
	// recent holds some of the findings of races, with their kinds, by their instructions.
	recent [1024]struct {
		*ranked
		kind uint8
	}
	tolerated
	tensorOrder
}

// current is the access being checked.
type current struct {
	space  ptx.Space
	alloc  *emu.Allocation // allocation in global memory, or nil
	size   int
	write  bool
	stale  epoch // accesses below this epoch are ordered before the current one
	from   epoch // accesses below this epoch are not compared; equals stale for accesses of threads
	by     int   // for the async proxy: the thread that issued the operation
	rank   int   // rank of the block that owns the shared memory
	region *region
	base   uint64 // address of offset 0 of region
}

func newRacer(w *worker) *raceDetector {
	r := &raceDetector{worker: w, allocs: map[*emu.Allocation]*region{}, copies: map[copyKey]*pendingCopy{},
		bulks: map[uint64][]pendingBulk{}, tolerated: newTolerated(), tensorOrder: tensorOrder{pipes: map[int][]uint64{}}}
	r.order.vars = &w.checks.vars
	return r
}

func (r *raceDetector) start(b *emu.BlockInfo) {
	r.order.reset(b)
	for len(r.ran) < len(r.warps) {
		r.ran = append(r.ran, nil)
	}
	for len(r.shared) < max(b.Ranks, 1) {
		r.shared = append(r.shared, &region{})
		r.tensor = append(r.tensor, &region{})
	}
	for _, sites := range r.ran {
		clear(sites)
	}
	clear(r.copies)
	clear(r.bulks)
	clear(r.pipes)
	r.fencesOf = cleared(r.fencesOf, r.threads)
	r.tolerated.start()
	r.serial, r.opened = 0, 0
}

func (r *raceDetector) end() {
	r.resolveReads()
	for alloc, reg := range r.allocs {
		r.checks.global.add(r.self, alloc, reg)
		reg.reset(&r.pool)
	}
	for rank := range r.shared {
		r.shared[rank].reset(&r.pool)
		r.tensor[rank].reset(&r.pool)
	}
}

func (r *raceDetector) access(a *emu.Access, rs *runs, in *instruction) {
	if len(r.pending) > 0 {
		r.resolveReads()
	}
	flags := flagsOf(a)
	cur, stale := &r.cur, r.stale() // field by field, which is faster than a whole structure
	cur.space, cur.alloc, cur.rank, cur.size, cur.write = a.Space, a.Alloc, a.Rank, a.Size, isWrite(a.Kind)
	cur.stale, cur.from = stale, stale
	r.repeated = nil
	if a.Alloc != nil {
		cur.region, cur.base = in.region, a.Alloc.Base
	} else {
		cur.region, cur.base = r.shared[a.Rank], 0
	}
	time := r.now
	if a.Kind == emu.AsyncRead || a.Kind == emu.AsyncWrite {
		flags, time = async, maxTime
		r.startCopy(a)
	}
	e := makeEpoch(time, a.Warp*32, a.Site.Index, flags)
	r.executed(a.Origin)
	var repeated, reset uint32
	if cur.write {
		if repeated, reset = r.flagsOfLanes(a); repeated == a.Mask {
			e |= repeats
			repeated = 0
		}
	}
	switch overlap := cur.write && rs.overlap(a.Size); {
	case overlap || repeated|reset != 0:
		mask := a.Mask
		if overlap && flags == 0 && a.Kind == emu.Write {
			mask = r.checkLanes(a)
		}
		lanesOf(mask, func(lane int) {
			own := e + epoch(lane)<<threadShift
			if repeated>>lane&1 != 0 {
				own |= repeats
			}
			if reset>>lane&1 != 0 {
				own |= resets
			}
			r.span(a.Addr[lane]-cur.base, a.Size, own, oneLane, 0)
		})
	case !cur.write && rs.twins():
		r.run(&rs.byLane[0], e, rs.byLane[1].lane)
	default:
		for i := range rs.byLane[:rs.n] {
			r.run(&rs.byLane[i], e, 0)
		}
	}
	if flags&strong != 0 {
		r.strongAccess(a)
	}
	if a.Kind == emu.Atomic {
		r.noteAtomic(a)
	}
}

func (r *raceDetector) executed(a emu.Origin) {
	sites := r.ran[a.Warp]
	if a.Site.Index >= len(sites) {
		sites = append(sites, make([]uint64, a.Site.Index+1-len(sites))...)
		r.ran[a.Warp] = sites
	}
	r.serial++
	sites[a.Site.Index] = r.serial
}

// regionOf returns the shadow memory of an allocation.
func (r *raceDetector) regionOf(a *emu.Allocation) *region {
	reg := r.allocs[a]
	if reg == nil {
		reg = &region{}
		r.allocs[a] = reg
	}
	return reg
}

// run checks the accesses of a run of lanes. e is the epoch of lane 0. If twin is not 0, the lanes
// that come twin after those of the run read the same bytes.
func (r *raceDetector) run(cur *run, e epoch, twin int) {
	e += epoch(cur.lane) << threadShift
	off, size := cur.addr-r.cur.base, r.cur.size
	switch {
	case cur.step == 0:
		if cur.lanes > 1 && !r.cur.write {
			twin = 1 // two of the lanes represent the others
		}
		r.span(off, size, e, oneLane, twin)
	case size&(size-1) != 0 || size > 1<<coarsest:
		for range cur.lanes {
			r.span(off, size, e, oneLane, twin)
			e += 1 << threadShift
			off += uint64(size)
		}
	default:
		r.span(off, cur.lanes*size, e, size, twin)
	}
}

// oneLane exceeds the bytes of any access of a lane.
const oneLane = 1 << 30

// span checks an access to n bytes at off, perLane bytes for each lane. If twin is not 0, the lane
// that comes twin after each lane reads the same bytes.
func (r *raceDetector) span(off uint64, n int, e epoch, perLane, twin int) {
	shift := grain(off, min(n, perLane))
	for {
		p := r.cur.region.page(int(off>>pageShift), shift, &r.pool)
		m := min(n, pageBytes-int(off%pageBytes))
		k, cells := int(off%pageBytes)>>p.shift, m>>p.shift
		switch {
		case r.cur.write:
			r.write(p, k, cells, e, perLane>>p.shift, off)
		case r.cur.from != r.cur.stale || !p.skips(k, cells, r.cur.stale):
			r.read(p, k, cells, e, perLane>>p.shift, twin, off)
		}
		if n -= m; n == 0 {
			return
		}
		e += epoch(m/perLane) << threadShift
		off += uint64(m)
	}
}

// read checks reads of n cells of a page starting at cell k. Each lane reads perLane cells, and so
// does the lane that comes twin after it, if twin is not 0. Most of the checker's time is spent
// here.
func (r *raceDetector) read(p *shadow, k, n int, e epoch, perLane, twin int, off uint64) {
	stale := r.cur.stale
	if p.since != stale {
		p.since, p.settled = stale, 0
	}
	written, from := p.wrote >= r.cur.from, r.cur.from
	left, other := perLane, epoch(twin)<<threadShift
	cells := p.cells[k : k+n]
	for i := range cells {
		c := &cells[i]
		if written && (c.w[0] >= from || c.w[1] >= from) {
			r.compare(&c.w, true, e, off+uint64(i)<<p.shift)
			if other != 0 {
				r.compare(&c.w, true, e+other, off+uint64(i)<<p.shift)
			}
		}
		switch {
		case e&async != 0:
			c.noteAsync(e, stale)
		case c.r[0] < stale && c.r[1] < stale:
			if c.r[0], c.r[1] = e, 0; other != 0 {
				c.r[1] = e + other
			}
		case c.r[0] < stale || c.r[1] < stale || sameWarp(c.r[0], c.r[1]):
			if note(&c.r, e, stale); other != 0 {
				note(&c.r, e+other, stale)
			}
		default:
			p.settled |= p.bits(k+i, 1)
		}
		if left--; left == 0 {
			left = perLane
			e += 1 << threadShift
		}
	}
}

// write checks writes of n cells in the same way.
func (r *raceDetector) write(p *shadow, k, n int, e epoch, perLane int, off uint64) {
	stale, from := r.cur.stale, r.cur.from
	p.wrote = max(p.wrote, e)
	p.settled &^= p.bits(k, n)
	if e&async != 0 {
		p.pending += n
	}
	left := perLane
	cells := p.cells[k : k+n]
	for i := range cells {
		c := &cells[i]
		if c.w[0] >= from || c.w[1] >= from {
			r.compare(&c.w, true, e, off+uint64(i)<<p.shift)
		}
		if c.r[0] >= stale || c.r[1] >= stale {
			r.compare(&c.r, false, e, off+uint64(i)<<p.shift)
		}
		c.noteWrite(e, stale)
		if left--; left == 0 {
			left = perLane
			e += 1 << threadShift
		}
	}
}

// compare reports the accesses among earlier that race with e.
func (r *raceDetector) compare(earlier *[2]epoch, writes bool, e epoch, off uint64) {
	by := e.thread()
	if e&proxied != 0 {
		by = r.cur.by
	}
	for _, p := range earlier {
		switch {
		case p < r.cur.from || r.bothStrong(p, e) && !r.lockstep(p, e, writes):
		case r.cur.space == ptx.Tensor && r.inOrder(p, e):
		case !r.before(p, by):
			if f := r.repeated; f != nil && (p^r.repeatedBy)&raceMask == 0 && writes == r.repeatedWrites {
				f.Count++
				continue
			}
			r.reportRace(p, e, writes, off)
		case r.cur.space == ptx.Tensor:
			r.checkTensorFence(p, e, off)
		case e&proxied != 0 && writes && !r.visibleToProxy(p, by):
			r.reportProxyRace(p, e, off)
		}
	}
}

// bothStrong reports whether accesses p and e are strong for the threads of both.
func (r *raceDetector) bothStrong(p, e epoch) bool {
	return p&e&strong != 0 && (p&e&wide != 0 || r.sameBlock(p, e))
}

// sameBlock reports whether p and e belong to one block. Accesses of agents belong to every block.
func (r *raceDetector) sameBlock(p, e epoch) bool {
	each := r.block.Warps * 32
	return p.thread()/each == e.thread()/each || max(p.thread(), e.thread()) >= r.threads
}

// lockstep reports whether e and an earlier access p rely on the lanes of a warp running in
// lockstep: a volatile store to shared memory and a volatile load whose value is no condition.
// Two volatile accesses are no data race, but nothing orders them.
func (r *raceDetector) lockstep(p, e epoch, pWrites bool) bool {
	if r.cur.space != ptx.Shared || pWrites == r.cur.write || !sameWarp(p, e) {
		return false
	}
	load, store := r.site(p.site()), r.site(e.site())
	if pWrites {
		load, store = store, load
	}
	return load.Instr != nil && store.Instr != nil && load.Instr.Has("volatile") && store.Instr.Has("volatile") &&
		!load.Decides
}

// checkLanes checks a store whose lanes overlap in memory. It returns the mask of the lanes to
// check further: one of each group of lanes that write the same value to the same address, which
// is harmless.
func (r *raceDetector) checkLanes(a *emu.Access) uint32 {
	var kept uint32
	lanesOf(a.Mask, func(i int) {
		meets := false
		lanesOf(kept, func(j int) {
			lo := max(a.Addr[i], a.Addr[j])
			hi := min(a.Addr[i], a.Addr[j]) + uint64(a.Size)
			if lo >= hi {
				return
			}
			x, y := a.Data(i), a.Data(j)
			if x == nil || bytes.Equal(x[lo-a.Addr[i]:hi-a.Addr[i]], y[lo-a.Addr[j]:hi-a.Addr[j]]) {
				meets = meets || a.Addr[i] == a.Addr[j]
				return
			}
			meets = true
			r.reportLaneRace(a, i, j, lo, roundedApart(x, y))
		})
		if !meets {
			kept |= 1 << i
		}
	})
	return kept
}

func (r *raceDetector) barrier(b *emu.Barrier) {
	r.resolveReads()
	if b.Kind == emu.BarrierComplete {
		if r.complete(b.ID) {
			r.opened = r.serial
		}
		return
	}
	r.arrive(b)
}

func (r *raceDetector) warpSync(s *emu.WarpSync) {
	r.resolveReads()
	if s.Orders {
		r.order.warpSync(s.Warp, s.Mask)
	}
}

func (r *raceDetector) fence(f *emu.Fence) {
	r.resolveReads()
	if strings.HasPrefix(f.Proxy, "tcgen05.") {
		r.tensorFence(f, r.step())
		return
	}
	r.order.fence(f)
}
