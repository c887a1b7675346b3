package emu

import (
	"unsafe"

	"tilework/ptx"
)

func execMove[T any](w *warp, in *inst) { *dst[T](w, in) = *reg[T](w, in.a) }

func execMovePred(w *warp, in *inst) { setPred(w, in.d, *pred(w, in.a)) }

func decodeMov(d *decoder) execFunc {
	from, isVector := d.i.Args[1].(*ptx.Vector)
	to, unpacks := d.i.Args[0].(*ptx.Vector)
	switch {
	case isVector:
		return d.pack(d.i.Type(0), d.i.Type(1), len(from.Elems))
	case unpacks:
		return d.unpack(d.i.Type(1), d.i.Type(0), len(to.Elems))
	}
	t := d.i.Type(0)
	if n, ok := d.i.Args[1].(*ptx.Name); ok && clocks[ptx.Format(n)] > 0 {
		d.in.d = d.result(0)
		return readClock(n.Name, t.Bits())
	}
	d.operands()
	return map[int]execFunc{
		1: execMovePred, 16: execMove[uint16], 32: execMove[uint32], 64: execMove[uint64], 128: execMove[wide],
	}[t.Bits()]
}

// readClock returns the execFunc that reads a clock register. All clocks count the instructions of
// the cluster.
func readClock(name string, bits int) execFunc {
	shift := choose(name == "%clock_hi" || name == "%globaltimer_hi", 32, 0)
	if bits == 64 {
		return func(w *warp, in *inst) { broadcast(dst[uint64](w, in), w.clock()>>shift) }
	}
	return func(w *warp, in *inst) { broadcast(dst[uint32](w, in), uint32(w.clock()>>shift)) }
}

// pack decodes mov from n registers to a wider one, lowest part first. The parts of a lane are
// stored in memory in the same order as in the wide value.
func (d *decoder) pack(whole, part ptx.Type, n int) execFunc {
	d.in.d = d.result(0)
	slots := d.vector(1)
	size, step := uintptr(whole.Bytes()), uintptr(part.Bytes())
	return func(w *warp, in *inst) {
		to := unsafe.Pointer(dst[uint8](w, in))
		for k, slot := range slots {
			from := unsafe.Add(w.base, slot)
			for i := range uintptr(lanes) {
				copyBytes(unsafe.Add(to, i*size+uintptr(k)*step), unsafe.Add(from, i*step), step)
			}
		}
	}
}

// unpack decodes mov from a register to n narrower ones.
func (d *decoder) unpack(whole, part ptx.Type, n int) execFunc {
	slots := d.vector(0)
	d.in.a = d.source(1)
	size, step := uintptr(whole.Bytes()), uintptr(part.Bytes())
	return func(w *warp, in *inst) {
		source := *reg[wide](w, in.a) // copied because a destination may be the source
		from := unsafe.Pointer(&source)
		for k, slot := range slots {
			to := unsafe.Add(w.base, slot)
			for m := w.active; m != 0; m &= m - 1 {
				i := uintptr(firstLane(m))
				copyBytes(unsafe.Add(to, i*step), unsafe.Add(from, i*size+uintptr(k)*step), step)
			}
		}
	}
}

func copyBytes(to, from unsafe.Pointer, n uintptr) {
	switch n {
	case 1:
		*(*uint8)(to) = *(*uint8)(from)
	case 2:
		*(*uint16)(to) = *(*uint16)(from)
	case 4:
		*(*uint32)(to) = *(*uint32)(from)
	case 8:
		*(*uint64)(to) = *(*uint64)(from)
	case 16:
		*(*wide)(to) = *(*wide)(from)
	}
}

// window returns the start of the generic window of the space in cvta or isspacep. ok is false for
// global and constant memory, which have none.
func (d *decoder) window() (start uint64, ok bool) {
	for _, mod := range d.i.Mods {
		switch mod {
		case "shared", "shared::cta", "shared::cluster":
			return sharedWindow, true
		case "local":
			return localWindow, true
		case "param", "param::entry":
			return paramWindow, true
		}
	}
	return 0, false
}

func decodeCvta(d *decoder) execFunc {
	d.operands()
	if d.i.Type(0).Bits() == 32 {
		return nil
	}
	start, ok := d.window()
	switch {
	case !ok:
		return execMove[uint64]
	case d.i.Has("to"):
		return op1(func(a uint64) uint64 { return a - start })
	}
	return op1(func(a uint64) uint64 { return a + start })
}

func decodeIsspacep(d *decoder) execFunc {
	d.operands()
	start, ok := d.window()
	constant := d.i.Has("const")
	own := d.i.Has("shared") || d.i.Has("shared::cta")
	return func(w *warp, in *inst) {
		a := reg[uint64](w, in.a)
		setPred(w, in.d, test(a, a, func(a, _ uint64) bool {
			if ok {
				return a-start < windowSize && (!own || rankOf(a-start) == w.block.rank)
			}
			for _, other := range windows {
				if a-other.start < windowSize {
					return false
				}
			}
			found := w.block.run.mem.find(a)
			return constant == (found != nil && found.ReadOnly)
		}))
	}
}
