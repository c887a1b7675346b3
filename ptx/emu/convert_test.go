package emu

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// convertReference computes cvt with exact numbers.
func convertReference(to, from ptx.Type, mods string, bits uint64) uint64 {
	has := func(m string) bool { return strings.Contains(mods+".", "."+m+".") }
	r := number.Nearest
	for name, mode := range number.Roundings {
		if has(name) {
			r = mode
		}
	}
	whole := has("rni") || has("rzi") || has("rmi") || has("rpi")
	var n exactNumber
	if f, ok := floatFormats[from]; ok {
		if n = f.decode(bits); has("ftz") && from == ptx.F32 {
			n = f.flushed(n)
		}
	} else {
		v := asInt(from, bits)
		n = exactNumber{neg: v.Sign() < 0, value: new(big.Rat).SetInt(v)}
	}
	if whole && !n.nan && !n.inf {
		v := roundInt(new(big.Rat).Abs(n.value), n.neg, r)
		if n.neg {
			v.Neg(v)
		}
		n.value = new(big.Rat).SetInt(v)
	}
	f, ok := floatFormats[to]
	if !ok {
		lo, hi := integerLimits(to)
		switch {
		case n.nan && (from == ptx.F64 || to.Bits() == 64):
			return extend(to, 1<<(to.Bits()-1))
		case n.nan:
			return 0
		case n.inf && n.neg:
			return uint64(lo)
		case n.inf:
			return hi
		}
		v := new(big.Int).Quo(n.value.Num(), n.value.Denom())
		if floatFormats[from] == (floatFormat{}) && !has("sat") {
			return extend(to, wrapped(to, v))
		}
		return extend(to, saturated(to, v))
	}
	n = f.decode(f.encode(n, r))
	if has("ftz") && to == ptx.F32 {
		n = f.flushed(n)
	}
	switch {
	case has("sat") && (n.nan || n.neg), has("relu") && n.neg && !n.nan:
		n = exactNumber{value: new(big.Rat)}
	case has("satfinite") && n.inf:
		return f.encode(n, r) - 1 // the maximum, with the same sign
	case has("sat") && (n.inf || n.value.Cmp(big.NewRat(1, 1)) > 0):
		n = exactNumber{value: big.NewRat(1, 1)}
	}
	return f.encode(n, r)
}

func TestConversions(t *testing.T) {
	rng := testrand.New(t)
	ints := []ptx.Type{ptx.U8, ptx.S8, ptx.U16, ptx.S16, ptx.U32, ptx.S32, ptx.U64, ptx.S64}
	floats := []ptx.Type{ptx.F64, ptx.F32, ptx.F16, ptx.BF16}
	test := func(to, from ptx.Type, mods string) {
		t.Helper()
		text := fmt.Sprintf("cvt%s.%v.%v %%d, %%a", mods, to, from)
		args := sampleArgs(rng, []ptx.Type{from})
		if floatFormats[to] != (floatFormat{}) && !strings.Contains(mods, "sat") {
			args = slices.DeleteFunc(args, func(v []uint64) bool { return isNaN(from, v[0]) }) // tested by TestNaNs
		}
		checkRows(t, text, to, []ptx.Type{from}, args,
			func(v []uint64) uint64 { return convertReference(to, from, mods, v[0]) })
	}
	for _, to := range ints {
		for _, from := range ints {
			test(to, from, "")
			if to != from && !fits(to, from) {
				test(to, from, ".sat")
			}
		}
		for _, from := range floats {
			for _, mods := range []string{".rni", ".rzi", ".rmi", ".rpi", ".rzi.sat"} {
				if from == ptx.BF16 && strings.HasSuffix(mods, ".sat") {
					continue
				}
				test(to, from, mods)
				if from == ptx.F32 {
					test(to, from, mods[:4]+".ftz"+mods[4:])
				}
			}
		}
	}
	for _, to := range floats {
		for _, from := range ints {
			for _, mods := range []string{".rn", ".rz", ".rm", ".rp"} {
				test(to, from, mods)
			}
		}
	}
	for _, mods := range []string{".rn", ".rz", ".rm", ".rp"} {
		for _, pair := range [][2]ptx.Type{{ptx.F32, ptx.F64}, {ptx.F16, ptx.F64}, {ptx.F16, ptx.F32}, {ptx.BF16, ptx.F64},
			{ptx.BF16, ptx.F16}, {ptx.F16, ptx.BF16}} {
			test(pair[0], pair[1], mods)
		}
		test(ptx.F32, ptx.F64, mods+".ftz.sat")
		test(ptx.F32, ptx.F32, mods+"i")
		test(ptx.F64, ptx.F64, mods+"i")
		test(ptx.F16, ptx.F16, mods+"i")
	}
	for _, mods := range []string{".rn", ".rz", ".rm", ".rp.ftz", ".rn.ftz", ".rz.relu", ".rn.satfinite",
		".rz.satfinite.relu"} {
		test(ptx.BF16, ptx.F32, mods)
	}
	for _, mods := range []string{".rn.relu", ".rn.satfinite", ".rz.satfinite", ".rn.satfinite.relu"} {
		test(ptx.F16, ptx.F32, mods)
	}
	for _, mods := range []string{"", ".ftz", ".sat", ".ftz.sat"} {
		test(ptx.F64, ptx.F32, mods)
		test(ptx.F32, ptx.F16, mods)
	}
	test(ptx.F64, ptx.F16, "")
	for _, mods := range []string{"", ".ftz", ".rn", ".rp.ftz"} {
		test(ptx.F32, ptx.BF16, mods)
	}
	test(ptx.F64, ptx.BF16, "")
	test(ptx.F64, ptx.BF16, ".rm")
}

// isNaN reports whether bits is a NaN of type t. It returns false for integer types.
func isNaN(t ptx.Type, bits uint64) bool {
	f, ok := floatFormats[t]
	return ok && f.decode(bits).nan
}

// TestNaNs compares the bits of NaN results with those of an H200.
func TestNaNs(t *testing.T) {
	for _, c := range []struct {
		text         string
		result, from ptx.Type
		arg, want    uint64
	}{
		{"cvt.rn.f32.f64 %d, %a", ptx.F32, ptx.F64, 0x7ff8000000000000, 0x7fc00000},
		{"cvt.rz.f16.f64 %d, %a", ptx.F16, ptx.F64, 0x7ff8000000000000, 0x7e00},
		{"cvt.rp.bf16.f64 %d, %a", ptx.BF16, ptx.F64, 0x7ff8000000000000, 0x7fc0},
		{"cvt.ftz.f64.f32 %d, %a", ptx.B64, ptx.F32, 0xffc12345, 0x7fffffffe0000000},
		{"cvt.f32.bf16 %d, %a", ptx.F32, ptx.BF16, 0x7fc0, 0x7fc00000},
		{"cvt.rn.bf16.f32 %d, %a", ptx.BF16, ptx.F32, 0x7f800001, 0x7fff},
		{"cvt.f32.f16 %d, %a", ptx.F32, ptx.F16, 0x7e00, 0x7fffffff},
		{"cvt.rna.tf32.f32 %d, %a", ptx.B32, ptx.F32, 0xffc12345, 0xffc12000},
		{"cvt.rn.tf32.f32 %d, %a", ptx.B32, ptx.F32, 0xffc12345, 0x7fffe000},
		{"neg.f32 %d, %a", ptx.F32, ptx.F32, 0x7fc00000, 0x7fffffff},
		{"abs.ftz.f16 %d, %a", ptx.F16, ptx.F16, 0x7e00, 0x7fff},
		{"neg.bf16 %d, %a", ptx.BF16, ptx.BF16, 0x7f89, 0x7fff},
		{"neg.f64 %d, %a", ptx.B64, ptx.F64, 0x7ff4123456789abc, 0x7ffc123456789abc},
		{"abs.f64 %d, %a", ptx.B64, ptx.F64, 0xfffdeadbeef12345, 0xfffdeadbeef12345},
		{"add.rn.f64 %d, %a, 0d7FF4123456789ABC", ptx.B64, ptx.F64, 0xfffdeadbeef12345, 0x7ffc123456789abc},
		{"mul.rz.f64 %d, %a, 0d7FF4123456789ABC", ptx.B64, ptx.F64, 0x7ff8000000000000, 0x7ffc123456789abc},
		{"fma.rn.f64 %d, 0d7FF0000000000000, 0d0000000000000000, %a", ptx.B64, ptx.F64, 0xfffdeadbeef12345,
			0xfffdeadbeef12345},
		{"sub.rn.f64 %d, %a, 0d7FF0000000000000", ptx.B64, ptx.F64, 0x7ff0000000000000, 0xfff8000000000000},
		{"fma.rn.oob.f16 %d, %a, %a, %a", ptx.B16, ptx.F16, 0xfff7, 0},
		{"fma.rn.oob.bf16 %d, %a, %a, %a", ptx.B16, ptx.BF16, 0x7fff, 0x7fff},
		{"rcp.approx.ftz.f64 %d, %a", ptx.B64, ptx.F64, 0x7ff8000000000000, 0x7fffffff00000000},
		{"sqrt.rn.f32 %d, %a", ptx.F32, ptx.F32, 0xbf800000, 0x7fffffff},
	} {
		checkRows(t, c.text, c.result, []ptx.Type{c.from}, [][]uint64{{c.arg}}, func([]uint64) uint64 { return c.want })
	}
}

// fits reports whether integer type to can represent all values of type from.
func fits(to, from ptx.Type) bool {
	lo, hi := integerLimits(to)
	least, most := integerLimits(from)
	return lo <= least && most <= hi
}

// TestWideRegisters converts, loads and stores through registers that are wider than the type of
// the operation.
func TestWideRegisters(t *testing.T) {
	rng := testrand.New(t)
	check(t, rng, "cvt.s32.s8 %d, %a", ptx.S32, []ptx.Type{ptx.U32},
		func(v []uint64) uint64 { return uint64(int64(int8(v[0]))) })
	check(t, rng, "cvt.u8.u32 %d, %a", ptx.U64, []ptx.Type{ptx.U32}, func(v []uint64) uint64 { return v[0] & 0xff })
	check(t, rng, "cvt.s16.u64 %d, %a", ptx.S64, []ptx.Type{ptx.U64},
		func(v []uint64) uint64 { return uint64(int64(int16(v[0]))) })
	check(t, rng, "cvt.rzi.s8.f32 %d, %a", ptx.S32, []ptx.Type{ptx.F32},
		func(v []uint64) uint64 { return convertReference(ptx.S8, ptx.F32, ".rzi", v[0]) })
	memory := "{ .local .b64 m; st.local.u64 [m], %a; "
	check(t, rng, memory+"ld.local.s8 %d, [m+1]; }", ptx.S32, []ptx.Type{ptx.U64},
		func(v []uint64) uint64 { return uint64(int64(int8(v[0] >> 8))) })
	check(t, rng, memory+"ld.local.u16 %d, [m+2]; }", ptx.U64, []ptx.Type{ptx.U64},
		func(v []uint64) uint64 { return v[0] >> 16 & 0xffff })
	check(t, rng, memory+"st.local.u8 [m+3], %b; ld.local.u64 %d, [m]; }", ptx.U64, []ptx.Type{ptx.U64, ptx.U32},
		func(v []uint64) uint64 {
			return v[0]&^(0xff<<24) | v[1]&0xff<<24
		})
}

// TestPackedConversions checks conversions of several values in one register.
func TestPackedConversions(t *testing.T) {
	rng := testrand.New(t)
	f32 := []ptx.Type{ptx.F32, ptx.F32}
	for pair, half := range map[ptx.Type]ptx.Type{ptx.F16x2: ptx.F16, ptx.BF16x2: ptx.BF16} {
		for _, mods := range []string{".rn", ".rz", ".rn.relu", ".rn.satfinite", ".rz.satfinite.relu"} {
			check(t, rng, fmt.Sprintf("cvt%s.%v.f32 %%d, %%a, %%b", mods, pair), ptx.B32, f32, func(v []uint64) uint64 {
				return convertReference(half, ptx.F32, mods, v[0])<<16 | convertReference(half, ptx.F32, mods, v[1])
			})
		}
	}
	for name, mode := range map[string]number.Rounding{"rna": number.AwayTies, "rn": number.Nearest, "rz": number.ToZero} {
		args := slices.DeleteFunc(sampleArgs(rng, f32[:1]), func(v []uint64) bool { return isNaN(ptx.F32, v[0]) })
		want := func(v []uint64) uint64 {
			return floatFormat{8, 10}.encode(floatFormats[ptx.F32].decode(v[0]), mode)
		}
		checkRows(t, "cvt."+name+".tf32.f32 %d, %a", ptx.B32, f32[:1], args,
			func(v []uint64) uint64 { return want(v) << 13 })
		checkRows(t, "cvt."+name+".satfinite.tf32.f32 %d, %a", ptx.B32, f32[:1], args, func(v []uint64) uint64 {
			if bits := want(v); bits&(1<<18-1) == 0xff<<10 {
				return (bits - 1) << 13
			}
			return want(v) << 13
		})
	}
	s2 := []ptx.Type{ptx.S32, ptx.S32, ptx.B32}
	check(t, rng, "cvt.pack.sat.s16.s32 %d, %a, %b", ptx.B32, s2[:2], func(v []uint64) uint64 {
		return saturated(ptx.S16, asInt(ptx.S32, v[0]))<<16 | saturated(ptx.S16, asInt(ptx.S32, v[1]))
	})
	check(t, rng, "cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c", ptx.B32, s2, func(v []uint64) uint64 {
		return v[2]<<16 | saturated(ptx.U8, asInt(ptx.S32, v[0]))<<8 | saturated(ptx.U8, asInt(ptx.S32, v[1]))
	})
}
