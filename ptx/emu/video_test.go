package emu

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// TestVideo checks operations on two halves and four bytes.
func TestVideo(t *testing.T) {
	rng := testrand.New(t)
	operations := map[string]func(x, y int) int{
		"vadd": func(x, y int) int { return x + y },
		"vsub": func(x, y int) int { return x - y },
		"vavrg": func(x, y int) int { // rounded to the nearest, ties away from zero
			return int(math.Round(float64(x+y) / 2))
		},
		"vabsdiff": func(x, y int) int { return int(math.Abs(float64(x - y))) },
		"vmin":     func(x, y int) int { return min(x, y) },
		"vmax":     func(x, y int) int { return max(x, y) },
	}
	for op, f := range operations {
		for _, types := range []string{"u32.u32.u32", "s32.s32.s32", "u32.s32.u32", "s32.u32.s32"} {
			for _, mode := range []string{"", ".sat", ".add"} {
				checkVideo(t, rng, op, "."+types+mode, types[4] == 's', types[8] == 's', func(x, y, bits int) int {
					v := f(x, y)
					if mode == ".sat" && types[0] == 's' {
						v = min(max(v, -1<<(bits-1)), 1<<(bits-1)-1)
					} else if mode == ".sat" {
						v = min(max(v, 0), 1<<bits-1)
					}
					return v
				})
			}
		}
	}
	for cmp, holds := range map[string]func(x, y int) bool{
		"eq": func(x, y int) bool { return x == y }, "ne": func(x, y int) bool { return x != y },
		"lt": func(x, y int) bool { return x < y }, "le": func(x, y int) bool { return x <= y },
		"gt": func(x, y int) bool { return x > y }, "ge": func(x, y int) bool { return x >= y },
	} {
		for _, types := range []string{"u32.u32", "s32.s32", "s32.u32"} {
			for _, add := range []string{"", ".add"} {
				checkVideo(t, rng, "vset", "."+types+"."+cmp+add, types[0] == 's', types[4] == 's', func(x, y, _ int) int {
					return choose(holds(x, y), 1, 0)
				})
			}
		}
	}
}

// checkVideo compares an operation on halves and one on bytes with f.
func checkVideo(t *testing.T, rng *rand.Rand, op, mods string, signedA, signedB bool, f func(x, y, bits int) int) {
	for _, bits := range []int{8, 16} {
		first, second, mask := []int{0, 1, 2, 3}, []int{4, 5, 6, 7}, 15 // the selected parts
		instruction := op + "4" + mods + " %d, %a, %b, %c"
		if bits == 16 {
			first, second = []int{0, 1}, []int{2, 3}
			instruction = op + "2" + mods + " %d, %a, %b, %c"
		}
		if rng.IntN(2) == 0 {
			selector := func(parts []int) string {
				text := ""
				for k := range parts {
					parts[k] = rng.IntN(64 / bits)
					text = fmt.Sprint(parts[k]) + text
				}
				return choose(bits == 8, "b", "h") + text
			}
			mask = rng.IntN(1<<(32/bits)-1) + 1
			to := ""
			for k := range 4 {
				if mask>>k&1 != 0 {
					to = fmt.Sprint(k) + to
				}
			}
			instruction = strings.NewReplacer("%d", "%d."+choose(bits == 8, "b", "h")+to, "%a", "%a."+selector(first), "%b",
				"%b."+selector(second)).Replace(instruction)
		}
		check(t, rng, instruction, ptx.U32, repeat(ptx.U32, 3), func(v []uint64) uint64 {
			part := func(k int, signed bool) int {
				n := int(v[1]<<32|v[0]) >> (k * bits) & (1<<bits - 1)
				if signed && n >= 1<<(bits-1) {
					n -= 1 << bits
				}
				return n
			}
			merged, sum := v[2], v[2]
			for k := range first {
				if mask>>k&1 == 0 {
					continue
				}
				n := f(part(first[k], signedA), part(second[k], signedB), bits)
				sum += uint64(n)
				field := uint64(1<<bits-1) << (k * bits)
				merged = merged&^field | uint64(n)<<(k*bits)&field
			}
			return choose(strings.HasSuffix(mods, ".add"), sum, merged)
		})
	}
}

// scalarVideo is the value of a part of a register, selected by .b0 to .b3, .h0 or .h1.
func scalarVideo(w uint64, selector string, signed bool) *big.Int {
	bits := uint(32)
	if selector != "" {
		bits = choose[uint](selector[1] == 'b', 8, 16)
		w >>= bits * uint(selector[2]-'0')
	}
	n := big.NewInt(int64(w & (1<<bits - 1)))
	if signed && n.Bit(int(bits)-1) != 0 {
		n.Sub(n, big.NewInt(1<<bits))
	}
	return n
}

// lowest returns the two's complement of the low bits of n, as a signed number if signed is set.
func lowest(n *big.Int, bits uint, signed bool) *big.Int {
	modulus := new(big.Int).Lsh(big.NewInt(1), bits)
	n = new(big.Int).Mod(n, modulus)
	if signed && n.Bit(int(bits)-1) != 0 {
		n.Sub(n, modulus)
	}
	return n
}

func clamped(n *big.Int, bits uint, signed bool) *big.Int {
	lo, hi := big.NewInt(0), big.NewInt(1<<bits-1)
	if signed {
		lo, hi = big.NewInt(-1<<(bits-1)), big.NewInt(1<<(bits-1)-1)
	}
	switch {
	case n.Cmp(lo) < 0:
		return lo
	case n.Cmp(hi) > 0:
		return hi
	}
	return n
}

// TestScalarVideo checks operations on two parts of registers, with saturation, secondary
// operations and results that are merged into c.
func TestScalarVideo(t *testing.T) {
	rng := testrand.New(t)
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	operations := map[string]func(x, y *big.Int) *big.Int{
		"vadd":     func(x, y *big.Int) *big.Int { return new(big.Int).Add(x, y) },
		"vsub":     func(x, y *big.Int) *big.Int { return new(big.Int).Sub(x, y) },
		"vabsdiff": func(x, y *big.Int) *big.Int { return new(big.Int).Abs(new(big.Int).Sub(x, y)) },
		"vmin":     func(x, y *big.Int) *big.Int { return choose(x.Cmp(y) < 0, x, y) },
		"vmax":     func(x, y *big.Int) *big.Int { return choose(x.Cmp(y) > 0, x, y) },
		"vshl":     func(x, y *big.Int) *big.Int { return new(big.Int).Lsh(x, uint(y.Uint64())) },
		"vshr":     func(x, y *big.Int) *big.Int { return new(big.Int).Rsh(x, uint(y.Uint64())) },
		"vset":     func(x, y *big.Int) *big.Int { return big.NewInt(choose[int64](x.Cmp(y) <= 0, 1, 0)) },
	}
	for op, f := range operations {
		for range 40 {
			shift, selectors := op == "vshl" || op == "vshr", []string{"", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"}
			dtype, atype, btype := pick("u32", "s32"), pick("u32", "s32"), pick("u32", "s32")
			mode, sat := pick("clamp", "wrap"), pick("", ".sat")
			second, to, from, by := pick("", "", ".add", ".min", ".max"), "", pick(selectors...), pick(selectors...)
			if second == "" {
				to = pick(selectors...)
			}
			var text string
			switch {
			case shift:
				btype = "u32"
				text = fmt.Sprintf("%s.%s.%s.u32%s.%s%s", op, dtype, atype, sat, mode, second)
			case op == "vset":
				dtype, sat = "u32", ""
				text = fmt.Sprintf("vset.%s.%s.le%s", atype, btype, second)
			default:
				text = fmt.Sprintf("%s.%s.%s.%s%s%s", op, dtype, atype, btype, sat, second)
			}
			text += fmt.Sprintf(" %%d%s, %%a%s, %%b%s, %%c", to, from, by)
			if to == "" && second == "" && rng.IntN(2) == 0 {
				text = strings.TrimSuffix(text, ", %c")
			}
			signed, width := dtype == "s32", uint(32)
			if to != "" {
				width = choose[uint](to[1] == 'b', 8, 16)
			}
			check(t, rng, text, ptx.U32, repeat(ptx.U32, 3), func(v []uint64) uint64 {
				x, y := scalarVideo(v[0], from, atype == "s32"), scalarVideo(v[1], by, btype == "s32")
				switch {
				case shift && mode == "clamp" && y.Cmp(big.NewInt(32)) > 0:
					y = big.NewInt(32)
				case shift && mode == "wrap":
					y = big.NewInt(y.Int64() & 31)
				}
				n := lowest(f(x, y), 34, true)
				if sat != "" {
					n = clamped(n, width, signed)
				}
				c := lowest(new(big.Int).SetUint64(v[2]), 32, signed)
				switch n32 := lowest(n, 32, signed); second {
				case ".add":
					n = n.Add(n, c)
				case ".min":
					n = choose(n32.Cmp(c) < 0, n32, c)
				case ".max":
					n = choose(n32.Cmp(c) > 0, n32, c)
				}
				result := lowest(n, 32, false).Uint64()
				if to != "" {
					at := width * uint(to[2]-'0')
					field := uint64(1<<width-1) << at
					result = v[2]&^field | result<<at&field
				}
				return result
			})
		}
	}
}

// TestVmad checks vmad with all negations.
func TestVmad(t *testing.T) {
	rng := testrand.New(t)
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	for _, signs := range []string{"+++", "-++", "+-+", "--+", "++-", "po"} {
		for range 40 {
			atype, btype, sat, scale := pick("u32", "s32"), pick("u32", "s32"), pick("", ".sat"), pick("", ".shr7", ".shr15")
			from, by := pick("", ".b1", ".h0"), pick("", ".b3", ".h1")
			one, sign := "", signs
			if signs == "po" {
				one, sign = ".po", "+++"
			}
			minus := func(k int) string { return strings.Trim(sign[k:k+1], "+") }
			text := fmt.Sprintf("vmad.%s.%s.%s%s%s%s %%d, %s%%a%s, %s%%b%s, %s%%c", pick("u32", "s32"), atype, btype, one,
				sat, scale, minus(0), from, minus(1), by, minus(2))
			negative, subtracts := sign[0] != sign[1], sign[2] == '-'
			signed := atype == "s32" || btype == "s32" || negative || subtracts
			check(t, rng, text, ptx.U32, repeat(ptx.U32, 3), func(v []uint64) uint64 {
				n := new(big.Int).Mul(scalarVideo(v[0], from, atype == "s32"), scalarVideo(v[1], by, btype == "s32"))
				c := new(big.Int).SetUint64(v[2])
				if negative {
					n.Neg(n)
				}
				if subtracts { // the manual inverts the 32 bits of c and adds 1
					c = c.SetUint64(^v[2] & full)
				}
				if c = lowest(c, 32, signed); subtracts || one != "" {
					c.Add(c, big.NewInt(1))
				}
				n.Add(n, c)
				n.Rsh(n, map[string]uint{"": 0, ".shr7": 7, ".shr15": 15}[scale])
				if n = lowest(n, 64, signed); sat != "" {
					n = clamped(n, 32, signed)
				}
				return lowest(n, 32, false).Uint64()
			})
		}
	}
}
