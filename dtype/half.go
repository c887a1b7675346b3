package dtype

import "math"

// Float16 holds an IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits.
type Float16 uint16

// BFloat16 holds the upper half of a float32: 1 sign, 8 exponent and 7 fraction bits.
type BFloat16 uint16

// Float32 returns the exact value of h. A NaN keeps its sign and payload and becomes quiet.
func (h Float16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero or subnormal: frac · 2^-24, exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	case 0x1f:
		if frac != 0 {
			frac |= 0x200
		}
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// Float64 returns the exact value of h.
func (h Float16) Float64() float64 { return float64(h.Float32()) }

// Float32 returns the exact value of b. A NaN becomes quiet.
func (b BFloat16) Float32() float32 {
	bits := uint32(b) << 16
	if bits&0x7fffffff > 0x7f800000 {
		bits |= 1 << 22
	}
	return math.Float32frombits(bits)
}

// Float64 returns the exact value of b.
func (b BFloat16) Float64() float64 { return float64(b.Float32()) }

// String returns the value of h in decimal: "1.5".
func (h Float16) String() string { return text32(h.Float32()) }

// String returns the value of b in decimal: "1.5".
func (b BFloat16) String() string { return text32(b.Float32()) }

// Float16From32 rounds f to binary16, to nearest with ties to even. A value that is too large
// becomes an infinity. A NaN stays a NaN.
func Float16From32(f float32) Float16 {
	bits := math.Float32bits(f)
	sign := Float16(bits >> 16 & 0x8000)
	mag := bits & 0x7fffffff
	switch {
	case mag > 0x7f800000: // NaN: keep the top of the payload, quiet
		return sign | 0x7e00 | Float16(mag>>13&0x3ff)
	case mag >= 0x47800000: // at least 2^16, or an infinity
		return sign | 0x7c00
	case mag < 0x38800000: // below 2^-14: subnormal or zero
		// Adding 1/2 puts the unit in the last place of the sum at 2^-24,
		// binary16's smallest step, so the float32 addition does the rounding.
		sum := math.Float32frombits(mag) + 0.5
		return sign | Float16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
	mag += 0xfff + mag>>13&1 // round to nearest: half a step minus one, plus one for an odd last bit
	return sign | Float16((mag-(127-15)<<23)>>13)
}

// BFloat16From32 rounds f to bfloat16, to nearest with ties to even.
func BFloat16From32(f float32) BFloat16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return BFloat16(bits>>16 | 1<<6)
	}
	return BFloat16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float16From64 rounds f to binary16 once, to nearest with ties to even.
func Float16From64(f float64) Float16 { return Float16From32(toOdd32(f)) }

// BFloat16From64 rounds f to bfloat16 once, to nearest with ties to even.
func BFloat16From64(f float64) BFloat16 { return BFloat16From32(toOdd32(f)) }

// toOdd32 rounds f to float32 with rounding to odd: it truncates f and sets the last bit if that
// was inexact. A second rounding, to a format at least two bits narrower, then has the same result
// as rounding f once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
// algorithms using rounding to odd").
func toOdd32(f float64) float32 {
	n := float32(f)
	if float64(n) == f || f != f {
		return n
	}
	bits := math.Float32bits(n)
	if math.Abs(float64(n)) > math.Abs(f) {
		bits-- // toward zero; an infinity steps down to the largest finite value
	}
	return math.Float32frombits(bits | 1)
}
