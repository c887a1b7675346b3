package emu

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// check compares an instruction with a reference on sample operands.
func check(t *testing.T, rng *rand.Rand, text string, result ptx.Type, types []ptx.Type, want func(v []uint64) uint64) {
	t.Helper()
	args := sampleArgs(rng, types)
	checkRows(t, text, result, types, args, want)
}

func checkRows(t *testing.T, text string, result ptx.Type, types []ptx.Type, args [][]uint64,
	want func(v []uint64) uint64) {
	t.Helper()
	mask := ^uint64(0) >> (64 - result.Bits())
	for n, got := range evaluate(t, text, result, types, args) {
		if w := want(args[n]) & mask; got != w && !(result == ptx.F64 && isNaN64(got) && isNaN64(w)) {
			t.Errorf("%s of %#x is %#x, want %#x", text, args[n], got, w)
			return
		}
	}
}

// isNaN64 reports whether bits is a float64 NaN. PTX does not define the payload of NaN results.
func isNaN64(bits uint64) bool { return math.IsNaN(math.Float64frombits(bits)) }

var integerTypes = []ptx.Type{ptx.U16, ptx.U32, ptx.U64, ptx.S16, ptx.S32, ptx.S64}

func repeat(t ptx.Type, n int) []ptx.Type {
	ts := make([]ptx.Type, n)
	for k := range ts {
		ts[k] = t
	}
	return ts
}

func wideType(t ptx.Type) ptx.Type {
	return map[ptx.Type]ptx.Type{ptx.U16: ptx.U32, ptx.U32: ptx.U64, ptx.S16: ptx.S32, ptx.S32: ptx.S64}[t]
}

func TestIntegerArithmetic(t *testing.T) {
	rng := testrand.New(t)
	big2 := func(f func(z, x, y *big.Int) *big.Int) func(ty ptx.Type, v []*big.Int) *big.Int {
		return func(_ ptx.Type, v []*big.Int) *big.Int { return f(new(big.Int), v[0], v[1]) }
	}
	high := func(ty ptx.Type, v *big.Int) *big.Int { return v.Rsh(v, uint(ty.Bits())) }
	product := func(v []*big.Int) *big.Int { return new(big.Int).Mul(v[0], v[1]) }
	pick := func(v []*big.Int, sign int) *big.Int {
		if v[0].Cmp(v[1]) == sign {
			return v[0]
		}
		return v[1]
	}
	for _, c := range []struct {
		op   string
		args int
		want func(ty ptx.Type, v []*big.Int) *big.Int
	}{
		{"add", 2, big2((*big.Int).Add)},
		{"sub", 2, big2((*big.Int).Sub)},
		{"mul.lo", 2, big2((*big.Int).Mul)},
		{"mul.hi", 2, func(ty ptx.Type, v []*big.Int) *big.Int { return high(ty, product(v)) }},
		{"mad.lo", 3, func(_ ptx.Type, v []*big.Int) *big.Int { p := product(v); return p.Add(p, v[2]) }},
		{"mad.hi", 3, func(ty ptx.Type, v []*big.Int) *big.Int { p := high(ty, product(v)); return p.Add(p, v[2]) }},
		{"min", 2, func(_ ptx.Type, v []*big.Int) *big.Int { return pick(v, -1) }},
		{"max", 2, func(_ ptx.Type, v []*big.Int) *big.Int { return pick(v, 1) }},
		{"sad", 3, func(_ ptx.Type, v []*big.Int) *big.Int {
			d := new(big.Int).Sub(v[0], v[1])
			return d.Add(d.Abs(d), v[2])
		}},
		{"div", 2, func(_ ptx.Type, v []*big.Int) *big.Int {
			if v[1].Sign() == 0 {
				return big.NewInt(-1)
			}
			return new(big.Int).Quo(v[0], v[1])
		}},
		{"rem", 2, func(_ ptx.Type, v []*big.Int) *big.Int {
			if v[1].Sign() == 0 {
				return big.NewInt(-1)
			}
			return new(big.Int).Rem(v[0], v[1])
		}},
		{"abs", 1, func(_ ptx.Type, v []*big.Int) *big.Int { return new(big.Int).Abs(v[0]) }},
		{"neg", 1, func(_ ptx.Type, v []*big.Int) *big.Int { return new(big.Int).Neg(v[0]) }},
	} {
		for _, ty := range integerTypes {
			if c.args == 1 && ty.Class() != ptx.Signed {
				continue
			}
			text := fmt.Sprintf("%s.%v %%d, %s", c.op, ty, strings.Join([]string{"%a", "%b", "%c"}[:c.args], ", "))
			check(t, rng, text, ty, repeat(ty, c.args), func(v []uint64) uint64 {
				return wrapped(ty, c.want(ty, bigs(ty, v)))
			})
		}
	}
	for _, ty := range []ptx.Type{ptx.U16, ptx.U32, ptx.S16, ptx.S32} {
		w := wideType(ty)
		check(t, rng, fmt.Sprintf("mul.wide.%v %%d, %%a, %%b", ty), w, repeat(ty, 2), func(v []uint64) uint64 {
			return wrapped(w, product(bigs(ty, v)))
		})
		check(t, rng, fmt.Sprintf("mad.wide.%v %%d, %%a, %%b, %%c", ty), w, []ptx.Type{ty, ty, w}, func(v []uint64) uint64 {
			p := product(bigs(ty, v[:2]))
			return wrapped(w, p.Add(p, asInt(w, v[2])))
		})
	}
	s := ptx.S32
	check(t, rng, "add.sat.s32 %d, %a, %b", s, repeat(s, 2), func(v []uint64) uint64 {
		return saturated(s, new(big.Int).Add(asInt(s, v[0]), asInt(s, v[1])))
	})
	check(t, rng, "sub.sat.s32 %d, %a, %b", s, repeat(s, 2), func(v []uint64) uint64 {
		return saturated(s, new(big.Int).Sub(asInt(s, v[0]), asInt(s, v[1])))
	})
	check(t, rng, "mad.hi.sat.s32 %d, %a, %b, %c", s, repeat(s, 3), func(v []uint64) uint64 {
		p := high(s, product(bigs(s, v)))
		return saturated(s, p.Add(p, asInt(s, v[2])))
	})
}

func bigs(ty ptx.Type, v []uint64) []*big.Int {
	out := make([]*big.Int, len(v))
	for k := range v {
		out[k] = asInt(ty, v[k])
	}
	return out
}

// TestCarry adds and subtracts multiword numbers with the carry flag.
func TestCarry(t *testing.T) {
	rng := testrand.New(t)
	u := []ptx.Type{ptx.U64, ptx.U64}
	split := `{ .reg .u32 %al, %ah, %bl, %bh; mov.b64 {%al, %ah}, %a; mov.b64 {%bl, %bh}, %b; `
	check(t, rng, split+"add.cc.u32 %al, %al, %bl; addc.u32 %ah, %ah, %bh; mov.b64 %d, {%al, %ah}; }", ptx.U64, u,
		func(v []uint64) uint64 { return v[0] + v[1] })
	check(t, rng, split+"sub.cc.u32 %al, %al, %bl; subc.u32 %ah, %ah, %bh; mov.b64 %d, {%al, %ah}; }", ptx.U64, u,
		func(v []uint64) uint64 { return v[0] - v[1] })
	check(t, rng, split+"mad.lo.cc.u32 %bl, %al, %al, %bl; madc.hi.u32 %bh, %al, %al, %bh; mov.b64 %d, {%bl, %bh}; }",
		ptx.U64, u,
		func(v []uint64) uint64 { return uint64(uint32(v[0]))*uint64(uint32(v[0])) + v[1] })
	check(t, rng, "{ .reg .u64 %x; add.cc.u64 %x, %a, %b; addc.u64 %d, 0, 0; }", ptx.U64, u,
		func(v []uint64) uint64 { _, c := bits.Add64(v[0], v[1], 0); return c })
	check(t, rng, "{ .reg .u64 %x; sub.cc.u64 %x, %a, %b; subc.cc.u64 %d, 5, 2; }", ptx.U64, u,
		func(v []uint64) uint64 { _, c := bits.Sub64(v[0], v[1], 0); return 3 - c })
	check(t, rng, "{ .reg .u64 %x; mad.hi.cc.s64 %x, %a, %b, %a; madc.lo.s64 %d, %a, 3, 0; }", ptx.U64, u,
		func(v []uint64) uint64 {
			p := new(big.Int).Mul(asInt(ptx.S64, v[0]), asInt(ptx.S64, v[1]))
			_, c := bits.Add64(wrapped(ptx.U64, p.Rsh(p, 64)), v[0], 0)
			return 3*v[0] + c
		})
}

func TestBitOperations(t *testing.T) {
	rng := testrand.New(t)
	for _, ty := range []ptx.Type{ptx.B16, ptx.B32, ptx.B64} {
		for op, f := range map[string]func(a, b uint64) uint64{
			"and": func(a, b uint64) uint64 { return a & b }, "or": func(a, b uint64) uint64 { return a | b },
			"xor": func(a, b uint64) uint64 { return a ^ b },
		} {
			check(t, rng, fmt.Sprintf("%s.%v %%d, %%a, %%b", op, ty), ty, repeat(ty, 2),
				func(v []uint64) uint64 { return f(v[0], v[1]) })
		}
		check(t, rng, fmt.Sprintf("not.%v %%d, %%a", ty), ty, repeat(ty, 1), func(v []uint64) uint64 { return ^v[0] })
		check(t, rng, fmt.Sprintf("cnot.%v %%d, %%a", ty), ty, repeat(ty, 1),
			func(v []uint64) uint64 { return choose[uint64](v[0] == 0, 1, 0) })
	}
	for op, f := range map[string]func(a, b uint64) uint64{
		"and": func(a, b uint64) uint64 { return a & b }, "or": func(a, b uint64) uint64 { return a | b },
		"xor": func(a, b uint64) uint64 { return a ^ b },
	} {
		check(t, rng, op+".pred %d, %a, %b", ptx.Pred, repeat(ptx.Pred, 2), func(v []uint64) uint64 { return f(v[0], v[1]) })
	}
	check(t, rng, "not.pred %d, %a", ptx.Pred, repeat(ptx.Pred, 1), func(v []uint64) uint64 { return 1 - v[0] })

	for _, ty := range []ptx.Type{ptx.B16, ptx.B32, ptx.B64, ptx.U16, ptx.S16, ptx.U32, ptx.S32, ptx.U64, ptx.S64} {
		args := []ptx.Type{ty, ptx.U32}
		if ty.Class() == ptx.Bits {
			check(t, rng, fmt.Sprintf("shl.%v %%d, %%a, %%b", ty), ty, args, func(v []uint64) uint64 { return v[0] << v[1] })
		}
		check(t, rng, fmt.Sprintf("shr.%v %%d, %%a, %%b", ty), ty, args, func(v []uint64) uint64 {
			x := asInt(ty, v[0])
			return wrapped(ty, x.Rsh(x, uint(min(v[1], 100))))
		})
	}
	for _, ty := range []ptx.Type{ptx.B32, ptx.B64} {
		n := ty.Bits()
		one := []ptx.Type{ty}
		check(t, rng, fmt.Sprintf("popc.%v %%d, %%a", ty), ptx.U32, one,
			func(v []uint64) uint64 { return uint64(bits.OnesCount64(v[0])) })
		check(t, rng, fmt.Sprintf("clz.%v %%d, %%a", ty), ptx.U32, one,
			func(v []uint64) uint64 { return uint64(n - bits.Len64(v[0])) })
		check(t, rng, fmt.Sprintf("brev.%v %%d, %%a", ty), ty, one,
			func(v []uint64) uint64 { return bits.Reverse64(v[0]) >> (64 - n) })
		check(t, rng, fmt.Sprintf("bfi.%v %%d, %%a, %%b, %%c, %%e", ty), ty, []ptx.Type{ty, ty, ptx.U32, ptx.U32},
			func(v []uint64) uint64 {
				y := v[1]
				for k := range min(v[3]&0xff, uint64(n)) {
					if at := v[2]&0xff + k; at < uint64(n) {
						y = y&^(1<<at) | v[0]>>k&1<<at
					}
				}
				return y
			})
	}
	for _, ty := range []ptx.Type{ptx.U32, ptx.S32, ptx.U64, ptx.S64} {
		n := uint64(ty.Bits())
		signed := ty.Class() == ptx.Signed
		check(t, rng, fmt.Sprintf("bfe.%v %%d, %%a, %%b, %%c", ty), ty, []ptx.Type{ty, ptx.U32, ptx.U32},
			func(v []uint64) uint64 {
				pos, length := v[1]&0xff, v[2]&0xff
				var sign, y uint64
				if signed && length > 0 {
					sign = v[0] >> min(pos+length-1, n-1) & 1
				}
				for k := range n {
					bit := sign
					if k < length && pos+k < n {
						bit = v[0] >> (pos + k) & 1
					}
					y |= bit << k
				}
				return y
			})
		for _, shift := range []string{"", ".shiftamt"} {
			check(t, rng, fmt.Sprintf("bfind%s.%v %%d, %%a", shift, ty), ptx.U32, []ptx.Type{ty}, func(v []uint64) uint64 {
				x := v[0]
				if signed && x>>(n-1) != 0 {
					x = ^x & (1<<(n-1)<<1 - 1)
				}
				if x == 0 {
					return full
				}
				at := uint64(bits.Len64(x) - 1)
				return choose(shift != "", n-1-at, at)
			})
		}
	}
	testWordOperations(t, rng)
}

func testWordOperations(t *testing.T, rng *rand.Rand) {
	u3 := repeat(ptx.U32, 3)
	for _, dir := range []string{"l", "r"} {
		for _, mode := range []string{"clamp", "wrap"} {
			check(t, rng, fmt.Sprintf("shf.%s.%s.b32 %%d, %%a, %%b, %%c", dir, mode), ptx.B32, u3, func(v []uint64) uint64 {
				n := choose(mode == "wrap", v[2]&31, min(v[2], 32))
				return choose(dir == "l", v[1]<<n|v[0]>>(32-n), v[1]<<(32-n)|v[0]>>n)
			})
		}
	}
	for _, table := range []int{0x80, 0xfe, 0x96, 0xe8, 0x1b, 0, 0xff} {
		check(t, rng, fmt.Sprintf("lop3.b32 %%d, %%a, %%b, %%c, %d", table), ptx.B32, u3, func(v []uint64) uint64 {
			var y uint64
			for k := range 32 {
				row := v[0]>>k&1<<2 | v[1]>>k&1<<1 | v[2]>>k&1
				y |= uint64(table) >> row & 1 << k
			}
			return y
		})
	}
	for mode, picks := range map[string][4][4]int{ // from the tables of the manual, indexed by c, byte 3 first
		"f4e": {{3, 2, 1, 0}, {4, 3, 2, 1}, {5, 4, 3, 2}, {6, 5, 4, 3}}, "b4e": {{5, 6, 7, 0}, {6, 7, 0, 1}, {7, 0, 1, 2},
			{0, 1, 2, 3}},
		"rc8": {{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}}, "ecl": {{3, 2, 1, 0}, {3, 2, 1, 1}, {3, 2, 2, 2},
			{3, 3, 3, 3}},
		"ecr": {{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 2, 1, 0}, {3, 2, 1, 0}}, "rc16": {{1, 0, 1, 0}, {3, 2, 3, 2}, {1, 0, 1, 0},
			{3, 2, 3, 2}},
	} {
		check(t, rng, "prmt.b32."+mode+" %d, %a, %b, %c", ptx.B32, u3, func(v []uint64) uint64 {
			pair := v[1]<<32 | v[0]
			var y uint64
			for k, from := range picks[v[2]&3] {
				y |= pair >> (8 * from) & 0xff << (24 - 8*k)
			}
			return y
		})
	}
	check(t, rng, "prmt.b32 %d, %a, %b, %c", ptx.B32, u3, func(v []uint64) uint64 {
		pair := v[1]<<32 | v[0]
		var y uint64
		for k := range 4 {
			sel := v[2] >> (4 * k)
			b := pair >> (8 * (sel & 7)) & 0xff
			if sel&8 != 0 {
				b = choose[uint64](b&0x80 != 0, 0xff, 0)
			}
			y |= b << (8 * k)
		}
		return y
	})
	for _, mode := range []string{"clamp", "wrap"} {
		check(t, rng, "bmsk."+mode+".b32 %d, %a, %b", ptx.B32, u3[:2], func(v []uint64) uint64 {
			at, n := v[0], v[1]
			if mode == "wrap" {
				at, n = at&31, n&31
			}
			var y uint64
			for k := range uint64(32) {
				if k >= at && k-at < n {
					y |= 1 << k
				}
			}
			return y
		})
	}
	for _, ty := range []ptx.Type{ptx.U32, ptx.S32} {
		for _, mode := range []string{"clamp", "wrap"} {
			check(t, rng, fmt.Sprintf("szext.%s.%v %%d, %%a, %%b", mode, ty), ty, []ptx.Type{ty, ptx.U32},
				func(v []uint64) uint64 {
					n := choose(mode == "wrap", v[1]&31, min(v[1], 32))
					y := v[0] & (1<<n - 1)
					if ty == ptx.S32 && n > 0 && y>>(n-1) != 0 {
						y |= ^uint64(0) << n
					}
					return y
				})
		}
	}
	for _, types := range []string{"u32.u32", "u32.s32", "s32.u32", "s32.s32"} {
		part := func(v uint64, at, width int, signed bool) int64 {
			x := int64(v >> at & (1<<width - 1))
			if signed && x>>(width-1) != 0 {
				x -= 1 << width
			}
			return x
		}
		signedA, signedB := types[0] == 's', types[4] == 's'
		check(t, rng, "dp4a."+types+" %d, %a, %b, %c", ptx.U32, u3, func(v []uint64) uint64 {
			sum := int64(v[2])
			for k := range 4 {
				sum += part(v[0], 8*k, 8, signedA) * part(v[1], 8*k, 8, signedB)
			}
			return uint64(sum)
		})
		for half, first := range map[string]int{"lo": 0, "hi": 2} {
			check(t, rng, "dp2a."+half+"."+types+" %d, %a, %b, %c", ptx.U32, u3, func(v []uint64) uint64 {
				sum := int64(v[2])
				for k := range 2 {
					sum += part(v[0], 16*k, 16, signedA) * part(v[1], 8*(first+k), 8, signedB)
				}
				return uint64(sum)
			})
		}
	}
	for _, ty := range []ptx.Type{ptx.U32, ptx.S32} {
		low24 := func(v uint64) *big.Int {
			x := int64(v & 0xffffff)
			if ty == ptx.S32 && x>>23 != 0 {
				x -= 1 << 24
			}
			return big.NewInt(x)
		}
		for half, shift := range map[string]uint{"lo": 0, "hi": 16} {
			check(t, rng, fmt.Sprintf("mul24.%s.%v %%d, %%a, %%b", half, ty), ty, repeat(ty, 2), func(v []uint64) uint64 {
				p := new(big.Int).Mul(low24(v[0]), low24(v[1]))
				return wrapped(ty, p.Rsh(p, shift))
			})
			check(t, rng, fmt.Sprintf("mad24.%s.%v %%d, %%a, %%b, %%c", half, ty), ty, repeat(ty, 3), func(v []uint64) uint64 {
				p := new(big.Int).Mul(low24(v[0]), low24(v[1]))
				return wrapped(ty, p.Add(p.Rsh(p, shift), asInt(ty, v[2])))
			})
		}
	}
	for _, op := range []string{"add", "min", "max", "min.relu", "max.relu"} {
		for _, ty := range []ptx.Type{ptx.U16x2, ptx.S16x2} {
			if ty == ptx.U16x2 && strings.Contains(op, "relu") {
				continue
			}
			half := func(a, b uint64) uint64 {
				e := choose(ty == ptx.S16x2, ptx.S16, ptx.U16)
				x, y := asInt(e, a&0xffff).Int64(), asInt(e, b&0xffff).Int64()
				z := map[string]int64{"add": x + y, "min": min(x, y), "max": max(x, y)}[op[:3]]
				if strings.Contains(op, "relu") {
					z = max(z, 0)
				}
				return uint64(z) & 0xffff
			}
			check(t, rng, fmt.Sprintf("%s.%v %%d, %%a, %%b", op, ty), ptx.B32, repeat(ptx.B32, 2), func(v []uint64) uint64 {
				return half(v[0], v[1]) | half(v[0]>>16, v[1]>>16)<<16
			})
		}
	}
	check(t, rng, "min.relu.s32 %d, %a, %b", ptx.S32, repeat(ptx.S32, 2), func(v []uint64) uint64 {
		return uint64(max(min(int32(v[0]), int32(v[1])), 0))
	})
	checkRows(t, "fns.b32 %d, %a, %b, %c", ptx.B32, u3, [][]uint64{
		{0b10110, 0, 1}, {0b10110, 0, 3}, {0b10110, 2, 1}, {0b10110, 2, 0}, {0b10110, 3, 0}, {0b10110, 4, 0xffffffff},
		{0b10110, 3, 0xfffffffe}, {0b10110, 0, 4}, {0, 0, 1},
	}, func() func(v []uint64) uint64 {
		want := []uint64{1, 4, 2, 2, full, 4, 1, full, full}
		n := -1
		return func([]uint64) uint64 { n++; return want[n] }
	}())
}
