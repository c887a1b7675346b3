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
		w.poll()
		w.endSlice()
	}
}

// decodePolicy returns 0 as the cache policy. The emulator ignores policies.
func decodePolicy(d *decoder) execFunc {
	d.in.d = d.result(0)
	return func(w *warp, in *inst) { broadcast(dst[uint64](w, in), 0) }
}
