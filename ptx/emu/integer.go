package emu

import (
	"math"
	"math/bits"

	"tilework/ptx"
)

type signed interface {
	int8 | int16 | int32 | int64
}

// Specialized loops for the instructions that most programs use.

func execAddU32(w *warp, in *inst) {
	addU32(dst[uint32](w, in), reg[uint32](w, in.a), reg[uint32](w, in.b))
}

func execAddU64(w *warp, in *inst) {
	addU64(dst[uint64](w, in), reg[uint64](w, in.a), reg[uint64](w, in.b))
}

func execSub[T integer](w *warp, in *inst) {
	map2(dst[T](w, in), reg[T](w, in.a), reg[T](w, in.b), func(a, b T) T { return a - b })
}

func execMulLo[T integer](w *warp, in *inst) {
	map2(dst[T](w, in), reg[T](w, in.a), reg[T](w, in.b), func(a, b T) T { return a * b })
}

func execMadLo[T integer](w *warp, in *inst) {
	map3(dst[T](w, in), reg[T](w, in.a), reg[T](w, in.b), reg[T](w, in.c), func(a, b, c T) T { return a*b + c })
}

func execMulWide[T, D integer](w *warp, in *inst) {
	map2(dst[D](w, in), reg[T](w, in.a), reg[T](w, in.b), func(a, b T) D { return D(a) * D(b) })
}

func execMadWide[T, D integer](w *warp, in *inst) {
	map3(dst[D](w, in), reg[T](w, in.a), reg[T](w, in.b), reg[D](w, in.c), func(a, b T, c D) D { return D(a)*D(b) + c })
}

// integers returns the table of one function per integer type. It is not inlined into the function
// that initializes the variables of the package: browsers take long to compile a large one.
//
//go:noinline
func integers(u16, u32, u64, s16, s32, s64 execFunc) typed {
	return typed{ptx.U16: u16, ptx.U32: u32, ptx.U64: u64, ptx.S16: s16, ptx.S32: s32, ptx.S64: s64}
}

var (
	addInt  = typed{ptx.U16: op2(func(a, b uint16) uint16 { return a + b }), ptx.U32: execAddU32, ptx.U64: execAddU64}
	subInt  = typed{ptx.U16: execSub[uint16], ptx.U32: execSub[uint32], ptx.U64: execSub[uint64]}
	mulLo   = typed{ptx.U16: execMulLo[uint16], ptx.U32: execMulLo[uint32], ptx.U64: execMulLo[uint64]}
	madLo   = typed{ptx.U16: execMadLo[uint16], ptx.U32: execMadLo[uint32], ptx.U64: execMadLo[uint64]}
	mulWide = typed{ptx.U16: execMulWide[uint16, uint32], ptx.U32: execMulWide[uint32, uint64],
		ptx.S16: execMulWide[int16, int32], ptx.S32: execMulWide[int32, int64]}
	madWide = typed{ptx.U16: execMadWide[uint16, uint32], ptx.U32: execMadWide[uint32, uint64],
		ptx.S16: execMadWide[int16, int32], ptx.S32: execMadWide[int32, int64]}
	mulHiInt = integers(op2(mulHi16[uint16]), op2(mulHi32[uint32]), op2(mulHiU64), op2(mulHi16[int16]),
		op2(mulHi32[int32]), op2(mulHiS64))
	madHiInt = integers(madHi(mulHi16[uint16]), madHi(mulHi32[uint32]), madHi(mulHiU64), madHi(mulHi16[int16]),
		madHi(mulHi32[int32]), madHi(mulHiS64))

	divInt = integers(op2(quotient[uint16]), op2(quotient[uint32]), op2(quotient[uint64]), op2(quotient[int16]),
		op2(quotient[int32]), op2(quotient[int64]))
	remInt = integers(op2(remainder[uint16]), op2(remainder[uint32]), op2(remainder[uint64]), op2(remainder[int16]),
		op2(remainder[int32]), op2(remainder[int64]))
	sadInt = integers(op3(sad[uint16]), op3(sad[uint32]), op3(sad[uint64]), op3(sad[int16]), op3(sad[int32]),
		op3(sad[int64]))
	absInt = typed{ptx.S16: op1(absolute[int16]), ptx.S32: op1(absolute[int32]), ptx.S64: op1(absolute[int64])}
	negInt = typed{ptx.S16: op1(negate[int16]), ptx.S32: op1(negate[int32]), ptx.S64: op1(negate[int64])}
	minInt = integers(op2(least[uint16]), op2(least[uint32]), op2(least[uint64]), op2(least[int16]), op2(least[int32]),
		op2(least[int64]))
	maxInt = integers(op2(most[uint16]), op2(most[uint32]), op2(most[uint64]), op2(most[int16]), op2(most[int32]),
		op2(most[int64]))
)

func mulHi16[T uint16 | int16](a, b T) T { return T(int32(a) * int32(b) >> 16) }
func mulHi32[T uint32 | int32](a, b T) T { return T(int64(a) * int64(b) >> 32) }

func mulHiU64(a, b uint64) uint64 {
	hi, _ := bits.Mul64(a, b)
	return hi
}

func mulHiS64(a, b int64) int64 {
	hi := int64(mulHiU64(uint64(a), uint64(b)))
	return hi - a>>63&b - b>>63&a
}

func madHi[T integer](mul func(a, b T) T) execFunc {
	return op3(func(a, b, c T) T { return mul(a, b) + c })
}

// quotient returns a / b, or all ones for a division by zero, as a GPU does. The manual leaves that
// case undefined.
func quotient[T integer](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a / b
}

func remainder[T integer](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a % b
}

func sad[T integer](a, b, c T) T { return c + max(a, b) - min(a, b) }
func absolute[T signed](a T) T   { return max(a, -a) }
func negate[T signed](a T) T     { return -a }
func least[T integer](a, b T) T  { return min(a, b) }
func most[T integer](a, b T) T   { return max(a, b) }
func clamp32(v int64) int32      { return int32(min(max(v, math.MinInt32), math.MaxInt32)) }

// pair16 returns an execFunc that applies f to both halves of a register.
func pair16[T int16 | uint16](f func(a, b T) T) execFunc {
	return op2(func(a, b uint32) uint32 {
		return uint32(uint16(f(T(a), T(b)))) | uint32(uint16(f(T(a>>16), T(b>>16))))<<16
	})
}

func decodeAdd(d *decoder) execFunc {
	d.operands()
	switch t := d.mainType(); {
	case t.Class() == ptx.Float:
		return d.float(addFloat)
	case d.i.Has("cc"):
		return d.carry(false, true)
	case t == ptx.U16x2 || t == ptx.S16x2:
		return pair16(func(a, b uint16) uint16 { return a + b })
	case d.i.Has("sat"):
		return op2(func(a, b int32) int32 { return clamp32(int64(a) + int64(b)) })
	default:
		return addInt.lookup(t)
	}
}

func decodeSub(d *decoder) execFunc {
	d.operands()
	switch t := d.mainType(); {
	case t.Class() == ptx.Float:
		return d.float(subFloat)
	case d.i.Has("cc"):
		return d.borrow(false, true)
	case d.i.Has("sat"):
		return op2(func(a, b int32) int32 { return clamp32(int64(a) - int64(b)) })
	default:
		return subInt.lookup(t)
	}
}

func decodeMul(d *decoder) execFunc {
	d.operands()
	t := d.mainType()
	switch {
	case t.Class() == ptx.Float:
		return d.float(mulFloat)
	case d.i.Has("wide"):
		return mulWide[t]
	case d.i.Has("hi"):
		return mulHiInt[t]
	}
	return mulLo.lookup(t)
}

func decodeMad(d *decoder) execFunc {
	d.operands()
	t := d.mainType()
	switch {
	case t.Class() == ptx.Float:
		return d.float(fmaFloat)
	case d.i.Has("cc"):
		return d.madCarry(false, true)
	case d.i.Has("wide"):
		return madWide[t]
	case d.i.Has("sat"):
		return op3(func(a, b, c int32) int32 { return clamp32(int64(mulHi32(a, b)) + int64(c)) })
	case d.i.Has("hi"):
		return madHiInt[t]
	}
	return madLo.lookup(t)
}

// The carry flag has a bit per lane. It is 1 after a borrow.

// carry returns the execFunc of a + b. With in set it adds the carry flag; with out set it writes
// it.
func (d *decoder) carry(in, out bool) execFunc {
	if d.mainType().Bits() == 64 {
		return withFlag(in, out, bits.Add64)
	}
	return withFlag(in, out, bits.Add32)
}

func (d *decoder) borrow(in, out bool) execFunc {
	if d.mainType().Bits() == 64 {
		return withFlag(in, out, bits.Sub64)
	}
	return withFlag(in, out, bits.Sub32)
}

func withFlag[T uint32 | uint64](in, out bool, f func(a, b, flag T) (T, T)) execFunc {
	return func(w *warp, i *inst) {
		addFlag(w, dst[T](w, i), reg[T](w, i.a), reg[T](w, i.b), in, out, f)
	}
}

func addFlag[T uint32 | uint64](w *warp, d, a, b *[lanes]T, in, out bool, f func(a, b, flag T) (T, T)) {
	var flags uint32
	for i := range d {
		var flag T
		if in {
			flag = T(w.frame.carry >> i & 1)
		}
		d[i], flag = f(a[i], b[i], flag)
		flags |= uint32(flag) << i
	}
	if out {
		w.frame.carry = w.frame.carry&^w.active | flags&w.active
	}
}

// madCarry returns the execFunc that adds c to the low or high half of a·b, with the carry flag as
// in carry.
func (d *decoder) madCarry(in, out bool) execFunc {
	lo := d.i.Has("lo")
	switch d.mainType() {
	case ptx.U64, ptx.S64:
		mul := mulHiU64
		if lo {
			mul = func(a, b uint64) uint64 { return a * b }
		} else if d.mainType() == ptx.S64 {
			mul = func(a, b uint64) uint64 { return uint64(mulHiS64(int64(a), int64(b))) }
		}
		return madFlag(in, out, mul, bits.Add64)
	case ptx.S32:
		if !lo {
			return madFlag(in, out, func(a, b uint32) uint32 { return uint32(mulHi32(int32(a), int32(b))) }, bits.Add32)
		}
	}
	if lo {
		return madFlag(in, out, func(a, b uint32) uint32 { return a * b }, bits.Add32)
	}
	return madFlag(in, out, mulHi32[uint32], bits.Add32)
}

func madFlag[T uint32 | uint64](in, out bool, mul func(a, b T) T, add func(a, b, flag T) (T, T)) execFunc {
	return func(w *warp, i *inst) {
		var product [lanes]T
		map2(&product, reg[T](w, i.a), reg[T](w, i.b), mul)
		addFlag(w, dst[T](w, i), &product, reg[T](w, i.c), in, out, add)
	}
}

func decodeAddc(d *decoder) execFunc {
	d.operands()
	return d.carry(true, d.i.Has("cc"))
}

func decodeSubc(d *decoder) execFunc {
	d.operands()
	return d.borrow(true, d.i.Has("cc"))
}

func decodeMadc(d *decoder) execFunc {
	d.operands()
	return d.madCarry(true, d.i.Has("cc"))
}

// product24 returns the function that multiplies two 24-bit integers and returns bits 0 to 31 of
// the product or, with hi set, bits 16 to 47.
func product24[T uint32 | int32](hi bool) func(a, b T) T {
	shift := 0
	if hi {
		shift = 16
	}
	return func(a, b T) T { return T(int64(a<<8>>8) * int64(b<<8>>8) >> shift) }
}

func decodeMul24(d *decoder) execFunc {
	d.operands()
	hi := d.i.Has("hi")
	return typed{ptx.U32: op2(product24[uint32](hi)), ptx.S32: op2(product24[int32](hi))}[d.mainType()]
}

func decodeMad24(d *decoder) execFunc {
	d.operands()
	hi := d.i.Has("hi")
	if d.i.Has("sat") {
		mul := product24[int32](hi)
		return op3(func(a, b, c int32) int32 { return clamp32(int64(mul(a, b)) + int64(c)) })
	}
	return typed{ptx.U32: madHi(product24[uint32](hi)), ptx.S32: madHi(product24[int32](hi))}[d.mainType()]
}

func decodeMin(d *decoder) execFunc {
	if len(d.i.Args) == 4 {
		d.operands()
		return d.float(min3Float)
	}
	return d.extreme(minFloat, minInt, least[int16], least[uint16], least[int32])
}

func decodeMax(d *decoder) execFunc {
	if len(d.i.Args) == 4 {
		d.operands()
		return d.float(max3Float)
	}
	return d.extreme(maxFloat, maxInt, most[int16], most[uint16], most[int32])
}

// extreme decodes min and max.
func (d *decoder) extreme(op *floatOp, ints typed, s16 func(a, b int16) int16, u16 func(a, b uint16) uint16,
	s32 func(a, b int32) int32) execFunc {
	d.operands()
	t, relu := d.mainType(), d.i.Has("relu")
	switch {
	case t.Class() == ptx.Float:
		return d.float(op)
	case t == ptx.S16x2 && relu:
		return pair16(func(a, b int16) int16 { return max(s16(a, b), 0) })
	case t == ptx.S16x2:
		return pair16(s16)
	case t == ptx.U16x2:
		return pair16(u16)
	case relu:
		return op2(func(a, b int32) int32 { return max(s32(a, b), 0) })
	}
	return ints[t]
}
