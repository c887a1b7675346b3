package emu

import (
	"math/bits"
	"slices"

	"tilework/ptx"
)

// Bit fields and padding make parts of registers undefined, and programs compare or store only the
// other parts. Moves, logic and shifts therefore track each bit, and arithmetic with packed types
// each element. The result of other arithmetic is undefined as a whole.

// bitsFunc returns the undefined bits of the result of a lane. ok is false if the result is
// undefined as a whole.
type bitsFunc func(o *operandBits) (result uint64, ok bool)

// operandBits gives access to the operands of a lane of the current instruction.
type operandBits struct {
	*inst
	w       *warp
	instr   *ptx.Instr
	sources []register // the registers that it reads, without the guard
	lane    int
	width   int // bits of the result
}

// unknown returns the undefined bits of the operand at a slot.
func (o *operandBits) unknown(slot uint32) uint64 {
	if r, ok := o.w.frame.fn.registerAt(slot); ok {
		return o.ofRegister(r) & lowBits(o.width)
	}
	return 0
}

// ofRegister returns the undefined bits of register r.
func (o *operandBits) ofRegister(r int) uint64 { return o.w.frame.undefined.of(r)[o.lane] }

// value returns the value of the operand at a slot, which is as wide as the result.
func (o *operandBits) value(slot uint32) uint64 { return bitsAt(o.w, slot, o.lane, o.width/8) }

// word returns the value of the 32-bit operand at a slot.
func (o *operandBits) word(slot uint32) uint32 { return reg[uint32](o.w, slot)[o.lane] }

// isUnknown reports whether some bits of the operand at a slot are undefined.
func (o *operandBits) isUnknown(slot uint32) bool { return o.w.unknownAt(slot)>>o.lane&1 != 0 }

// packed lists the types of two elements, whose results depend on the same elements of the
// operands.
var packed = []ptx.Type{ptx.F16x2, ptx.BF16x2, ptx.U16x2, ptx.S16x2, ptx.F32x2}

// trackBits tracks the current instruction bit by bit and reports whether it can. unknown holds
// the lanes in which the guard is undefined, for the given cause.
func (w *warp) trackBits(in *inst, reads []register, unknown uint32, cause *Cause) bool {
	i := in.site.Instr
	of := in.bits
	if of == nil && in.flow == flowSpreads && slices.Contains(packed, i.Type(0)) {
		of = unknownElements
	}
	if of == nil || i.Type(0).Bits() == 1 || i.Type(0).Bits() > 64 {
		return false
	}
	u := &w.frame.undefined
	parts, whole := i.Args[:1], i.Type(0).Bits()
	if v, ok := i.Args[0].(*ptx.Vector); ok { // mov from a register to several
		parts, whole = v.Elems, i.Type(1).Bits()
	}
	kept := 0
	for _, arg := range parts {
		if _, sink := arg.(*ptx.Sink); !sink {
			kept++
		}
	}
	if kept != len(in.writes) {
		return false
	}
	o := operandBits{inst: in, w: w, instr: i, sources: reads, width: i.Type(0).Bits()}
	var result [lanes]uint64
	for m := w.active; m != 0; m &= m - 1 {
		lane := firstLane(m)
		var ok bool
		o.lane = lane
		if result[lane], ok = of(&o); !ok {
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
	for _, arg := range parts {
		part := result
		for lane := range part {
			part[lane] &= lowBits(n)
			result[lane] >>= n
		}
		if _, sink := arg.(*ptx.Sink); !sink {
			u.setBits(writes[0].index, w.active|unknown, &part, cause)
			writes = writes[1:]
		}
	}
	return true
}

// lowBits returns a mask of n bits.
func lowBits(n int) uint64 { return ^uint64(0) >> (64 - n) }

func unknownNot(o *operandBits) (result uint64, ok bool) { return o.unknown(o.a), true }

func unknownXor(o *operandBits) (result uint64, ok bool) {
	return o.unknown(o.a) | o.unknown(o.b), true
}

// unknownAnd: a defined zero defines a bit of the result.
func unknownAnd(o *operandBits) (result uint64, ok bool) {
	a, b := o.unknown(o.a), o.unknown(o.b)
	return a&(b|o.value(o.b)) | b&(a|o.value(o.a)), true
}

// unknownOr: a defined one defines a bit of the result.
func unknownOr(o *operandBits) (result uint64, ok bool) {
	a, b := o.unknown(o.a), o.unknown(o.b)
	return a&(b|^o.value(o.b)) | b&(a|^o.value(o.a)), true
}

func unknownShl(o *operandBits) (result uint64, ok bool) {
	return o.unknown(o.a) << o.word(o.b), o.unknown(o.b) == 0
}

func unknownShr(o *operandBits) (result uint64, ok bool) {
	a, count, ok := o.unknown(o.a), o.word(o.b), o.unknown(o.b) == 0
	if o.instr.Type(0).Class() == ptx.Signed {
		return uint64(int64(a<<(64-o.width)) >> min(count, 63) >> (64 - o.width)), ok
	}
	return a >> count, ok
}

// unknownField tracks bfe.
func unknownField(o *operandBits) (result uint64, ok bool) {
	if o.isUnknown(o.b) || o.isUnknown(o.c) {
		return 0, false
	}
	pos, n := o.word(o.b)&0xff, o.word(o.c)&0xff
	field := uint64(1)<<n - 1
	result = o.unknown(o.a) >> pos & field
	if o.instr.Type(0).Class() == ptx.Signed && result != 0 && bits.Len64(result) == int(n) {
		result |= ^field // the sign is undefined
	}
	return result, true
}

// unknownInsertion tracks bfi.
func unknownInsertion(o *operandBits) (result uint64, ok bool) {
	if o.isUnknown(o.c) || o.isUnknown(o.e) {
		return 0, false
	}
	pos, n := o.word(o.c)&0xff, o.word(o.e)&0xff
	field := uint64(1)<<n - 1
	return o.unknown(o.a)&field<<pos | o.unknown(o.b)&^(field<<pos), true
}

// unknownChoice tracks selp.
func unknownChoice(o *operandBits) (result uint64, ok bool) {
	switch {
	case o.isUnknown(o.c):
		return lowBits(o.width), true
	case *pred(o.w, o.c)>>o.lane&1 != 0:
		return o.unknown(o.a), true
	}
	return o.unknown(o.b), true
}

// unknownPermutation tracks prmt.
func unknownPermutation(o *operandBits) (result uint64, ok bool) {
	a, b := uint32(o.unknown(o.a)), uint32(o.unknown(o.b))
	return uint64(permute(o.instr.Mod("mode"), a, b, o.word(o.c))), o.unknown(o.c) == 0
}

// unknownElements tracks an instruction with a packed type: an element of the result is undefined
// if a bit of the same element of an operand is.
func unknownElements(o *operandBits) (result uint64, ok bool) {
	var all uint64
	for _, r := range o.sources {
		all |= o.ofRegister(r.index)
	}
	half := o.width / 2
	if all&lowBits(half) != 0 {
		result = lowBits(half)
	}
	if all>>half&lowBits(half) != 0 {
		result |= lowBits(half) << half
	}
	return result, true
}

// unknownLookUp tracks lop3: the undefined bits of the result are those that differ between values
// of the undefined bits of its operands.
func unknownLookUp(o *operandBits) (result uint64, ok bool) {
	table := uint8(o.instr.Args[4].(*ptx.Imm).Bits)
	flipped := func(slot, flip uint32) uint32 { return o.word(slot) ^ uint32(o.unknown(slot))&-(flip&1) }
	all, any := ^uint32(0), uint32(0)
	for k := range uint32(8) {
		y := lookUp(table, flipped(o.a, k), flipped(o.b, k>>1), flipped(o.c, k>>2))
		all &= y
		any |= y
	}
	return uint64(any &^ all), o.instr.Mod("bool") == ""
}

// unknownMove tracks mov, which moves, joins or splits a value.
func unknownMove(o *operandBits) (result uint64, ok bool) {
	v, joins := o.instr.Args[1].(*ptx.Vector)
	if !joins {
		return o.ofRegister(o.sources[0].index), true
	}
	if len(o.sources) != len(v.Elems) {
		return 0, false
	}
	n := o.width / len(o.sources)
	for k, r := range o.sources {
		result |= o.ofRegister(r.index) & lowBits(n) << (k * n)
	}
	return result, true
}

// unknownConversion tracks cvt to a packed type, whose first operand becomes the upper element, and
// between integers.
func unknownConversion(o *operandBits) (result uint64, ok bool) {
	to, from := o.instr.Type(0), o.instr.Type(1)
	if slices.Contains(packed, to) {
		if len(o.sources) != 2 || from != ptx.F32 {
			return 0, false
		}
		half := o.width / 2
		for k, r := range o.sources {
			if o.ofRegister(r.index) != 0 {
				result |= lowBits(half) << (half * (1 - k))
			}
		}
		return result, true
	}
	r, ok := o.w.frame.fn.registerAt(o.a)
	if !ok || from.Class() == ptx.Float || to.Class() == ptx.Float || o.instr.Has("sat") {
		return 0, false
	}
	n := from.Bits()
	result = o.ofRegister(r) & lowBits(n)
	if from.Class() == ptx.Signed {
		result = uint64(int64(result<<(64-n)) >> (64 - n))
	}
	return result, true
}
