package asm

import (
	"math"
	"math/rand/v2"
	"unsafe"
)

// finite returns a random number, mostly near 1. About 1 in 32 is large or small enough for
// products to overflow or underflow.
func finite[T float32 | float64](r *rand.Rand) T {
	exp := r.IntN(17) - 8
	if r.IntN(32) == 0 {
		exp = (r.IntN(140) - 75) * wide[T]()
	}
	return T(math.Ldexp(2*r.Float64()-1, exp))
}

// wide returns the ratio of T's exponent range to that of float32.
func wide[T float32 | float64]() int {
	if unsafe.Sizeof(*new(T)) == 8 {
		return 8
	}
	return 1
}

// special returns a number from finite, or in 7 of 64 cases a zero, an infinity, NaN, 1 or -1.
func special[T float32 | float64](r *rand.Rand) T {
	odd := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1, -1}
	if n := r.IntN(64); n < len(odd) {
		return T(odd[n])
	}
	return finite[T](r)
}

// fill sets all elements of s.
func fill[T float32 | float64](s []T, r *rand.Rand, value func(*rand.Rand) T) {
	for i := range s {
		s[i] = value(r)
	}
}
