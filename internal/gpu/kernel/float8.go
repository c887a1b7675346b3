package kernel

import (
	"math"

	"tilework/dtype"
	"tilework/ptx"
	"tilework/ptx/build"
)

// float8SM is the architecture that introduced instructions that round to 8-bit floats. They
// saturate to the largest finite number, whereas float8 and package dtype overflow to an infinity
// or NaN.
const float8SM = 89

// largest holds the largest float32, as bits, that rounds to a finite number. It is half a step
// above the largest finite number. That tie rounds down in e4m3 and up in e5m2.
var largest = map[dtype.Type]uint32{dtype.F8E4M3: math.Float32bits(464), dtype.F8E5M2: math.Float32bits(61440) - 1}

// float8 rounds x, a float32, to an 8-bit float with the instructions of architecture sm. It
// returns the bits.
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
	// A subnormal is rounded by adding a number whose unit in the last place is the smallest step.
	step := (128 - bias + drop) << 23
	small := k.Sub(k.Bits(ptx.U32, k.Add(k.Bits(ptx.F32, magnitude), float64(math.Float32frombits(uint32(step))))), step)
	odd := k.And(k.Shr(magnitude, drop), 1)
	large := k.Shr(k.Sub(k.Add(k.Add(magnitude, 1<<(drop-1)-1), odd), (127-bias)<<23), drop)
	rounded := k.Min(k.Select(k.Lt(magnitude, (128-bias)<<23), small, large), most)
	return k.Or(k.Select(k.Gt(magnitude, infinite), 0x7f, rounded), sign())
}

// FromFloat8 converts the bits x of an 8-bit float to another type. The conversion instructions
// need sm_89. This one goes through float16, which represents all 8-bit floats, and runs
// everywhere.
func FromFloat8(k *build.Kernel, x build.Reg, t dtype.Type, to ptx.Type) build.Reg {
	half := func(bits build.Reg) build.Reg { return k.To(to, k.Bits(ptx.F16, k.To(ptx.U16, bits))) }
	if t == dtype.F8E5M2 {
		return half(k.Shl(x, 8)) // an e5m2 is the upper half of a float16
	}
	// e4m3 has one exponent bit less, with a bias that is smaller by 8, and its largest pattern is
	// NaN.
	mag := k.And(x, 0x7f)
	value := k.Mul(half(k.Or(k.Shl(k.And(x, 0x80), 8), k.Shl(mag, 7))), 256)
	return k.Select(k.Eq(mag, 0x7f), math.NaN(), value)
}
