package emu

import (
	"math/bits"
	"unsafe"
)

// warp is 32 threads of a block.
type warp struct {
	// State of the running group.
	base            unsafe.Pointer // register file of frame
	code            []inst
	counts          []tally
	frame           *frame
	pc              int32  // next instruction
	from            int32  // the branch that the group last took in its frame, or none
	mask            uint32 // lanes of the group
	active          uint32 // lanes that execute the current instruction
	sliceLeft       int    // remaining instructions of the time slice
	group           int    // index in groups, or none
	unobserved      bool   // no observer of accesses, and writes are not tracked
	checksRegisters bool   // register accesses are checked
	direct          bool   // neither is needed: a check of registers, an event for each instruction
	tracks          bool   // undefined values are tracked
	yield           bool   // the group yields after the current instruction
	turns           int    // yields of the groups so far
	queued          bool   // the warp is in cluster.runnable

	groups         []group
	live           uint32 // lanes that have not exited
	exits          []laneExit
	index          int
	block          *block
	worker         *worker
	frames         map[*function][]*frame // for reuse
	local          []uint64               // local memory, lane by lane
	undefinedLocal undefinedLocal
	moved          movedBits // of the current instruction
	copies         copyQueue
	bulk           bulkGroups
	matrices       warpMatrices
	transfers      []tensorTransfer
	// State of the lanes at the cluster barrier.
	atCluster clusterLanes
	scratch   [lanes]wide
	// State of the current access: addresses, offsets in the target, addresses for the event, and
	// the event.
	addr, off, eventAddr [lanes]uint64
	at                   target
	event                Access
}

// group is a set of lanes at the same instruction. For the running group, the fields of the warp
// are current instead.
type group struct {
	frame *frame
	pc    int32
	from  int32
	mask  uint32
	state groupState
	// need holds the lanes that a converging group waits for.
	need uint32
	// passesBarrier makes the next barrier instruction accept the group although it has diverged
	// from other lanes of the warp.
	passesBarrier bool
	barrier       int   // barrier that the group waits at
	polls         int   // number of polls since the group last yielded
	polled        *inst // the last access that polled
	turn          int   // number of the group's last yield among those of the warp
}

// none is the value of warp.group while no group runs, and of group.from before a branch.
const none = -1

type groupState uint8

const (
	ready      groupState = iota
	yielded               // ready, but after other groups because it polls
	converging            // waits for other lanes of the warp to reach the instruction
	atBarrier             // waits at a barrier of the block
	// atClusterBarrier and the states after it can end without other lanes of the warp.
	atClusterBarrier // waits at the cluster barrier
	atMbarrier       // waits for a phase of an mbarrier
	atWarpgroup      // waits for other warps of the warpgroup to start an operation
	atTensorMemory   // waits for free columns of tensor memory
)

// pollsPerYield is the number of polling accesses after which a group yields to other groups of its
// warp.
const pollsPerYield = 32

// start puts the warp's threads at the beginning of a kernel.
func (w *warp) start(fn *function, live uint32) {
	w.live = live
	w.exits = w.exits[:0]
	w.copies.reset()
	w.bulk = bulkGroups{}
	w.matrices = warpMatrices{}
	w.transfers = w.transfers[:0]
	if fn.matrices {
		w.matrices.reset(len(fn.registers))
	}
	w.atCluster = clusterLanes{}
	f, _ := w.newFrame(fn, nil, live) // the launch has taken its memory
	w.groups = append(w.groups[:0], group{frame: f, mask: live, from: none})
	w.resume(0)
}

// resume makes group n the running group.
func (w *warp) resume(n int) {
	g := &w.groups[n]
	g.state = ready
	w.group, w.frame, w.pc, w.from, w.mask = n, g.frame, g.pc, g.from, g.mask
	w.base, w.code = g.frame.base, g.frame.fn.code
	w.counts = w.worker.counts[g.frame.fn.first:]
}

// save writes the state of the running group back to groups.
func (w *warp) save() {
	g := &w.groups[w.group]
	g.frame, g.pc, g.from, g.mask = w.frame, w.pc, w.from, w.mask
}

// runSlice executes up to n instructions of the warp.
func (w *warp) runSlice(n int) {
	w.sliceLeft = n
	if !w.pick() {
		return
	}
	for w.sliceLeft > 0 {
		w.sliceLeft--
		in := &w.code[w.pc]
		active := w.mask & (*pred(w, in.guard) ^ in.guardNot)
		count := &w.counts[w.pc]
		count.Executed++
		w.pc++
		w.active = active
		if active == full && w.direct {
			in.exec(w, in)
		} else {
			count.idle += uint64(bits.OnesCount32(^active))
			if active != 0 {
				w.execPartly(in)
			} else if w.tracks {
				w.trackGuard(in)
			}
		}
		if len(w.groups) > 1 && w.sliceLeft > 0 && (w.yield || w.code[w.pc].leader) {
			w.pick()
		}
	}
	if w.group != none {
		w.save()
	}
}

// execPartly executes an instruction for some lanes, or with register checks or events.
func (w *warp) execPartly(in *inst) {
	for _, f := range w.block.execute {
		f(w.origin(in))
	}
	if w.checksRegisters {
		w.checkRegisters(in)
	}
	active := w.active
	in.exec(w, in)
	if active != full && in.blend != 0 {
		w.blend(in.d, in.blend, active)
	}
}

// endSlice ends the warp's time slice after the current instruction.
func (w *warp) endSlice() { w.sliceLeft = 0 }

// pick merges converged groups and resumes the first ready group in the reconvergence order. If no
// group is ready, it ends the time slice and returns false.
func (w *warp) pick() bool {
	if w.group != none {
		w.save()
		if w.yield {
			w.turns++
			w.groups[w.group].state, w.groups[w.group].turn = yielded, w.turns
		}
	}
	w.yield = false
	best := w.firstReady()
	if best < 0 {
		best = w.firstYielded()
	}
	if best < 0 && w.releaseDiverged() {
		best = w.firstReady()
	}
	if best < 0 {
		w.endSlice()
		return false
	}
	w.join(best)
	return true
}

// firstReady returns the first ready group, or -1. Groups in deeper calls come first, then those
// with lower ranks.
func (w *warp) firstReady() int {
	best := -1
	for n := range w.groups {
		g := &w.groups[n]
		if g.state == ready && (best < 0 || g.before(&w.groups[best])) {
			best = n
		}
	}
	return best
}

// firstYielded returns the group that yielded before all others that have yielded, or -1. In any
// other order, groups that poll could keep out the one that they wait for.
func (w *warp) firstYielded() int {
	best := -1
	for n := range w.groups {
		g := &w.groups[n]
		if g.state == yielded && (best < 0 || g.turn < w.groups[best].turn) {
			best = n
		}
	}
	return best
}

func (g *group) before(h *group) bool {
	if g.frame.depth != h.frame.depth {
		return g.frame.depth > h.frame.depth
	}
	if g.frame != h.frame {
		return bits.TrailingZeros32(g.mask) < bits.TrailingZeros32(h.mask)
	}
	if a, b := g.frame.fn.rank[g.pc], h.frame.fn.rank[h.pc]; a != b {
		return a < b
	}
	return g.pc < h.pc
}

// join merges group n with the ready groups at the same instruction and resumes it.
func (w *warp) join(n int) {
	g := &w.groups[n]
	for k := len(w.groups) - 1; k >= 0; k-- {
		h := &w.groups[k]
		if k != n && h.frame == g.frame && h.pc == g.pc && (h.state == ready || h.state == yielded) &&
			h.passesBarrier == g.passesBarrier {
			g.mask |= h.mask
			g.from = g.laterBranch(h)
			n = w.remove(k, n)
			g = &w.groups[n]
		}
	}
	w.resume(n)
}

// remove deletes group k and returns the new index of group n.
func (w *warp) remove(k, n int) int {
	last := len(w.groups) - 1
	w.groups[k] = w.groups[last]
	w.groups = w.groups[:last]
	if n == last {
		return k
	}
	return n
}

// split moves the lanes of mask from the running group to a new group at pc.
func (w *warp) split(mask uint32, pc int32) {
	w.mask &^= mask
	w.groups = append(w.groups, group{frame: w.frame, pc: pc, mask: mask, from: w.from})
}

// converge reports whether all live lanes of need are at the current instruction. If it returns
// false, the group waits and another one may be running already, so the instruction must return at
// once. Instructions that call converge write their results themselves (blend is 0).
func (w *warp) converge(in *inst, need uint32) bool {
	if w.gather(in, need) {
		return true
	}
	w.await(in, need)
	return false
}

// gather merges the groups that wait at the current instruction for the lanes of need into the
// running group. It reports whether all of these lanes that are live are there.
func (w *warp) gather(in *inst, need uint32) bool {
	need &= w.live
	if need&^w.active == 0 {
		return true
	}
	for k := len(w.groups) - 1; k >= 0; k-- {
		g := &w.groups[k]
		if k != w.group && g.state == converging && g.frame == w.frame && g.pc == in.pc && g.need&w.live == need {
			w.active |= g.mask
			w.mask |= g.mask
			w.counts[in.pc].idle -= uint64(bits.OnesCount32(g.mask))
			w.group = w.remove(k, w.group)
		}
	}
	return need&^w.active == 0
}

// await makes the running group wait for the lanes of need, and picks another one.
func (w *warp) await(in *inst, need uint32) {
	w.uncount(in)
	w.suspend(in, converging).need = need & w.live
	w.pick()
}

// suspend makes the active lanes wait at the current instruction in a separate group. The caller
// must then pick a group to run.
func (w *warp) suspend(in *inst, state groupState) *group {
	if rest := w.mask &^ w.active; rest != 0 { // lanes with a false guard continue
		w.split(rest, w.pc)
	}
	w.pc = in.pc
	w.save()
	g := &w.groups[w.group]
	g.state = state
	w.group = none
	return g
}

// uncount reverts the count of the current instruction, which will execute again.
func (w *warp) uncount(in *inst) {
	count := &w.counts[in.pc]
	count.Executed--
	count.idle -= uint64(bits.OnesCount32(^w.active))
}

// releaseDiverged lets groups pass that wait at a barrier for other lanes of their warp, if those
// lanes wait at a different barrier of the block. The warp has then diverged and the lanes will not
// converge. It does nothing while lanes wait for an event that can still happen.
func (w *warp) releaseDiverged() bool {
	any := false
	for n := range w.groups {
		if s := w.groups[n].state; s > atBarrier {
			return false
		}
	}
	for n := range w.groups {
		g := &w.groups[n]
		if g.state == converging && isBarrier(&g.frame.fn.code[g.pc]) {
			g.state, g.passesBarrier, any = ready, true, true
		}
	}
	return any
}

// exit ends the active lanes.
func (w *warp) exit(active uint32) {
	w.noteExit(active)
	w.live &^= active
	for f := w.frame; f != nil; f = f.caller {
		w.release(f, active)
	}
	for n := range w.groups { // groups that waited for these lanes check again
		if g := &w.groups[n]; g.state == converging {
			g.state = ready
		}
	}
	w.leaveGroup(active)
	w.block.threadsExited()
}

// release removes lanes from a frame and recycles the frame after the last one.
func (w *warp) release(f *frame, mask uint32) {
	if f.lanes &^= mask; f.lanes == 0 {
		w.frames[f.fn] = append(w.frames[f.fn], f)
	}
}

// leaveGroup removes lanes from the running group and picks a group to run.
func (w *warp) leaveGroup(mask uint32) {
	if w.mask &^= mask; w.mask == 0 {
		w.remove(w.group, -1)
		w.group = none
	}
	w.pick()
}

// poll counts an access that may poll for a write of another thread. If the warp has other groups,
// the running group yields after every pollsPerYield polls.
func (w *warp) poll(in *inst) {
	g := &w.groups[w.group]
	g.polled = in
	if len(w.groups) == 1 {
		return
	}
	if g.polls++; g.polls < pollsPerYield {
		return
	}
	g.polls, w.yield = 0, true
}

// eachLane calls do for each active lane, as the only active one, until the launch fails.
func (w *warp) eachLane(do func(lane int)) {
	active := w.active
	for m := active; m != 0 && w.block.cluster.err == nil; m &= m - 1 {
		w.active = m & -m
		do(firstLane(m))
	}
	w.active = active
}

// thread returns the index in the block of a lane's thread.
func (w *warp) thread(lane int) Dim3 {
	b := w.block.run.launch.Block
	t := w.index*lanes + lane
	return Dim3{t % b.X, t / b.X % b.Y, t / (b.X * b.Y)}
}

// origin returns the origin of the current instruction.
func (w *warp) origin(in *inst) Origin { return Origin{Site: in.site, Warp: w.index, Mask: w.active} }
