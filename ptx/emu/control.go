package emu

import (
	"math/bits"

	"tilework/ptx"
)

func decodeBranch(d *decoder) execFunc {
	d.in.target = d.labels[d.i.Args[0].(*ptx.Name).Sym.Label]
	return execBranch
}

func execBranch(w *warp, in *inst) { w.branch(in, in.target) }

// branch continues the active lanes at target.
func (w *warp) branch(in *inst, target int32) {
	if w.active == w.mask {
		w.pc, w.from = target, in.pc
		return
	}
	w.split(w.active, target)
	w.groups[len(w.groups)-1].from = in.pc
}

// decodeIndexedBranch decodes brx.idx.
func decodeIndexedBranch(d *decoder) execFunc {
	slot := d.source(0)
	var targets []int32
	for _, n := range d.i.Args[1].(*ptx.Name).Sym.Targets.List {
		targets = append(targets, d.labels[n.Sym.Label])
	}
	d.in.x = targets
	return func(w *warp, in *inst) {
		index := uniform(w, in, reg[uint32](w, slot))
		if int(index) >= len(targets) {
			w.misuse(in, "index is %d: want less than %d, the number of targets", index, len(targets))
			return
		}
		w.branch(in, targets[index])
	}
}

// targets returns the instructions that a branch can branch to, or nil for other instructions.
func (in *inst) targets() []int32 {
	switch in.site.Instr.Op {
	case "bra":
		return []int32{in.target}
	case "brx":
		return in.x.([]int32)
	}
	return nil
}

// uniform returns the value of the first active lane. Active lanes with another value are split
// into a group that executes the instruction later.
func uniform[T uint32 | uint64](w *warp, in *inst, values *[lanes]T) T {
	value := values[firstLane(w.active)]
	var others uint32
	for m := w.active; m != 0; m &= m - 1 {
		if values[firstLane(m)] != value {
			others |= m & -m
		}
	}
	if others != 0 {
		w.counts[in.pc].idle += uint64(bits.OnesCount32(others))
		w.split(others, in.pc)
		w.active &^= others
	}
	return value
}

func decodeRet(d *decoder) execFunc { return execRet }

func decodeExit(d *decoder) execFunc {
	return func(w *warp, in *inst) { w.exit(w.active) }
}

func decodeTrap(d *decoder) execFunc {
	return func(w *warp, in *inst) {
		w.fail(w.siteError(ErrTrap, in, "thread %v", w.firstThread()))
	}
}

// firstThread returns the index of the first active lane's thread.
func (w *warp) firstThread() Dim3 { return w.thread(firstLane(w.active)) }

// decodeNop decodes instructions without an effect on results, such as prefetches and hints.
func decodeNop(d *decoder) execFunc { return func(*warp, *inst) {} }

// decodeSetmaxnreg checks only that the whole warp executes the instruction. The emulator has no
// register limit.
func decodeSetmaxnreg(d *decoder) execFunc { return aligned(func(*warp, *inst) {}) }

// decodeNanosleep lets other groups of the warp and other warps run.
func decodeNanosleep(d *decoder) execFunc {
	return func(w *warp, in *inst) {
		w.poll(in)
		w.endSlice()
	}
}

// decodePolicy returns 0 as the cache policy. The emulator ignores policies.
func decodePolicy(d *decoder) execFunc {
	d.in.d = d.result(0)
	return func(w *warp, in *inst) { broadcast(dst[uint64](w, in), 0) }
}
