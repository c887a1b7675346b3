package number

import (
	"math"
	"math/big"
)

// Odd rounds to odd, where s is the rounded result of an operation and err has the sign of the
// exact result minus s. If the result is inexact and s is even, Odd returns the neighbor of s on
// the other side of the exact result.
func Odd(s, err float64) float64 {
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

// AddOdd returns a + b.
func AddOdd(a, b float64) float64 {
	s := a + b
	bb := s - a
	return Odd(s, (a-(s-bb))+(b-bb)) // Knuth's TwoSum
}

// FMAOdd returns a·b + c.
func FMAOdd(a, b, c float64) float64 { return AddOdd(a*b, c) } // a·b is exact

// DivOdd returns a / b.
func DivOdd(a, b float64) float64 {
	q := a / b
	r := math.FMA(-q, b, a)
	if b < 0 {
		r = -r
	}
	return Odd(q, r)
}

// SqrtOdd returns the square root of a.
func SqrtOdd(a float64) float64 {
	s := math.Sqrt(a)
	return Odd(s, math.FMA(-s, s, a))
}

// Direct64 converts rn, a result rounded to nearest, to rounding mode r. sign returns the sign of
// the exact result minus rn.
func Direct64(rn float64, r Rounding, sign func() int) float64 {
	if r == Nearest || rn != rn {
		return rn
	}
	switch s := sign(); {
	case s > 0 && (r == Up || r == ToZero && rn < 0):
		return math.Nextafter(rn, math.Inf(1))
	case s < 0 && (r == Down || r == ToZero && rn > 0):
		return math.Nextafter(rn, math.Inf(-1))
	}
	return rn
}

// exactDigits is a precision in bits that suffices for the sum of a product of two float64 values
// and a third value.
const exactDigits = 4400

func exact(x float64) *big.Float { return new(big.Float).SetPrec(exactDigits).SetFloat64(x) }

// FMA64 computes a·b + c with a single rounding. When rounding down, an exact zero sum of terms
// with different signs is -0.
func FMA64(a, b, c float64, r Rounding) float64 {
	rn := math.FMA(a, b, c)
	if r == Nearest || rn != rn || math.IsInf(a, 0) || math.IsInf(b, 0) || math.IsInf(c, 0) {
		return rn
	}
	if rn == 0 && r == Down && math.Signbit(a) != math.Signbit(b) != math.Signbit(c) {
		if sum := exact(a); sum.Mul(sum, exact(b)).Add(sum, exact(c)).Sign() == 0 {
			return math.Copysign(0, -1)
		}
	}
	return Direct64(rn, r, func() int {
		sum := exact(a)
		sum.Mul(sum, exact(b)).Add(sum, exact(c))
		return Compare(sum, rn)
	})
}

// Compare returns the sign of x - y. y may be infinite.
func Compare(x *big.Float, y float64) int {
	return x.Cmp(new(big.Float).SetFloat64(y))
}

// Add64 returns a + b, rounded once.
func Add64(a, b float64, r Rounding) float64 { return FMA64(a, 1, b, r) }

// Mul64 returns a·b, rounded once.
func Mul64(a, b float64, r Rounding) float64 {
	rn := a * b
	if r == Nearest || rn != rn || math.IsInf(a, 0) || math.IsInf(b, 0) {
		return rn
	}
	return Direct64(rn, r, func() int {
		p := exact(a)
		return Compare(p.Mul(p, exact(b)), rn)
	})
}

// Div64 returns a / b, rounded once.
func Div64(a, b float64, r Rounding) float64 {
	rn := a / b
	if r == Nearest || rn != rn || b == 0 || math.IsInf(a, 0) || math.IsInf(b, 0) {
		return rn
	}
	return Direct64(rn, r, func() int {
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

// Sqrt64 returns the square root of a, rounded once.
func Sqrt64(a float64, r Rounding) float64 {
	rn := math.Sqrt(a)
	if r == Nearest || rn != rn || math.IsInf(rn, 0) {
		return rn
	}
	return Direct64(rn, r, func() int {
		s := exact(rn)
		return exact(a).Cmp(s.Mul(s, s))
	})
}
