package emu

// registerGuard tracks the registers of wgmma.mma_async and tcgen05.ld operations in flight. Such
// an operation accesses its registers at any time, so no other instruction may use them.
type registerGuard struct {
	held []heldRegister // by index in the function
	// lastAccess holds, for each register, the value of fences at the last access by an
	// instruction. If it equals fences, no wgmma may use the register before the next fence.
	lastAccess []int
	fences     int
}

// heldRegister describes the use of a register by operations in flight.
type heldRegister struct {
	count int
	// position is the register's index, from 1, among the total accumulator registers, or 0 if it
	// holds elements of A.
	position, total int
	load            bool // by a tcgen05.ld
}

// holdRegisters marks the registers of a tcgen05.ld as in use.
func (w *warp) holdRegisters(list []register) {
	if w.frame.fn == w.block.run.entry {
		for _, r := range list {
			h := &w.matrices.held[r.index]
			*h = heldRegister{count: h.count + 1, load: true}
		}
	}
}

// releaseRegisters ends the use of registers by a tcgen05.ld.
func (w *warp) releaseRegisters(list []register) {
	if w.frame.fn == w.block.run.entry {
		for _, r := range list {
			w.matrices.held[r.index].count--
		}
	}
}

func (guard *registerGuard) reset(registers int) {
	guard.held, guard.lastAccess, guard.fences = make([]heldRegister, registers), make([]int, registers), 0
}

// claimRegisters marks the registers of an operation as in use. It returns false after a misuse.
//
// In a function, the assembler waits for each operation, so there is nothing to claim.
func (w *warp) claimRegisters(in *inst, g *wgmma) bool {
	if w.frame.fn != w.block.run.entry {
		return true
	}
	guard := &w.matrices.registerGuard
	take := func(r register, position, total int) bool {
		h := &guard.held[r.index]
		switch {
		case guard.fences == 0:
			w.misuse(in, "no wgmma.fence precedes this operation")
		case guard.lastAccess[r.index] == guard.fences:
			w.misuse(in, "register %s was accessed after the last wgmma.fence", r.sym.Name)
		case h.count > 0 && (h.position != position || h.total != total):
			w.misuse(in, "register %s has a different use in a wgmma.mma_async in flight (wgmma.wait_group)", r.sym.Name)
		default:
			*h = heldRegister{count: h.count + 1, position: position, total: total}
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

// guardRegisters checks that the current instruction uses no register of an operation in flight,
// and records its accesses.
func (w *warp) guardRegisters(in *inst) {
	guard := &w.matrices.registerGuard
	for _, list := range [][]register{in.reads, in.writes} {
		for _, r := range list {
			switch h := &guard.held[r.index]; {
			case h.count > 0 && h.load:
				w.useLoaded(in, r)
			case h.count > 0:
				w.misuse(in, "register %s is in use by a wgmma.mma_async in flight (wgmma.wait_group)", r.sym.Name)
				return
			}
			guard.lastAccess[r.index] = guard.fences
		}
	}
}

// checkRegisters checks the registers of the current instruction for observers of undefined
// values and for kernels with wgmma or tcgen05.ld.
func (w *warp) checkRegisters(in *inst) {
	if w.matrices.held == nil {
		w.trackValues(in)
		return
	}
	g, async := in.x.(*wgmma)
	if w.tracks {
		if async && *pred(w, g.scaleD)&1 != 0 {
			for _, r := range g.sums {
				w.use(in, r, w.active, UseOperand)
			}
		}
		w.trackValues(in)
	}
	if !async && w.frame.fn == w.block.run.entry {
		w.guardRegisters(in)
	}
}
