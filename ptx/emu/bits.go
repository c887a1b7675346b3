package emu

import (
	"math/bits"

	"tilework/ptx"
)

func decodeBfind(d *decoder) execFunc {
	d.operands()
	shift := d.i.Has("shiftamt")
	signed := d.mainType().Class() == ptx.Signed
	if d.mainType().Bits() == 64 {
		return op1(func(a int64) uint32 { return highestOne(uint64(a^choose(signed, a>>63, 0)), 64, shift) })
	}
	return op1(func(a int32) uint32 { return highestOne(uint64(uint32(a^choose(signed, a>>31, 0))), 32, shift) })
}

// highestOne returns the position of the highest set bit of a or, with shift set, its distance from
// the top bit. It returns all ones if a is 0.
func highestOne(a uint64, width int, shift bool) uint32 {
	switch n := bits.Len64(a); {
	case n == 0:
		return full
	case shift:
		return uint32(width - n)
	default:
		return uint32(n - 1)
	}
}

func decodeFns(d *decoder) execFunc {
	d.operands()
	return op3(func(a, base uint32, n int32) uint32 {
		if base > 31 {
			return full
		}
		if n == 0 {
			return choose(a>>base&1 != 0, base, full)
		}
		step, at := 1, int(base)
		if n < 0 {
			step, n = -1, -n
		}
		for ; at >= 0 && at < lanes; at += step {
			if a>>at&1 != 0 {
				if n--; n == 0 {
					return uint32(at)
				}
			}
		}
		return full
	})
}

func decodeSzext(d *decoder) execFunc {
	d.operands()
	wrap := d.i.Mod("mode") == "wrap"
	signed := d.mainType() == ptx.S32
	return op2(func(a, n uint32) uint32 {
		if wrap {
			n &= 31
		}
		switch {
		case n >= 32:
			return a
		case n == 0:
			return 0
		case signed:
			return uint32(int32(a<<(32-n)) >> (32 - n))
		}
		return a << (32 - n) >> (32 - n)
	})
}

func decodeBmsk(d *decoder) execFunc {
	d.operands()
	wrap := d.i.Mod("mode") == "wrap"
	return op2(func(at, n uint32) uint32 {
		if wrap {
			at, n = at&31, n&31
		}
		return (1<<n - 1) << at
	})
}

// decodeDp4a and decodeDp2a multiply and accumulate bytes. In dp2a, a consists of two 16-bit
// values, and the low or high half of b is used.
func decodeDp4a(d *decoder) execFunc { return d.dotProduct(4, 0) }

func decodeDp2a(d *decoder) execFunc { return d.dotProduct(2, choose(d.i.Has("hi"), 2, 0)) }

func (d *decoder) dotProduct(terms, first int) execFunc {
	d.operands()
	// The types of a and b are the last two modifiers.
	mods := d.i.Mods[len(d.i.Mods)-2:]
	signedA, signedB := mods[0] == "s32", mods[1] == "s32"
	width := lanes / terms
	return op3(func(a, b, c uint32) uint32 {
		for k := range terms {
			c += uint32(element(a, k*width, width, signedA) * element(b, (first+k)*8, 8, signedB))
		}
		return c
	})
}

// element returns a bit field of a as a number. The field has the given width and starts at bit at.
func element(a uint32, at, width int, signed bool) int32 {
	a <<= 32 - at - width
	if signed {
		return int32(a) >> (32 - width)
	}
	return int32(a >> (32 - width))
}

func decodePrmt(d *decoder) execFunc {
	d.operands()
	mode := d.i.Mod("mode")
	return op3(func(a, b, c uint32) uint32 { return permute(mode, a, b, c) })
}

// permute returns four bytes of b:a that c selects in a mode of prmt.
func permute(mode string, a, b, c uint32) uint32 {
	pair := uint64(b)<<32 | uint64(a)
	var y uint32
	for k := range 4 {
		pick, sign := int(c>>(4*k)&7), c>>(4*k)&8 != 0
		if mode != "" {
			pick, sign = permuted(mode, k, int(c&3)), false
		}
		value := uint8(pair >> (8 * pick))
		if sign { // replicate the sign bit
			value = uint8(int8(value) >> 7)
		}
		y |= uint32(value) << (8 * k)
	}
	return y
}

// permuted returns the byte that a mode of prmt selects for byte k (manual: prmt, tables).
func permuted(mode string, k, n int) int {
	switch mode {
	case "f4e": // four bytes forward from byte n
		return n + k
	case "b4e": // four bytes backward from byte n
		return (n - k) & 7
	case "rc8": // byte n four times
		return n
	case "ecl": // bytes clamped to n from below
		return max(k, n)
	case "ecr":
		return min(k, n)
	}
	return n&1*2 + k&1 // rc16: 16-bit half n twice
}
