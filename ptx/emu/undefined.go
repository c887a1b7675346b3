package emu

import "slices"

// For observers with the hook Undefined, the emulator tracks whether the value of each register,
// and of each byte of shared, local and global memory, is defined. Compilers read values that the
// program then discards, such as v[i] in s += i < n ? v[i] : 0. An undefined value therefore
// spreads through arithmetic, registers, shared and local memory, copies and matrix products. It is
// reported where it can change the result of the kernel: at a branch, in an address, and in an
// operand of any other instruction, such as a store to global memory.

// flow is the effect of an instruction on undefined values.
type flow uint8

const (
	flowUses      flow = iota // an undefined operand is reported; the results are defined
	flowSpreads               // the result of a lane is undefined if one of its operands is
	flowAnds                  // and: defined zeros define the result
	flowOrs                   // or: defined ones define the result
	flowTests                 // setp: a defined comparison or predicate can define the result
	flowMoves                 // ld, st, stmatrix, wmma.store: decided by the space of the access
	flowExchanges             // atom.exch: the result is the old value in memory
	flowAcross                // the result depends on operands of several lanes
	flowShuffle               // shfl: each lane gets the operand of one lane
	flowMatrix                // mma, movmatrix: tracked when all lanes have converged
)

// spreads reports whether the result of each lane depends on the operands of that lane alone.
func (f flow) spreads() bool { return f >= flowSpreads && f <= flowTests }

// undefinedRegisters holds, for each register of a frame, the lanes whose value is undefined, and
// the cause for the last of them. A nil cause means that the thread has not written the register.
type undefinedRegisters struct {
	lanes  []uint32
	bits   []*[lanes]uint64 // the undefined bits of these lanes; nil for all bits
	causes []*Cause
}

func (u *undefinedRegisters) reset(registers int) {
	u.lanes = slices.Grow(u.lanes[:0], registers)[:registers]
	for r := range u.lanes {
		u.lanes[r] = full
	}
	u.bits = cleared(u.bits, registers)
	u.causes = cleared(u.causes, registers)
}

// set makes a register undefined in the lanes of unknown, and defined in the other lanes of mask.
func (u *undefinedRegisters) set(r int, mask, unknown uint32, c *Cause) {
	if unknown != 0 {
		u.causes[r] = c
		if b := u.bits[r]; b != nil {
			for m := unknown; m != 0; m &= m - 1 {
				b[firstLane(m)] = ^uint64(0)
			}
		}
	}
	u.lanes[r] = u.lanes[r]&^mask | unknown
}

// setBits makes bits of a register undefined in the lanes of mask, and the others defined.
func (u *undefinedRegisters) setBits(r int, mask uint32, undefined *[lanes]uint64, c *Cause) {
	var unknown uint32
	old := *u.of(r)
	for m := mask; m != 0; m &= m - 1 {
		i := firstLane(m)
		if old[i] = undefined[i]; old[i] != 0 {
			unknown |= 1 << i
		}
	}
	u.set(r, mask, unknown, c)
	if unknown != 0 {
		u.bits[r] = &old
	}
}

// of returns the undefined bits of a register.
func (u *undefinedRegisters) of(r int) *[lanes]uint64 {
	var b [lanes]uint64
	for m := u.lanes[r]; m != 0; m &= m - 1 {
		i := firstLane(m)
		if b[i] = ^uint64(0); u.bits[r] != nil {
			b[i] = u.bits[r][i]
		}
	}
	return &b
}

// trackValues tracks the operands and results of the current instruction, before it executes.
// Accesses to memory and instructions of a whole warp track the rest when they execute.
func (w *warp) trackValues(in *inst) {
	u, reads := &w.frame.undefined, in.reads
	var unknown uint32
	var cause *Cause
	if in.guard != always {
		unknown, cause = w.trackGuard(in)
		reads = reads[1:]
	}
	switch in.flow {
	case flowUses, flowExchanges:
		for _, r := range reads {
			w.use(in, r, w.active, useOf(in, r))
		}
	case flowMoves:
		w.useAddress(in)
	case flowAcross, flowShuffle:
		w.useSlot(in, in.e) // the member mask
		return
	case flowMatrix:
		return
	default:
		var operands uint32
		for _, r := range reads {
			operands |= u.lanes[r.index]
		}
		if operands &= w.active; operands == 0 {
			break
		}
		if w.trackBits(in, reads, unknown, cause) {
			return
		}
		if operands = w.refine(in, operands); operands != 0 {
			cause = w.firstCause(in, reads, operands)
		}
		unknown |= operands
	}
	for _, r := range in.writes {
		if unknown == 0 {
			u.lanes[r.index] &^= w.active
		} else {
			u.set(r.index, w.active, unknown, cause)
		}
	}
}

// trackGuard tracks the guard of the current instruction. It returns the lanes in which the guard
// is undefined, and therefore the result, if the instruction does not use its operands.
func (w *warp) trackGuard(in *inst) (unknown uint32, cause *Cause) {
	guard := in.reads[0]
	if !in.flow.spreads() {
		w.use(in, guard, w.mask, UseBranch)
		return 0, nil
	}
	u := &w.frame.undefined
	if unknown = u.lanes[guard.index] & w.mask; unknown != 0 {
		cause = w.causeOf(in, guard, unknown)
		for _, r := range in.writes {
			u.set(r.index, unknown, unknown, cause)
		}
	}
	return unknown, cause
}

// refine returns the lanes of unknown, which have an undefined operand, whose result is undefined.
func (w *warp) refine(in *inst, unknown uint32) uint32 {
	switch in.flow {
	case flowAnds, flowOrs: // of predicates
		decides := func(slot uint32) uint32 {
			p := *pred(w, slot)
			if in.flow == flowAnds {
				p = ^p
			}
			return p &^ w.unknownAt(slot)
		}
		return unknown &^ (decides(in.a) | decides(in.b))
	case flowTests:
		test, ok := in.x.(*predicateTest)
		if !ok {
			return unknown
		}
		known := ^(w.unknownAt(in.a) | w.unknownAt(in.b))
		compared, p := test.compare(w, in), *pred(w, test.slot)
		if test.negated {
			p = ^p
		}
		if !test.or { // a false operand decides
			compared, p = ^compared, ^p
		}
		return unknown &^ (known&compared | p&^w.unknownAt(test.slot))
	}
	return unknown
}

// unknownAt returns the lanes in which the register at a slot is undefined. It returns none for
// slots that hold constants.
func (w *warp) unknownAt(slot uint32) uint32 {
	if r, ok := w.frame.fn.registerAt(slot); ok {
		return w.frame.undefined.lanes[r]
	}
	return 0
}

// registerAt returns the index of the register at a slot.
func (f *function) registerAt(slot uint32) (index int, ok bool) {
	if slot >= f.clear {
		return 0, false
	}
	index, ok = slices.BinarySearch(f.slots, slot)
	if !ok { // a member of a vector
		index--
	}
	return index, index >= 0
}

// causeOf returns the cause for the undefined lanes of a register that the current instruction
// reads.
func (w *warp) causeOf(in *inst, r register, unknown uint32) *Cause {
	u := &w.frame.undefined
	if u.causes[r.index] == nil {
		u.causes[r.index] = &Cause{
			Origin: Origin{Site: in.site, Warp: w.index, Mask: unknown}, Kind: UnsetRegister, Register: r.sym.Name,
		}
	}
	return u.causes[r.index]
}

// firstCause returns the cause for the first register of list that is undefined in lanes of
// unknown.
func (w *warp) firstCause(in *inst, list []register, unknown uint32) *Cause {
	for _, r := range list {
		if m := w.frame.undefined.lanes[r.index] & unknown; m != 0 {
			return w.causeOf(in, r, m)
		}
	}
	return nil
}

// useOf returns the kind of use of a register by an instruction that uses its operands.
func useOf(in *inst, r register) Use {
	switch ac := in.access; {
	case ac != nil && ac.base == r.sym:
		return UseAddress
	case in.site.Instr.Op == "brx" || in.site.Instr.Op == "call":
		return UseBranch
	}
	return UseOperand
}

// use reports the lanes of mask in which a register is undefined. It reports each value once.
func (w *warp) use(in *inst, r register, mask uint32, how Use) {
	u := &w.frame.undefined
	if unknown := u.lanes[r.index] & mask; unknown != 0 {
		w.emitUndefined(Origin{Site: in.site, Warp: w.index, Mask: unknown}, how, w.causeOf(in, r, unknown))
		u.lanes[r.index] &^= unknown
	}
}

// useAddress reports an undefined address of ld or st.
func (w *warp) useAddress(in *inst) {
	if base := in.access.base; base != nil {
		w.use(in, register{base.Index, base}, w.active, UseAddress)
	}
}

// useSlot reports an undefined register at a slot.
func (w *warp) useSlot(in *inst, slot uint32) {
	if r, ok := w.frame.fn.registerAt(slot); ok {
		w.use(in, register{r, w.frame.fn.registers[r]}, w.active, UseOperand)
	}
}

func (w *warp) emitUndefined(o Origin, how Use, c *Cause) {
	e := Undefined{Origin: o, Use: how, Cause: *c}
	for _, f := range w.block.undefined {
		f(&e)
	}
}

// trackAcross tracks an instruction that all lanes of a member mask have reached. If an operand of
// any lane is undefined, so are the results of all lanes.
func (w *warp) trackAcross(in *inst) {
	u := &w.frame.undefined
	var unknown uint32
	for _, r := range in.reads {
		unknown |= u.lanes[r.index]
	}
	var cause *Cause
	if unknown &= w.active; unknown != 0 {
		cause = w.firstCause(in, in.reads, unknown)
		unknown = w.active
	}
	for _, r := range in.writes {
		u.set(r.index, w.active, unknown, cause)
	}
}

// trackShuffle tracks a shfl in which each active lane reads the lane in from. A lane that does not
// take part has an undefined value ("shfl.sync": "If the source lane is not active, the result is
// undefined").
func (w *warp) trackShuffle(in *inst, from *[lanes]int, guests *shuffled) {
	u := &w.frame.undefined
	source, ok := w.frame.fn.registerAt(in.a)
	var values, bits [lanes]uint64
	var cause *Cause
	if ok {
		values = *u.of(source)
	}
	for m := w.active; m != 0; m &= m - 1 {
		lane := firstLane(m)
		switch other := from[lane]; {
		case guests.mask>>other&1 != 0:
			if bits[lane] = guests.bits[other]; bits[lane] != 0 && cause == nil {
				cause = guests.cause
			}
		case w.active>>other&1 == 0:
			bits[lane] = ^uint64(0)
			if cause == nil {
				cause = &Cause{Origin: Origin{Site: in.site, Warp: w.index, Mask: 1 << lane}, Kind: InactiveLane, Lane: other}
			}
		case values[other] != 0:
			bits[lane] = values[other]
			if cause == nil {
				cause = w.firstCause(in, in.reads, 1<<other)
			}
		}
	}
	for k, r := range in.writes {
		if k > 0 || in.d >= w.frame.fn.clear { // the predicate
			clear(bits[:])
		}
		u.setBits(r.index, w.active, &bits, cause)
	}
}
