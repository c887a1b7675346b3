package emu

import "slices"

// laneExit records that lanes of a warp exited. Its instructions are in the kernel: inside a
// function, they are the call that led there.
type laneExit struct {
	mask uint32
	exit int32 // pc of the exit
	last int32 // pc of the instruction before the exit
}

// noteExit records where the lanes of mask exit the kernel.
func (w *warp) noteExit(mask uint32) {
	exit := w.pc - 1
	e := laneExit{mask: mask, exit: w.kernelPC(exit), last: w.kernelPC(exit)}
	if w.frame.caller == nil {
		e.last = w.frame.fn.previous(exit, w.from)
	}
	w.exits = append(w.exits, e)
}

// kernelPC returns pc, a position in the function of the running group, as a position in the
// kernel: pc itself, or the call in the kernel that led to the function.
func (w *warp) kernelPC(pc int32) int32 {
	for f := w.frame; f.caller != nil; f = f.caller {
		pc = f.call.pc
	}
	return pc
}

// previous returns the instruction that lanes executed before the one at pc, given the last branch
// that they took.
func (f *function) previous(pc, from int32) int32 {
	if from != none && slices.Contains(f.code[from].targets(), pc) {
		return from
	}
	return max(pc-1, 0)
}

// laterBranch returns the last branch to record for the union of two converging groups: the branch
// of the group that is later in the reconvergence order. If some lanes jumped to the convergence
// point and others fell through, the result represents both.
func (g *group) laterBranch(h *group) int32 {
	f := g.frame.fn
	if f.rank[f.previous(g.pc, h.from)] > f.rank[f.previous(g.pc, g.from)] {
		return h.from
	}
	return g.from
}

// missingLanes lists the threads of the warp that are not at an aligned barrier with the active
// lanes.
func (w *warp) missingLanes(in *inst) []Missing {
	list := w.block.missing[:0]
	for n := range w.groups {
		if g := &w.groups[n]; n != w.group {
			site := g.frame.fn.code[g.pc].site
			list = append(list, Missing{Origin: Origin{Site: site, Warp: w.index, Mask: g.mask}})
		}
	}
	w.block.missing = w.appendExited(list, w.kernelPC(in.pc), full)
	return w.block.missing
}

// missingWarps lists the threads of the warps that exited without arriving at a barrier of the
// whole block.
func (b *block) missingWarps(s *barrier) []Missing {
	b.missing = b.missing[:0]
	for n, w := range b.warps {
		if s.whole>>n&1 == 0 && s.parts[n] == 0 {
			b.missing = w.appendExited(b.missing, s.kernelPC, full)
		}
	}
	return b.missing
}

// appendExited appends the exited threads of the warp, among the lanes of mask, to the list of
// threads missing at a barrier. barrier is a position in the kernel.
func (w *warp) appendExited(list []Missing, barrier int32, mask uint32) []Missing {
	code := w.block.run.entry.code
	for _, e := range w.exits {
		if e.mask&mask == 0 {
			continue
		}
		at := e.exit
		if code[at].leader {
			at = e.last // usually the branch to the exit, because many paths share one ret
		}
		list = append(list, Missing{
			Origin: Origin{Site: code[at].site, Warp: w.index, Mask: e.mask & mask},
			Exited: true, Skipped: w.worker.skipped(barrier, &e),
		})
	}
	return list
}

// maxReachable is the maximum number of elements of worker.reachable.
const maxReachable = 16 << 20

// skipped reports whether lanes exited after the barrier: they executed code that can run after it,
// or exited at the first instruction after it. Other lanes exited at a point that is not reachable
// from the barrier, so they returned early.
func (k *worker) skipped(barrier int32, e *laneExit) bool {
	f := k.run.entry
	if e.exit == f.following(barrier) || f.rank[e.last] == f.rank[barrier] && e.last > barrier {
		return true
	}
	behind := k.reachable[barrier]
	if behind == nil {
		if len(k.reachable)*len(f.next) > maxReachable {
			clear(k.reachable)
		}
		behind = f.pathsFrom(barrier)
		k.reachable[barrier] = behind
	}
	return behind[f.rank[e.last]]
}

// following returns the first instruction executed after the barrier at pc, skipping forward jumps
// and further barriers.
func (f *function) following(pc int32) int32 {
	for pc++; ; {
		switch in := &f.code[pc]; in.site.Instr.Op {
		case "bra":
			if in.site.Instr.Guard != nil || in.target <= pc {
				return pc
			}
			pc = in.target
		case "bar", "barrier":
			pc++
		default:
			return pc
		}
	}
}

// pathsFrom reports for each basic block, indexed by rank, whether it can run after the basic block
// that contains pc.
func (f *function) pathsFrom(pc int32) []bool {
	reached := make([]bool, len(f.next))
	todo := []int32{f.rank[pc]}
	for len(todo) > 0 {
		from := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, to := range f.next[from] {
			if !reached[to] {
				reached[to] = true
				todo = append(todo, to)
			}
		}
	}
	return reached
}
