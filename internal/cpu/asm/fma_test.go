package asm

import (
	"math"
	"math/big"
	"testing"

	"tilework/internal/testkit/testrand"
)

// fma returns x·y + z with one rounding.
func fma[T float32 | float64](x, y, z T) T {
	if _, ok := any(x).(float64); ok {
		return T(math.FMA(float64(x), float64(y), float64(z)))
	}
	return T(fma32(float32(x), float32(y), float32(z)))
}

// fma32 rounds the float64 sum to odd. Rounding that to float32, which has less than half the bits,
// then equals a single rounding (Boldo and Melquiond, "Emulation of FMA and correctly rounded
// sums").
func fma32(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z) // both exact
	s := p + c
	t := s - p
	rest := (p - (s - t)) + (c - t) // s + rest is exact (Knuth's two-sum)
	if bits := math.Float64bits(s); bits&1 == 0 && (rest > 0 || rest < 0) {
		if (rest > 0) == (s > 0) {
			s = math.Float64frombits(bits + 1)
		} else {
			s = math.Float64frombits(bits - 1)
		}
	}
	return float32(s)
}

func TestFMA32(t *testing.T) {
	r := testrand.New(t)
	for n := range 200_000 {
		x, y := finite[float32](r), finite[float32](r)
		z := finite[float32](r)
		if n%2 == 0 { // near cancellation, and near a tie
			z = float32(-float64(x) * float64(y) * float64(1+r.IntN(3)))
		}
		exact := new(big.Float).SetPrec(2000).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		exact.Add(exact, big.NewFloat(float64(z)))
		want, _ := exact.Float32()
		if got := fma32(x, y, z); got != want {
			t.Fatalf("fma(%g, %g, %g) = %g, want %g", x, y, z, got, want)
		}
	}
}
