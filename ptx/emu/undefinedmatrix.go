package emu

import "encoding/binary"

// Library code leaves rows of a tile undefined beyond the end of a matrix, and stores only the rows
// of the result that exist. cp.async, ldmatrix, wmma and mma therefore pass undefined values on.

// movedBits holds the undefined bits of the bytes that an instruction moves, by the lane that
// accesses them: 16 bytes of a cp.async, a row of an ldmatrix or stmatrix, or an element of a
// wmma.load or wmma.store.
type movedBits struct {
	lanes uint32 // lanes with undefined bits
	bits  [lanes]wide
	cause *Cause
}

// load records the undefined bits that the lanes of mask are about to read from memory.
func (m *movedBits) load(w *warp, in *inst, r memoryRange, addr *[lanes]uint64, size int, mask uint32) {
	for todo := w.unknownIn(r, addr, 0, size, mask); todo != 0; todo &= todo - 1 {
		i := firstLane(todo)
		m.bits[i] = w.undefinedIn(r, i, addr[i], size)
		if m.lanes == 0 { // one cause is enough
			m.cause = w.causeIn(r, in.site, i, addr[i], m.bits[i])
		}
		m.lanes |= 1 << i
	}
}

// store tracks a store of the recorded bits by the lanes of mask. As for other stores, undefined
// values are used in global memory, unless only parts of them are undefined.
func (m *movedBits) store(w *warp, in *inst, r memoryRange, addr *[lanes]uint64, size int, mask uint32) {
	if r.alloc == nil {
		w.setUndefined(r, addr, 0, size, mask, new([lanes]uint64), nil)
	}
	if mask &= m.lanes; mask == 0 {
		return
	}
	if r.alloc != nil {
		var unknown uint32
		for todo := mask; todo != 0; todo &= todo - 1 {
			if i := firstLane(todo); m.bits[i][0] == lowBits(8*size) {
				unknown |= 1 << i
			}
		}
		if unknown != 0 {
			w.emitUndefined(Origin{Site: in.site, Warp: w.index, Mask: unknown}, UseStore, m.cause)
		}
		return
	}
	for at := 0; at < size; at += 8 {
		var undefined [lanes]uint64
		for todo := mask; todo != 0; todo &= todo - 1 {
			i := firstLane(todo)
			undefined[i] = m.bits[i][at/8]
		}
		w.setUndefined(r, addr, uint64(at), min(8, size-at), mask, &undefined, m.cause)
	}
}

// undefinedAt returns the undefined bits of the register at a slot.
func (w *warp) undefinedAt(slot uint32) *[lanes]uint64 {
	if r, ok := w.frame.fn.registerAt(slot); ok {
		return w.frame.undefined.of(r)
	}
	return new([lanes]uint64)
}

// setUndefinedAt sets the undefined bits of the register at a slot in all lanes.
func (w *warp) setUndefinedAt(slot uint32, undefined *[lanes]uint64, c *Cause) {
	if r, ok := w.frame.fn.registerAt(slot); ok {
		w.frame.undefined.setBits(r, full, undefined, c)
	}
}

// setDefinedAt makes the registers at slots defined in all lanes.
func (w *warp) setDefinedAt(slots ...uint32) {
	for _, slot := range slots {
		if r, ok := w.frame.fn.registerAt(slot); ok {
			w.frame.undefined.lanes[r] = 0
		}
	}
}

// trackRegisters records the undefined bits of the rows that an stmatrix stores.
func (m *movedBits) trackRegisters(w *warp, in *inst, x *matrixMove) {
	if m.cause = w.firstCause(in, in.reads, full); m.cause == nil {
		return
	}
	rows := x.rows(undefinedWords(w, x.slots))
	for i := range rows {
		m.bits[i] = wide{binary.LittleEndian.Uint64(rows[i][:]), binary.LittleEndian.Uint64(rows[i][8:])}
		if m.bits[i] != (wide{}) {
			m.lanes |= 1 << i
		}
	}
}

// trackMatrices makes the results of an ldmatrix undefined where the rows in m are.
func (m *movedBits) trackMatrices(w *warp, x *matrixMove) {
	if m.lanes == 0 {
		return
	}
	var rows [lanes][rowBytes]byte
	for i := range rows {
		if m.lanes>>i&1 != 0 {
			binary.LittleEndian.PutUint64(rows[i][:], m.bits[i][0])
			binary.LittleEndian.PutUint64(rows[i][8:], m.bits[i][1])
		}
	}
	for k, slot := range x.slots {
		var undefined [lanes]uint64
		for lane := range undefined {
			undefined[lane] = uint64(x.word(&rows, k, lane))
		}
		w.setUndefinedAt(slot, &undefined, m.cause)
	}
}

// undefinedWords returns a function that returns the undefined bits of a lane of the k-th slot.
func undefinedWords(w *warp, slots []uint32) func(k, lane int) uint32 {
	all := make([]*[lanes]uint64, len(slots))
	for k, slot := range slots {
		all[k] = w.undefinedAt(slot)
	}
	return func(k, lane int) uint32 { return uint32(all[k][lane]) }
}

// trackTransposition tracks a movmatrix from the register at a to the one at d.
func (w *warp) trackTransposition(in *inst, held, wanted *matrixMove) {
	cause := w.firstCause(in, in.reads, full)
	if cause == nil {
		w.setDefinedAt(in.d)
		return
	}
	rows := held.rows(undefinedWords(w, []uint32{in.a}))
	var undefined [lanes]uint64
	for lane := range undefined {
		undefined[lane] = uint64(wanted.word(&rows, 0, lane))
	}
	w.setUndefinedAt(in.d, &undefined, cause)
}

// trackProduct tracks an mma. An element of the result is undefined if an element of its row of A,
// of its column of B or of C is.
func (w *warp) trackProduct(in *inst, p *mma) {
	cause := w.firstCause(in, in.reads, full)
	if cause == nil {
		w.setDefinedAt(p.pd...)
		return
	}
	a := w.undefinedElements(p.fa, p.a, p.pa)
	b := w.undefinedElements(p.fb, p.b, p.pb)
	c := w.undefinedElements(p.fc, p.c, p.pc)
	rows, cols := make([]bool, p.fa.rows), make([]bool, p.quadrants*p.n)
	for at := range a {
		rows[at.row] = true
	}
	for at := range b {
		cols[int(at.row)/p.k*p.n+int(at.col)] = true
	}
	each := p.d.perRegister()
	for k, slot := range p.pd {
		var undefined [lanes]uint64
		for lane := range undefined {
			for n, at := range p.fd.at[lane][k*each:][:each] {
				if rows[at.row] || cols[int(at.row)/p.m*p.n+int(at.col)] || c[at] {
					undefined[lane] |= lowBits(p.d.bits) << (n * p.d.bits)
				}
			}
		}
		w.setUndefinedAt(slot, &undefined, cause)
	}
}

// undefinedElements returns the positions of the elements of a fragment that have undefined bits.
func (w *warp) undefinedElements(f *fragment, e *elementType, slots []uint32) map[coordinate]bool {
	set := map[coordinate]bool{}
	each := e.perRegister()
	for k, slot := range slots {
		if w.unknownAt(slot) == 0 {
			continue
		}
		for lane, undefined := range w.undefinedAt(slot) {
			for n, at := range f.at[lane][k*each:][:each] {
				if undefined>>(n*e.bits)&lowBits(e.bits) != 0 {
					set[at] = true
				}
			}
		}
	}
	return set
}

// trackElement records the undefined bits of element n of each lane, which a wmma.store stores.
func (m *movedBits) trackElement(w *warp, in *inst, x *fragmentMove, n int) {
	each := x.element.perRegister()
	slot := x.slots[n/each]
	r, ok := w.frame.fn.registerAt(slot)
	if !ok || w.frame.undefined.lanes[r] == 0 {
		return
	}
	m.cause = w.causeOf(in, register{r, w.frame.fn.registers[r]}, w.frame.undefined.lanes[r])
	for lane, undefined := range w.undefinedAt(slot) {
		m.bits[lane] = wide{undefined >> (n % each * x.element.bits) & lowBits(x.element.bits)}
		if m.bits[lane][0] != 0 {
			m.lanes |= 1 << lane
		}
	}
}

// trackElements makes element n of the result of a wmma.load undefined where the bits in m are.
func (m *movedBits) trackElements(w *warp, x *fragmentMove, n int) {
	if m.lanes == 0 {
		return
	}
	each := x.element.perRegister()
	slot, cause := x.slots[n/each], m.cause
	if r, ok := w.frame.fn.registerAt(slot); ok && w.frame.undefined.lanes[r] != 0 {
		cause = w.frame.undefined.causes[r] // of an earlier element
	}
	undefined := w.undefinedAt(slot)
	for todo := m.lanes; todo != 0; todo &= todo - 1 {
		i := firstLane(todo)
		undefined[i] |= m.bits[i][0] << (n % each * x.element.bits)
	}
	w.setUndefinedAt(slot, undefined, cause)
}
