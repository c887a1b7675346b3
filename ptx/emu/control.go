package emu

import "tilework/ptx"

func decodeBranch(d *decoder) execFunc {
	d.in.target = d.labels[d.i.Args[0].(*ptx.Name).Sym.Label]
	return execBranch
}

func execBranch(w *warp, in *inst) {
	if w.active == w.mask {
		w.pc, w.from = in.target, in.pc
		return
	}
	w.split(w.active, in.target)
	w.groups[len(w.groups)-1].from = in.pc
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

// firstThread is the thread of the first active lane.
func (w *warp) firstThread() Dim3 { return w.thread(firstLane(w.active)) }

// decodeNothing is for instructions that only say something to the hardware.
func decodeNop(d *decoder) execFunc { return func(*warp, *inst) {} }

// decodeSetmaxnreg is for a warp as a whole. How many registers there are is the hardware's
// affair.
func decodeSetmaxnreg(d *decoder) execFunc { return aligned(func(*warp, *inst) {}) }

// decodeNanosleep lets other groups of the warp run, and other warps.
func decodeNanosleep(d *decoder) execFunc {
	return func(w *warp, in *inst) {
		w.poll()
		w.endSlice()
	}
}

// decodePolicy gives a cache policy, which nothing looks at.
func decodePolicy(d *decoder) execFunc {
	d.in.d = d.result(0)
	return func(w *warp, in *inst) { broadcast(dst[uint64](w, in), 0) }
}
