package emu

import (
	"unsafe"

	"tilework/ptx"
)

type integer interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64
}

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

// mover copies values of one type between memory and registers of one width.
type mover struct {
	load, store             func(mem unsafe.Pointer, off *[lanes]uint64, mask uint32, at uint64, r unsafe.Pointer)
	strongLoad, strongStore func(mem unsafe.Pointer, off *[lanes]uint64, mask uint32, at uint64, r unsafe.Pointer)
	zero                    func(mask uint32, r unsafe.Pointer)
	// ld and st of one element in global and shared memory.
	loadGlobal, loadShared, storeGlobal, storeShared execFunc
}

// moverOf returns the mover for type M in memory and R in registers. If R is wider, a load sign- or
// zero-extends according to M.
func moverOf[M integer, R unsigned]() *mover {
	return &mover{
		load: func(mem unsafe.Pointer, off *[lanes]uint64, mask uint32, at uint64, r unsafe.Pointer) {
			d := (*[lanes]R)(r)
			if mask == full {
				for i := range d {
					d[i] = R(*(*M)(unsafe.Add(mem, off[i]+at)))
				}
				return
			}
			for ; mask != 0; mask &= mask - 1 {
				i := firstLane(mask)
				d[i] = R(*(*M)(unsafe.Add(mem, off[i]+at)))
			}
		},
		store: func(mem unsafe.Pointer, off *[lanes]uint64, mask uint32, at uint64, r unsafe.Pointer) {
			s := (*[lanes]R)(r)
			for ; mask != 0; mask &= mask - 1 {
				i := firstLane(mask)
				*(*M)(unsafe.Add(mem, off[i]+at)) = M(s[i])
			}
		},
		strongLoad: strongLoad[M, R], strongStore: strongStore[M, R],
		zero: func(mask uint32, r unsafe.Pointer) {
			setLanes((*[lanes]R)(r), new([lanes]R), mask)
		},
		loadGlobal: loadGlobal[M, R], loadShared: loadShared[M, R],
		storeGlobal: storeGlobal[M, R], storeShared: storeShared[M, R],
	}
}

func loadGlobal[M integer, R unsigned](w *warp, in *inst) {
	r := &w.worker.lastRegion[in.index]
	if w.active != full || !fastLoad[M, R](w, in, r) {
		execLoad(w, in)
		return
	}
	w.emitLoad(in, r)
}

func loadShared[M integer, R unsigned](w *warp, in *inst) {
	if w.active != full || !fastLoad[M, R](w, in, &w.block.shared) {
		execLoad(w, in)
		return
	}
	w.emitLoad(in, &w.block.shared)
}

// emitLoad emits the event of a load by a full warp from one region. It is called after the load,
// which observers cannot notice because the load imposes no ordering.
func (w *warp) emitLoad(in *inst, r *region) {
	if len(w.block.access) == 0 && !w.tracks {
		return
	}
	ac := in.access
	space, addr := ac.space, &w.addr
	if space == ptx.Generic {
		space = ptx.Global
	}
	if ac.add == 0 && !ac.short {
		addr = reg[uint64](w, ac.slot)
	} else {
		w.addresses(ac)
	}
	if space == ptx.Shared && r.base != 0 {
		for i, a := range addr {
			w.eventAddr[i] = a - r.base
		}
		addr = &w.eventAddr
	}
	switch {
	case !w.tracks:
	case r.alloc != nil && !r.alloc.partial():
		w.trackDefined(in)
	default:
		w.trackAccess(in, ac, memoryRange{space, w.block, r.alloc}, addr, full)
	}
	w.emitAccess(in, ac, space, w.block.rank, r.alloc, addr, full, 0)
}

func storeGlobal[M integer, R unsigned](w *warp, in *inst) {
	r := &w.worker.lastRegion[in.index]
	if !w.unobserved || w.active != full || r.alloc == nil || r.alloc.ReadOnly || !fastStore[M, R](w, in, r) {
		execStore(w, in)
		return
	}
	w.block.cluster.writes++
}

func storeShared[M integer, R unsigned](w *warp, in *inst) {
	if !w.unobserved || w.active != full || !fastStore[M, R](w, in, &w.block.shared) {
		execStore(w, in)
		return
	}
	w.block.cluster.writes++
}

// fastLoad executes ld of one element by a full warp from one region. If it returns false, execLoad
// must repeat the access.
func fastLoad[M integer, R unsigned](w *warp, in *inst, r *region) bool {
	ac := in.access
	d, shift, span := reg[R](w, in.d), ac.add-r.base, r.span(unsafe.Sizeof(M(0)))
	if ac.short {
		return gather[M](d, reg[uint32](w, ac.slot), shift, span, r.mem)
	}
	return gather[M](d, reg[uint64](w, ac.slot), shift, span, r.mem)
}

// span returns the number of offsets at which size bytes fit in the region.
func (r *region) span(size uintptr) uint64 { return r.size - min(r.size, uint64(size)-1) }

// loadGlobalU32 is loadGlobal specialized for the type that matrix products load most.
func loadGlobalU32(w *warp, in *inst) {
	r, ac := &w.worker.lastRegion[in.index], in.access
	if w.active != full || ac.short ||
		!gatherU32(reg[uint32](w, in.d), reg[uint64](w, ac.slot), ac.add-r.base, r.span(4), r.mem) {
		execLoad(w, in)
		return
	}
	w.emitLoad(in, r)
}

// fastStore executes st of one element by a full warp to one region. If it returns false, execStore
// must repeat the access.
func fastStore[M integer, R unsigned](w *warp, in *inst, r *region) bool {
	ac := in.access
	size := uint64(unsafe.Sizeof(M(0)))
	span := r.span(unsafe.Sizeof(M(0)))
	s, mem, shift := reg[R](w, in.b), r.mem, ac.add-r.base
	if ac.short {
		for i, a := range reg[uint32](w, ac.slot) {
			o := uint64(a + uint32(shift))
			if o >= span || o&(size-1) != 0 {
				return false
			}
			*(*M)(unsafe.Add(mem, o)) = M(s[i])
		}
		return true
	}
	for i, a := range reg[uint64](w, ac.slot) {
		o := a + shift
		if o >= span || o&(size-1) != 0 {
			return false
		}
		*(*M)(unsafe.Add(mem, o)) = M(s[i])
	}
	return true
}

// movers holds all movers by the type in memory and the register width in bits.
var movers = map[ptx.Type]map[int]*mover{
	ptx.U8: {8: moverOf[uint8, uint8](), 16: moverOf[uint8, uint16](), 32: moverOf[uint8, uint32](),
		64: moverOf[uint8, uint64]()},
	ptx.S8: {8: moverOf[int8, uint8](), 16: moverOf[int8, uint16](), 32: moverOf[int8, uint32](),
		64: moverOf[int8, uint64]()},
	ptx.U16: {16: moverOf[uint16, uint16](), 32: moverOf[uint16, uint32](), 64: moverOf[uint16, uint64]()},
	ptx.S16: {16: moverOf[int16, uint16](), 32: moverOf[int16, uint32](), 64: moverOf[int16, uint64]()},
	ptx.U32: {32: moverOfU32(), 64: moverOf[uint32, uint64]()},
	ptx.S32: {32: moverOf[int32, uint32](), 64: moverOf[int32, uint64]()},
	ptx.U64: {64: moverOf[uint64, uint64]()},
}

// moverOfU32 is moverOf for 32-bit values, with a faster load.
func moverOfU32() *mover {
	m := moverOf[uint32, uint32]()
	m.loadGlobal = loadGlobalU32
	return m
}

// moverFor returns the mover for values of type t and registers of the given width in bits.
func moverFor(t ptx.Type, bits int) *mover {
	if t.Bits() == 128 {
		return wideMover
	}
	if t.Class() != ptx.Signed || t.Bits() == bits {
		t = unsignedOf(t.Bits())
	}
	return movers[t][bits]
}

// wideMover moves 128-bit values.
var wideMover = &mover{
	load: func(mem unsafe.Pointer, off *[lanes]uint64, mask uint32, at uint64, r unsafe.Pointer) {
		for i := range lanes {
			if mask>>i&1 != 0 {
				(*[lanes]wide)(r)[i] = *(*wide)(unsafe.Add(mem, off[i]+at))
			}
		}
	},
	store: func(mem unsafe.Pointer, off *[lanes]uint64, mask uint32, at uint64, r unsafe.Pointer) {
		for i := range lanes {
			if mask>>i&1 != 0 {
				*(*wide)(unsafe.Add(mem, off[i]+at)) = (*[lanes]wide)(r)[i]
			}
		}
	},
	zero:       func(mask uint32, r unsafe.Pointer) { setLanes((*[lanes]wide)(r), new([lanes]wide), mask) },
	loadGlobal: execLoad, loadShared: execLoad, storeGlobal: execStore, storeShared: execStore,
}

// unsignedOf returns the unsigned type with the given width.
func unsignedOf(bits int) ptx.Type {
	return map[int]ptx.Type{8: ptx.U8, 16: ptx.U16, 32: ptx.U32, 64: ptx.U64}[bits]
}

// transfer holds the registers of ld or st and their mover.
type transfer struct {
	*mover
	slots     []uint32
	registers []int  // indices in the function; none for a constant or a sink
	step      uint64 // bytes between elements
	unused    uint64 // has a bit for each byte that a load reads and the program discards
}

// transferOf decodes argument k of ld or st, which is a register or a vector of registers.
func (d *decoder) transferOf(k int) *transfer {
	t := d.i.Type(k)
	slots := d.vector(k)
	width := t.Bits()
	for _, arg := range operandsOf(d.i.Args[k]) {
		if n, ok := arg.(*ptx.Name); ok && n.Sym.Kind == ptx.RegisterSymbol {
			width = n.Sym.Type.Bits()
		}
	}
	tr := &transfer{mover: moverFor(t, width), slots: slots, step: uint64(t.Bytes()), unused: d.unused[d.i]}
	for _, slot := range slots {
		n, ok := d.f.registerAt(slot)
		if !ok {
			n = none
		}
		tr.registers = append(tr.registers, n)
	}
	if tr.mover == nil {
		d.fail(unsupported(d.i.Pos, "%s with a register of %d bits", d.i.Mnemonic(), width))
	}
	return tr
}

// operandsOf returns the elements of a vector, or arg itself.
func operandsOf(arg ptx.Operand) []ptx.Operand {
	if v, ok := arg.(*ptx.Vector); ok {
		return v.Elems
	}
	return []ptx.Operand{arg}
}

func decodeLoad(d *decoder) execFunc {
	tr := d.transferOf(0)
	if d.err != nil {
		return nil
	}
	ac := d.accessOf(1, Read, int(tr.step)*len(tr.slots))
	d.in.access, d.in.x = ac, tr
	d.in.d = tr.slots[0]
	switch {
	case len(tr.slots) > 1 || ac.sem != Weak || ac.slot == tr.slots[0]:
		return execLoad
	case ac.space == ptx.Shared:
		return tr.loadShared
	case ac.space == ptx.Global || ac.space == ptx.Generic || ac.space == ptx.Const:
		return tr.loadGlobal
	}
	return execLoad
}

func execLoad(w *warp, in *inst) {
	tr := in.x.(*transfer)
	load := tr.load
	if in.access.sem != Weak {
		load = tr.strongLoad
	}
	refused := w.eachRegion(in, in.access, 0, func(t *target, mask uint32) {
		for k, slot := range tr.slots {
			load(t.mem, &w.off, mask, uint64(k)*tr.step, unsafe.Add(w.base, slot))
		}
	})
	if refused != 0 {
		for _, slot := range tr.slots {
			tr.zero(refused, unsafe.Add(w.base, slot))
		}
	}
	if in.access.sem != Weak {
		w.poll(in)
	}
}

func decodeStore(d *decoder) execFunc {
	if d.i.Has("async") {
		return decodeStoreAsync(d)
	}
	tr := d.transferOf(1)
	if d.err != nil {
		return nil
	}
	ac := d.accessOf(0, Write, int(tr.step)*len(tr.slots))
	d.in.access, d.in.x = ac, tr
	d.in.b = tr.slots[0]
	switch {
	case len(tr.slots) > 1 || ac.sem != Weak:
		return execStore
	case ac.space == ptx.Shared:
		return tr.storeShared
	case ac.space == ptx.Global || ac.space == ptx.Generic:
		return tr.storeGlobal
	}
	return execStore
}

func execStore(w *warp, in *inst) {
	tr := in.x.(*transfer)
	store := tr.store
	if in.access.sem != Weak {
		store = tr.strongStore
	}
	w.eachRegion(in, in.access, 0, func(t *target, mask uint32) {
		for k, slot := range tr.slots {
			store(t.mem, &w.off, mask, uint64(k)*tr.step, unsafe.Add(w.base, slot))
		}
	})
}
