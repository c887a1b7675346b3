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
	pool    pool
	shared  region
	allocs  map[*emu.Allocation]*region
	last    *emu.Allocation // whose region is lastRegion
	lastReg *region
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
	space ptx.Space
	alloc *emu.Allocation // of global memory
	size  int
	write bool
	stale epoch
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
	region [32]*region
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

func (r *racer) access(a *emu.Access, rs *runs) {
	r.settle()
	flags := flagsOf(a)
	r.cur = current{space: a.Space, alloc: a.Alloc, size: a.Size, write: isWrite(a.Kind), stale: r.stale()}
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
		lanesOf(mask, func(lane int) {
			reg, off := r.find(a, a.Addr[lane])
			r.lane(reg, off, a.Size, e+epoch(lane)<<threadShift)
		})
	default:
		for i := range rs.byLane[:rs.n] {
			r.run(a, &rs.byLane[i], e)
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
	r.sites.put(a.Site)
}

// find is the region that addr lies in, and its offset there.
func (r *racer) find(a *emu.Access, addr uint64) (*region, uint64) {
	if a.Space == ptx.Shared {
		return &r.shared, addr
	}
	if a.Alloc != r.last {
		reg := r.allocs[a.Alloc]
		if reg == nil {
			reg = &region{}
			r.allocs[a.Alloc] = reg
		}
		r.last, r.lastReg = a.Alloc, reg
	}
	return r.lastReg, addr - a.Alloc.Base
}

// run enters the accesses of a run of lanes.
func (r *racer) run(a *emu.Access, cur *run, e epoch) {
	e += epoch(cur.lane) << threadShift
	reg, off := r.find(a, cur.addr)
	switch {
	case cur.step == 0:
		// Of many readers two are kept, and the rest is like them.
		r.lane(reg, off, a.Size, e)
		if cur.lanes > 1 {
			r.lane(reg, off, a.Size, e+epoch(cur.lanes-1)<<threadShift)
		}
	case a.Size&(a.Size-1) != 0 || a.Size > 1<<coarsest:
		for range cur.lanes {
			r.lane(reg, off, a.Size, e)
			e += 1 << threadShift
			off += uint64(a.Size)
		}
	default:
		shift := grain(off, a.Size)
		for left := cur.lanes * a.Size; left > 0; {
			n := min(left, pageBytes-int(off%pageBytes))
			p := reg.page(int(off>>pageShift), shift, &r.pool)
			r.cells(p, off, n, e, a.Size>>p.shift)
			e += epoch(n/a.Size) << threadShift
			off += uint64(n)
			left -= n
		}
	}
}

// lane enters the access of one lane.
func (r *racer) lane(reg *region, off uint64, size int, e epoch) {
	shift := grain(off, size)
	for size > 0 {
		n := min(size, pageBytes-int(off%pageBytes))
		p := reg.page(int(off>>pageShift), shift, &r.pool)
		r.cells(p, off, n, e, pageBytes)
		off += uint64(n)
		size -= n
	}
}

// cells enters an access of n bytes at off, which lie in p. After each perLane cells
// the next lane's begin. This is where the checker spends its time.
func (r *racer) cells(p *page[cell], off uint64, n int, e epoch, perLane int) {
	k := int(off%pageBytes) >> p.shift
	cells := p.cells[k : k+n>>p.shift]
	stale, left := r.cur.stale, perLane
	for i := range cells {
		c := &cells[i]
		if c.w[0] >= stale || c.w[1] >= stale {
			r.compare(&c.w, true, e, off+uint64(i)<<p.shift)
		}
		switch {
		case r.cur.write:
			if c.r[0] >= stale || c.r[1] >= stale {
				r.compare(&c.r, false, e, off+uint64(i)<<p.shift)
			}
			c.noteWrite(e, stale)
		case c.r[0] < stale && c.r[1] < stale:
			c.r[0], c.r[1] = e, 0
		case c.r[0] < stale || c.r[1] < stale || sameWarp(c.r[0], c.r[1]):
			note(&c.r, e, stale)
		}
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
	h := &copyHalf{mask: a.Mask, addr: *a.Addr, size: a.Size, epoch: makeEpoch(maxTime, a.Warp*32, a.Site.Index, async)}
	lanesOf(a.Mask, func(lane int) {
		var off uint64
		h.region[lane], off = r.find(a, a.Addr[lane])
		h.addr[lane] = off
	})
	r.copies[copyKey{a.Copy, r.cur.write}] = h
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

func (r *racer) landed(h *copyHalf, lane int) {
	under := h.epoch + epoch(lane)<<threadShift
	landed := makeEpoch(r.now, under.thread(), under.site(), 0)
	off, reg := h.addr[lane], h.region[lane]
	for end := off + uint64(h.size); off < end; {
		p := reg.page(int(off>>pageShift), coarsest, &r.pool)
		c := &p.cells[int(off%pageBytes)>>p.shift]
		for _, s := range []*epoch{&c.w[0], &c.w[1], &c.r[0], &c.r[1]} {
			if *s == under {
				*s = landed
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
