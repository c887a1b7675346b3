package check

import (
	"fmt"

	"tilework/ptx/emu"
)

// tensorOrder tracks the order of accesses to tensor memory. The operations of a thread that
// tcgen05.commit tracks run in order ("tcgen05-memory-consistency-model-pipelined-instructions"),
// and their completion is observed at the mbarrier of a commit. Loads and stores are complete after
// tcgen05.wait.
type tensorOrder struct {
	pipes map[int][]uint64 // operations in flight, by thread, oldest first
	// fencesOf holds the times of the last fences of each thread.
	fencesOf []tensorFences
}

type tensorFences struct{ before, after uint32 }

// isTensor reports whether an instruction is a tcgen05 instruction.
func isTensor(s *emu.Site) bool { return s.Instr != nil && s.Instr.Op == "tcgen05" }

// isPipelined reports whether tcgen05.commit tracks an instruction.
func isPipelined(s *emu.Site) bool {
	return isTensor(s) && (s.Instr.Mods[0] == "mma" || s.Instr.Mods[0] == "cp")
}

// inOrder reports whether e and an earlier access p are operations of a thread that run in order.
// If the completion of p was observed, it is work of the thread's agent.
func (r *raceDetector) inOrder(p, e epoch) bool {
	if !isPipelined(r.site(p.site())) || !isPipelined(r.site(e.site())) {
		return false
	}
	return sameThread(p, e) || p.thread() >= r.threads && p.thread() == r.agents[agent{pipe: e.thread() + 1}]
}

// completePipe completes the operations of a thread up to a number, as work of the given agent.
func (r *raceDetector) completePipe(last copyPart, agent int) {
	list := r.pipes[last.pipe-1]
	for len(list) > 0 && list[0] <= last.copy {
		r.completeBulk(list[0], agent, false)
		list = list[1:]
	}
	r.pipes[last.pipe-1] = list
}

// tensorFence records a tcgen05.fence.
func (r *raceDetector) tensorFence(f *emu.Fence, now uint32) {
	lanesOf(f.Mask, func(lane int) {
		fences := &r.fencesOf[f.Warp*32+lane]
		if f.Proxy == "tcgen05.fence::before_thread_sync" {
			fences.before = now
		} else {
			fences.after = now
		}
	})
}

// checkTensorFence reports that the synchronization of two threads orders p before e, without the
// fences that the manual requires. The completion of a commit needs no fence before it.
func (r *raceDetector) checkTensorFence(p, e epoch, off uint64) {
	fencedBefore := p.thread() >= r.threads || p.time() <= r.fencesOf[p.thread()].before
	if sameWarp(p, e) || fencedBefore && p.time() < r.fencesOf[r.cur.by].after {
		return
	}
	r.found.add(r.block, key{checker: Race, kind: tensorFenceRace, site: r.site(e.site()), other: r.site(p.site())},
		func(f *Finding) {
			one, other := r.name(f, e, p)
			where := r.location(off)
			f.Severity = Advice
			f.Message = fmt.Sprintf("%s accesses %s, after %s at %s and a synchronization of threads: the manual requires a "+
				"tcgen05.fence::before_thread_sync before it and a tcgen05.fence::after_thread_sync after it",
				one, where, other, line(f.Other))
		})
}

// tensorWait returns the name of a tcgen05 operation in flight, and the wait that completes it.
func tensorWait(s *emu.Site) (name, wait string) {
	switch name = "tcgen05." + s.Instr.Mods[0]; s.Instr.Mods[0] {
	case "ld", "st":
		return name, fmt.Sprintf("a tcgen05.wait::%s, and a barrier between its warp and this thread,", s.Instr.Mods[0])
	}
	return name, "a tcgen05.commit by its thread, and a wait for the commit's mbarrier,"
}
