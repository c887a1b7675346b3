package emu

import (
	"fmt"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// compareReference computes a comparison with exact numbers.
func compareReference(op string, ty ptx.Type, a, b uint64, ftz bool) bool {
	var c int
	unordered := false
	if f, ok := floatFormats[ty]; ok {
		x, y := f.decode(a), f.decode(b)
		if ftz {
			x, y = f.flushed(x), f.flushed(y)
		}
		unordered = x.nan || y.nan
		if !unordered {
			c = choose(lessNumber(x, y), -1, choose(lessNumber(y, x), 1, 0))
			if !x.inf && !y.inf && x.value.Sign() == 0 && y.value.Sign() == 0 {
				c = 0 // zeros of either sign are equal
			}
		}
	} else {
		c = asInt(ty, a).Cmp(asInt(ty, b))
	}
	switch op {
	case "num":
		return !unordered
	case "nan":
		return unordered
	case "eq", "ne", "lt", "le", "gt", "ge":
		if unordered {
			return false
		}
	case "equ", "neu", "ltu", "leu", "gtu", "geu":
		if unordered {
			return true
		}
		op = op[:2]
	}
	return map[string]bool{
		"eq": c == 0, "ne": c != 0, "lt": c < 0, "lo": c < 0, "le": c <= 0, "ls": c <= 0, "gt": c > 0, "hi": c > 0,
		"ge": c >= 0, "hs": c >= 0,
	}[op]
}

func TestComparisons(t *testing.T) {
	rng := testrand.New(t)
	bit := func(b bool) uint64 { return choose[uint64](b, 1, 0) }
	signed := []string{"eq", "ne", "lt", "le", "gt", "ge"}
	unsigned := append([]string{"lo", "ls", "hi", "hs"}, signed...)
	float := append([]string{"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}, signed...)
	for ty, ops := range map[ptx.Type][]string{
		ptx.U16: unsigned, ptx.U32: unsigned, ptx.U64: unsigned, ptx.S16: signed, ptx.S32: signed, ptx.S64: signed,
		ptx.B16: {"eq", "ne"}, ptx.B32: {"eq", "ne"}, ptx.B64: {"eq", "ne"},
		ptx.F16: float, ptx.BF16: float, ptx.F32: float, ptx.F64: float,
	} {
		for _, op := range ops {
			two := repeat(ty, 2)
			check(t, rng, fmt.Sprintf("setp.%s.%v %%d, %%a, %%b", op, ty), ptx.Pred, two, func(v []uint64) uint64 {
				return bit(compareReference(op, ty, v[0], v[1], false))
			})
			if ty == ptx.F32 || ty == ptx.F16 {
				check(t, rng, fmt.Sprintf("setp.%s.ftz.%v %%d, %%a, %%b", op, ty), ptx.Pred, two, func(v []uint64) uint64 {
					return bit(compareReference(op, ty, v[0], v[1], true))
				})
			}
			three := append(two, ptx.Pred)
			check(t, rng, fmt.Sprintf("setp.%s.xor.%v %%d, %%a, %%b, !%%c", op, ty), ptx.Pred, three, func(v []uint64) uint64 {
				return bit(compareReference(op, ty, v[0], v[1], false) != (v[2] == 0))
			})
			if ty == ptx.BF16 || ty == ptx.F16 { // no second result for these types
				continue
			}
			check(t, rng, fmt.Sprintf("{ .reg .pred %%q; setp.%s.or.%v %%q|%%d, %%a, %%b, %%c; }", op, ty), ptx.Pred, three,
				func(v []uint64) uint64 {
					return bit(!compareReference(op, ty, v[0], v[1], false) || v[2] == 1)
				})
			if ty.Bits() == 16 {
				continue
			}
			check(t, rng, fmt.Sprintf("set.%s.u32.%v %%d, %%a, %%b", op, ty), ptx.U32, two, func(v []uint64) uint64 {
				return full * bit(compareReference(op, ty, v[0], v[1], false))
			})
			check(t, rng, fmt.Sprintf("set.%s.and.f32.%v %%d, %%a, %%b, %%c", op, ty), ptx.F32, three, func(v []uint64) uint64 {
				return 0x3f800000 * bit(compareReference(op, ty, v[0], v[1], false) && v[2] == 1)
			})
		}
	}
	pair := []ptx.Type{ptx.B32, ptx.B32}
	check(t, rng, "{ .reg .pred %q; setp.lt.f16x2 %q|%d, %a, %b; }", ptx.Pred, pair, func(v []uint64) uint64 {
		return bit(compareReference("lt", ptx.F16, v[0]>>16, v[1]>>16, false))
	})
	check(t, rng, "set.geu.f16x2.f16x2 %d, %a, %b", ptx.B32, pair, func(v []uint64) uint64 {
		return 0x3c00*bit(compareReference("geu", ptx.F16, v[0]&0xffff, v[1]&0xffff, false)) |
			0x3c000000*bit(compareReference("geu", ptx.F16, v[0]>>16, v[1]>>16, false))
	})
	for _, ty := range []ptx.Type{ptx.B16, ptx.U32, ptx.F32, ptx.S64, ptx.F64} {
		check(t, rng, fmt.Sprintf("selp.%v %%d, %%a, %%b, %%c", ty), ty, []ptx.Type{ty, ty, ptx.Pred},
			func(v []uint64) uint64 {
				return choose(v[2] == 1, v[0], v[1])
			})
		check(t, rng, fmt.Sprintf("slct.%v.s32 %%d, %%a, %%b, %%c", ty), ty, []ptx.Type{ty, ty, ptx.S32},
			func(v []uint64) uint64 {
				return choose(int32(v[2]) >= 0, v[0], v[1])
			})
		check(t, rng, fmt.Sprintf("slct.ftz.%v.f32 %%d, %%a, %%b, %%c", ty), ty, []ptx.Type{ty, ty, ptx.F32},
			func(v []uint64) uint64 {
				n := floatFormats[ptx.F32].flushed(floatFormats[ptx.F32].decode(v[2]))
				return choose(!n.nan && (!n.neg || !n.inf && n.value.Sign() == 0), v[0], v[1])
			})
	}
}
