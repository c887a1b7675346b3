package gpu

import (
	"math"

	"tilework/dtype"
	"tilework/ptx"
	"tilework/ptx/build"
)

// float8 is x, a float32, rounded to an 8-bit float, as its bits. The instructions that round came
// with sm_89, and have no NaN for what is too large; this is what package dtype does.
func float8(k *build.Kernel, x build.Reg, t dtype.Type) build.Reg {
	exponent, fraction, most := 4, 3, 0x7f
	if t == dtype.F8E5M2 {
		exponent, fraction, most = 5, 2, 0x7c
	}
	bias, drop := 1<<(exponent-1)-1, 23-fraction
	word := k.Bits(ptx.U32, x)
	magnitude := k.And(word, 1<<31-1)
	// A subnormal is rounded by a sum whose unit in the last place is the smallest step.
	step := (128 - bias + drop) << 23
	small := k.Sub(k.Bits(ptx.U32, k.Add(k.Bits(ptx.F32, magnitude), float64(math.Float32frombits(uint32(step))))), step)
	odd := k.And(k.Shr(magnitude, drop), 1)
	large := k.Shr(k.Sub(k.Add(k.Add(magnitude, 1<<(drop-1)-1), odd), (127-bias)<<23), drop)
	rounded := k.Min(k.Select(k.Lt(magnitude, (128-bias)<<23), small, large), most)
	rounded = k.Select(k.Gt(magnitude, 0x7f800000), 0x7f, rounded)
	return k.Or(rounded, k.And(k.Shr(word, 24), 0x80))
}
