package dtype

import "math"

// Float8E4M3 holds 1 sign, 4 exponent and 3 fraction bits, the OCP's E4M3 (Micikevicius
// et al., "FP8 formats for deep learning", 2022): it has no infinities, and of the largest
// exponent's values only the largest is a NaN.
type Float8E4M3 uint8

// Float8E5M2 holds the upper half of a [Float16]: 1 sign, 5 exponent and 2 fraction bits.
type Float8E5M2 uint8

// Float32 is the exact value of x; a NaN keeps its sign and becomes quiet.
func (x Float8E4M3) Float32() float32 { return valuesE4M3[x] }

// Float64 is the exact value of x.
func (x Float8E4M3) Float64() float64 { return float64(valuesE4M3[x]) }

// Float32 is the exact value of x; a NaN keeps its sign and payload and becomes quiet.
func (x Float8E5M2) Float32() float32 { return Float16(uint16(x) << 8).Float32() }

// Float64 is the exact value of x.
func (x Float8E5M2) Float64() float64 { return float64(x.Float32()) }

// valuesE4M3 is the value of each pattern.
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

// Float8E4M3From64 rounds f once, to nearest with ties to even. What is too large, which
// 464 is not yet, becomes a NaN, as there is no infinity; so does an infinity.
func Float8E4M3From64(f float64) Float8E4M3 { return Float8E4M3From32(toOdd32(f)) }

// Float8E5M2From64 rounds f once, to nearest with ties to even. What is too large becomes
// an infinity.
func Float8E5M2From64(f float64) Float8E5M2 { return Float8E5M2From32(toOdd32(f)) }

// Float8E4M3From32 is [Float8E4M3From64] of a float32.
func Float8E4M3From32(f float32) Float8E4M3 {
	sign := Float8E4M3(math.Float32bits(f) >> 24 & 0x80)
	if f != f {
		return sign | 0x7f
	}
	return sign | Float8E4M3(min(byteOf(f, 4, 3), 0x7f))
}

// Float8E5M2From32 is [Float8E5M2From64] of a float32; a NaN keeps the top of its payload.
func Float8E5M2From32(f float32) Float8E5M2 {
	bits := math.Float32bits(f)
	sign := Float8E5M2(bits >> 24 & 0x80)
	if f != f {
		return sign | 0x7e | Float8E5M2(bits>>21&1)
	}
	return sign | Float8E5M2(min(byteOf(f, 5, 2), 0x7c))
}

// byteOf is |f|, which is no NaN, rounded to a format of so many bits of exponent and
// fraction, as its pattern; one that the format has no room for is larger than all others.
func byteOf(f float32, exp, frac int) uint32 {
	mag := math.Float32bits(f) &^ (1 << 31)
	bias := 1<<(exp-1) - 1
	if mag < uint32(127+1-bias)<<23 { // subnormal or zero
		// The sum's unit in the last place is the format's smallest step, so that the
		// addition does the rounding.
		step := math.Float32frombits(uint32(127+1-bias-frac+23) << 23)
		return math.Float32bits(math.Float32frombits(mag)+step) - math.Float32bits(step)
	}
	drop := 23 - frac
	mag += 1<<(drop-1) - 1 + mag>>drop&1 // half a step less one, and one more for an odd last bit
	return (mag - uint32(127-bias)<<23) >> drop
}
