package emu

import (
	"fmt"
	"math"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// TestApproxAccuracy compares the .approx instructions with float64 results, within the error
// bounds of the manual. sin and cos are tested from -π to π, where they have a bound.
func TestApproxAccuracy(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range []struct {
		op       string
		want     func(x float64) float64
		from, to float64
		relative float64 // relative to the result
		absolute float64
	}{
		{"rcp.approx", func(x float64) float64 { return 1 / x }, 0x1p-100, 0x1p100, 0x1p-23, 0},
		{"sqrt.approx", math.Sqrt, 0x1p-100, 0x1p100, 0x1p-23, 0},
		{"rsqrt.approx", func(x float64) float64 { return 1 / math.Sqrt(x) }, 0x1p-100, 0x1p100, 0x1.1p-23, 0},
		{"sin.approx", math.Sin, -math.Pi, math.Pi, 0, 0x1.6ap-21},
		{"cos.approx", math.Cos, -math.Pi, math.Pi, 0, 0x1.6ap-21},
		{"lg2.approx", math.Log2, 0.5, 2, 0, 0x1p-22},
		{"lg2.approx", math.Log2, 2, 0x1p100, 0x1p-22, 0},
		{"ex2.approx", math.Exp2, -100, 100, 0x1p-22, 0},
		{"tanh.approx", math.Tanh, -10, 10, 0x1p-11, 0},
	} {
		var args [][]uint64
		for range 200 {
			x := float32(c.from + (c.to-c.from)*rng.Float64())
			if c.from > 0 && rng.IntN(2) == 0 {
				x = float32(c.from * math.Exp2(math.Log2(c.to/c.from)*rng.Float64()))
			}
			args = append(args, []uint64{uint64(math.Float32bits(x))})
		}
		text := c.op + ".f32 %d, %a"
		for n, bits := range evaluate(t, text, ptx.F32, []ptx.Type{ptx.F32}, args) {
			x := float64(math.Float32frombits(uint32(args[n][0])))
			got, want := float64(math.Float32frombits(uint32(bits))), c.want(x)
			if math.Abs(got-want) > c.absolute+c.relative*math.Abs(want) {
				t.Errorf("%s of %v is %v, want %v", text, x, got, want)
			}
		}
	}
}

// TestApproxSpecialValues checks the special values in the tables of the manual.
func TestApproxSpecialValues(t *testing.T) {
	inf, nan, tiny := math.Inf(1), math.NaN(), 0x1p-140
	zero, minus := 0.0, math.Copysign(0, -1)
	for op, table := range map[string][][2]float64{
		"rcp.approx":       {{-inf, minus}, {minus, -inf}, {zero, inf}, {inf, zero}, {nan, nan}},
		"rcp.approx.ftz":   {{tiny, inf}, {-tiny, -inf}},
		"sqrt.approx":      {{-inf, nan}, {minus, minus}, {zero, zero}, {inf, inf}, {-1, nan}, {4, 2}},
		"sqrt.approx.ftz":  {{tiny, zero}, {-tiny, minus}},
		"rsqrt.approx":     {{-inf, nan}, {minus, -inf}, {zero, inf}, {inf, zero}, {-1, nan}, {4, 0.5}},
		"rsqrt.approx.ftz": {{tiny, inf}, {-tiny, -inf}},
		"sin.approx":       {{-inf, nan}, {minus, minus}, {zero, zero}, {inf, nan}, {nan, nan}},
		"cos.approx":       {{-inf, nan}, {minus, 1}, {zero, 1}, {inf, nan}, {nan, nan}},
		"lg2.approx":       {{-inf, nan}, {minus, -inf}, {zero, -inf}, {inf, inf}, {-1, nan}, {8, 3}},
		"lg2.approx.ftz":   {{tiny, -inf}},
		"ex2.approx":       {{-inf, zero}, {minus, 1}, {zero, 1}, {inf, inf}, {nan, nan}, {-149, 0x1p-149}},
		"ex2.approx.ftz":   {{-149, zero}},
		"tanh.approx":      {{-inf, -1}, {minus, minus}, {zero, zero}, {inf, 1}, {nan, nan}},
	} {
		for _, pair := range table {
			x, want := pair[0], pair[1]
			bits := evaluate(t, op+".f32 %d, %a", ptx.F32, []ptx.Type{ptx.F32},
				[][]uint64{{uint64(math.Float32bits(float32(x)))}})
			w := uint64(math.Float32bits(float32(want)))
			if want != want {
				w = number.NaN32
			}
			if bits[0] != w {
				t.Errorf("%s of %v is %#x, want %#x", op, x, bits[0], w)
			}
		}
	}
	f := func(x float64) uint64 { return uint64(math.Float32bits(float32(x))) }
	for _, c := range [][3]float64{{6, 3, 2}, {1, 0x1p127, 0}, {-1, 0x1p127, minus}, {inf, 0x1p127, nan}, {1, inf, 0},
		{1, minus, -inf}, {0, 0, nan}} {
		bits := evaluate(t, "div.approx.f32 %d, %a, %b", ptx.F32, []ptx.Type{ptx.F32, ptx.F32},
			[][]uint64{{f(c[0]), f(c[1])}})
		if want := choose(c[2] != c[2], number.NaN32, f(c[2])); bits[0] != want {
			t.Errorf("div.approx of %v and %v is %#x, want %#x", c[0], c[1], bits[0], want)
		}
	}
	for kind, want := range map[string][]float64{ // zeros are normal, as on an H200
		"finite": {0, 1, tiny}, "infinite": {inf, -inf}, "number": {0, 1, inf, tiny}, "notanumber": {nan}, "normal": {0, 1},
		"subnormal": {tiny},
	} {
		for _, x := range []float64{0, 1, inf, nan, tiny} {
			is := uint64(0)
			for _, w := range want {
				if w == x || w != w && x != x {
					is = 1
				}
			}
			got := evaluate(t, fmt.Sprintf("testp.%s.f32 %%d, %%a", kind), ptx.Pred, []ptx.Type{ptx.F32}, [][]uint64{{f(x)}})
			if got[0] != is {
				t.Errorf("testp.%s of %v is %d", kind, x, got[0])
			}
		}
	}
}

// TestCopySignAndXorSign checks copysign, and min and max with .xorsign.abs.
func TestCopySignAndXorSign(t *testing.T) {
	rng := testrand.New(t)
	two := []ptx.Type{ptx.F32, ptx.F32}
	check(t, rng, "copysign.f32 %d, %a, %b", ptx.F32, two, func(v []uint64) uint64 { return v[0]&(1<<31) | v[1]&^(1<<31) })
	for op, least := range map[string]bool{"min": true, "max": false} {
		check(t, rng, op+".xorsign.abs.f32 %d, %a, %b", ptx.F32, two, func(v []uint64) uint64 {
			a, b := v[0]&^(1<<31), v[1]&^(1<<31)
			f := floatFormats[ptx.F32]
			switch nanA, nanB := f.decode(a).nan, f.decode(b).nan; {
			case nanA && nanB:
				return number.NaN32
			case nanA:
				a = b
			case nanB:
				b = a
			}
			return (v[0]^v[1])&(1<<31) | choose(least == (a < b), a, b)
		})
	}
}
