package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx/emu"
)

// Kinds of barrier findings.
const (
	divergent uint8 = iota // lanes of a warp do not arrive together
	otherSite              // threads arrive at different instructions
	skipped                // threads have passed the barrier by another path
	returned               // threads have returned before the barrier
	stuck                  // the barrier never completes
	unsynced               // lanes of a member mask have passed the instruction by another path
)

// barriers detects aligned barriers that not all threads of a warp reach, and barriers of the
// whole block that not all of its threads reach, or that they reach at different instructions. It
// also detects barriers that never complete. If threads reach a barrier with different thread
// counts, the emulator ends the launch ([emu.ErrMisuse]).
//
// Threads that skip an aligned barrier are an error, as the PTX ISA says of bar and
// barrier.cluster (version 9, "Parallel Synchronization and Communication Instructions"): "In
// conditionally executed code, an aligned barrier instruction should only be used if it is known
// that all threads in CTA evaluate the condition identically, otherwise behavior is undefined".
// For barrier.cluster it says "in the warp".
//
// Threads that have returned before they could reach the barrier are advice. The same manual says
// under exit that "Barriers exclusively waiting on arrivals from exited threads are always
// released", and the CUDA Programming Guide that __syncthreads() waits "until all non-exited
// threads in the thread block simultaneously reach the same __syncthreads*() intrinsic call in
// the program or exit".
//
// An early return and an if around the rest of the kernel compile to the same PTX. Threads count
// as skipping a barrier if they have executed code that can run after the barrier, and otherwise
// as returning before it.
type barriers struct {
	*worker
	open []openBarrier // by number, 16 for each block of the cluster
}

// openBarrier is a barrier that has not completed.
type openBarrier struct {
	arrival  // the first arrival; its site is nil before that
	aligned  bool
	expected int
	arrived  int
	attendance
	// mismatched reports that threads have passed the barrier at different instructions. From
	// then on they miss further barriers, which are not reported.
	mismatched bool
}

// arrival is the first thread of a warp to arrive, and its barrier instruction.
type arrival struct {
	site *emu.Site
	warp int
	lane int
}

func (b *barriers) threadOf(a arrival) emu.Dim3 { return b.thread(a.warp*32 + a.lane) }

// attendance holds the threads of a block that reach a barrier and those that do not.
type attendance struct {
	reached           threads
	skipped, returned absence
}

// absence holds threads that exited without reaching a barrier, and the instruction with the
// lowest index at which one of them exited.
type absence struct {
	threads
	site *emu.Site
}

// absent adds the missing threads that have exited.
func (a *attendance) absent(missing []emu.Missing) {
	for _, m := range missing {
		switch {
		case !m.Exited:
		case m.Skipped:
			a.skipped.add(m.Origin)
		default:
			a.returned.add(m.Origin)
		}
	}
}

func (a *absence) add(o emu.Origin) {
	a.threads[o.Warp] |= o.Mask
	if a.site == nil || index(o.Site) < index(a.site) {
		a.site = o.Site
	}
}

func (b *barriers) start() { b.open = b.open[:0] }

func (b *barriers) event(e *emu.Barrier) {
	for len(b.open) <= e.ID {
		b.open = append(b.open, openBarrier{})
	}
	o := &b.open[e.ID]
	o.absent(e.Missing)
	if e.Kind == emu.BarrierComplete {
		b.reportMissing(b.block, o)
		*o = openBarrier{mismatched: o.mismatched}
		return
	}
	b.arrive(o, e)
}

// arrive records an arrival at a barrier.
func (b *barriers) arrive(o *openBarrier, e *emu.Barrier) {
	o.reached[e.Warp%b.block.Warps] |= e.Mask
	o.arrived = e.Arrived
	here := arrival{e.Site, e.Warp, bits.TrailingZeros32(e.Mask)}
	if o.site == nil {
		o.arrival, o.aligned, o.expected = here, e.Aligned, e.Expected
	}
	switch {
	case e.Divergent():
		o.mismatched = true
		b.divergent(e)
	case o.site != e.Site && o.aligned && e.Aligned && !counted(e.Site) && !counted(o.site):
		o.mismatched = true
		there := o.arrival
		if index(here.site) < index(there.site) {
			here, there = there, here // the finding must not depend on the order of arrival
		}
		b.found.add(b.block, key{checker: Barrier, kind: otherSite, site: here.site, other: there.site},
			func(f *Finding) {
				f.Thread, f.OtherThread = b.threadOf(here), b.threadOf(there)
				f.Message = fmt.Sprintf("thread %v waits for the whole block here while thread %v waits at %s: "+
					"want all threads at the same __syncthreads(), outside of ifs and loops that only some of "+
					"them enter",
					f.Thread, f.OtherThread, line(there.site))
			})
	}
}

// divergent reports an aligned barrier that lanes reach while other lanes of their warp wait
// elsewhere.
func (b *barriers) divergent(e *emu.Barrier) {
	var here, elsewhere threads
	here[e.Warp%b.block.Warps] = e.Mask
	var at *emu.Site
	for _, m := range e.Missing {
		if !m.Exited {
			elsewhere[m.Warp] |= m.Mask
			at = m.Site
		}
	}
	b.found.add(b.block, key{checker: Barrier, kind: divergent, site: e.Site}, func(f *Finding) {
		f.Thread, f.OtherThread = here.first(b.block), elsewhere.first(b.block)
		f.Message = fmt.Sprintf("%s at this barrier while %s of the same warp %s at %s: "+
			"want all threads of a warp to reach the barrier together, outside of ifs and loops that only some of "+
			"them enter",
			here.verb(b.block, "is", "are"), elsewhere.text(b.block), elsewhere.plural("is", "are"), line(at))
	})
}

// clusterSync reports an aligned instruction for the barrier of the cluster that only some lanes
// of a warp reach.
func (b *barriers) clusterSync(e *emu.ClusterSync) {
	if len(e.Missing) == 0 {
		return
	}
	o := openBarrier{arrival: arrival{site: e.Site}}
	o.reached[e.Warp%b.block.Warps] = e.Mask
	o.absent(e.Missing)
	b.reportMissing(b.block, &o)
}

// warpSync reports an instruction with a member mask whose lanes did not all execute it. The PTX
// ISA says of the .sync instructions that they "wait until all non-exited threads corresponding to
// membermask" execute them (version 9, section "shfl.sync"). Lanes that exited early are therefore
// not missing, but those that skipped the instruction are.
func (b *barriers) warpSync(e *emu.WarpSync) {
	var o openBarrier
	o.absent(e.Missing)
	if o.skipped.site == nil {
		return
	}
	o.reached[e.Warp%b.block.Warps] = e.Mask
	b.found.add(b.block, key{checker: Barrier, kind: unsynced, site: e.Site}, func(f *Finding) {
		f.Thread, f.OtherThread = o.reached.first(b.block), o.skipped.first(b.block)
		f.Message = fmt.Sprintf("%s this instruction with the member mask %#08x, but %s it and %s at %s: "+
			"want all lanes of the mask to execute it, outside of ifs and loops that only some of them enter, or a mask "+
			"of the lanes that do (from __ballot_sync before the if)",
			o.reached.verb(b.block, "executes", "execute"), e.Members, o.skipped.verb(b.block, "skips", "skip"),
			o.skipped.plural("exits", "exit"), line(o.skipped.site))
	})
}

// reportMissing reports the threads that exited without reaching the barrier.
func (b *barriers) reportMissing(of *emu.BlockInfo, o *openBarrier) {
	if o.mismatched {
		return
	}
	if o.skipped.site != nil {
		b.found.add(of, key{checker: Barrier, kind: skipped, site: o.site}, func(f *Finding) {
			f.Thread, f.OtherThread = o.reached.first(of), o.skipped.first(of)
			f.Message = fmt.Sprintf("%s this barrier, but %s it and %s at %s: "+
				"want all threads of the %s to reach it, outside of ifs and loops that only some of them enter",
				o.reached.verb(of, "reaches", "reach"), o.skipped.verb(of, "skips", "skip"),
				o.skipped.plural("exits", "exit"), line(o.skipped.site), requiredGroup(o.site))
		})
	}
	if o.returned.site != nil {
		b.found.add(of, key{checker: Barrier, kind: returned, site: o.site}, func(f *Finding) {
			f.Severity = Advice
			f.Thread, f.OtherThread = o.reached.first(of), o.returned.first(of)
			f.Message = fmt.Sprintf("%s this barrier, but %s the kernel at %s without reaching it. "+
				"A barrier does not wait for exited threads, so the kernel is correct only if no thread depends "+
				"on their work: "+
				"want all threads of the %s to reach the barrier, with only the work inside the if",
				o.reached.verb(of, "reaches", "reach"), o.returned.verb(of, "leaves", "leave"),
				line(o.returned.site), requiredGroup(o.site))
		})
	}
}

// requiredGroup returns the group of threads that must all reach a barrier: "block", or "warp" if
// the instruction specifies a thread count or is for the cluster.
func requiredGroup(s *emu.Site) string {
	if counted(s) || s.Instr != nil && s.Instr.Has("cluster") {
		return "warp"
	}
	return "block"
}

// end reports threads missing at barriers that have not completed. It also reports waiting
// threads; the report keeps those findings only if the launch ended in a deadlock.
func (b *barriers) end() {
	for id := range b.open {
		o := &b.open[id]
		if o.site == nil {
			continue
		}
		of := b.blockOf(o.warp * 32)
		b.reportMissing(of, o)
		b.found.add(of, key{checker: Barrier, kind: stuck, site: o.site}, func(f *Finding) {
			f.Thread = b.threadOf(o.arrival)
			f.Message = fmt.Sprintf("deadlock: %d threads, including thread %v of block %v, wait at barrier %d, "+
				"which expects %d threads: "+
				"want a thread count that matches the threads that reach the barrier",
				o.arrived, f.Thread, of.Index, id%barriersOfBlock, o.expected)
		})
	}
}
