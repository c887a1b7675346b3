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
	proxyClash // with what the async proxy cannot see
)

var verb = map[bool]string{false: "reads", true: "writes"}

// clash reports that the access e of now races with p.
func (r *racer) clash(p, e epoch, pWrites bool, off uint64) {
	// One barrier is missing, and it shows in either order: the write may be seen
	// before the read or after. Which of the two instructions comes first in a
	// thread's own course, and so where the barrier belongs, is what the threads'
	// warps have executed since the last barrier.
	ran := func(e epoch, site int) uint64 {
		if e.thread() >= r.threads {
			return 0
		}
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
		one, other := r.name(f, second.epoch, first.epoch)
		f.Message = fmt.Sprintf("%s %s the %s at %s that %s %s", one, verb[second.writes], amount(size), where, other, verb[first.writes])
		if kind == copyClash {
			what, wait := "asynchronous copy", "a wait for the copy (cp.async.wait_group or wait_all), or the __syncthreads() behind it,"
			switch {
			case isMatrix(f.Other):
				what, wait = "wgmma.mma_async", "a wgmma.wait_group, or the order between its warpgroup and this thread,"
			case p&proxied != 0:
				wait = "a wait for the copy (for its mbarrier's phase, or by cp.async.bulk.wait_group), or the order between the thread that waited and this one,"
			}
			f.Message = fmt.Sprintf("%s %s the %s at %s that the %s of %s at %s may still be about to %s: is %s missing before %s?",
				one, verb[second.writes], amount(size), where, what, other, line(f.Other), map[bool]string{false: "read", true: "write"}[first.writes], wait, line(f.Site))
			return
		}
		if first.thread() >= r.threads {
			f.Message += fmt.Sprintf(" at %s, and is done, but %s has not learnt of it: is a wait for an mbarrier missing before %s, or does a thread arrive there before it has waited itself (wgmma.wait_group)?",
				line(f.Other), one, line(f.Site))
			return
		}
		f.Message += r.advice(f, known, sameWarp(p, e))
	})
}

// name sets the threads of a finding, and their blocks, and names them.
func (r *racer) name(f *Finding, second, first epoch) (one, other string) {
	set := func(e epoch, block, to *emu.Dim3) string {
		n := e.thread()
		if n >= r.threads {
			return "an asynchronous operation"
		}
		*block, *to = r.blockOf(n).Index, r.thread(n)
		if len(r.blocks) > 1 {
			return fmt.Sprintf("thread %v of block %v", *to, *block)
		}
		return fmt.Sprintf("thread %v", *to)
	}
	return set(second, &f.Block, &f.Thread), set(first, &f.OtherBlock, &f.OtherThread)
}

// unseen reports that the async proxy, in the access e of now, may not see the write p.
func (r *racer) unseen(p, e epoch, off uint64) {
	size, where := r.cur.size, r.where(off)
	r.found.add(r.block, key{checker: Race, kind: proxyClash, site: r.site(e.site()), other: r.site(p.site())}, func(f *Finding) {
		one, other := r.name(f, e, p)
		f.Message = fmt.Sprintf("the asynchronous operation of %s uses the %s at %s that %s writes at %s, and may not see it: is a fence.proxy.async missing between %s and the barrier behind it?",
			one, amount(size), where, other, line(f.Other), line(f.Other))
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
		f.Thread, f.OtherThread = r.thread(a.Warp*32+i), r.thread(a.Warp*32+j)
		f.Message = fmt.Sprintf("threads %v and %v write different values to %s in the same instruction, and either may win: do two threads work on one element, by a wrong index or a missing bound?",
			f.OtherThread, f.Thread, where)
	})
}

// where names the bytes at off of what the access under way goes to.
func (r *racer) where(off uint64) string {
	at := place(r.cur.space, off+r.cur.base, r.cur.alloc)
	if r.cur.alloc == nil && len(r.blocks) > 1 {
		at += fmt.Sprintf(" of block %v", r.blocks[r.cur.rank].Index)
	}
	return at
}
