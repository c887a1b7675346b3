package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// WidenFloat8 converts two of the four 8-bit floats (e4m3 or e5m2) in a register to a register of
// two float16: the first two, or the last two if half is 1. The instruction that does this needs
// sm_89.
func WidenFloat8(k *build.Kernel, t ptx.Type, four build.Reg, half int) build.Reg {
	two := permute(k, four, 0, [2]int{0x1404, 0x3424}[half]) // each in the upper byte of 16 bits
	if t == ptx.E5M2 {
		return two
	}
	// e4m3 has one exponent bit less than float16, with a bias that is smaller by 8. Its pattern
	// for 480 is NaN. Only that value overflows float16 when multiplied by 140, and infinity times
	// 0 is NaN.
	const by256, by140 = 0x5c005c00, 0x58605860
	bits := k.Or(k.And(two, uint32(0x80008000)), k.Shr(k.And(two, 0x7f007f00), 1))
	value, large, out := k.Fresh(ptx.B32), k.Fresh(ptx.B32), k.Fresh(ptx.B32)
	pair := func(v int) build.Reg { return k.Var("", ptx.B32, v) }
	k.Do("mul.rn.f16x2", value, bits, pair(by256))
	k.Do("mul.rn.f16x2", large, value, pair(by140))
	k.Do("fma.rn.f16x2", out, large, pair(0), value)
	return out
}

// RoundTF32 rounds a float32 to tf32, to nearest. The tensor cores would truncate it. Ties go away
// from zero or, from sm_90 on, to even, as TMA rounds.
func RoundTF32(k *build.Kernel, x build.Reg, even bool) build.Reg {
	d := k.Fresh(ptx.B32)
	if even {
		k.Do("cvt.rn.tf32.f32", d, x)
	} else {
		k.Do("cvt.rna.tf32.f32", d, x)
	}
	return d
}
