package emu

// registerGuard knows which registers of a warp wgmma.mma_async may use, and which other
// instructions may: an operation under way reads and writes them at any time.
type registerGuard struct {
	held []heldRegister // by index in the function
	// accessed is, for each register, how many fences there had been when an instruction
	// accessed it last: as many as there are, for one that no wgmma may use before
	// another one.
	lastAccess []int
	fences     int
}

// heldRegister is how many operations under way use a register, and as what.
type heldRegister struct {
	count int
	// place is the register's place among those of the sums, from 1, and of how many;
	// 0 for one that holds elements of A.
	position, total int
}

func (g *registerGuard) reset(registers int) {
	g.held, g.lastAccess, g.fences = make([]heldRegister, registers), make([]int, registers), 0
}

// takeRegisters checks that an operation may use its registers from now on, and reports
// whether it may.
func (w *warp) claimRegisters(in *inst, g *wgmma) bool {
	guard := &w.matrices.registerGuard
	take := func(r register, slot, of int) bool {
		h := &guard.held[r.index]
		switch {
		case guard.fences == 0:
			w.misuse(in, "no wgmma.fence came before it")
		case guard.lastAccess[r.index] == guard.fences:
			w.misuse(in, "register %s was accessed behind the last wgmma.fence", r.sym.Name)
		case h.count > 0 && (h.position != slot || h.total != of):
			w.misuse(in, "register %s is used otherwise by a wgmma.mma_async under way (wgmma.wait_group)", r.sym.Name)
		default:
			*h = heldRegister{h.count + 1, slot, of}
			return true
		}
		return false
	}
	for n, r := range g.sums {
		if !take(r, n+1, len(g.sums)) {
			return false
		}
	}
	for _, r := range g.operands {
		if !take(r, 0, 0) {
			return false
		}
	}
	return true
}

// release ends an operation's use of its registers.
func (guard *registerGuard) release(g *wgmma) {
	for _, list := range [][]register{g.sums, g.operands} {
		for _, r := range list {
			guard.held[r.index].count--
		}
	}
}

// guardRegisters checks that the instruction under way keeps its hands off the registers of
// operations under way, and notes which it accesses.
func (w *warp) guardRegisters(in *inst) {
	guard := &w.matrices.registerGuard
	for _, list := range [][]register{in.reads, in.writes} {
		for _, r := range list {
			if guard.held[r.index].count > 0 {
				w.misuse(in, "register %s is in use by a wgmma.mma_async under way (wgmma.wait_group)", r.sym.Name)
				return
			}
			guard.lastAccess[r.index] = guard.fences
		}
	}
}

// checkRegisters does what has to be done before an instruction accesses registers, if
// anybody watches them or the kernel has asynchronous matrices.
func (w *warp) checkRegisters(in *inst) {
	g, async := in.x.(*wgmma)
	if w.frame.written != nil {
		if async && *pred(w, g.scaleD)&1 != 0 {
			w.emitUninit(in, g.sums)
		}
		w.checkReads(in)
	}
	if !async && w.matrices.held != nil && w.frame.fn == w.block.run.entry {
		w.guardRegisters(in)
	}
}
