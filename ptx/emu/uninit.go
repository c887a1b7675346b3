package emu

// checkReads tells the observers of the registers that the instruction under way reads
// and its threads have not written, and notes those that it writes.
func (w *warp) checkReads(in *inst) {
	w.emitUninit(in, in.reads)
	for _, r := range in.writes {
		w.frame.written[r.index] |= w.active
	}
}

// tellUnknown tells the observers of the registers of a list that no thread has written.
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
