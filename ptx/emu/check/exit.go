package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tilework/ptx/emu"
)

// A GPU performs an arrival at an mbarrier of another block some time after the thread has issued
// it. If that block exits first, the launch can end with CUDA error 719 (unspecified launch
// failure). The emulator performs arrivals immediately. The race detector therefore remembers each
// arrival until it is ordered before the exit of the block: a thread of the block observes the
// completion of the phase, or synchronizes with the arriving thread through a release after the
// arrival.

// remoteArrival is an arrival of a thread at an mbarrier of another block.
type remoteArrival struct {
	epoch epoch
	site  *emu.Site
	addr  uint64 // offset of the mbarrier in the shared memory of its block
}

// remoteArrivals holds the arrivals at an mbarrier whose completion its block has not observed: for
// each arriving thread the last one, which the thread's release orders after the earlier ones.
type remoteArrivals struct {
	current   map[int]remoteArrival // in the current phase
	completed map[int]remoteArrival // in completed phases
}

// record adds an arrival in the current phase.
func (a *remoteArrivals) record(thread int, r remoteArrival) {
	if a.current == nil {
		a.current = map[int]remoteArrival{}
	}
	a.current[thread] = r
}

// complete moves the arrivals of the current phase to those of completed phases.
func (a *remoteArrivals) complete() {
	if len(a.completed) == 0 {
		a.current, a.completed = a.completed, a.current
		return
	}
	maps.Copy(a.completed, a.current)
	clear(a.current)
}

// trackArrival records an event at an mbarrier at which threads of other blocks arrive.
func (r *raceDetector) trackArrival(e *emu.Mbarrier) {
	if len(r.blocks) == 1 {
		return
	}
	local := e.Warp/r.block.Warps == e.Rank
	to := &r.phasesOf(agent{rank: e.Rank, addr: e.Addr}).remote
	switch {
	case e.Kind == emu.MbarrierArrive && !local:
		lanesOf(e.Mask, func(lane int) {
			t := e.Warp*32 + lane
			to.record(t, remoteArrival{makeEpoch(r.now, t, e.Site.Index, 0), e.Site, e.Addr})
		})
	case e.Kind == emu.MbarrierComplete:
		to.complete()
	case e.Kind == emu.MbarrierWait && local:
		clear(to.completed)
	}
}

// exit reports the arrivals of other blocks that may reach the current block, of the given rank,
// after its exit.
func (r *raceDetector) exit(rank int) {
	r.resolveReads()
	var open []remoteArrival
	for at, p := range r.mbarriers {
		if at.rank == rank {
			open = slices.AppendSeq(open, maps.Values(p.remote.current))
			open = slices.AppendSeq(open, maps.Values(p.remote.completed))
		}
	}
	open = slices.DeleteFunc(open, func(a remoteArrival) bool { return r.known(a.epoch, rank) })
	slices.SortFunc(open, func(a, b remoteArrival) int {
		return cmp.Or(cmp.Compare(a.epoch.thread(), b.epoch.thread()), cmp.Compare(a.addr, b.addr),
			cmp.Compare(a.epoch, b.epoch))
	})
	for _, a := range open {
		r.reportExit(a)
	}
}

// known reports whether e is ordered before the next access of some thread of the block.
func (r *raceDetector) known(e epoch, rank int) bool {
	each := r.block.Warps * 32
	for t := rank * each; t < (rank+1)*each; t++ {
		if r.before(e, t) {
			return true
		}
	}
	return false
}

func (r *raceDetector) reportExit(a remoteArrival) {
	k := key{checker: Race, kind: exitRace, site: a.site}
	r.found.add(r.block, k, func(f *Finding) {
		exiting, n := f.Block, a.epoch.thread()
		f.OtherBlock, f.Block, f.Thread = exiting, r.blockOf(n).Index, r.thread(n)
		f.Message = fmt.Sprintf("block %v exits although the arrival of thread %v of block %v at its mbarrier at offset %#x "+
			"of shared memory may still be in flight: want a wait of block %v for that phase before it exits, or a "+
			"barrier.cluster.arrive without .relaxed after the arrival", exiting, f.Thread, f.Block, a.addr, exiting)
		r.checks.allow(f, ExitedBlock)
	})
}
