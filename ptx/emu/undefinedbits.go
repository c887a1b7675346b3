package emu

import (
	"math/bits"
	"slices"

	"tilework/ptx"
)

// Bit fields and padding make parts of registers undefined, and programs compare or store only the
// other parts. Moves, logic and shifts therefore track each bit, and arithmetic with packed types
// each element. The result of other arithmetic is undefined as a whole.

// bitwise lists the instructions that track bits.
var bitwise = []string{
	"and", "or", "xor", "not", "shl", "shr", "bfe", "bfi", "mov", "cvt", "selp", "prmt", "lop3",
}

// packed lists the types of two elements, whose results depend on the same elements of the
// operands.
var packed = []ptx.Type{ptx.F16x2, ptx.BF16x2, ptx.U16x2, ptx.S16x2, ptx.F32x2}

// trackBits tracks the current instruction bit by bit and reports whether it can. unknown holds
// the lanes in which the guard is undefined, for the given cause.
func (w *warp) trackBits(in *inst, reads []register, unknown uint32, cause *Cause) bool {
	i := in.site.Instr
	elements := slices.Contains(packed, i.Type(0)) && i.Op != "setp"
	if !slices.Contains(bitwise, i.Op) && !elements || i.Type(0).Bits() == 1 || i.Type(0).Bits() > 64 {
		return false
	}
	u := &w.frame.undefined
	parts, whole := i.Args[:1], i.Type(0).Bits()
	if v, ok := i.Args[0].(*ptx.Vector); ok { // mov from a register to several
		parts, whole = v.Elems, i.Type(1).Bits()
	}
	kept := 0
	for _, o := range parts {
		if _, sink := o.(*ptx.Sink); !sink {
			kept++
		}
	}
	if kept != len(in.writes) {
		return false
	}
	var result [lanes]uint64
	for m := w.active; m != 0; m &= m - 1 {
		lane := firstLane(m)
		var ok bool
		if elements && i.Op != "mov" && i.Op != "selp" {
			result[lane], ok = w.undefinedElements(in, reads, lane)
		} else {
			result[lane], ok = w.undefinedBits(in, reads, lane)
		}
		if !ok {
			return false
		}
		result[lane] &= lowBits(whole)
	}
	for m := unknown; m != 0; m &= m - 1 {
		result[firstLane(m)] = ^uint64(0)
	}
	if cause == nil {
		cause = w.firstCause(in, reads, w.active)
	}
	n, writes := whole/len(parts), in.writes
	for _, o := range parts {
		part := result
		for lane := range part {
			part[lane] &= lowBits(n)
			result[lane] >>= n
		}
		if _, sink := o.(*ptx.Sink); !sink {
			u.setBits(writes[0].index, w.active|unknown, &part, cause)
			writes = writes[1:]
		}
	}
	return true
}

// lowBits returns a mask of n bits.
func lowBits(n int) uint64 { return ^uint64(0) >> (64 - n) }

// undefinedBits returns the undefined bits of the result of a lane. It reports whether it knows
// them.
func (w *warp) undefinedBits(in *inst, reads []register, lane int) (result uint64, ok bool) {
	i := in.site.Instr
	u := &w.frame.undefined
	t := i.Type(0)
	n := t.Bits()
	of := func(slot uint32) uint64 {
		if r, ok := w.frame.fn.registerAt(slot); ok {
			return u.of(r)[lane] & lowBits(n)
		}
		return 0
	}
	value := func(slot uint32) uint64 { return bitsAt(w, slot, lane, n/8) }
	a, b := of(in.a), of(in.b)
	switch i.Op {
	case "not":
		return a, true
	case "xor":
		return a | b, true
	case "and":
		return a&(b|value(in.b)) | b&(a|value(in.a)), true
	case "or":
		return a&(b|^value(in.b)) | b&(a|^value(in.a)), true
	case "shl":
		return a << reg[uint32](w, in.b)[lane], b == 0
	case "shr":
		count := reg[uint32](w, in.b)[lane]
		if t.Class() == ptx.Signed {
			return uint64(int64(a<<(64-n)) >> min(count, 63) >> (64 - n)), b == 0
		}
		return a >> count, b == 0
	case "bfe", "bfi":
		return w.undefinedField(in, lane, of)
	case "selp":
		switch p := *pred(w, in.c) >> lane & 1; {
		case w.unknownAt(in.c)>>lane&1 != 0:
			return lowBits(n), true
		case p != 0:
			return a, true
		}
		return b, true
	case "mov":
		return w.undefinedParts(in, reads, lane)
	case "prmt":
		choice := reg[uint32](w, in.c)[lane]
		return uint64(permute(i.Mod("mode"), uint32(a), uint32(b), choice)), of(in.c) == 0
	case "lop3":
		return w.undefinedLookUp(in, lane), i.Mod("bool") == ""
	}
	return w.undefinedInteger(in, lane)
}

// undefinedElements returns the undefined bits of the result of an instruction with a packed type:
// elements that have an undefined bit in an operand.
func (w *warp) undefinedElements(in *inst, reads []register, lane int) (result uint64, ok bool) {
	i := in.site.Instr
	half := i.Type(0).Bits() / 2
	if i.Op == "cvt" {
		if len(reads) != 2 || i.Type(1) != ptx.F32 {
			return 0, false
		}
		// The first operand becomes the upper element.
		for k, r := range reads {
			if w.frame.undefined.of(r.index)[lane] != 0 {
				result |= lowBits(half) << (half * (1 - k))
			}
		}
		return result, true
	}
	for _, r := range reads {
		result |= w.frame.undefined.of(r.index)[lane]
	}
	low, high := result&lowBits(half), result>>half&lowBits(half)
	if result = 0; low != 0 {
		result = lowBits(half)
	}
	if high != 0 {
		result |= lowBits(half) << half
	}
	return result, true
}

// undefinedLookUp returns the undefined bits of the result of lop3: those that differ between
// values of the undefined bits of its operands.
func (w *warp) undefinedLookUp(in *inst, lane int) uint64 {
	table := uint8(in.site.Instr.Args[4].(*ptx.Imm).Bits)
	var values, unknown [3]uint32
	for k, slot := range []uint32{in.a, in.b, in.c} {
		values[k] = reg[uint32](w, slot)[lane]
		if r, ok := w.frame.fn.registerAt(slot); ok {
			unknown[k] = uint32(w.frame.undefined.of(r)[lane])
		}
	}
	all, any := ^uint32(0), uint32(0)
	for k := range uint32(8) {
		flipped := func(n int) uint32 { return values[n] ^ unknown[n]&-(k>>n&1) }
		y := lookUp(table, flipped(0), flipped(1), flipped(2))
		all &= y
		any |= y
	}
	return uint64(any &^ all)
}

// undefinedField returns the undefined bits of the result of bfe or bfi.
func (w *warp) undefinedField(in *inst, lane int, of func(slot uint32) uint64) (result uint64, ok bool) {
	position, length, insert := in.b, in.c, in.site.Instr.Op == "bfi"
	if insert {
		position, length = in.c, in.e
	}
	if w.unknownAt(position)>>lane&1 != 0 || w.unknownAt(length)>>lane&1 != 0 {
		return 0, false
	}
	pos, n := reg[uint32](w, position)[lane]&0xff, reg[uint32](w, length)[lane]&0xff
	field := uint64(1)<<n - 1
	if insert {
		return of(in.a)&field<<pos | of(in.b)&^(field<<pos), true
	}
	result = of(in.a) >> pos & field
	if in.site.Instr.Type(0).Class() == ptx.Signed && result != 0 && bits.Len64(result) == int(n) {
		result |= ^field // the sign is undefined
	}
	return result, true
}

// undefinedParts returns the undefined bits of the value that mov moves, joins or splits.
func (w *warp) undefinedParts(in *inst, reads []register, lane int) (result uint64, ok bool) {
	i := in.site.Instr
	v, joins := i.Args[1].(*ptx.Vector)
	if !joins {
		return w.frame.undefined.of(reads[0].index)[lane], true
	}
	if len(reads) != len(v.Elems) {
		return 0, false
	}
	n := i.Type(0).Bits() / len(reads)
	for k, r := range reads {
		result |= w.frame.undefined.of(r.index)[lane] & lowBits(n) << (k * n)
	}
	return result, true
}

// undefinedInteger returns the undefined bits of a conversion between integers.
func (w *warp) undefinedInteger(in *inst, lane int) (result uint64, ok bool) {
	i := in.site.Instr
	from := i.Type(1)
	r, ok := w.frame.fn.registerAt(in.a)
	if !ok || from.Class() == ptx.Float || i.Type(0).Class() == ptx.Float || i.Has("sat") {
		return 0, false
	}
	n := from.Bits()
	result = w.frame.undefined.of(r)[lane] & lowBits(n)
	if from.Class() == ptx.Signed {
		result = uint64(int64(result<<(64-n)) >> (64 - n))
	}
	return result, true
}
