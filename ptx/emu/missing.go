package emu

// departure is the exit of lanes of a warp. Its instructions are those of the kernel: inside
// a function, the call that led there.
type laneExit struct {
	mask uint32
	exit int32 // the instruction that ended the lanes
	last int32 // the one that they executed before it
}

// noteExit records where the lanes of mask leave the kernel.
func (w *warp) noteExit(mask uint32) {
	exit := w.pc - 1
	e := laneExit{mask: mask, exit: w.kernelPC(exit), last: w.kernelPC(exit)}
	if w.frame.caller == nil {
		e.last = w.frame.fn.previous(exit, w.from)
	}
	w.exits = append(w.exits, e)
}

// place returns the kernel's instruction that the running group executes while it is at pc of
// its function: pc itself, or the call that led there.
func (w *warp) kernelPC(pc int32) int32 {
	for f := w.frame; f.caller != nil; f = f.caller {
		pc = f.call.pc
	}
	return pc
}

// previous returns the instruction that lanes executed before the one at pc, given the branch
// that they took last.
func (f *function) previous(pc, from int32) int32 {
	if from != none && f.code[from].target == pc {
		return from
	}
	return max(pc-1, 0)
}

// laterBranch returns the last branch of the union of two groups that meet: that of the
// group which comes from further down in the reconvergence order. Where some lanes jumped to
// the meeting place and others fell through to it, the result stands for either.
func (g *group) laterBranch(h *group) int32 {
	f := g.frame.fn
	if f.rank[f.previous(g.pc, h.from)] > f.rank[f.previous(g.pc, g.from)] {
		return h.from
	}
	return g.from
}

// missingLanes lists the threads of the warp that are not at an aligned barrier with the
// active lanes.
func (w *warp) missingLanes(in *inst) []Missing {
	list := w.block.missing[:0]
	for n := range w.groups {
		if g := &w.groups[n]; n != w.group {
			site := g.frame.fn.code[g.pc].site
			list = append(list, Missing{Origin: Origin{Site: site, Warp: w.index, Mask: g.mask}})
		}
	}
	w.block.missing = w.appendExited(list, w.kernelPC(in.pc))
	return w.block.missing
}

// missingWarps lists the threads of the warps that exited without arriving at a barrier of
// the whole block.
func (b *block) missingWarps(s *barrier) []Missing {
	b.missing = b.missing[:0]
	for n, w := range b.warps {
		if s.whole>>n&1 == 0 && s.parts[n] == 0 {
			b.missing = w.appendExited(b.missing, s.kernelPC)
		}
	}
	return b.missing
}

// appendExited appends the threads of the warp that have left the kernel to the threads that
// a barrier at the given place in the kernel misses.
func (w *warp) appendExited(list []Missing, barrier int32) []Missing {
	code := w.block.run.entry.code
	for _, e := range w.exits {
		at := e.exit
		if code[at].leader {
			at = e.last // the branch, mostly: many leave by the same ret
		}
		list = append(list, Missing{
			Origin: Origin{Site: code[at].site, Warp: w.index, Mask: e.mask},
			Exited: true, Skipped: w.worker.skipped(barrier, &e),
		})
	}
	return list
}

// skipped reports whether lanes that left the kernel had gone past a barrier: they executed
// code that can run after it, or left by the first instruction after it. Other lanes, which
// left at a place that no thread reaches from the barrier, returned early.
func (k *worker) skipped(barrier int32, e *laneExit) bool {
	f := k.run.entry
	if e.exit == f.following(barrier) || f.rank[e.last] == f.rank[barrier] && e.last > barrier {
		return true
	}
	behind := k.reachable[barrier]
	if behind == nil {
		behind = f.pathsFrom(barrier)
		k.reachable[barrier] = behind
	}
	return behind[f.rank[e.last]]
}

// following returns the instruction that is executed after the barrier at pc, not counting
// jumps forward and further barriers.
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

// pathsFrom reports for the basic block of each rank whether it can run after the basic block
// that pc is in.
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
