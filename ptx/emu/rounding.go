package emu

import (
	"math"
	"math/big"

	"tilework/dtype"
)

// rounding is a rounding mode.
type rounding uint8

const (
	nearest  rounding = iota // to nearest, ties to even
	toZero                   // .rz
	down                     // .rm
	up                       // .rp
	awayTies                 // .rna: to nearest, ties away from zero
)

// roundings are the modes by their modifiers, those of integers with their i.
var roundings = map[string]rounding{
	"rn": nearest, "rz": toZero, "rm": down, "rp": up, "rna": awayTies,
	"rni": nearest, "rzi": toZero, "rmi": down, "rpi": up,
}

// integral rounds x to an integer.
func (r rounding) integral(x float64) float64 {
	switch r {
	case toZero:
		return math.Trunc(x)
	case down:
		return math.Floor(x)
	case up:
		return math.Ceil(x)
	case awayTies:
		return math.Round(x)
	}
	return math.RoundToEven(x)
}

// format is a floating-point format whose values are float64 values.
type format struct {
	precision int     // of the significand, the leading one included
	minExp    int     // exponent of the smallest normal number
	max       float64 // largest finite value
}

var (
	formatF32  = format{24, -126, math.MaxFloat32}
	formatF16  = format{11, -14, 65504}
	formatBF16 = format{8, -126, 0x1.fep127}
	formatTF32 = format{11, -126, 0x1.ffcp127}
	formatE5M2 = format{3, -14, 57344}
	formatE4M3 = format{4, -6, 448}
)

// round is x in the format, as a float64. x must be exact or rounded to odd; the
// result is as if the exact value had been rounded. What is too large becomes an
// infinity or the largest finite value, as the mode has it.
func (f *format) round(x float64, r rounding) float64 {
	if x == 0 || x != x || math.IsInf(x, 0) {
		return x
	}
	_, exp := math.Frexp(x) // |x| in [2^(exp-1), 2^exp)
	ulp := max(exp-1, f.minExp) - f.precision + 1
	y := math.Ldexp(r.integral(math.Ldexp(x, -ulp)), ulp)
	if math.Abs(y) > f.max {
		if r == toZero || r == down && x > 0 || r == up && x < 0 {
			return math.Copysign(f.max, x)
		}
		return math.Inf(int(math.Copysign(1, x)))
	}
	if y == 0 {
		return math.Copysign(0, x)
	}
	return y
}

// flush is x, or a zero of its sign if x is subnormal in the format.
func (f *format) flush(x float64) float64 {
	if math.Abs(x) < math.Ldexp(1, f.minExp) {
		return math.Copysign(0, x)
	}
	return x
}

// odd is s rounded to odd, where s is the rounded result of an operation and err has
// the sign of the exact result less s: where it is not exact and s is even, it is
// the neighbour of s on the exact result's other side.
func odd(s, err float64) float64 {
	if err == 0 || err != err || s == 0 || math.IsInf(s, 0) {
		return s
	}
	if b := math.Float64bits(s); b&1 == 0 {
		if err > 0 == (s > 0) {
			return math.Float64frombits(b + 1)
		}
		return math.Float64frombits(b - 1)
	}
	return s
}

// The operations on values of formats up to float32, rounded to odd: a second rounding to
// any of these formats then gives what one rounding of the exact result would have
// (Boldo and Melquiond, 2008). Their exponents are far from float64's limits.

func addOdd(a, b float64) float64 {
	s := a + b
	bb := s - a
	return odd(s, (a-(s-bb))+(b-bb)) // Knuth's two-sum
}

func fmaOdd(a, b, c float64) float64 { return addOdd(a*b, c) } // a·b is exact

func divOdd(a, b float64) float64 {
	q := a / b
	r := math.FMA(-q, b, a)
	if b < 0 {
		r = -r
	}
	return odd(q, r)
}

func sqrtOdd(a float64) float64 {
	s := math.Sqrt(a)
	return odd(s, math.FMA(-s, s, a))
}

// direct64 corrects rn, a result rounded to nearest, to another mode. sign tells
// whether the exact result is greater than rn, the same, or less.
func direct64(rn float64, r rounding, sign func() int) float64 {
	if r == nearest || rn != rn {
		return rn
	}
	switch s := sign(); {
	case s > 0 && (r == up || r == toZero && rn < 0):
		return math.Nextafter(rn, math.Inf(1))
	case s < 0 && (r == down || r == toZero && rn > 0):
		return math.Nextafter(rn, math.Inf(-1))
	}
	return rn
}

// exactDigits are enough for the sum of any product of two float64 and a third.
const exactDigits = 4400

func exact(x float64) *big.Float { return new(big.Float).SetPrec(exactDigits).SetFloat64(x) }

// fma64 is a·b + c, rounded once. The sum of zeros of different signs, and that of
// opposites, is a negative zero if the mode is down.
func fma64(a, b, c float64, r rounding) float64 {
	rn := math.FMA(a, b, c)
	if r == nearest || rn != rn || math.IsInf(a, 0) || math.IsInf(b, 0) || math.IsInf(c, 0) {
		return rn
	}
	if rn == 0 && r == down && math.Signbit(a) != math.Signbit(b) != math.Signbit(c) {
		if sum := exact(a); sum.Mul(sum, exact(b)).Add(sum, exact(c)).Sign() == 0 {
			return math.Copysign(0, -1)
		}
	}
	return direct64(rn, r, func() int {
		sum := exact(a)
		sum.Mul(sum, exact(b)).Add(sum, exact(c))
		return compare(sum, rn)
	})
}

// compare is the sign of x - y, y being perhaps an infinity.
func compare(x *big.Float, y float64) int {
	return x.Cmp(new(big.Float).SetFloat64(y))
}

func add64(a, b float64, r rounding) float64 { return fma64(a, 1, b, r) }

func mul64(a, b float64, r rounding) float64 {
	rn := a * b
	if r == nearest || rn != rn || math.IsInf(a, 0) || math.IsInf(b, 0) {
		return rn
	}
	return direct64(rn, r, func() int {
		p := exact(a)
		return compare(p.Mul(p, exact(b)), rn)
	})
}

func div64(a, b float64, r rounding) float64 {
	rn := a / b
	if r == nearest || rn != rn || b == 0 || math.IsInf(a, 0) || math.IsInf(b, 0) {
		return rn
	}
	return direct64(rn, r, func() int {
		if math.IsInf(rn, 0) {
			return -int(math.Copysign(1, rn))
		}
		q := exact(rn) // a/b > rn if a > rn·b, for b > 0
		s := exact(a).Cmp(q.Mul(q, exact(b)))
		if b < 0 {
			s = -s
		}
		return s
	})
}

func sqrt64(a float64, r rounding) float64 {
	rn := math.Sqrt(a)
	if r == nearest || rn != rn || math.IsInf(rn, 0) {
		return rn
	}
	return direct64(rn, r, func() int {
		s := exact(rn)
		return exact(a).Cmp(s.Mul(s, s))
	})
}

// codec is how the bits of a 16-bit format are read and written.
type codec struct {
	*format
	decode func(bits uint16) float64
	encode func(v float64) uint16 // of a value of the format
}

// nan16 is the canonical NaN of the 16-bit formats.
const nan16 = 0x7fff

var (
	codecF16 = &codec{&formatF16,
		func(b uint16) float64 { return dtype.Float16(b).Float64() },
		func(v float64) uint16 {
			if v != v {
				return nan16
			}
			return uint16(dtype.Float16From64(v))
		}}
	codecBF16 = &codec{&formatBF16,
		func(b uint16) float64 { return dtype.BFloat16(b).Float64() },
		func(v float64) uint16 {
			if v != v {
				return nan16
			}
			return uint16(dtype.BFloat16From64(v))
		}}
)

// decodeE5M2 and decodeE4M3 are the values of 8-bit floats (Micikevicius et al., "FP8
// Formats for Deep Learning", 2022). E4M3 has no infinities and one NaN of each sign.
func decodeE5M2(b uint8) float64 { return dtype.Float16(uint16(b) << 8).Float64() }

func decodeE4M3(b uint8) float64 {
	exp, frac := int(b>>3&15), float64(b&7)
	v := math.Ldexp(8+frac, exp-10)
	switch {
	case b&0x7f == 0x7f:
		return math.NaN()
	case exp == 0:
		v = math.Ldexp(frac, -9)
	}
	if b&0x80 != 0 {
		return -v
	}
	return v
}

// encodeE5M2 and encodeE4M3 round x to nearest; what is too large becomes the largest
// finite value.
func encodeE5M2(x float64) uint8 {
	if x != x {
		return 0x7f
	}
	v := max(-formatE5M2.max, min(formatE5M2.max, formatE5M2.round(x, nearest)))
	return uint8(dtype.Float16From64(v) >> 8)
}

func encodeE4M3(x float64) uint8 {
	if x != x {
		return 0x7f
	}
	v := formatE4M3.round(x, nearest)
	a := min(formatE4M3.max, math.Abs(v))
	var b uint8
	if a < 0x1p-6 {
		b = uint8(a * 512)
	} else {
		frac, exp := math.Frexp(a) // frac in [1/2, 1)
		b = uint8((exp+6)<<3) | uint8(frac*16)&7
	}
	if math.Signbit(v) {
		b |= 0x80
	}
	return b
}
