package check

import (
	"bytes"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// racer finds two accesses of the same bytes by different threads of a block, one of
// them a write, that nothing orders: no barrier, no bar.warp.sync between lanes of a
// warp, no release and acquire. Lanes of a warp are threads like any others, as there
// is no lockstep since Volta. What the block does to global memory goes on to
// [globals], which compares the blocks.
//
// It knows accesses to a cell apart as [cell] says, so that it may miss a race where
// threads synchronise in parts of a block, but it does not invent one.
type racer struct {
	*worker
	order
	pool   pool
	shared region
	allocs map[*emu.Allocation]*region
	// ran is for each warp and instruction which access of the block its last
	// execution was; those up to opened came before the last barrier of the whole
	// block.
	ran            [][]uint64
	serial, opened uint64
	copies         map[copyKey]*copyHalf
	cur            current
}

// current is the access under way.
type current struct {
	space  ptx.Space
	alloc  *emu.Allocation // of global memory
	size   int
	write  bool
	stale  epoch // what lies below is ordered before it
	region *region
	base   uint64 // address that the region's offsets count from
}

// copyKey names one half of an asynchronous copy.
type copyKey struct {
	copy  uint64
	write bool
}

// copyHalf is what a half touches until it is complete.
type copyHalf struct {
	mask   uint32 // lanes under way
	addr   [32]uint64
	size   int
	epoch  epoch // of lane 0
	region *region
	base   uint64 // that the region's offsets count from
}

func newRacer(w *worker) *racer {
	r := &racer{worker: w, allocs: map[*emu.Allocation]*region{}, copies: map[copyKey]*copyHalf{}}
	r.order.vars = &w.checks.vars
	return r
}

func (r *racer) start(b *emu.BlockInfo) {
	r.order.reset(b)
	for len(r.ran) < b.Warps {
		r.ran = append(r.ran, nil)
	}
	for _, sites := range r.ran {
		clear(sites)
	}
	clear(r.copies)
	r.serial, r.opened = 0, 0
}

func (r *racer) end() {
	r.settle()
	for alloc, reg := range r.allocs {
		r.checks.global.add(r.block.Linear, alloc, reg)
		reg.reset(&r.pool)
	}
	r.shared.reset(&r.pool)
}

func (r *racer) access(a *emu.Access, rs *runs, in *instruction) {
	r.settle()
	flags := flagsOf(a)
	r.cur = current{space: a.Space, alloc: a.Alloc, region: in.region, size: a.Size, write: isWrite(a.Kind), stale: r.stale()}
	if a.Alloc != nil {
		r.cur.base = a.Alloc.Base
	}
	time := r.now
	if a.Kind == emu.AsyncRead || a.Kind == emu.AsyncWrite {
		flags, time = async, maxTime
		r.began(a)
	}
	e := makeEpoch(time, a.Warp*32, a.Site.Index, flags)
	r.executed(a)
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

func (r *racer) executed(a *emu.Access) {
	sites := r.ran[a.Warp]
	if a.Site.Index >= len(sites) {
		sites = append(sites, make([]uint64, a.Site.Index+1-len(sites))...)
		r.ran[a.Warp] = sites
	}
	r.serial++
	sites[a.Site.Index] = r.serial
}

// regionOf is what is remembered of an allocation, or, without one, of shared memory.
func (r *racer) regionOf(a *emu.Allocation) *region {
	if a == nil {
		return &r.shared
	}
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
		case !p.skips(k, cells, r.cur.stale):
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
	written := p.wrote >= stale
	left := perLane
	cells := p.cells[k : k+n]
	for i := range cells {
		c := &cells[i]
		if written && (c.w[0] >= stale || c.w[1] >= stale) {
			r.compare(&c.w, true, e, off+uint64(i)<<p.shift)
		}
		switch {
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
	stale := r.cur.stale
	p.wrote = max(p.wrote, e)
	p.settled &^= p.bits(k, n)
	if e&async != 0 {
		p.pending += n
	}
	left := perLane
	cells := p.cells[k : k+n]
	for i := range cells {
		c := &cells[i]
		if c.w[0] >= stale || c.w[1] >= stale {
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
	for _, p := range earlier {
		if p >= r.cur.stale && p&e&strong == 0 && !r.before(p, e.thread()) {
			r.clash(p, e, writes, off)
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

// began notes an asynchronous copy that is under way from now on.
func (r *racer) began(a *emu.Access) {
	r.copies[copyKey{a.Copy, r.cur.write}] = &copyHalf{
		mask: a.Mask, addr: *a.Addr, size: a.Size, region: r.cur.region, base: r.cur.base,
		epoch: makeEpoch(maxTime, a.Warp*32, a.Site.Index, async),
	}
}

// copyDone makes accesses of the threads that waited out of those of their copies.
func (r *racer) copyDone(d *emu.CopyDone) {
	r.settle()
	r.step()
	for _, done := range d.Copies {
		for _, write := range []bool{false, true} {
			k := copyKey{done.Copy, write}
			h := r.copies[k]
			if h == nil {
				continue
			}
			lanesOf(done.Mask&h.mask, func(lane int) { r.landed(h, lane) })
			if h.mask &^= done.Mask; h.mask == 0 {
				delete(r.copies, k)
			}
		}
	}
}

// landed completes a lane's part of a half.
func (r *racer) landed(h *copyHalf, lane int) {
	under := h.epoch + epoch(lane)<<threadShift
	landed := makeEpoch(r.now, under.thread(), under.site(), 0)
	off := h.addr[lane] - h.base
	for end := off + uint64(h.size); off < end; {
		p := h.region.page(int(off>>pageShift), coarsest, &r.pool)
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
