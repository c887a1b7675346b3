package dtype

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// half is one of the two 16-bit formats, described apart from its code: bits of
// exponent and of fraction, from which reference computes values by arithmetic.
type half struct {
	name      string
	exp, frac int
	value     func(uint16) float64
	from32    func(float32) uint16
	from64    func(float64) uint16
}

var halves = []half{
	{"float16", 5, 10,
		func(h uint16) float64 { return Float16(h).Float64() },
		func(f float32) uint16 { return uint16(Float16From32(f)) },
		func(f float64) uint16 { return uint16(Float16From64(f)) }},
	{"bfloat16", 8, 7,
		func(h uint16) float64 { return BFloat16(h).Float64() },
		func(f float32) uint16 { return uint16(BFloat16From32(f)) },
		func(f float64) uint16 { return uint16(BFloat16From64(f)) }},
}

// infinity is the pattern of +Inf; larger ones without the sign are NaN.
func (h half) infinity() uint16 { return (1<<h.exp - 1) << h.frac }

// reference is the value of a finite pattern, by the definition of the format. The
// pattern of the infinity gives 2^(emax+1), the value that rounding takes it for.
func (h half) reference(p uint16) float64 {
	sign := 1.0
	if p&0x8000 != 0 {
		sign = -1
	}
	bias := 1<<(h.exp-1) - 1
	e, f := int(p&0x7fff)>>h.frac, float64(int(p)&(1<<h.frac-1))
	if e == 0 {
		return sign * math.Ldexp(f, 1-bias-h.frac)
	}
	return sign * math.Ldexp(f+float64(int(1)<<h.frac), e-bias-h.frac)
}

func (h half) isNaN(p uint16) bool { return p&0x7fff > h.infinity() }

// TestHalfPatterns reads and writes back all 65536 patterns of each format.
func TestHalfPatterns(t *testing.T) {
	for _, h := range halves {
		for n := range 1 << 16 {
			p := uint16(n)
			v := h.value(p)
			switch {
			case h.isNaN(p):
				quiet := p | 1<<(h.frac-1)
				if !math.IsNaN(v) || h.from32(float32(v)) != quiet || h.from64(v) != quiet {
					t.Fatalf("%s %#04x is %v and %#04x, %#04x back; want NaN and %#04x", h.name, p, v, h.from32(float32(v)), h.from64(v), quiet)
				}
				continue
			case p&0x7fff == h.infinity():
				if !math.IsInf(v, 1-2*int(p>>15)) {
					t.Fatalf("%s %#04x is %v, want an infinity", h.name, p, v)
				}
			case v != h.reference(p) || math.Signbit(v) != (p&0x8000 != 0):
				t.Fatalf("%s %#04x is %v, want %v", h.name, p, v, h.reference(p))
			}
			if h.from32(float32(v)) != p || h.from64(v) != p {
				t.Fatalf("%s %#04x comes back as %#04x and %#04x", h.name, p, h.from32(float32(v)), h.from64(v))
			}
		}
	}
}

// TestHalfRounding rounds, between each two neighbours, their midpoint and the
// float32 and float64 next to it on either side: one that is off by a little in
// float64 alone shows whether float64 is rounded twice.
func TestHalfRounding(t *testing.T) {
	for _, h := range halves {
		for p := uint16(0); p < h.infinity(); p++ {
			lo, hi := h.reference(p), h.reference(p+1)
			mid := lo + (hi-lo)/2 // exact: it has one bit more
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
				if got := h.from64(-tc.v); got != tc.want|0x8000 {
					t.Fatalf("%s: float64 %v rounds to %#04x, want %#04x", h.name, -tc.v, got, tc.want|0x8000)
				}
			}
			m := float32(mid)
			if float64(m) != mid {
				continue // below float32's own range: only bfloat16's last subnormals
			}
			for _, tc := range []struct {
				v    float32
				want uint16
			}{{m, even}, {math.Nextafter32(m, 0), p}, {math.Nextafter32(m, math.MaxFloat32), p + 1}} {
				if got := h.from32(tc.v); got != tc.want {
					t.Fatalf("%s: float32 %v rounds to %#04x, want %#04x", h.name, tc.v, got, tc.want)
				}
				if got := h.from32(-tc.v); got != tc.want|0x8000 {
					t.Fatalf("%s: float32 %v rounds to %#04x, want %#04x", h.name, -tc.v, got, tc.want|0x8000)
				}
			}
		}
		for _, v := range []float64{math.Inf(1), 1e300, math.MaxFloat64, math.MaxFloat32 * 2} {
			if h.from64(v) != h.infinity() || h.from64(-v) != h.infinity()|0x8000 {
				t.Errorf("%s: %v rounds to %#04x", h.name, v, h.from64(v))
			}
		}
		for _, v := range []float64{math.SmallestNonzeroFloat64, 1e-300, 0x1p-200} {
			if h.from64(v) != 0 || h.from64(-v) != 0x8000 {
				t.Errorf("%s: %v rounds to %#04x", h.name, v, h.from64(v))
			}
		}
	}
}

// TestHalfRandom compares the rounding of random float64 with a search for the
// nearest value in exact arithmetic.
func TestHalfRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, h := range halves {
		for range 20000 {
			v := math.Ldexp(1+rng.Float64(), rng.IntN(2<<(h.exp-1)+40)-(1<<(h.exp-1)+30))
			lo, hi := uint16(0), h.infinity() // the neighbours of v
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
