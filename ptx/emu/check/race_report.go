package check

import (
	"fmt"

	"tilework/ptx/emu"
)

// Kinds of race findings.
const (
	laneRace        uint8 = iota // between lanes in one store
	threadRace                   // between threads of a block
	asyncRace                    // with an asynchronous operation
	blockRace                    // between blocks
	proxyRace                    // between proxies, without a proxy fence
	mixedRace                    // between a plain and a strong access
	toleratedRace                // see tolerated
	tensorFenceRace              // between accesses to tensor memory, without tcgen05.fence
	exitRace                     // between the exit of a block and an arrival of another one
)

var verb = map[bool]string{false: "reads", true: "writes"}

// reportRace reports that the current access e races with p.
func (r *raceDetector) reportRace(p, e epoch, pWrites bool, off uint64) {
	// The two accesses can be seen in either order. To tell where the barrier is missing,
	// find out which of the two instructions comes first in the program. If a thread's warp
	// has executed the other thread's instruction since the last barrier, the serial numbers
	// give the order.
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
	kind := threadRace
	if p&async != 0 {
		kind, first, second = asyncRace, access{p, pWrites}, access{e, r.cur.write}
	}
	why := ""
	if kind == threadRace && pWrites && r.cur.write {
		why = toleratedWrite(p, e)
	}
	if why != "" {
		kind = toleratedRace
	}
	k := key{checker: Race, kind: kind, site: r.site(second.site()), other: r.site(first.site())}
	if kind == threadRace && pWrites != r.cur.write && (p^e)&strong != 0 {
		k.kind = mixedRace
		switch {
		case pWrites && p&strong != 0:
			r.notePlainRead(k, e, off+r.cur.base)
		case r.cur.write && e&strong != 0:
			r.notePlainRead(k, p, off+r.cur.base)
		}
	}
	recent := &r.recent[(k.site.Index+31*k.other.Index)%len(r.recent)]
	if f := recent.ranked; f != nil && k.site == f.Site && k.other == f.Other && k.kind == recent.kind &&
		f.block <= r.block.Linear { // most races repeat an earlier one
		f.Count++
		if k.kind == threadRace {
			r.repeated, r.repeatedBy, r.repeatedWrites = f, p, pWrites
		}
		return
	}
	r.found.add(r.block, k, func(f *Finding) {
		one, other := r.name(f, second.epoch, first.epoch)
		size, where := r.cur.size, r.location(off)
		if kind == asyncRace {
			what := "asynchronous copy"
			wait := "a wait for the copy (cp.async.wait_group or cp.async.wait_all), followed by a __syncthreads(),"
			switch {
			case isTensor(f.Other):
				what, wait = tensorWait(f.Other)
			case isMatrix(f.Other):
				what, wait = "wgmma.mma_async", "a wgmma.wait_group, and a barrier between its warpgroup and this "+
					"thread,"
			case p&proxied != 0:
				wait = "a wait for the copy (on its mbarrier, or cp.async.bulk.wait_group), and a barrier between " +
					"the waiting thread and this one,"
			}
			f.Message = fmt.Sprintf("%s %s %s at %s that the %s of %s at %s may still %s: want %s before %s",
				one, verb[second.writes], amount(size), where, what, other, line(f.Other),
				map[bool]string{false: "read", true: "write"}[first.writes], wait, line(f.Site))
			return
		}
		f.Message = fmt.Sprintf("%s %s %s at %s that %s %s at %s", one, verb[second.writes], amount(size), where, other,
			verb[first.writes], line(f.Other))
		if first.thread() >= r.threads {
			f.Message += fmt.Sprintf(". The operation is complete, but %s has not synchronized with it: want a "+
				"wait for its mbarrier before %s; "+
				"a thread that arrives on the mbarrier must first wait for its own operations (wgmma.wait_group)",
				one, line(f.Site))
			return
		}
		if why != "" {
			f.tolerate(why)
			return
		}
		if p&e&strong != 0 && !r.sameBlock(p, e) {
			f.Message += narrowScope
			return
		}
		f.Message += r.advice(f, known, sameWarp(p, e))
	})
	recent.ranked, recent.kind = r.found[k], k.kind
}

// narrowScope ends the message of a race between strong accesses of different blocks.
const narrowScope = ", and an operation of scope .cta is atomic only among the threads of its block: " +
	"want scope .gpu (atomicAdd instead of atomicAdd_block in CUDA C)"

// name sets the threads and blocks of a finding and returns their descriptions.
func (r *raceDetector) name(f *Finding, second, first epoch) (one, other string) {
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

// reportProxyRace reports that the async proxy may not see the write p in the current access e.
func (r *raceDetector) reportProxyRace(p, e epoch, off uint64) {
	r.found.add(r.block, key{checker: Race, kind: proxyRace, site: r.site(e.site()), other: r.site(p.site())},
		func(f *Finding) {
			one, other := r.name(f, e, p)
			size, where := r.cur.size, r.location(off)
			f.Message = fmt.Sprintf("the asynchronous operation of %s accesses %s at %s and may not see the write of "+
				"%s at %s: "+
				"want a fence.proxy.async after %s, before the barrier that follows it",
				one, amount(size), where, other, line(f.Other), line(f.Other))
			r.checks.allow(f, ProxyFence)
		})
}

// advice returns the end of a race message: the missing synchronization between the accesses of
// f. known reports whether f.Other comes first in the program; warp, whether both threads are in
// the same warp.
func (r *raceDetector) advice(f *Finding, known, warp bool) string {
	note := ""
	if warp {
		note = " (the threads are lanes of one warp, which do not run in lockstep: __syncwarp() would also order them)"
	}
	switch {
	case f.Site == f.Other:
		return " with the same instruction, without a barrier in between: " +
			"want a different element for each thread (check the index and the bounds), or a __syncthreads()" + note
	case !known:
		return " without a barrier in between: want a __syncthreads() between the two" + note
	case f.Other.Index > f.Site.Index && f.Other.Func == f.Site.Func:
		return fmt.Sprintf(" without a barrier in between: want a __syncthreads() after %s, before the next "+
			"iteration of the loop reaches %s",
			line(f.Other), line(f.Site)) + note
	}
	return fmt.Sprintf(" without a barrier in between: want a __syncthreads() between %s and %s",
		line(f.Other), line(f.Site)) + note
}

// reportLaneRace reports that lanes i and j of one store write different bytes to addr. rounded
// reports whether these are numbers that differ by rounding.
func (r *raceDetector) reportLaneRace(a *emu.Access, i, j int, addr uint64, rounded bool) {
	k := key{checker: Race, kind: laneRace, site: a.Site, other: a.Site}
	if rounded {
		k.kind = toleratedRace
	}
	r.found.add(r.block, k, func(f *Finding) {
		where := r.location(addr - r.cur.base)
		f.Thread, f.OtherThread = r.thread(a.Warp*32+i), r.thread(a.Warp*32+j)
		f.Message = fmt.Sprintf("threads %v and %v write different values to %s in the same instruction, and "+
			"either may remain", f.OtherThread, f.Thread, where)
		if rounded {
			f.tolerate(roundedSums)
		} else {
			f.Message += ": want a different element for each thread (check the index and the bounds)"
		}
	})
}

// location describes the location at offset off of the current access.
func (r *raceDetector) location(off uint64) string {
	at := place(r.cur.space, off+r.cur.base, r.cur.alloc)
	if r.cur.alloc == nil && len(r.blocks) > 1 {
		at += fmt.Sprintf(" of block %v", r.blocks[r.cur.rank].Index)
	}
	return at
}
