package emu

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// update computes the new bits of an atomic operation from the old bits and the operands. With
// flush set, subnormal float32 values become zero, as in global memory.
type update func(old, b, c uint64, flush bool) uint64

func decodeAtom(d *decoder) execFunc {
	if d.i.Mod("op") == "exch" {
		d.in.flow = flowExchanges
	}
	return d.atomic(1)
}

func decodeRed(d *decoder) execFunc { return d.atomic(0) }

// atomic decodes atom and red. Argument k is the address.
func (d *decoder) atomic(k int) execFunc {
	t := d.i.Type(k + 1)
	if t.Bits() == 128 {
		return d.atomicWide()
	}
	f := updateOf(d.i.Mod("op"), t)
	if f == nil {
		return nil
	}
	operands := d.vector(k + 1)
	size := t.Bytes()
	var third uint32
	if d.i.Mod("op") == "cas" {
		third = d.source(k + 2)
	}
	ac := d.accessOf(k, Atomic, size*len(operands))
	var results []uint32
	if _, sink := d.i.Args[0].(*ptx.Sink); k == 1 && !sink {
		results = d.vector(0)
	}
	d.in.access = ac
	return func(w *warp, in *inst) {
		for n, slot := range operands {
			old := [lanes]uint64{}
			ac := ac
			if len(operands) > 1 { // a vector operation is atomic per element only
				part := *ac
				part.size, part.add = size, ac.add+uint64(n*size)
				ac = &part
			}
			w.eachRegion(in, ac, 0, func(t *target, mask uint32) {
				flush := t.space == ptx.Global
				for m := mask; m != 0; m &= m - 1 {
					i := firstLane(m)
					b := bitsAt(w, slot, i, size)
					var c uint64
					if third != 0 {
						c = bitsAt(w, third, i, size)
					}
					old[i] = exchange(t.mem, w.off[i], size, func(old uint64) uint64 {
						value := f(old, b, c, flush)
						if value != old {
							w.block.cluster.writes++
						}
						return value
					})
				}
			})
			if results != nil {
				for m := w.active; m != 0; m &= m - 1 {
					setBits(w, results[n], firstLane(m), size, old[firstLane(m)])
				}
			}
		}
		w.syncWorkers(ac.sem)
		w.poll(in)
	}
}

// wideAtomics makes atomic operations on 128 bits atomic among the host threads. Go has none of
// this width.
var wideAtomics sync.Mutex

// atomicWide decodes exch and cas of 128 bits.
func (d *decoder) atomicWide() execFunc {
	ac := d.accessOf(1, Atomic, 16)
	compared, value := uint32(0), d.source(2)
	if d.i.Mod("op") == "cas" {
		compared, value = value, d.source(3)
	}
	result, sink := uint32(0), false
	if _, sink = d.i.Args[0].(*ptx.Sink); !sink {
		result = d.vector(0)[0]
	}
	d.in.access = ac
	return func(w *warp, in *inst) {
		var before [lanes]wide
		w.eachRegion(in, ac, 0, func(t *target, mask uint32) {
			wideAtomics.Lock()
			defer wideAtomics.Unlock()
			for m := mask; m != 0; m &= m - 1 {
				i := firstLane(m)
				p := (*wide)(unsafe.Add(t.mem, w.off[i]))
				before[i] = *p
				if after := reg[wide](w, value)[i]; compared == 0 || *p == reg[wide](w, compared)[i] {
					if *p != after {
						w.block.cluster.writes++
					}
					*p = after
				}
			}
		})
		if !sink {
			setLanes(reg[wide](w, result), &before, w.active)
		}
		w.syncWorkers(ac.sem)
		w.poll(in)
	}
}

// bitsAt returns the value of a lane of a register with elements of size bytes.
func bitsAt(w *warp, slot uint32, lane, size int) uint64 {
	switch size {
	case 2:
		return uint64(reg[uint16](w, slot)[lane])
	case 4:
		return uint64(reg[uint32](w, slot)[lane])
	}
	return reg[uint64](w, slot)[lane]
}

func setBits(w *warp, slot uint32, lane, size int, bits uint64) {
	switch size {
	case 2:
		reg[uint16](w, slot)[lane] = uint16(bits)
	case 4:
		reg[uint32](w, slot)[lane] = uint32(bits)
	default:
		reg[uint64](w, slot)[lane] = bits
	}
}

// exchange atomically replaces size bytes by f of their value and returns the old value.
func exchange(mem unsafe.Pointer, off uint64, size int, f func(old uint64) uint64) uint64 {
	if size == 8 {
		p := (*uint64)(unsafe.Add(mem, off))
		for {
			old := atomic.LoadUint64(p)
			if atomic.CompareAndSwapUint64(p, old, f(old)) {
				return old
			}
		}
	}
	shift := 0
	keep := uint32(0)
	if size == 2 { // half of a 32-bit word
		shift = int(off&2) * 8
		off &^= 2
		keep = full &^ (0xffff << shift)
	}
	p := (*uint32)(unsafe.Add(mem, off))
	for {
		word := atomic.LoadUint32(p)
		old := uint64(word &^ keep >> shift)
		if atomic.CompareAndSwapUint32(p, word, word&keep|uint32(f(old))<<shift) {
			return old
		}
	}
}

// syncWorkers orders the memory accesses of host threads, as acquire and release do.
func (w *warp) syncWorkers(sem Sem) {
	if sem > Relaxed {
		w.block.run.fences.Add(1)
	}
}

// updateOf returns the update function of an atomic operation on values of type t, or nil.
func updateOf(op string, t ptx.Type) update {
	signed := t.Class() == ptx.Signed
	switch {
	case op == "exch":
		return func(_, b, _ uint64, _ bool) uint64 { return b }
	case op == "cas":
		return func(old, b, c uint64, _ bool) uint64 { return choose(old == b, c, old) }
	case op == "and":
		return func(old, b, _ uint64, _ bool) uint64 { return old & b }
	case op == "or":
		return func(old, b, _ uint64, _ bool) uint64 { return old | b }
	case op == "xor":
		return func(old, b, _ uint64, _ bool) uint64 { return old ^ b }
	case op == "inc":
		return func(old, b, _ uint64, _ bool) uint64 { return choose(old >= b, 0, old+1) }
	case op == "dec":
		return func(old, b, _ uint64, _ bool) uint64 { return choose(old == 0 || old > b, b, old-1) }
	case t.Class() == ptx.Float:
		return floatUpdate(op, t)
	case op == "add":
		return func(old, b, _ uint64, _ bool) uint64 { return old + b }
	case op == "min" || op == "max":
		least := op == "min"
		return func(old, b, _ uint64, _ bool) uint64 {
			less := old < b
			if signed {
				less = int64(extend(t, old)) < int64(extend(t, b))
			}
			return choose(less == least, old, b)
		}
	}
	return nil
}

func floatUpdate(op string, t ptx.Type) update {
	switch t {
	case ptx.F32:
		return func(old, b, _ uint64, flush bool) uint64 {
			x, y := math.Float32frombits(uint32(old)), math.Float32frombits(uint32(b))
			if flush {
				return uint64(math.Float32bits(flush32(canonical(flush32(x) + flush32(y)))))
			}
			return uint64(math.Float32bits(canonical(x + y)))
		}
	case ptx.F64:
		return func(old, b, _ uint64, _ bool) uint64 {
			return math.Float64bits(math.Float64frombits(old) + math.Float64frombits(b))
		}
	}
	operation := map[string]*floatOp{"add": addFloat, "min": minFloat, "max": maxFloat}[op]
	f := variant{}.half(operation, choose(t == ptx.F16 || t == ptx.F16x2, number.F16, number.BF16))
	if t.Bits() == 16 {
		return func(old, b, _ uint64, _ bool) uint64 { return uint64(f(uint16(old), uint16(b), 0)) }
	}
	return func(old, b, _ uint64, _ bool) uint64 {
		return uint64(f(uint16(old), uint16(b), 0)) | uint64(f(uint16(old>>16), uint16(b>>16), 0))<<16
	}
}

func decodeFence(d *decoder) execFunc {
	e := Fence{Sem: semOf(d.i), Scope: scopeOf(d.i)}
	switch {
	case d.i.Has("mbarrier_init"):
		e.Proxy = "mbarrier_init"
	case d.i.Has("proxy"):
		e.Proxy = d.i.Mod("kind")
		if space := d.i.Mod("space"); space != "" {
			e.Proxy += "." + space
		}
	case d.i.Op == "membar":
		e.Sem = SeqCst
	case e.Sem == Weak:
		e.Sem = AcqRel
	}
	return func(w *warp, in *inst) { w.emitFence(in, e) }
}

// emitFence orders memory accesses and emits the event e.
func (w *warp) emitFence(in *inst, e Fence) {
	w.syncWorkers(SeqCst)
	if len(w.block.fence) > 0 {
		e.Origin = w.origin(in)
		for _, f := range w.block.fence {
			f(&e)
		}
	}
}
