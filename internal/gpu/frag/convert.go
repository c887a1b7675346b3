package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Widen makes of the first two or, if half is 1, of the last two of a register of four 8-bit
// floats, e4m3 or e5m2, a register of two float16. The instruction for it came with sm_89.
func WidenFloat8(k *build.Kernel, t ptx.Type, four build.Reg, half int) build.Reg {
	two := permute(k, four, 0, [2]int{0x1404, 0x3424}[half]) // in the upper halves of 16 bits
	if t == ptx.E5M2 {
		return two
	}
	// One bit of exponent less, counted from 8 less. 480, the largest, stands for a NaN: times
	// 140 it alone is too large for a float16, and an infinity times 0 is a NaN.
	const by256, by140 = 0x5c005c00, 0x58605860
	bits := k.Or(k.And(two, 0x80008000), k.Shr(k.And(two, 0x7f007f00), 1))
	value, large, out := k.Fresh(ptx.B32), k.Fresh(ptx.B32), k.Fresh(ptx.B32)
	pair := func(v int) build.Reg { return k.Var("", ptx.B32, v) }
	k.Do("mul.rn.f16x2", value, bits, pair(by256))
	k.Do("mul.rn.f16x2", large, value, pair(by140))
	k.Do("fma.rn.f16x2", out, large, pair(0), value)
	return out
}

// Round rounds a float32 to tf32, to nearest; tensor cores would cut it off.
func RoundTF32(k *build.Kernel, x build.Reg) build.Reg {
	d := k.Fresh(ptx.B32)
	k.Do("cvt.rna.tf32.f32", d, x)
	return d
}
