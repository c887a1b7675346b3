package emu

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// smallest returns the smallest of some float32 numbers, or the largest. -0 is smaller than 0. NaNs
// are ignored, unless all numbers are NaN or nan is set.
func smallest(words []uint64, largest, nan, abs, ftz bool) uint64 {
	f := floatFormats[ptx.F32]
	var best uint64 = number.NaN32
	order := func(w uint64) int64 { // as the numbers, also for zeros
		if w>>31 != 0 {
			return -int64(w&^(1<<31)) - 1
		}
		return int64(w)
	}
	for _, w := range words {
		if abs {
			w &^= 1 << 31
		}
		if f.decode(w).nan {
			if nan {
				return number.NaN32
			}
			continue
		}
		if ftz && w>>23&0xff == 0 {
			w &= 1 << 31
		}
		if best == number.NaN32 || (order(w) < order(best)) != largest {
			best = w
		}
	}
	return best
}

func TestThreeInputMinMax(t *testing.T) {
	rng := testrand.New(t)
	for _, op := range []string{"min", "max"} {
		for _, mods := range []string{"", ".ftz", ".NaN", ".abs", ".ftz.NaN.abs"} {
			check(t, rng, op+mods+".f32 %d, %a, %b, %c", ptx.F32, repeat(ptx.F32, 3), func(v []uint64) uint64 {
				return smallest(v, op == "max", strings.Contains(mods, "NaN"), strings.Contains(mods, "abs"),
					strings.Contains(mods, "ftz"))
			})
		}
	}
}

// TestFloatPairs checks arithmetic on two float32 numbers in a register.
func TestFloatPairs(t *testing.T) {
	rng := testrand.New(t)
	f := floatFormats[ptx.F32]
	for _, c := range []struct {
		op       string
		operands int
		exact    func(a, b, c exactNumber, r number.Rounding) exactNumber
	}{
		{"add", 2, func(a, b, _ exactNumber, r number.Rounding) exactNumber { return addNumbers(a, b, r) }},
		{"sub", 2, func(a, b, _ exactNumber, r number.Rounding) exactNumber { return addNumbers(a, negated(b), r) }},
		{"mul", 2, func(a, b, _ exactNumber, _ number.Rounding) exactNumber { return mulNumbers(a, b) }},
		{"fma", 3, func(a, b, c exactNumber, r number.Rounding) exactNumber { return addNumbers(mulNumbers(a, b), c, r) }},
	} {
		for _, mods := range []string{".rn", ".rz", ".rm.ftz", ".rp"} {
			flush := func(w uint64) uint64 {
				if strings.Contains(mods, "ftz") && w>>23&0xff == 0 {
					return w & (1 << 31)
				}
				return w
			}
			r := number.Roundings[mods[1:3]]
			var args [][]uint64
			low, high := sampleArgs(rng, repeat(ptx.F32, c.operands)), sampleArgs(rng, repeat(ptx.F32, c.operands))
			for n := range low {
				row := make([]uint64, c.operands)
				for k := range row {
					row[k] = low[n][k] | high[len(high)-1-n][k]<<32
				}
				args = append(args, row)
			}
			text := fmt.Sprintf("%s%s.f32x2 %%d, %%a, %%b%s", c.op, mods, strings.Repeat(", %c", c.operands-2))
			checkRows(t, text, ptx.B64, repeat(ptx.B64, c.operands), args, func(v []uint64) uint64 {
				var pair uint64
				for shift := 0; shift < 64; shift += 32 {
					var x [3]exactNumber
					for k := range v {
						x[k] = f.decode(flush(v[k] >> shift & full))
					}
					pair |= flush(f.encode(c.exact(x[0], x[1], x[2], r), r)) << shift
				}
				return pair
			})
		}
	}
}

// TestMixedPrecision checks arithmetic on float32 and a 16-bit format.
func TestMixedPrecision(t *testing.T) {
	rng := testrand.New(t)
	f := floatFormats[ptx.F32]
	for _, half := range []ptx.Type{ptx.F16, ptx.BF16} {
		h := floatFormats[half]
		for _, mods := range []string{".rn", ".rz", ".rm.sat", ".rp"} {
			r := number.Roundings[mods[1:3]]
			encode := func(n exactNumber) uint64 {
				y := f.encode(n, r)
				switch v := math.Float32frombits(uint32(y)); {
				case !strings.Contains(mods, "sat"):
				case v >= 1:
					y = uint64(math.Float32bits(1))
				case !(v > 0):
					y = 0
				}
				return y
			}
			for _, op := range []string{"add", "sub"} {
				text := fmt.Sprintf("%s%s.f32.%v %%d, %%a, %%b", op, mods, half)
				check(t, rng, text, ptx.F32, []ptx.Type{half, ptx.F32}, func(v []uint64) uint64 {
					b := f.decode(v[1])
					if op == "sub" {
						b = negated(b)
					}
					return encode(addNumbers(h.decode(v[0]), b, r))
				})
			}
			text := fmt.Sprintf("fma%s.f32.%v %%d, %%a, %%b, %%c", mods, half)
			check(t, rng, text, ptx.F32, []ptx.Type{half, half, ptx.F32}, func(v []uint64) uint64 {
				return encode(addNumbers(mulNumbers(h.decode(v[0]), h.decode(v[1])), f.decode(v[2]), r))
			})
		}
	}
}

func negated(n exactNumber) exactNumber {
	n.neg = !n.neg
	if n.value != nil {
		n.value = new(big.Rat).Neg(n.value)
	}
	return n
}

// TestFloatRedux checks redux of float32 over all lanes, and over one.
func TestFloatRedux(t *testing.T) {
	rng := testrand.New(t)
	words := make([]uint32, 32)
	for _, mods := range []string{"min", "max", "min.abs", "max.NaN", "max.abs.NaN"} {
		values := sampleValues(rng, ptx.F32)
		lanes := make([]uint64, 32)
		for k := range lanes {
			lanes[k] = values[rng.IntN(len(values))]
			words[k] = uint32(lanes[k])
		}
		want := func(lanes []uint64) uint32 {
			return uint32(smallest(lanes, mods[1] == 'a', strings.Contains(mods, "NaN"), strings.Contains(mods, "abs"), false))
		}
		text := strings.Replace(kernelSource(`.reg .f32 %x, %y; .reg .pred %q; .reg .b32 %m;
	mad.wide.u32 %p, %t0, 4, %buf; ld.global.f32 %x, [%p];
	setp.eq.u32 %q, %t0, 7; selp.b32 %m, 0x80, 0xffffff7f, %q;
	redux.sync.`+mods+`.f32 %y, %x, %m; st.global.f32 [%p], %y;`), ".target sm_90", ".target sm_100a", 1)
		got, _, err := runModule(t, text, words, Launch{Block: Dim3{32, 1, 1}})
		if err != nil {
			t.Fatal(err)
		}
		others := append(append([]uint64{}, lanes[:7]...), lanes[8:]...)
		for lane, g := range got {
			w := want(others)
			if lane == 7 {
				w = want(lanes[7:8])
			}
			if g != w {
				t.Errorf("redux.%s of %x in lane %d is %#x, want %#x", mods, lanes, lane, g, w)
			}
		}
	}
}

// TestMemoryForms checks vectors of one element and volatile accesses to local memory.
func TestMemoryForms(t *testing.T) {
	body := `.local .b32 lo[4]; .reg .b32 %x;
	mad.wide.u32 %p, %t0, 4, %buf;
	ld.global.b32 {%x}, [%p];
	add.u32 %x, %x, 1;
	st.volatile.local.b32 [lo+4], %x;
	ld.volatile.local.b32 {%x}, [lo+4];
	st.global.b32 [%p], {%x};`
	text := strings.Replace(kernelSource(body), ".version 8.8", ".version 9.1", 1)
	got, _, err := runModule(t, text, []uint32{5, 6}, Launch{Block: Dim3{2, 1, 1}})
	if err != nil || got[0] != 6 || got[1] != 7 {
		t.Errorf("got %v, %v; want 6 and 7", got, err)
	}
}

// TestReservedRegisters checks that %envreg3 reads zero, and that reserved shared memory does not
// overlap that of the kernel.
func TestReservedRegisters(t *testing.T) {
	got, _, err := runBody(t, `.shared .b32 own[25]; .reg .b32 %x, %y, %z, %w;
	mov.b32 %x, %envreg3; st.global.b32 [%buf], %x;
	mov.b32 %x, %reserved_smem_offset_1; mov.b32 %y, %reserved_smem_offset_begin;
	mov.b32 %z, %reserved_smem_offset_end; mov.u32 %w, own;
	st.shared.b32 [own], 3; st.shared.b32 [%x], 4; ld.shared.b32 %w, [own]; st.global.b32 [%buf+4], %w;
	st.shared.b32 [%z+-4], 5; ld.shared.b32 %w, [%x]; st.global.b32 [%buf+8], %w;
	sub.u32 %z, %z, %y; st.global.b32 [%buf+12], %z;
	mov.u32 %w, %total_smem_size; st.global.b32 [%buf+16], %w;`, make([]uint32, 5), Launch{Block: Dim3{1, 1, 1}})
	want := []uint32{0, 3, 4, 1024, 100}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// TestWideAtomics has the threads of several blocks count in the low half of 128 bits, and add up
// their numbers in the high half.
func TestWideAtomics(t *testing.T) {
	got, _, err := runBody(t, `
	.reg .b128 %was, %now, %old; .reg .b64 %a, %b, %c, %d, %v; .reg .pred %q;
	cvt.u64.u32 %v, %t0;
	mov.b64 %a, 0; mov.b64 %b, 0;
NEXT:	mov.b128 %was, {%a, %b};
	add.u64 %c, %a, 1; add.u64 %d, %b, %v; mov.b128 %now, {%c, %d};
	atom.global.cas.b128 %old, [%buf], %was, %now;
	mov.b128 {%c, %d}, %old;
	setp.ne.u64 %q, %a, %c; setp.ne.or.u64 %q, %b, %d, %q;
	mov.b64 %a, %c; mov.b64 %b, %d;
	@%q bra NEXT;
	mov.b128 %now, {%v, %v};
	atom.global.exch.b128 _, [%buf+16], %now;`, make([]uint32, 8), Launch{Block: Dim3{64, 1, 1}, Grid: Dim3{4, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint32{4 * 64, 0, 4 * 63 * 32, 0}; !slices.Equal(got[:4], want) {
		t.Errorf("the count and the sum are %v, want %v", got[:4], want)
	}
	if v := got[4]; v > 63 || !slices.Equal(got[4:], []uint32{v, 0, v, 0}) {
		t.Errorf("after the exchanges: %v", got[4:])
	}
}
