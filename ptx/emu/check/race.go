package check

import (
	"bytes"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// racer finds two accesses of the same bytes by different threads of a block, or of the
// blocks of a cluster, one of them a write, that nothing orders: no barrier, no
// bar.warp.sync between lanes of a warp, no mbarrier, no release and acquire. Lanes of a
// warp are threads like any others, as there is no lockstep since Volta. What the
// cluster does to global memory goes on to [globals], which compares the clusters.
//
// Bulk copies and wgmma reach memory through the async proxy. What they read or
// overwrite and threads have written must also be behind a fence.proxy.async.
//
// It knows accesses to a cell apart as [cell] says, so that it may miss a race where
// threads synchronise in parts of a block, but it does not invent one.
type racer struct {
	*worker
	order
	pool   pool
	shared []*region // by rank
	allocs map[*emu.Allocation]*region
	// ran is for each warp and instruction which access of the block its last
	// execution was; those up to opened came before the last barrier of the whole
	// block.
	ran            [][]uint64
	serial, opened uint64
	copies         map[copyKey]*copyHalf
	bulks          map[uint64][]bulkHalf
	cur            current
}

// current is the access under way.
type current struct {
	space  ptx.Space
	alloc  *emu.Allocation // of global memory
	size   int
	write  bool
	stale  epoch // what lies below is ordered before it
	from   epoch // what lies below need not be looked at: for threads, the same
	by     int   // of the async proxy: the thread that began it
	rank   int   // whose shared memory it is
	region *region
	base   uint64 // address that the region's offsets count from
}

func newRacer(w *worker) *racer {
	r := &racer{worker: w, allocs: map[*emu.Allocation]*region{}, copies: map[copyKey]*copyHalf{}, bulks: map[uint64][]bulkHalf{}}
	r.order.vars = &w.checks.vars
	return r
}

func (r *racer) start(b *emu.BlockInfo) {
	r.order.reset(b)
	for len(r.ran) < len(r.warps) {
		r.ran = append(r.ran, nil)
	}
	for len(r.shared) < max(b.Ranks, 1) {
		r.shared = append(r.shared, &region{})
	}
	for _, sites := range r.ran {
		clear(sites)
	}
	clear(r.copies)
	clear(r.bulks)
	r.serial, r.opened = 0, 0
}

func (r *racer) end() {
	r.settle()
	for alloc, reg := range r.allocs {
		r.checks.global.add(r.self, alloc, reg)
		reg.reset(&r.pool)
	}
	for _, reg := range r.shared {
		reg.reset(&r.pool)
	}
}

func (r *racer) access(a *emu.Access, rs *runs, in *instruction) {
	r.settle()
	flags := flagsOf(a)
	r.cur = current{space: a.Space, alloc: a.Alloc, rank: a.Rank, region: in.region, size: a.Size, write: isWrite(a.Kind), stale: r.stale(), from: r.stale()}
	if a.Alloc != nil {
		r.cur.base = a.Alloc.Base
	} else {
		r.cur.region = r.shared[a.Rank]
	}
	time := r.now
	if a.Kind == emu.AsyncRead || a.Kind == emu.AsyncWrite {
		flags, time = async, maxTime
		r.began(a)
	}
	e := makeEpoch(time, a.Warp*32, a.Site.Index, flags)
	r.executed(a.Origin)
	switch {
	case r.cur.write && rs.overlap(a.Size):
		mask := a.Mask
		if flags == 0 && a.Kind == emu.Write {
			mask = r.withinOne(a)
		}
		lanesOf(mask, func(lane int) { r.span(a.Addr[lane]-r.cur.base, a.Size, e+epoch(lane)<<threadShift, oneLane, false) })
	default:
		for i := range rs.byLane[:rs.n] {
			r.run(&rs.byLane[i], e)
		}
	}
	if flags&strong != 0 {
		r.strongAccess(a)
	}
}

func (r *racer) executed(a emu.Origin) {
	sites := r.ran[a.Warp]
	if a.Site.Index >= len(sites) {
		sites = append(sites, make([]uint64, a.Site.Index+1-len(sites))...)
		r.ran[a.Warp] = sites
	}
	r.serial++
	sites[a.Site.Index] = r.serial
}

// regionOf is what is remembered of an allocation.
func (r *racer) regionOf(a *emu.Allocation) *region {
	reg := r.allocs[a]
	if reg == nil {
		reg = &region{}
		r.allocs[a] = reg
	}
	return reg
}

// run enters the accesses of a run of lanes; e is lane 0's.
func (r *racer) run(cur *run, e epoch) {
	e += epoch(cur.lane) << threadShift
	off, size := cur.addr-r.cur.base, r.cur.size
	switch {
	case cur.step == 0:
		r.span(off, size, e, oneLane, cur.lanes > 1)
	case size&(size-1) != 0 || size > 1<<coarsest:
		for range cur.lanes {
			r.span(off, size, e, oneLane, false)
			e += 1 << threadShift
			off += uint64(size)
		}
	default:
		r.span(off, cur.lanes*size, e, size, false)
	}
}

// oneLane is more than any lane accesses.
const oneLane = 1 << 30

// span enters an access of n bytes at off, of which each lane has perLane. If several
// lanes share them, which then read, two are entered, and the others are like them.
func (r *racer) span(off uint64, n int, e epoch, perLane int, shared bool) {
	shift := grain(off, min(n, perLane))
	for {
		p := r.cur.region.page(int(off>>pageShift), shift, &r.pool)
		m := min(n, pageBytes-int(off%pageBytes))
		k, cells := int(off%pageBytes)>>p.shift, m>>p.shift
		switch {
		case r.cur.write:
			r.write(p, k, cells, e, perLane>>p.shift, off)
		case r.cur.from != r.cur.stale || !p.skips(k, cells, r.cur.stale):
			r.read(p, k, cells, e, perLane>>p.shift, off)
			if shared {
				r.read(p, k, cells, e+1<<threadShift, perLane>>p.shift, off)
			}
		}
		if n -= m; n == 0 {
			return
		}
		e += epoch(m/perLane) << threadShift
		off += uint64(m)
	}
}

// read enters reads of n cells of a page from cell k on. After each perLane of them
// the next lane's begin. This is where the checker spends its time.
func (r *racer) read(p *shadow, k, n int, e epoch, perLane int, off uint64) {
	stale := r.cur.stale
	if p.since != stale {
		p.since, p.settled = stale, 0
	}
	written, from := p.wrote >= r.cur.from, r.cur.from
	left := perLane
	cells := p.cells[k : k+n]
	for i := range cells {
		c := &cells[i]
		if written && (c.w[0] >= from || c.w[1] >= from) {
			r.compare(&c.w, true, e, off+uint64(i)<<p.shift)
		}
		switch {
		case e&async != 0:
			c.noteAsync(e, stale)
		case c.r[0] < stale && c.r[1] < stale:
			c.r[0], c.r[1] = e, 0
		case c.r[0] < stale || c.r[1] < stale || sameWarp(c.r[0], c.r[1]):
			note(&c.r, e, stale)
		default:
			p.settled |= p.bits(k+i, 1)
		}
		if left--; left == 0 {
			left = perLane
			e += 1 << threadShift
		}
	}
}

// write is the same for writes.
func (r *racer) write(p *shadow, k, n int, e epoch, perLane int, off uint64) {
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

// compare reports those of two earlier accesses that race with e.
func (r *racer) compare(earlier *[2]epoch, writes bool, e epoch, off uint64) {
	by := e.thread()
	if e&proxied != 0 {
		by = r.cur.by
	}
	for _, p := range earlier {
		switch {
		case p < r.cur.from || p&e&strong != 0:
		case !r.before(p, by):
			r.clash(p, e, writes, off)
		case e&proxied != 0 && writes && !r.sees(p, by):
			r.unseen(p, e, off)
		}
	}
}

// withinOne looks at a store whose lanes meet in memory. It returns the lanes that
// count: one of those that write the same to the same place, which does no harm.
func (r *racer) withinOne(a *emu.Access) uint32 {
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
			r.clashWithin(a, i, j, lo)
		})
		if !meets {
			kept |= 1 << i
		}
	})
	return kept
}

func (r *racer) barrier(b *emu.Barrier) {
	r.settle()
	if b.Kind == emu.BarrierComplete {
		if r.complete(b.ID) {
			r.opened = r.serial
		}
		return
	}
	r.arrive(b)
}

func (r *racer) warpSync(s *emu.WarpSync) {
	r.settle()
	if s.Orders {
		r.order.warpSync(s.Warp, s.Mask)
	}
}

func (r *racer) fence(f *emu.Fence) {
	r.settle()
	r.order.fence(f)
}
