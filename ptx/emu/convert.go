package emu

import (
	"math"
	"math/big"
	"unsafe"

	"tilework/dtype"
	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

func execConvert[A, D integer](w *warp, in *inst) {
	map1(dst[D](w, in), reg[A](w, in.a), func(a A) D { return D(a) })
}

// convertInt returns the conversions from A to the integer types. It is not inlined, as [integers].
//
//go:noinline
func convertInt[A integer]() typed {
	return typed{ptx.U16: execConvert[A, uint16], ptx.U32: execConvert[A, uint32], ptx.U64: execConvert[A, uint64]}
}

// plainConversions holds specialized loops, by source and then destination type, for conversions
// between integers that fill their registers.
var plainConversions = map[ptx.Type]typed{
	ptx.U16: convertInt[uint16](), ptx.U32: convertInt[uint32](), ptx.U64: convertInt[uint64](),
	ptx.S16: convertInt[int16](), ptx.S32: convertInt[int32](), ptx.S64: convertInt[int64](),
}

func decodeCvt(d *decoder) execFunc {
	switch {
	case d.i.Has("pack"):
		return d.cvtPack()
	case pairs[d.i.Type(0)] != ptx.NoType:
		return d.cvtPair()
	}
	if n, ok := d.i.Args[1].(*ptx.Name); ok && clocks[ptx.Format(n)] > 0 {
		return nil
	}
	to, from := d.i.Type(0), d.i.Type(1)
	v := d.variant()
	d.in.d, d.in.a = d.result(0), d.source(1)
	toBits, fromBits := d.registerBits(0), d.registerBits(1)
	d.in.blend = uint8(toBits / 8)
	if to.Class() != ptx.Float && from.Class() != ptx.Float && toBits == to.Bits() && fromBits == from.Bits() && !v.sat {
		if f := plainConversions[from].lookup(to); f != nil {
			return f
		}
	}
	if to == ptx.TF32 && v.rnd == number.AwayTies && !v.finite { // GPUs add half an ulp, even to infinities and NaNs
		return op1(func(a uint32) uint32 { return (a + 1<<12) &^ (1<<13 - 1) })
	}
	if f := hotConversion(to, from, v); f != nil {
		return f
	}
	f := converter(to, from, v)
	read, write := moverFor(from, 64), moverFor(unsignedOf(toBits), 64)
	if from.Class() == ptx.Float {
		read = moverFor(unsignedOf(from.Bits()), 64)
	}
	return func(w *warp, in *inst) {
		var values [lanes]uint64
		read.load(unsafe.Add(w.base, in.a), &strides[fromBits/8], full, 0, unsafe.Pointer(&values))
		map1(&values, &values, f)
		write.store(unsafe.Pointer(dst[uint8](w, in)), &strides[toBits/8], full, 0, unsafe.Pointer(&values))
	}
}

// strides holds the offsets of the lanes of a register, by the size of its elements in bytes.
var strides = func() (all [9][lanes]uint64) {
	for size := range all {
		for i := range all[size] {
			all[size][i] = uint64(size * i)
		}
	}
	return all
}()

// registerBits returns the width of the register in argument k, which may be wider than the type of
// the operand.
func (d *decoder) registerBits(k int) int {
	if n, ok := d.i.Args[k].(*ptx.Name); ok {
		return n.Sym.Type.Bits()
	}
	return d.i.Type(k).Info().Storage.Bits()
}

// hotConversion returns a specialized loop for a common conversion, or nil.
func hotConversion(to, from ptx.Type, v variant) execFunc {
	if v != (variant{}) {
		return nil
	}
	switch {
	case to == ptx.F64 && from == ptx.F32:
		return func(w *warp, in *inst) {
			map1(dst[float64](w, in), reg[float32](w, in.a), func(a float32) float64 { return float64(a) })
		}
	case to == ptx.F32 && from == ptx.F64:
		return func(w *warp, in *inst) {
			map1(dst[float32](w, in), reg[float64](w, in.a), func(a float64) float32 { return float32(a) })
		}
	case to == ptx.F32 && from == ptx.S32:
		return func(w *warp, in *inst) {
			map1(dst[float32](w, in), reg[int32](w, in.a), func(a int32) float32 { return float32(a) })
		}
	case to == ptx.F32 && from == ptx.F16:
		return func(w *warp, in *inst) {
			map1(dst[float32](w, in), reg[uint16](w, in.a), func(a uint16) float32 {
				return canonical(dtype.Float16(a).Float32())
			})
		}
	}
	return nil
}

// converter returns the conversion of one value from the bits of type from to the bits of type to.
// Integers are extended to 64 bits on both sides.
func converter(to, from ptx.Type, v variant) func(bits uint64) uint64 {
	switch {
	case to.Class() != ptx.Float && from.Class() != ptx.Float:
		return func(b uint64) uint64 { return intToInt(to, from, v.sat, b) }
	case to.Class() != ptx.Float:
		decode := decoderOf(from, v.ftz)
		nan := uint64(0) // result for NaN (manual: cvt, notes)
		if from == ptx.F64 || to.Bits() == 64 {
			nan = uint64(1) << (to.Bits() - 1)
		}
		lo, hi := integerLimits(to)
		return func(b uint64) uint64 {
			x := v.rnd.Integral(decode(b))
			switch {
			case x != x:
				return extend(to, nan)
			case x < float64(lo):
				return uint64(lo)
			case x >= float64(hi): // float64(hi) may be rounded up, but no float64 is between hi and that value
				return hi
			case x < 0:
				return uint64(int64(x))
			}
			return uint64(x)
		}
	case from.Class() != ptx.Float:
		encode := encoderOf(to, v)
		return func(b uint64) uint64 { return encode(fromInt(to, from.Class() == ptx.Signed, b, v.rnd)) }
	}
	decode, encode := decoderOf(from, v.ftz), encoderOf(to, v)
	return func(b uint64) uint64 {
		x := decode(b)
		if x != x && !v.sat {
			if nan := convertNaN(to, from, v.ftz, b); nan != 0 {
				return nan
			}
		}
		if v.whole {
			x = v.rnd.Integral(x)
		}
		return encode(x)
	}
}

// convertNaN returns the NaN that a GPU converts a NaN to, or 0 if that is the canonical NaN.
// Conversions from float64 and bf16 keep the upper payload bits.
func convertNaN(to, from ptx.Type, ftz bool, b uint64) uint64 {
	const quiet64 = 1 << 51
	sign16 := b >> 63 << 15
	switch {
	case from == ptx.F64 && to == ptx.F32:
		return b>>63<<31 | 0x7f800000 | (b|quiet64)>>29&0x7fffff
	case from == ptx.F64 && to == ptx.F16:
		return sign16 | 0x7c00 | (b|quiet64)>>42&0x3ff
	case from == ptx.F64 && to == ptx.BF16:
		return sign16 | 0x7f80 | (b|quiet64)>>45&0x7f
	case from == ptx.BF16 && to == ptx.F32:
		return b << 16
	case from == ptx.F32 && to == ptx.F64 && ftz:
		return math.Float64bits(float64(math.Float32frombits(number.NaN32)))
	}
	return 0
}

// integerLimits returns the minimum and maximum of an integer type.
func integerLimits(t ptx.Type) (lo int64, hi uint64) {
	if t.Class() == ptx.Signed {
		return -1 << (t.Bits() - 1), 1<<(t.Bits()-1) - 1
	}
	return 0, ^uint64(0) >> (64 - t.Bits())
}

// extend sign- or zero-extends the low bits of v from type t to 64 bits.
func extend(t ptx.Type, v uint64) uint64 {
	n := 64 - t.Bits()
	if t.Class() == ptx.Signed {
		return uint64(int64(v<<n) >> n)
	}
	return v << n >> n
}

func intToInt(to, from ptx.Type, sat bool, b uint64) uint64 {
	if sat {
		lo, hi := integerLimits(to)
		switch negative := from.Class() == ptx.Signed && int64(b) < 0; {
		case negative && int64(b) < lo:
			return uint64(lo)
		case !negative && b > hi:
			return hi
		}
	}
	return extend(to, b)
}

// fromInt converts an integer to float64. The result is rounded by r if that is the destination
// type, and rounded to odd otherwise.
func fromInt(to ptx.Type, signed bool, b uint64, r number.Rounding) float64 {
	v := new(big.Float).SetPrec(64)
	var rn float64
	if signed {
		v.SetInt64(int64(b))
		rn = float64(int64(b))
	} else {
		v.SetUint64(b)
		rn = float64(b)
	}
	err := number.Compare(v, rn)
	if to == ptx.F64 {
		return number.Direct64(rn, r, func() int { return err })
	}
	return number.Odd(rn, float64(err))
}

// decoderOf returns the function that decodes the bits of floating-point type t.
func decoderOf(t ptx.Type, ftz bool) func(bits uint64) float64 {
	decode := number.Of(t).Decode
	if ftz && t == ptx.F32 {
		return func(b uint64) float64 { return number.F32.Flush(decode(b)) }
	}
	return decode
}

// encoderOf returns the function that encodes a number as floating-point type t. The number is
// exact or rounded to odd. Scales are rounded from the absolute value, as in
// NVIDIA's cuda_fp8.hpp.
func encoderOf(t ptx.Type, v variant) func(x float64) uint64 {
	format := number.Of(t)
	return func(x float64) uint64 {
		if t == ptx.UE8M0 {
			x = math.Abs(x)
		}
		if t != ptx.F64 {
			x = format.Round(x, v.rnd)
		}
		if v.finite {
			x = min(max(x, -format.Max), format.Max)
		}
		switch {
		case v.ftz && t == ptx.F32:
			x = number.F32.Flush(x)
		case v.relu && x <= 0:
			x = 0
		}
		if v.sat {
			x = min(max(x, 0), 1)
			if x != x || x == 0 {
				x = 0
			}
		}
		return format.Encode(x)
	}
}

// pairs holds the types of the elements of packed types.
var pairs = map[ptx.Type]ptx.Type{
	ptx.F16x2: ptx.F16, ptx.BF16x2: ptx.BF16, ptx.E4M3x2: ptx.E4M3, ptx.E5M2x2: ptx.E5M2,
	ptx.E3M2x2: ptx.E3M2, ptx.E2M3x2: ptx.E2M3, ptx.E2M1x2: ptx.E2M1, ptx.UE8M0x2: ptx.UE8M0,
}

// cvtPair decodes conversions to a pair of values in one register. The pair consists of a in the
// upper and b in the lower half, or of the two halves of a.
func (d *decoder) cvtPair() execFunc {
	d.operands()
	to, from := d.i.Type(0), d.i.Type(1)
	encode, toHalf := encoderOf(pairs[to], d.variant()), to.Bits()/2
	pair := func(a, b float64) uint64 { return encode(a)<<toHalf | encode(b) }
	if from == ptx.F32 {
		plain := func(a, b float32) uint64 { return pair(float64(a), float64(b)) }
		switch to.Bits() {
		case 8:
			return op2(func(a, b float32) uint8 { return uint8(plain(a, b)) })
		case 16:
			return op2(func(a, b float32) uint16 { return uint16(plain(a, b)) })
		}
		return op2(func(a, b float32) uint32 { return uint32(plain(a, b)) })
	}
	decode, fromHalf := number.Of(pairs[from]).Decode, from.Bits()/2
	halves := func(a uint64) uint64 { return pair(decode(a>>fromHalf), decode(a)) }
	switch {
	case from.Bits() == 8:
		return op1(func(a uint8) uint32 { return uint32(halves(uint64(a))) })
	case from.Bits() == 16:
		return op1(func(a uint16) uint32 { return uint32(halves(uint64(a))) })
	case to.Bits() == 8:
		return op1(func(a uint32) uint8 { return uint8(halves(uint64(a))) })
	}
	return op1(func(a uint32) uint16 { return uint16(halves(uint64(a))) })
}

// cvtPack decodes cvt.pack, which saturates a and b and concatenates c, a and b from high to low.
func (d *decoder) cvtPack() execFunc {
	d.operands()
	name := d.i.Mod("dtype")
	width := map[string]int{"u16": 16, "s16": 16, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "u2": 2, "s2": 2}[name]
	lo, hi := int32(0), int32(1)<<width-1
	if name[0] == 's' {
		lo, hi = -1<<(width-1), 1<<(width-1)-1
	}
	pair := func(a, b int32) uint32 {
		part := func(v int32) uint32 { return uint32(min(max(v, lo), hi)) & (1<<width - 1) }
		return part(a)<<width | part(b)
	}
	if len(d.i.Args) == 3 {
		return op2(pair)
	}
	return op3(func(a, b int32, c uint32) uint32 { return c<<(2*width) | pair(a, b) })
}
