package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx/emu"
)

// The kinds of findings about barriers.
const (
	divergent uint8 = iota
	otherSite
	skipped
	returned
	stuck
)

// barriers finds aligned barriers that not all threads of a warp reach, and barriers of the
// whole block that not all of its threads reach, or reach at different instructions. It also
// finds barriers that never complete. A barrier that threads reach with different thread counts
// ends the launch ([emu.ErrMisuse]).
//
// Threads that skip an aligned barrier are an error, as the PTX ISA says of bar and
// barrier.cluster (version 9, "Parallel Synchronization and Communication Instructions"):
// "In conditionally executed code, an aligned barrier instruction should only be used if it
// is known that all threads in CTA evaluate the condition identically, otherwise behavior is
// undefined". For barrier.cluster it says "in the warp".
//
// Threads that have returned before they could reach the barrier are advice. The same manual
// says under exit that "Barriers exclusively waiting on arrivals from exited threads are
// always released", and the CUDA Programming Guide that __syncthreads() waits "until all
// non-exited threads in the thread block simultaneously reach the same __syncthreads*()
// intrinsic call in the program or exit". An early return and an if around the rest of the
// kernel are the same PTX. The deciding fact is whether the threads executed code that can run
// after the barrier.
type barriers struct {
	*worker
	open []openBarrier // by number, those of the cluster's first block first
}

// openBarrier is a barrier at which threads have arrived.
type openBarrier struct {
	arrival  // the first one; without a site: none yet
	aligned  bool
	expected int
	arrived  int
	attendance
	// mismatched reports that threads have passed the barrier at different instructions. They
	// stay apart, so that those which one of them misses later are no news.
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

// absence holds threads that exited without a barrier, and the first instruction in the text
// at which some of them left.
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
		b.judge(b.block, o)
		*o = openBarrier{mismatched: o.mismatched}
		return
	}
	b.arrive(o, e)
}

// arrive enters threads that arrive at a barrier.
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
			here, there = there, here // the same finding in either order of arrival
		}
		b.found.add(b.block, key{checker: Barrier, kind: otherSite, site: here.site, other: there.site}, func(f *Finding) {
			f.Thread, f.OtherThread = b.threadOf(here), b.threadOf(there)
			f.Message = fmt.Sprintf("thread %v waits for the whole block here while thread %v waits at %s: all threads must come to the same __syncthreads(), so it must not be in an if or a loop that only some of them take",
				f.Thread, f.OtherThread, line(there.site))
		})
	}
}

// divergent reports an aligned barrier that lanes reach while others of their warp wait
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
		f.Message = fmt.Sprintf("%s while %s of the same warp %s at %s: all threads of a warp must reach the barrier together, so it must not be in an if or a loop that only some of them take",
			here.verb(b.block, "is here", "are here"), elsewhere.text(b.block), elsewhere.plural("is", "are"), line(at))
	})
}

// clusterSync reports an aligned instruction at the barrier of the cluster that lanes reach
// without others of their warp.
func (b *barriers) clusterSync(e *emu.ClusterSync) {
	if len(e.Missing) == 0 {
		return
	}
	o := openBarrier{arrival: arrival{site: e.Site}}
	o.reached[e.Warp%b.block.Warps] = e.Mask
	o.absent(e.Missing)
	b.judge(b.block, &o)
}

// judge reports the threads that exited without the barrier.
func (b *barriers) judge(of *emu.BlockInfo, o *openBarrier) {
	if o.mismatched {
		return
	}
	if o.skipped.site != nil {
		b.found.add(of, key{checker: Barrier, kind: skipped, site: o.site}, func(f *Finding) {
			f.Thread, f.OtherThread = o.reached.first(of), o.skipped.first(of)
			f.Message = fmt.Sprintf("%s this barrier, but %s past it and %s at %s: all threads of the %s must reach it, so it must not be in an if or a loop that only some of them take",
				o.reached.verb(of, "reaches", "reach"), o.skipped.verb(of, "goes", "go"), o.skipped.plural("exits", "exit"), line(o.skipped.site), wanted(o.site))
		})
	}
	if o.returned.site != nil {
		b.found.add(of, key{checker: Barrier, kind: returned, site: o.site}, func(f *Finding) {
			f.Severity = Advice
			f.Thread, f.OtherThread = o.reached.first(of), o.returned.first(of)
			f.Message = fmt.Sprintf("%s this barrier, but %s the kernel at %s without it. It does not wait for threads that have exited, so this is correct only if no thread needs what they would have done before it. Otherwise let all threads of the %s reach it, and put the if around the work only",
				o.reached.verb(of, "reaches", "reach"), o.returned.verb(of, "leaves", "leave"), line(o.returned.site), wanted(o.site))
		})
	}
}

// wanted names the group whose threads must all reach a barrier: the block, or the warp if the
// instruction has a thread count or is for the cluster.
func wanted(s *emu.Site) string {
	if counted(s) || s.Instr != nil && s.Instr.Has("cluster") {
		return "warp"
	}
	return "block"
}

// end judges the barriers that have not completed. That threads still wait there counts only
// if the launch ended in a deadlock.
func (b *barriers) end() {
	for id := range b.open {
		o := &b.open[id]
		if o.site == nil {
			continue
		}
		of := b.blockOf(o.warp * 32)
		b.judge(of, o)
		b.found.add(of, key{checker: Barrier, kind: stuck, site: o.site}, func(f *Finding) {
			f.Thread = b.threadOf(o.arrival)
			f.Message = fmt.Sprintf("deadlock: %d threads, thread %v of block %v among them, wait at barrier %d for %d to come, and the others never will: is its number of threads wrong, or does the barrier stand where not all of them pass?",
				o.arrived, f.Thread, of.Index, id%barriersOfBlock, o.expected)
		})
	}
}
