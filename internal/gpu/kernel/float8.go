package kernel

import (
	"math"

	"tilework/dtype"
	"tilework/ptx"
	"tilework/ptx/build"
)

// float8SM is the architecture from which on an instruction rounds to 8-bit floats. It has the
// largest number for what is too large, where we, as package dtype, have an infinity or NaN.
const float8SM = 89

// largest are the float32 that are rounded to the largest numbers, as bits: half a step above, where
// a tie goes down to that of e4m3 and up from that of e5m2.
var largest = map[dtype.Type]uint32{dtype.F8E4M3: math.Float32bits(464), dtype.F8E5M2: math.Float32bits(61440) - 1}

// float8 is x, a float32, rounded to an 8-bit float by the means of an architecture, as its bits.
func float8(k *build.Kernel, x build.Reg, t dtype.Type, sm int) build.Reg {
	exponent, fraction, most := 4, 3, 0x7f
	if t == dtype.F8E5M2 {
		exponent, fraction, most = 5, 2, 0x7c
	}
	word := k.Bits(ptx.U32, x)
	magnitude := k.And(word, 1<<31-1)
	sign := func() build.Reg { return k.And(k.Shr(word, 24), 0x80) }
	const infinite = 0x7f800000
	if sm >= float8SM {
		both := k.Fresh(ptx.B16)
		k.Do("cvt.rn.satfinite."+PTXTypes[t].String()+"x2.f32", both, k.Var("", ptx.F32, 0), x)
		rounded := k.Select(k.Gt(magnitude, largest[t]), k.Or(most, sign()), k.To(ptx.U32, k.Bits(ptx.U16, both)))
		return k.Select(k.Gt(magnitude, infinite), 0x7f, rounded)
	}
	bias, drop := 1<<(exponent-1)-1, 23-fraction
	// A subnormal is rounded by a sum whose unit in the last place is the smallest step.
	step := (128 - bias + drop) << 23
	small := k.Sub(k.Bits(ptx.U32, k.Add(k.Bits(ptx.F32, magnitude), float64(math.Float32frombits(uint32(step))))), step)
	odd := k.And(k.Shr(magnitude, drop), 1)
	large := k.Shr(k.Sub(k.Add(k.Add(magnitude, 1<<(drop-1)-1), odd), (127-bias)<<23), drop)
	rounded := k.Min(k.Select(k.Lt(magnitude, (128-bias)<<23), small, large), most)
	return k.Or(k.Select(k.Gt(magnitude, infinite), 0x7f, rounded), sign())
}

// fromFloat8 is an 8-bit float, of which x has the bits, in another type. The instructions that
// convert them came with sm_89, and those for float16, which has room for both, do everywhere.
func FromFloat8(k *build.Kernel, x build.Reg, t dtype.Type, to ptx.Type) build.Reg {
	half := func(bits build.Reg) build.Reg { return k.To(to, k.Bits(ptx.F16, k.To(ptx.U16, bits))) }
	if t == dtype.F8E5M2 {
		return half(k.Shl(x, 8)) // it is the upper half of a float16
	}
	// One bit of exponent less, counted from 8 less; and the largest value is a NaN.
	mag := k.And(x, 0x7f)
	value := k.Mul(half(k.Or(k.Shl(k.And(x, 0x80), 8), k.Shl(mag, 7))), 256)
	return k.Select(k.Eq(mag, 0x7f), math.NaN(), value)
}
