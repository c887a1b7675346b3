package check

import (
	"fmt"

	"tilework/ptx/emu"
)

// The kinds of races, which findings are kept apart by.
const (
	lanesClash   uint8 = iota // in one instruction of a warp
	threadsClash              // of a block
	copyClash                 // with an asynchronous copy
	blocksClash
)

var verb = map[bool]string{false: "reads", true: "writes"}

// clash reports that the access e of now races with p.
func (r *racer) clash(p, e epoch, pWrites bool, off uint64) {
	// One barrier is missing, and it shows in either order: the write may be seen
	// before the read or after. Which of the two instructions comes first in a
	// thread's own course, and so where the barrier belongs, is what the threads'
	// warps have executed since the last barrier.
	ran := func(e epoch, site int) uint64 {
		if sites := r.ran[e.warp()]; site < len(sites) {
			return sites[site]
		}
		return 0
	}
	type access struct {
		epoch
		writes bool
	}
	first, second := access{p, pWrites}, access{e, r.cur.write}
	known := ran(e, p.site()) > r.opened
	if other := ran(p, e.site()); !known && other > r.opened {
		known = true
		if other < ran(p, p.site()) {
			first, second = second, first
		}
	}
	kind := threadsClash
	if p&async != 0 {
		kind, first, second = copyClash, access{p, pWrites}, access{e, r.cur.write}
	}
	k := key{checker: Race, kind: kind, site: r.site(second.site()), other: r.site(first.site())}
	size, where := r.cur.size, r.where(off)
	r.found.add(r.block, k, func(f *Finding) {
		f.Thread, f.OtherThread = thread(r.block, second.thread()), thread(r.block, first.thread())
		f.Message = fmt.Sprintf("thread %v %s the %s at %s that thread %v %s",
			f.Thread, verb[second.writes], amount(size), where, f.OtherThread, verb[first.writes])
		if kind == copyClash {
			f.Message = fmt.Sprintf("thread %v %s the %s at %s that the asynchronous copy of thread %v at %s may still be about to %s: "+
				"is a wait for the copy (cp.async.wait_group or wait_all), or the __syncthreads() behind it, missing before %s?",
				f.Thread, verb[second.writes], amount(size), where, f.OtherThread, line(f.Other), map[bool]string{false: "read", true: "write"}[first.writes], line(f.Site))
			return
		}
		f.Message += r.advice(f, known, sameWarp(p, e))
	})
}

// advice says what might be missing between the accesses of f.
func (r *racer) advice(f *Finding, known, warp bool) string {
	const barrier = "__syncthreads()"
	note := ""
	if warp {
		note = " (These two are lanes of one warp, which do not run in step; __syncwarp() would order them.)"
	}
	switch {
	case f.Site == f.Other:
		return fmt.Sprintf(" at the same instruction, %s, with no barrier in between: do two threads work on one element, by a wrong index or a missing bound, or is a %s missing?", line(f.Site), barrier) + note
	case !known:
		return fmt.Sprintf(" at %s, with no barrier in between: is a %s missing between the two?", line(f.Other), barrier) + note
	case f.Other.Index > f.Site.Index:
		return fmt.Sprintf(" at %s, with no barrier in between: is a %s missing after %s, before the loop's next round comes to %s?", line(f.Other), barrier, line(f.Other), line(f.Site)) + note
	}
	return fmt.Sprintf(" at %s, with no barrier in between: is a %s missing between %s and %s?", line(f.Other), barrier, line(f.Other), line(f.Site)) + note
}

// clashWithin reports lanes i and j of one store, which write different bytes at addr.
func (r *racer) clashWithin(a *emu.Access, i, j int, addr uint64) {
	where := r.where(addr - r.cur.base)
	r.found.add(r.block, key{checker: Race, kind: lanesClash, site: a.Site, other: a.Site}, func(f *Finding) {
		f.Thread, f.OtherThread = thread(r.block, a.Warp*32+i), thread(r.block, a.Warp*32+j)
		f.Message = fmt.Sprintf("threads %v and %v write different values to %s in the same instruction, and either may win: do two threads work on one element, by a wrong index or a missing bound?",
			f.OtherThread, f.Thread, where)
	})
}

// where names the bytes at off of what the access under way goes to.
func (r *racer) where(off uint64) string {
	return place(r.cur.space, off+r.cur.base, r.cur.alloc)
}
