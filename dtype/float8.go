package dtype

import "math"

// Float8E4M3 holds an OCP E4M3 number: 1 sign, 4 exponent and 3 fraction bits (Micikevicius et al.,
// "FP8 formats for deep learning", 2022). It has no infinities, and only the pattern with all
// exponent and fraction bits set is a NaN.
type Float8E4M3 uint8

// Float8E5M2 holds the upper half of a [Float16]: 1 sign, 5 exponent and 2 fraction bits.
type Float8E5M2 uint8

// Float32 returns the exact value of x. A NaN keeps its sign and becomes quiet.
func (x Float8E4M3) Float32() float32 { return valuesE4M3[x] }

// String returns the value of x in decimal: "1.5".
func (x Float8E4M3) String() string { return text32(x.Float32()) }

// Float64 returns the exact value of x.
func (x Float8E4M3) Float64() float64 { return float64(valuesE4M3[x]) }

// Float32 returns the exact value of x. A NaN keeps its sign and payload and becomes quiet.
func (x Float8E5M2) Float32() float32 { return Float16(uint16(x) << 8).Float32() }

// String returns the value of x in decimal: "1.5".
func (x Float8E5M2) String() string { return text32(x.Float32()) }

// Float64 returns the exact value of x.
func (x Float8E5M2) Float64() float64 { return float64(x.Float32()) }

// valuesE4M3 holds the value of each pattern.
var valuesE4M3 = func() (values [256]float32) {
	for p := range values {
		sign, exp, frac := uint32(p>>7)<<31, p>>3&0xf, uint32(p&7)
		switch {
		case p&0x7f == 0x7f:
			values[p] = math.Float32frombits(sign | 0x7fc<<20)
		case exp == 0: // zero or subnormal: frac · 2^-9
			values[p] = math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-9))
		default:
			values[p] = math.Float32frombits(sign | uint32(exp+127-7)<<23 | frac<<20)
		}
	}
	return values
}()

// Float8E4M3From64 rounds f once, to nearest with ties to even. An infinity or a magnitude above
// 464 becomes a NaN, because the type has no infinity.
func Float8E4M3From64(f float64) Float8E4M3 { return Float8E4M3From32(toOdd32(f)) }

// Float8E5M2From64 rounds f once, to nearest with ties to even. A value that is too large becomes
// an infinity.
func Float8E5M2From64(f float64) Float8E5M2 { return Float8E5M2From32(toOdd32(f)) }

// Float8E4M3From32 is like [Float8E4M3From64] for a float32.
func Float8E4M3From32(f float32) Float8E4M3 {
	sign := Float8E4M3(math.Float32bits(f) >> 24 & 0x80)
	if f != f {
		return sign | 0x7f
	}
	return sign | Float8E4M3(min(byteOf(f, 4, 3), 0x7f))
}

// Float8E5M2From32 is like [Float8E5M2From64] for a float32. A NaN keeps the top bit of its
// payload.
func Float8E5M2From32(f float32) Float8E5M2 {
	bits := math.Float32bits(f)
	sign := Float8E5M2(bits >> 24 & 0x80)
	if f != f {
		return sign | 0x7e | Float8E5M2(bits>>21&1)
	}
	return sign | Float8E5M2(min(byteOf(f, 5, 2), 0x7c))
}

// byteOf rounds |f| to a format with exp exponent bits and frac fraction bits and returns the bit
// pattern. f must not be NaN. The pattern of a value that is too large exceeds that of the largest
// finite value.
func byteOf(f float32, exp, frac int) uint32 {
	mag := math.Float32bits(f) &^ (1 << 31)
	bias := 1<<(exp-1) - 1
	if mag < uint32(127+1-bias)<<23 { // subnormal or zero
		// The unit in the last place of the sum is the smallest step of the format, so the
		// addition rounds.
		step := math.Float32frombits(uint32(127+1-bias-frac+23) << 23)
		return math.Float32bits(math.Float32frombits(mag)+step) - math.Float32bits(step)
	}
	drop := 23 - frac
	mag += 1<<(drop-1) - 1 + mag>>drop&1 // round to nearest: half a step minus one, plus one for an odd last bit
	return (mag - uint32(127-bias)<<23) >> drop
}
