package emu

import (
	"math/bits"

	"tilework/ptx"
)

// videoOps lists the operations of video instructions on parts of two registers. That of vset is in
// operation.
var videoOps = map[string]func(x, y int64) int64{
	"vadd":     func(x, y int64) int64 { return x + y },
	"vsub":     func(x, y int64) int64 { return x - y },
	"vavrg":    func(x, y int64) int64 { return (x + y + choose[int64](x+y >= 0, 1, 0)) >> 1 },
	"vabsdiff": func(x, y int64) int64 { return max(x-y, y-x) },
	"vmin":     func(x, y int64) int64 { return min(x, y) },
	"vmax":     func(x, y int64) int64 { return max(x, y) },
	"vshl":     func(x, y int64) int64 { return x << y },
	"vshr":     func(x, y int64) int64 { return x >> y },
	"vset":     nil,
}

// part is a selected bit field of a register.
type part struct {
	at, width int
	signed    bool
}

func (p part) of(v uint32) int64 {
	n := element(v, p.at, p.width, p.signed)
	return choose(p.signed, int64(n), int64(uint32(n)))
}

// partOf returns the part that argument k of a scalar video instruction selects, such as .b2 or
// .h1. typ is the slot of its type.
func (d *decoder) partOf(k int, typ string) part {
	p := part{width: 32, signed: d.i.Mod(typ) == "s32"}
	arg := d.i.Args[k]
	if m, ok := arg.(*ptx.Minus); ok {
		arg = m.X
	}
	if n, ok := arg.(*ptx.Name); ok && n.Member != "" {
		p.width = choose(n.Member[0] == 'b', 8, 16)
		p.at = p.width * int(n.Member[1]-'0')
	}
	return p
}

// operation returns the operation on two parts.
func (d *decoder) operation(op string) func(x, y int64) int64 {
	if op == "vset" {
		holds := comparisons[d.i.Mod("cmp")]
		return func(x, y int64) int64 { return choose[int64](holds(x < y, x == y, x > y), 1, 0) }
	}
	f := videoOps[op]
	switch d.i.Mod("mode") {
	case "clamp":
		return func(x, y int64) int64 { return f(x, min(y, 32)) }
	case "wrap":
		return func(x, y int64) int64 { return f(x, y&31) }
	}
	return f
}

// decodeVideo decodes a scalar video instruction. Its intermediate result has 34 bits, which are
// saturated, combined with c, or merged into c (manual: "scalar-video-instructions").
func decodeVideo(d *decoder) execFunc {
	d.operands()
	a, b, to := d.partOf(1, "atype"), d.partOf(2, "btype"), d.partOf(0, "dtype")
	f, sat, second := d.operation(d.i.Op), d.i.Has("sat"), d.i.Mod("op2")
	lo, hi := partLimits(to.width, to.signed)
	result := func(x, y, c uint32) uint32 {
		t := f(a.of(x), b.of(y)) << 30 >> 30
		if sat {
			t = min(max(t, lo), hi)
		}
		v := uint32(t)
		switch least := second == "min"; {
		case second == "add":
			return v + c
		case second != "" && to.signed:
			return choose(int32(v) < int32(c) == least, v, c)
		case second != "":
			return choose(v < c == least, v, c)
		}
		mask := uint32(1<<to.width-1) << to.at
		return c&^mask | v<<to.at&mask
	}
	if len(d.i.Args) == 3 {
		return op2(func(x, y uint32) uint32 { return result(x, y, 0) })
	}
	return op3(result)
}

// partLimits returns the range of a part of a register.
func partLimits(width int, signed bool) (lo, hi int64) {
	unsigned := map[int]ptx.Type{8: ptx.U8, 16: ptx.U16, 32: ptx.U32}
	limits := map[int]ptx.Type{8: ptx.S8, 16: ptx.S16, 32: ptx.S32}
	lo, most := integerLimits(choose(signed, limits, unsigned)[width])
	return lo, int64(most)
}

// decodeVmad decodes vmad, whose sum has 128 bits. Its sign bit is above them if all operands are
// unsigned (manual: "scalar-video-instructions-vmad").
func decodeVmad(d *decoder) execFunc {
	d.operands()
	a, b := d.partOf(1, "atype"), d.partOf(2, "btype")
	minus := func(k int) bool { _, ok := d.i.Args[k].(*ptx.Minus); return ok }
	negative, subtracts := minus(1) != minus(2), minus(3)
	signed := a.signed || b.signed || negative || subtracts
	one := choose[uint64](d.i.Has("po") || negative || subtracts, 1, 0)
	shift := map[string]int{"": 0, "shr7": 7, "shr15": 15}[d.i.Mod("scale")]
	sat := d.i.Has("sat")
	return op3(func(x, y, c uint32) uint32 {
		p, q := a.of(x), b.of(y)
		high, low := bits.Mul64(uint64(p), uint64(q))
		high -= uint64(p>>63)&uint64(q) + uint64(q>>63)&uint64(p)
		if negative {
			high, low = ^high, ^low
		} else if subtracts {
			c = ^c
		}
		term := uint64(c)
		if signed {
			term = uint64(int32(c))
		}
		sum, carry := bits.Add64(low, term, one)
		high += choose(signed, uint64(int64(term)>>63), 0) + carry
		v := high<<(63-shift)<<1 | sum>>shift
		switch {
		case sat && signed:
			return uint32(min(max(int64(v), -1<<31), 1<<31-1))
		case sat:
			return uint32(min(v, full))
		}
		return uint32(v)
	})
}

// decodeVideos decodes operations on two halves or four bytes. The selectors of a and b count the
// parts of a and then those of b. That of d is a mask of the parts of the result; the others are
// those of c or, with .add, do not count.
func decodeVideos(d *decoder) execFunc {
	d.operands()
	last := len(d.i.Op) - 1
	parts := int(d.i.Op[last] - '0')
	width := lanes / parts
	digits := func(k int, otherwise string) string {
		if n := d.i.Args[k].(*ptx.Name); n.Member != "" {
			return n.Member[1:]
		}
		return otherwise[len(otherwise)-parts:]
	}
	selected := func(k int, typ, otherwise string) (fields []part) { // the part of a or b for each of d
		for _, digit := range []byte(digits(k, otherwise)) {
			p := part{at: width * int(digit-'0'), width: width, signed: d.i.Mod(typ) == "s32"}
			fields = append([]part{p}, fields...)
		}
		return fields
	}
	first, second := selected(1, "atype", "3210"), selected(2, "btype", choose(parts == 4, "7654", "32"))
	var mask uint32
	for _, digit := range []byte(digits(0, "3210")) {
		mask |= 1 << (digit - '0')
	}
	f := d.operation(d.i.Op[:last])
	lo, hi := partLimits(width, d.i.Mod("dtype") == "s32")
	sum, sat := d.i.Has("add"), d.i.Has("sat")
	return op3(func(a, b, c uint32) uint32 {
		of := func(p part) int64 { // of the pair b:a
			word := choose(p.at < lanes, a, b)
			p.at %= lanes
			return p.of(word)
		}
		merged := c
		for k := range parts {
			if mask>>k&1 == 0 {
				continue
			}
			t := f(of(first[k]), of(second[k]))
			if sat {
				t = min(max(t, lo), hi)
			}
			field := uint32(1<<width-1) << (k * width)
			merged = merged&^field | uint32(t)<<(k*width)&field
			c += uint32(t)
		}
		return choose(sum, c, merged)
	})
}
