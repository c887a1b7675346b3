package emu

import (
	"math/bits"
	"unsafe"
)

// warp is 32 threads of a block and where they are.
type warp struct {
	// Of the group that runs.
	base            unsafe.Pointer // its frame's register file
	code            []inst
	counts          []tally
	frame           *frame
	pc              int32  // the instruction after the one under way
	from            int32  // the branch that the group last took in its frame, or none
	mask            uint32 // the group's lanes
	active          uint32 // the lanes for which the instruction under way executes
	sliceLeft       int    // how many instructions may still be executed in this turn
	group           int    // its place in groups, or none
	unobserved      bool   // nobody wants to know of accesses to memory
	checksRegisters bool   // reads of registers are checked
	yield           bool   // the group makes room for others after the instruction under way
	queued          bool   // the block's scheduler has it in its list

	groups   []group
	live     uint32 // lanes that have not exited
	exits    []laneExit
	index    int
	block    *block
	worker   *worker
	frames   map[*function][]*frame // for reuse
	local    []uint64               // local memory, one lane after the other
	copies   copyQueue
	bulk     bulkGroups
	matrices warpMatrices
	// Where the lanes are with regard to the cluster's barrier.
	atCluster clusterLanes
	scratch   [lanes]wide
	// Of the access under way: the addresses, where they lead, the places behind the
	// start of the memory, and what observers get.
	addr, off, eventAddr [lanes]uint64
	at                   target
	event                Access
}

// group is lanes of a warp at the same place in the program. Of the group that runs,
// the warp's own fields are up to date.
type group struct {
	frame *frame
	pc    int32
	from  int32
	mask  uint32
	state groupState
	// need is the lanes that a group in the state meeting waits for.
	need uint32
	// arrived says that a barrier instruction is to let the group through as it is,
	// diverged from other lanes of the warp.
	passesBarrier bool
	barrier       int // that a waiting group waits at
	polls         int // since it last made room for others
}

// none is the place of the running group while none runs.
const none = -1

type groupState uint8

const (
	ready      groupState = iota
	yielded               // ready, but to run after the others: it polls
	converging            // until lanes of the warp come to the same instruction
	atBarrier             // at a barrier of the block
	// Those behind wait for what may come of itself.
	atClusterBarrier // at that of the cluster
	atMbarrier       // until an mbarrier of the cluster is through with a phase
	atWarpgroup      // until the other warps of the warpgroup come to an operation
)

// manyPolls is after how many accesses that look like polling a group makes room for
// other groups of its warp.
const pollsPerYield = 32

// start puts the warp's threads at the beginning of a kernel.
func (w *warp) start(fn *function, live uint32) {
	w.live = live
	w.exits = w.exits[:0]
	w.copies.reset()
	w.bulk = bulkGroups{}
	w.matrices = warpMatrices{}
	if fn.matrices {
		w.matrices.reset(len(fn.registers))
	}
	w.atCluster = clusterLanes{}
	f := w.newFrame(fn, nil, live)
	w.groups = append(w.groups[:0], group{frame: f, mask: live, from: none})
	w.resume(0)
}

// resume makes a group the one that runs.
func (w *warp) resume(n int) {
	g := &w.groups[n]
	g.state = ready
	w.group, w.frame, w.pc, w.from, w.mask = n, g.frame, g.pc, g.from, g.mask
	w.base, w.code = g.frame.base, g.frame.fn.code
	w.counts = w.worker.counts[g.frame.fn.first:]
}

// save writes the state of the group that runs back.
func (w *warp) save() {
	g := &w.groups[w.group]
	g.frame, g.pc, g.from, g.mask = w.frame, w.pc, w.from, w.mask
}

// turn executes up to n instructions of the warp.
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
		if active == full && !w.checksRegisters {
			in.exec(w, in)
		} else {
			count.idle += uint64(bits.OnesCount32(^active))
			if active != 0 {
				w.execPartly(in)
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

// partly executes an instruction for some lanes, or under observation.
func (w *warp) execPartly(in *inst) {
	if w.checksRegisters {
		w.checkRegisters(in)
	}
	active := w.active
	in.exec(w, in)
	if active != full && in.blend != 0 {
		w.blend(in.d, in.blend, active)
	}
}

// stop ends the warp's turn behind the instruction under way.
func (w *warp) endSlice() { w.sliceLeft = 0 }

// pick makes that group the running one that is first in the order, after joining
// those that have met. It returns false, with the turn ended, if none can run.
func (w *warp) pick() bool {
	if w.group != none {
		w.save()
		if w.yield {
			w.groups[w.group].state = yielded
		}
	}
	w.yield = false
	best := w.first(ready)
	if best < 0 {
		best = w.first(yielded)
	}
	if best < 0 && w.releaseDiverged() {
		best = w.first(ready)
	}
	if best < 0 {
		w.endSlice()
		return false
	}
	w.join(best)
	return true
}

// first is the group in the given state that is first in the order: that of the
// deepest call, and in it that of the lowest rank; -1 if there is none.
func (w *warp) first(state groupState) int {
	best := -1
	for n := range w.groups {
		g := &w.groups[n]
		if g.state == state && (best < 0 || g.before(&w.groups[best])) {
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

// join resumes a group after adding to it those that are ready at the same place.
func (w *warp) join(n int) {
	g := &w.groups[n]
	for k := len(w.groups) - 1; k >= 0; k-- {
		h := &w.groups[k]
		if k != n && h.frame == g.frame && h.pc == g.pc && (h.state == ready || h.state == yielded) && h.passesBarrier == g.passesBarrier {
			g.mask |= h.mask
			g.from = g.laterBranch(h)
			n = w.remove(k, n)
			g = &w.groups[n]
		}
	}
	w.resume(n)
}

// remove takes group k out and returns where group n then is.
func (w *warp) remove(k, n int) int {
	last := len(w.groups) - 1
	w.groups[k] = w.groups[last]
	w.groups = w.groups[:last]
	if n == last {
		return k
	}
	return n
}

// split leaves the lanes of mask, which go on at pc, to a group of their own. The
// running group keeps the others.
func (w *warp) split(mask uint32, pc int32) {
	w.mask &^= mask
	w.groups = append(w.groups, group{frame: w.frame, pc: pc, mask: mask, from: w.from})
}

// meet reports whether the lanes of need, as far as they have not exited, are at the
// instruction under way; those that waited there have then joined the active ones. If
// not, the group waits there, and another one may run already: the instruction must
// do no more. Instructions that meet write their results themselves (blend is 0).
func (w *warp) converge(in *inst, need uint32) bool {
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
	if need&^w.active == 0 {
		return true
	}
	w.uncount(in)
	w.suspend(in, converging).need = need
	w.pick()
	return false
}

// suspend makes the active lanes of the running group wait at the instruction under
// way, in a group of their own. No group runs then: the caller picks one.
func (w *warp) suspend(in *inst, state groupState) *group {
	if rest := w.mask &^ w.active; rest != 0 { // those whose guard is false go on
		w.split(rest, w.pc)
	}
	w.pc = in.pc
	w.save()
	g := &w.groups[w.group]
	g.state = state
	w.group = none
	return g
}

// uncount takes back that the instruction under way was executed.
func (w *warp) uncount(in *inst) {
	count := &w.counts[in.pc]
	count.Executed--
	count.idle -= uint64(bits.OnesCount32(^w.active))
}

// disperse lets groups go on that wait at a barrier for lanes of their warp which will
// not come: those lanes wait at another barrier of the block, so the warp has really
// diverged there. Lanes that wait for something else may come yet.
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
	for n := range w.groups { // who waits for those lanes looks again
		if g := &w.groups[n]; g.state == converging {
			g.state = ready
		}
	}
	w.leaveGroup(active)
	w.block.threadsExited()
}

// release takes lanes out of a frame and keeps it for a later call after the last one.
func (w *warp) release(f *frame, mask uint32) {
	if f.lanes &^= mask; f.lanes == 0 {
		w.frames[f.fn] = append(w.frames[f.fn], f)
	}
}

// depart takes lanes out of the running group, to run those of another one.
func (w *warp) leaveGroup(mask uint32) {
	if w.mask &^= mask; w.mask == 0 {
		w.remove(w.group, -1)
		w.group = none
	}
	w.pick()
}

// poll notes an access that may be one of many in wait for another thread. If other
// groups of the warp could do something, the group makes room for them now and then.
func (w *warp) poll() {
	if len(w.groups) == 1 {
		return
	}
	g := &w.groups[w.group]
	if g.polls++; g.polls < pollsPerYield {
		return
	}
	g.polls, w.yield = 0, true
}

// thread is the index in the block of a lane's thread.
func (w *warp) thread(lane int) Dim3 {
	b := w.block.run.launch.Block
	t := w.index*lanes + lane
	return Dim3{t % b.X, t / b.X % b.Y, t / (b.X * b.Y)}
}

// origin says who executes the instruction under way.
func (w *warp) origin(in *inst) Origin { return Origin{Site: in.site, Warp: w.index, Mask: w.active} }
