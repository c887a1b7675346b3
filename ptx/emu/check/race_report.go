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

// race is a race between two accesses, in the order of the program if that is known.
type race struct {
	kind          uint8
	first, second racing
	ordered       bool   // whether the order is known
	tolerated     string // the reason why the race is only advice, or an empty string
}

// racing is one of the accesses of a race.
type racing struct {
	epoch
	writes bool
}

// reportRace reports that the current access e races with p.
func (r *raceDetector) reportRace(p, e epoch, pWrites bool, off uint64) {
	x := r.classify(racing{p, pWrites}, racing{e, r.cur.write})
	k := key{checker: Race, kind: x.kind, site: r.site(x.second.site()), other: r.site(x.first.site())}
	if x.kind == mixedRace {
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
	r.found.add(r.block, k, func(f *Finding) { r.describeRace(f, x, off) })
	recent.ranked, recent.kind = r.found[k], k.kind
}

// classify returns the race of the current access e with p.
//
// The two accesses can be seen in either order. To tell where the barrier is missing, classify
// finds out which of the two instructions comes first in the program. If a thread's warp has
// executed the other thread's instruction since the last barrier, the serial numbers give the
// order.
func (r *raceDetector) classify(p, e racing) race {
	x := race{kind: threadRace, first: p, second: e}
	if p.epoch&async != 0 {
		x.kind = asyncRace
		return x
	}
	x.ordered = r.lastRun(e.epoch, p.site()) > r.opened
	if other := r.lastRun(p.epoch, e.site()); !x.ordered && other > r.opened {
		x.ordered = true
		if other < r.lastRun(p.epoch, p.site()) {
			x.first, x.second = e, p
		}
	}
	if p.writes && e.writes {
		x.tolerated = toleratedWrite(p.epoch, e.epoch)
	}
	switch {
	case x.tolerated != "":
		x.kind = toleratedRace
	case p.writes != e.writes && (p.epoch^e.epoch)&strong != 0:
		x.kind = mixedRace
	}
	return x
}

// lastRun returns the serial number of the last execution of an instruction by the warp of e, or 0.
func (r *raceDetector) lastRun(e epoch, site int) uint64 {
	if e.thread() >= r.threads {
		return 0
	}
	if sites := r.ran[e.warp()]; site < len(sites) {
		return sites[site]
	}
	return 0
}

// describeRace writes the message of a race at offset off of the current access.
func (r *raceDetector) describeRace(f *Finding, x race, off uint64) {
	one, other := r.name(f, x.second.epoch, x.first.epoch)
	size, where := r.cur.size, r.location(off)
	if x.kind == asyncRace {
		what, wait := asyncWait(f.Other, x.first.epoch)
		f.Message = fmt.Sprintf("%s %s %s at %s that the %s of %s at %s may still %s: want %s before %s",
			one, verb[x.second.writes], amount(size), where, what, other, line(f.Other),
			map[bool]string{false: "read", true: "write"}[x.first.writes], wait, line(f.Site))
		return
	}
	f.Message = fmt.Sprintf("%s %s %s at %s that %s %s at %s", one, verb[x.second.writes], amount(size), where, other,
		verb[x.first.writes], line(f.Other))
	switch {
	case x.first.thread() >= r.threads:
		f.Message += fmt.Sprintf(". The operation is complete, but %s has not synchronized with it: want a "+
			"wait for its mbarrier before %s; "+
			"a thread that arrives on the mbarrier must first wait for its own operations (wgmma.wait_group)",
			one, line(f.Site))
	case x.tolerated != "":
		f.tolerate(x.tolerated)
	case x.first.epoch&x.second.epoch&strong != 0 && !r.sameBlock(x.first.epoch, x.second.epoch):
		f.Message += narrowScope
	default:
		f.Message += r.advice(f, x.ordered, sameWarp(x.first.epoch, x.second.epoch))
	}
}

// asyncWait returns the name of an asynchronous operation, whose access is p, and the wait for it.
func asyncWait(site *emu.Site, p epoch) (what, wait string) {
	switch {
	case isTensor(site):
		return tensorWait(site)
	case isMatrix(site):
		return "wgmma.mma_async", "a wgmma.wait_group, and a barrier between its warpgroup and this thread,"
	case p&proxied != 0:
		return "asynchronous copy", "a wait for the copy (on its mbarrier, or cp.async.bulk.wait_group), and a barrier " +
			"between the waiting thread and this one,"
	}
	return "asynchronous copy", "a wait for the copy (cp.async.wait_group or cp.async.wait_all), followed by a " +
		"__syncthreads(),"
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
