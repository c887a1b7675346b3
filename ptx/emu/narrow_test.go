package emu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// narrowFormat describes the pairs of a format of up to 8 bits.
type narrowFormat struct {
	pair     ptx.Type
	width    int       // bits of an element
	nan      uint64    // the code that NaN is converted to
	values   []float64 // the finite values without a sign, in the order of their codes
	infinite bool      // the next code is an infinity; all later ones are NaNs
}

// narrowFormats holds the formats that cvt rounds to nearest.
func narrowFormats() []narrowFormat {
	values := func(exponent, fraction, most int) (all []float64) {
		bias := math.Ldexp(1, exponent-1) - 1
		for code := range most + 1 {
			e, f := code>>fraction, float64(code&(1<<fraction-1))/math.Ldexp(1, fraction)
			if e == 0 {
				all = append(all, f*math.Exp2(1-bias))
			} else {
				all = append(all, (1+f)*math.Exp2(float64(e)-bias))
			}
		}
		return all
	}
	return []narrowFormat{
		{ptx.E2M1x2, 4, 7, []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}, false},
		{ptx.E2M3x2, 6, 31, values(2, 3, 31), false},
		{ptx.E3M2x2, 6, 31, values(3, 2, 31), false},
		{ptx.E4M3x2, 8, 0x7f, values(4, 3, 0x7e), false},
		{ptx.E5M2x2, 8, 0x7f, values(5, 2, 0x7b), true},
	}
}

// encode returns the code of the value nearest to x, or of the maximum if x is larger.
func (f *narrowFormat) encode(x float64, relu bool) uint64 {
	if x != x {
		return f.nan
	}
	if relu && math.Signbit(x) {
		return 0
	}
	k, exact := slices.BinarySearch(f.values, math.Abs(x))
	switch {
	case exact:
	case k == len(f.values):
		k--
	default:
		middle := (f.values[k-1] + f.values[k]) / 2
		if math.Abs(x) < middle || math.Abs(x) == middle && k%2 == 1 {
			k--
		}
	}
	if math.Signbit(x) {
		k |= 1 << (f.width - 1)
	}
	return uint64(k)
}

// decode returns the value of a code.
func (f *narrowFormat) decode(code uint64) float64 {
	k := int(code) & (1<<(f.width-1) - 1)
	x := math.NaN()
	switch {
	case k < len(f.values):
		x = f.values[k]
	case k == len(f.values) && f.infinite:
		x = math.Inf(1)
	}
	if int(code) != k {
		return -x
	}
	return x
}

// wideFormats holds the functions that decode the elements of the pairs that cvt converts.
var wideFormats = map[ptx.Type]func(bits uint64) float64{
	ptx.F16x2:  func(b uint64) float64 { return dtype.Float16(b).Float64() },
	ptx.BF16x2: func(b uint64) float64 { return dtype.BFloat16(b).Float64() },
}

// allPairs returns rows of two codes of the given width in one register. Each half takes all codes.
func allPairs(width, half int) [][]uint64 {
	rows := make([][]uint64, 1<<width)
	for n := range rows {
		rows[n] = []uint64{uint64(n)<<half | uint64(n*5+3)&(1<<width-1)}
	}
	return rows
}

// nearValues returns pairs of float32 numbers: values, the middles between them and the neighbors
// of both, special numbers, and random ones of all magnitudes.
func nearValues(rng *rand.Rand, values []float64) [][]uint64 {
	bits := []uint64{0x7f800000, 0x7fc00000, 0x7f800001, 0x7f7fffff, 1, 0x007fffff, 0x00800000}
	for k, v := range values {
		for _, x := range []float64{v, (v + values[max(k, 1)-1]) / 2} {
			b := uint64(math.Float32bits(float32(x)))
			bits = append(bits, b, b+1, max(b, 1)-1)
		}
	}
	for range 20000 {
		bits = append(bits, uint64(rng.Uint32()), uint64(rng.Uint32()&0x007fffff|uint32(110+rng.IntN(30))<<23))
	}
	rows := make([][]uint64, 2*len(bits))
	for n := range rows {
		rows[n] = []uint64{bits[n%len(bits)] ^ uint64(n/len(bits))<<31, bits[rng.IntN(len(bits))]}
	}
	return rows
}

// checkPairs compares the results of text with the codes of both elements, which want returns.
func checkPairs(t *testing.T, text string, to, from ptx.Type, rows [][]uint64, want func(x float64) uint64) {
	t.Helper()
	types, half := []ptx.Type{from}, to.Bits()/2
	if from == ptx.F32 {
		types = []ptx.Type{from, from}
	}
	checkRows(t, text, to, types, rows, func(v []uint64) uint64 {
		if from == ptx.F32 {
			f := func(b uint64) float64 { return float64(math.Float32frombits(uint32(b))) }
			return want(f(v[0]))<<half | want(f(v[1]))
		}
		decode := wideFormats[from]
		return want(decode(v[0]>>16))<<half | want(decode(v[0]&0xffff))
	})
}

// TestToNarrow converts all 16-bit numbers and many float32 numbers to pairs of narrow floats.
func TestToNarrow(t *testing.T) {
	rng := testrand.New(t)
	for _, f := range narrowFormats() {
		for _, mods := range []string{".rn.satfinite", ".rn.satfinite.relu"} {
			for from, rows := range map[ptx.Type][][]uint64{
				ptx.F16x2: allPairs(16, 16), ptx.BF16x2: allPairs(16, 16), ptx.F32: nearValues(rng, f.values),
			} {
				operands := "%d, %a"
				if from == ptx.F32 {
					operands += ", %b"
				}
				checkPairs(t, fmt.Sprintf("cvt%s.%v.%v %s", mods, f.pair, from, operands), f.pair, from, rows,
					func(x float64) uint64 { return f.encode(x, mods == ".rn.satfinite.relu") })
			}
		}
	}
}

// TestFromNarrow converts all narrow floats to pairs of 16-bit numbers.
func TestFromNarrow(t *testing.T) {
	for _, f := range narrowFormats() {
		for _, c := range []struct {
			to       ptx.Type
			mods     string
			relu     bool
			infinity uint64 // the result for infinities
		}{
			{ptx.F16x2, ".rn", false, 0x7c00}, {ptx.F16x2, ".rn.relu", true, 0x7c00},
			{ptx.BF16x2, ".rn", false, 0x7f80}, {ptx.BF16x2, ".rn.relu", true, 0x7f80},
			{ptx.BF16x2, ".rn.satfinite", false, 0x7f7f}, {ptx.BF16x2, ".rn.satfinite.relu", true, 0x7f7f},
		} {
			half := f.pair.Bits() / 2
			want := func(code uint64) uint64 {
				x := f.decode(code)
				var sign uint64
				if math.Signbit(x) {
					sign = 0x8000
				}
				switch {
				case x != x:
					return 0x7fff
				case c.relu && sign != 0:
					return 0
				case math.IsInf(x, 0):
					return sign | c.infinity
				case c.to == ptx.F16x2:
					return uint64(dtype.Float16From64(x))
				}
				return uint64(dtype.BFloat16From64(x))
			}
			checkRows(t, fmt.Sprintf("cvt%s.%v.%v %%d, %%a", c.mods, c.to, f.pair), c.to, []ptx.Type{f.pair},
				allPairs(f.width, half), func(v []uint64) uint64 {
					mask := uint64(1)<<f.width - 1
					return want(v[0]>>half&mask)<<16 | want(v[0]&mask)
				})
		}
	}
}

// TestScales converts to and from powers of 2, by the absolute value.
func TestScales(t *testing.T) {
	rng := testrand.New(t)
	powers := make([]float64, 255)
	for k := range powers {
		powers[k] = math.Ldexp(1, k-127)
	}
	for _, mods := range []string{".rz", ".rp", ".rz.satfinite", ".rp.satfinite"} {
		want := func(x float64) uint64 {
			k, exact := slices.BinarySearch(powers, math.Abs(x))
			switch infinite := math.IsInf(x, 0); {
			case x != x:
				return 0xff
			case !exact && !infinite && mods[:3] == ".rz":
				k = max(k, 1) - 1
			}
			if len(mods) > 3 {
				k = min(k, 254)
			}
			return uint64(k)
		}
		checkPairs(t, "cvt"+mods+".ue8m0x2.bf16x2 %d, %a", ptx.UE8M0x2, ptx.BF16x2, allPairs(16, 16), want)
		checkPairs(t, "cvt"+mods+".ue8m0x2.f32 %d, %a, %b", ptx.UE8M0x2, ptx.F32, nearValues(rng, powers), want)
	}
	value := func(code uint64) uint64 {
		if code == 0xff {
			return 0x7fff
		}
		return uint64(dtype.BFloat16From64(powers[code]))
	}
	checkRows(t, "cvt.rn.bf16x2.ue8m0x2 %d, %a", ptx.BF16x2, []ptx.Type{ptx.UE8M0x2}, allPairs(8, 8),
		func(v []uint64) uint64 { return value(v[0]>>8)<<16 | value(v[0]&0xff) })
}
