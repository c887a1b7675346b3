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

// roundings maps modifiers to rounding modes. Those of conversions to integers end in i.
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

// format is a floating-point format whose values are representable in float64.
type format struct {
	precision int     // significand bits, including the leading one
	minExp    int     // exponent of the smallest normal number
	max       float64 // largest finite value
}

var (
	formatF32   = format{24, -126, math.MaxFloat32}
	formatF16   = format{11, -14, 65504}
	formatBF16  = format{8, -126, 0x1.fep127}
	formatTF32  = format{11, -126, 0x1.ffcp127}
	formatE5M2  = format{3, -14, 57344}
	formatE4M3  = format{4, -6, 448}
	formatE3M2  = format{3, -2, 28}
	formatE2M3  = format{4, 0, 7.5}
	formatE2M1  = format{2, 0, 6}
	formatUE8M0 = format{1, -127, 0x1p127}
)

// round rounds x to the format. x must be exact or rounded to odd; the result is then the same as
// that of rounding the exact value. An overflow results in an infinity or in the largest finite
// value, depending on the mode.
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

// flush returns x, or a zero of the same sign if x is subnormal in the format.
func (f *format) flush(x float64) float64 {
	if math.Abs(x) < math.Ldexp(1, f.minExp) {
		return math.Copysign(0, x)
	}
	return x
}

// odd rounds to odd, where s is the rounded result of an operation and err has the sign of the
// exact result minus s. If the result is inexact and s is even, odd returns the neighbor of s on
// the other side of the exact result.
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

// Operations on values of formats up to float32 with results rounded to odd. A second rounding to
// any of these formats then has the same result as a single rounding of the exact value (Boldo and
// Melquiond, 2008). The exponents are far from the limits of float64.

func addOdd(a, b float64) float64 {
	s := a + b
	bb := s - a
	return odd(s, (a-(s-bb))+(b-bb)) // Knuth's TwoSum
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

// direct64 converts rn, a result rounded to nearest, to rounding mode r. sign returns the sign of
// the exact result minus rn.
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

// exactDigits is a precision in bits that suffices for the sum of a product of two float64 values
// and a third value.
const exactDigits = 4400

func exact(x float64) *big.Float { return new(big.Float).SetPrec(exactDigits).SetFloat64(x) }

// fma64 computes a·b + c with a single rounding. When rounding down, an exact zero sum of terms
// with different signs is -0.
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

// compare returns the sign of x - y. y may be infinite.
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
		q := exact(rn) // for b > 0, a/b > rn if and only if a > rn·b
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

// codec decodes and encodes the values of a 16-bit format.
type codec struct {
	*format
	decode func(bits uint16) float64
	encode func(v float64) uint16 // the value must be representable
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

// decodeE5M2 decodes an 8-bit float in format E5M2 (Micikevicius et al., "FP8 Formats for Deep
// Learning", 2022).
func decodeE5M2(b uint8) float64 { return dtype.Float16(uint16(b) << 8).Float64() }

// decodeE4M3 decodes an 8-bit float in format E4M3, which has no infinities and one NaN per sign.
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

// encodeNarrow returns the bits of v, a finite number of a format of up to 8 bits, or NaN. The
// result for NaN is the positive NaN of 8-bit formats, and the maximum of others.
func (f *format) encodeNarrow(v float64, bits int) uint64 {
	sign := uint64(1) << (bits - 1)
	if v != v {
		return sign - 1
	}
	a := math.Abs(v)
	exp := max(math.Ilogb(a), f.minExp)
	b := uint64(exp-f.minExp)<<(f.precision-1) + uint64(math.Ldexp(a, f.precision-1-exp))
	if math.Signbit(v) {
		b |= sign
	}
	return b
}
