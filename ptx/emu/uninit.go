package emu

// checkReads reports reads of uninitialized registers by the current instruction and records the
// registers that it writes.
func (w *warp) checkReads(in *inst) {
	w.emitUninit(in, in.reads)
	for _, r := range in.writes {
		w.frame.written[r.index] |= w.active
	}
}

// emitUninit reports the registers in list that some active lanes have not written.
func (w *warp) emitUninit(in *inst, list []register) {
	known := w.frame.written
	for _, r := range list {
		unknown := w.active &^ known[r.index]
		if unknown == 0 {
			continue
		}
		e := UninitRead{Origin: Origin{Site: in.site, Warp: w.index, Mask: unknown}, Register: r.sym.Name}
		for _, f := range w.block.uninit {
			f(&e)
		}
	}
}
