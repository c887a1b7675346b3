package dtype

import (
	"math"
	"math/big"
	"testing"

	"tilework/internal/testkit/testrand"
)

// narrow describes a 16-bit or 8-bit format by its exponent and fraction bits, independently of the
// code under test. reference computes values from this description.
type narrow struct {
	name      string
	exp, frac int
	finite    bool // no infinities; the pattern after the largest finite value is the only NaN
	value     func(uint16) float64
	from32    func(float32) uint16
	from64    func(float64) uint16
}

var formats = []narrow{
	{"float16", 5, 10, false,
		func(h uint16) float64 { return Float16(h).Float64() },
		func(f float32) uint16 { return uint16(Float16From32(f)) },
		func(f float64) uint16 { return uint16(Float16From64(f)) }},
	{"bfloat16", 8, 7, false,
		func(h uint16) float64 { return BFloat16(h).Float64() },
		func(f float32) uint16 { return uint16(BFloat16From32(f)) },
		func(f float64) uint16 { return uint16(BFloat16From64(f)) }},
	{"float8_e4m3fn", 4, 3, true,
		func(h uint16) float64 { return Float8E4M3(h).Float64() },
		func(f float32) uint16 { return uint16(Float8E4M3From32(f)) },
		func(f float64) uint16 { return uint16(Float8E4M3From64(f)) }},
	{"float8_e5m2", 5, 2, false,
		func(h uint16) float64 { return Float8E5M2(h).Float64() },
		func(f float32) uint16 { return uint16(Float8E5M2From32(f)) },
		func(f float64) uint16 { return uint16(Float8E5M2From64(f)) }},
}

// infinity returns the pattern for values that are too large: +Inf, or the NaN of a finite format.
func (h narrow) infinity() uint16 {
	if h.finite {
		return h.sign() - 1
	}
	return (1<<h.exp - 1) << h.frac
}

// sign returns the sign bit.
func (h narrow) sign() uint16 { return 1 << (h.exp + h.frac) }

// reference returns the value of a finite pattern by the definition of the format. For the pattern
// of infinity it returns 2^(emax+1), the value that infinity represents in rounding.
func (h narrow) reference(p uint16) float64 {
	sign := 1.0
	if p&h.sign() != 0 {
		sign = -1
	}
	p &^= h.sign()
	bias := 1<<(h.exp-1) - 1
	e, f := int(p)>>h.frac, float64(int(p)&(1<<h.frac-1))
	if e == 0 {
		return sign * math.Ldexp(f, 1-bias-h.frac)
	}
	return sign * math.Ldexp(f+float64(int(1)<<h.frac), e-bias-h.frac)
}

// isNaN reports whether the pattern is a NaN.
func (h narrow) isNaN(p uint16) bool {
	p &^= h.sign()
	return p > h.infinity() || p == h.infinity() && h.finite
}

// TestNarrowPatterns converts all patterns of each format to float64 and back.
func TestNarrowPatterns(t *testing.T) {
	for _, h := range formats {
		for n := range 2 * int(h.sign()) {
			p := uint16(n)
			v := h.value(p)
			switch {
			case h.isNaN(p):
				quiet := p | 1<<(h.frac-1)
				if !math.IsNaN(v) || h.from32(float32(v)) != quiet || h.from64(v) != quiet {
					t.Fatalf("%s %#04x has value %v and converts back to %#04x and %#04x; want NaN and %#04x", h.name,
						p, v, h.from32(float32(v)), h.from64(v), quiet)
				}
				continue
			case p&^h.sign() == h.infinity():
				if !math.IsInf(v, 1-2*int(p/h.sign())) {
					t.Fatalf("%s %#04x is %v, want an infinity", h.name, p, v)
				}
			case v != h.reference(p) || math.Signbit(v) != (p&h.sign() != 0):
				t.Fatalf("%s %#04x is %v, want %v", h.name, p, v, h.reference(p))
			}
			if h.from32(float32(v)) != p || h.from64(v) != p {
				t.Fatalf("%s %#04x converts back to %#04x and %#04x", h.name, p, h.from32(float32(v)), h.from64(v))
			}
		}
	}
}

// TestNaNPayloads checks that a NaN stays one with its sign if rounding drops its payload, or if
// rounding it as a number would carry. Widening makes NaNs quiet.
func TestNaNPayloads(t *testing.T) {
	for _, h := range formats {
		for _, bits := range []uint32{0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff} {
			p := h.from32(math.Float32frombits(bits))
			if !h.isNaN(p) || p&h.sign() != 0 != (bits>>31 != 0) {
				t.Errorf("%s: NaN %#x becomes %#x", h.name, bits, p)
			}
		}
	}
	const quiet = 1 << 22
	if bits := math.Float32bits(Float16(0x7c01).Float32()); bits != 0x7f802000|quiet {
		t.Errorf("float16 0x7c01 becomes %#x, want a quiet NaN", bits)
	}
	if bits := math.Float32bits(BFloat16(0x7f81).Float32()); bits != 0x7f810000|quiet {
		t.Errorf("bfloat16 0x7f81 becomes %#x, want a quiet NaN", bits)
	}
}

// TestNarrowRounding rounds the midpoint between any two neighbours and the adjacent float32 and
// float64 numbers. A float64 number that rounds to the midpoint in float32 detects double rounding.
func TestNarrowRounding(t *testing.T) {
	for _, h := range formats {
		for p := uint16(0); p < h.infinity(); p++ {
			lo, hi := h.reference(p), h.reference(p+1)
			mid := lo + (hi-lo)/2 // exact: needs one more bit
			even := p + p&1
			for _, tc := range []struct {
				v    float64
				want uint16
			}{
				{mid, even},
				{math.Nextafter(mid, lo), p},
				{math.Nextafter(mid, hi), p + 1},
				{mid - (hi-lo)*0x1p-30, p}, // rounds to mid in float32
				{mid + (hi-lo)*0x1p-30, p + 1},
				{lo + (hi-lo)*0.25, p},
				{lo + (hi-lo)*0.75, p + 1},
			} {
				if got := h.from64(tc.v); got != tc.want {
					t.Fatalf("%s: float64 %v rounds to %#04x, want %#04x", h.name, tc.v, got, tc.want)
				}
				if got := h.from64(-tc.v); got != tc.want|h.sign() {
					t.Fatalf("%s: float64 %v rounds to %#04x, want %#04x", h.name, -tc.v, got, tc.want|h.sign())
				}
			}
			m := float32(mid)
			if float64(m) != mid {
				continue // below the range of float32: only the last subnormals of bfloat16
			}
			for _, tc := range []struct {
				v    float32
				want uint16
			}{{m, even}, {math.Nextafter32(m, 0), p}, {math.Nextafter32(m, math.MaxFloat32), p + 1}} {
				if got := h.from32(tc.v); got != tc.want {
					t.Fatalf("%s: float32 %v rounds to %#04x, want %#04x", h.name, tc.v, got, tc.want)
				}
				if got := h.from32(-tc.v); got != tc.want|h.sign() {
					t.Fatalf("%s: float32 %v rounds to %#04x, want %#04x", h.name, -tc.v, got, tc.want|h.sign())
				}
			}
		}
		for _, v := range []float64{math.Inf(1), 1e300, math.MaxFloat64, math.MaxFloat32 * 2} {
			if h.from64(v) != h.infinity() || h.from64(-v) != h.infinity()|h.sign() {
				t.Errorf("%s: %v rounds to %#04x", h.name, v, h.from64(v))
			}
		}
		for _, v := range []float64{math.SmallestNonzeroFloat64, 1e-300, 0x1p-200} {
			if h.from64(v) != 0 || h.from64(-v) != h.sign() {
				t.Errorf("%s: %v rounds to %#04x", h.name, v, h.from64(v))
			}
		}
	}
}

// TestNarrowRandom compares the rounding of random float64 numbers with a search for the nearest
// value in exact arithmetic.
func TestNarrowRandom(t *testing.T) {
	rng := testrand.New(t)
	for _, h := range formats {
		for range 20000 {
			v := math.Ldexp(1+rng.Float64(), rng.IntN(2<<(h.exp-1)+40)-(1<<(h.exp-1)+30))
			lo, hi := uint16(0), h.infinity() // become the neighbours of v
			for hi-lo > 1 {
				if m := (lo + hi) / 2; h.reference(m) <= v {
					lo = m
				} else {
					hi = m
				}
			}
			want := hi
			x := new(big.Rat).SetFloat64(v)
			below := new(big.Rat).Sub(x, new(big.Rat).SetFloat64(h.reference(lo)))
			above := new(big.Rat).Sub(new(big.Rat).SetFloat64(h.reference(hi)), x)
			if c := below.Cmp(above); c < 0 || c == 0 && lo%2 == 0 {
				want = lo
			}
			if got := h.from64(v); got != want {
				t.Fatalf("%s: %v rounds to %#04x, want %#04x", h.name, v, got, want)
			}
		}
	}
}
