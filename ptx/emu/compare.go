package emu

import (
	"cmp"
	"math"

	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// comparison returns the result of a comparison from the order of two values. less, equal and
// greater are all false if one value is NaN.
type comparison func(less, equal, greater bool) bool

// comparisons is indexed by modifier. lo, ls, hi and hs compare unsigned numbers.
var comparisons = map[string]comparison{
	"eq": func(_, e, _ bool) bool { return e }, "ne": func(l, _, g bool) bool { return l || g },
	"lt": func(l, _, _ bool) bool { return l }, "le": func(l, e, _ bool) bool { return l || e },
	"gt": func(_, _, g bool) bool { return g }, "ge": func(_, e, g bool) bool { return e || g },
	"lo": func(l, _, _ bool) bool { return l }, "ls": func(l, e, _ bool) bool { return l || e },
	"hi": func(_, _, g bool) bool { return g }, "hs": func(_, e, g bool) bool { return e || g },
	"equ": func(l, _, g bool) bool { return !l && !g }, "neu": func(_, e, _ bool) bool { return !e },
	"ltu": func(_, e, g bool) bool { return !e && !g }, "leu": func(_, _, g bool) bool { return !g },
	"gtu": func(l, e, _ bool) bool { return !l && !e }, "geu": func(l, _, _ bool) bool { return !l },
	"num": func(l, e, g bool) bool { return l || e || g }, "nan": func(l, e, g bool) bool { return !l && !e && !g },
}

// comparer returns the mask of the lanes for which a comparison holds.
type comparer func(w *warp, in *inst) uint32

// compareLanes returns a comparer of the lanes of in.a and in.b.
func compareLanes[T cmp.Ordered](op comparison) comparer {
	return compareAs(op, func(v T) T { return v })
}

// compareAs returns a comparer of the lanes converted by convert.
func compareAs[S any, T cmp.Ordered](op comparison, convert func(S) T) comparer {
	return func(w *warp, in *inst) uint32 {
		return test(reg[S](w, in.a), reg[S](w, in.b), func(a, b S) bool {
			x, y := convert(a), convert(b)
			return op(x < y, x == y, x > y)
		})
	}
}

// Specialized loops for the comparisons that end most loops.

func lessLanes[T cmp.Ordered](w *warp, in *inst) uint32 {
	return test(reg[T](w, in.a), reg[T](w, in.b), func(a, b T) bool { return a < b })
}

func greaterEqualLanes[T cmp.Ordered](w *warp, in *inst) uint32 {
	return test(reg[T](w, in.a), reg[T](w, in.b), func(a, b T) bool { return a >= b })
}

func equalLanes[T comparable](w *warp, in *inst) uint32 {
	return test(reg[T](w, in.a), reg[T](w, in.b), func(a, b T) bool { return a == b })
}

func unequalLanes[T comparable](w *warp, in *inst) uint32 {
	return test(reg[T](w, in.a), reg[T](w, in.b), func(a, b T) bool { return a != b })
}

// comparer returns the comparer of the operands at in.a and in.b, which have type t.
func (d *decoder) comparer(t ptx.Type) comparer {
	name := d.i.Mod("cmp")
	op := comparisons[name]
	hot := map[string]map[ptx.Type]comparer{
		"lt": {ptx.U32: lessLanes[uint32], ptx.S32: lessLanes[int32], ptx.U64: lessLanes[uint64], ptx.S64: lessLanes[int64],
			ptx.F32: lessLanes[float32]},
		"ge": {ptx.U32: greaterEqualLanes[uint32], ptx.S32: greaterEqualLanes[int32], ptx.U64: greaterEqualLanes[uint64],
			ptx.S64: greaterEqualLanes[int64], ptx.F32: greaterEqualLanes[float32]},
		"eq": {ptx.B32: equalLanes[uint32], ptx.U32: equalLanes[uint32], ptx.S32: equalLanes[uint32],
			ptx.S64: equalLanes[uint64], ptx.U64: equalLanes[uint64], ptx.B64: equalLanes[uint64]},
		"ne": {ptx.B32: unequalLanes[uint32], ptx.U32: unequalLanes[uint32], ptx.S32: unequalLanes[uint32],
			ptx.S64: unequalLanes[uint64], ptx.U64: unequalLanes[uint64], ptx.B64: unequalLanes[uint64]},
	}
	ftz := d.i.Has("ftz")
	if f := hot[name][t]; f != nil && !ftz {
		return f
	}
	switch t {
	case ptx.F32:
		if ftz {
			return compareAs(op, flush32)
		}
		return compareLanes[float32](op)
	case ptx.F64:
		return compareLanes[float64](op)
	case ptx.F16:
		if ftz {
			return compareAs(op, func(b uint16) float64 { return number.F16.Flush(number.F16.Decode(uint64(b))) })
		}
		return compareAs(op, func(b uint16) float64 { return number.F16.Decode(uint64(b)) })
	case ptx.BF16:
		return compareAs(op, func(b uint16) float64 { return number.BF16.Decode(uint64(b)) })
	}
	ints := map[ptx.Type]comparer{
		ptx.U16: compareLanes[uint16](op), ptx.U32: compareLanes[uint32](op), ptx.U64: compareLanes[uint64](op),
		ptx.S16: compareLanes[int16](op), ptx.S32: compareLanes[int32](op), ptx.S64: compareLanes[int64](op),
	}
	if f := ints[t]; f != nil {
		return f
	}
	return ints[unsignedOf(t.Bits())]
}

// comparers decodes the operands and the comparison of the instruction. For packed types it returns
// separate comparers for the low and high halves; otherwise high is nil.
func (d *decoder) comparers(a, b int) (low, high comparer) {
	d.in.a, d.in.b = d.source(a), d.source(b)
	t := d.i.Type(a)
	if t != ptx.F16x2 && t != ptx.BF16x2 {
		return d.comparer(t), nil
	}
	decode := number.F16.Decode
	switch {
	case t == ptx.BF16x2:
		decode = number.BF16.Decode
	case d.i.Has("ftz"):
		decode = func(b uint64) float64 { return number.F16.Flush(number.F16.Decode(b)) }
	}
	op := comparisons[d.i.Mod("cmp")]
	low = compareAs(op, func(v uint32) float64 { return decode(uint64(v & 0xffff)) })
	high = compareAs(op, func(v uint32) float64 { return decode(uint64(v >> 16)) })
	return low, high
}

// combiner returns the function that combines the result of a comparison with the predicate in
// argument k by .and, .or or .xor. Without one of these modifiers it returns the identity.
func (d *decoder) combiner(k int) func(w *warp, m uint32) uint32 {
	op := d.i.Mod("bool")
	if op == "" {
		return func(_ *warp, m uint32) uint32 { return m }
	}
	slot := d.source(k)
	f := map[string]func(a, b uint32) uint32{
		"and": func(a, b uint32) uint32 { return a & b },
		"or":  func(a, b uint32) uint32 { return a | b },
		"xor": func(a, b uint32) uint32 { return a ^ b },
	}[op]
	return func(w *warp, m uint32) uint32 { return f(m, *pred(w, slot)) }
}

func decodeSetp(d *decoder) execFunc {
	d.in.d = d.result(0)
	opposite, two := d.secondResult(0)
	low, high := d.comparers(1, 2)
	if d.i.Mod("bool") == "" && !two {
		return func(w *warp, in *inst) { setPred(w, in.d, low(w, in)) }
	}
	combine := d.combiner(3)
	d.in.x = d.testOf(low, 3)
	return func(w *warp, in *inst) {
		m := low(w, in)
		p := combine(w, m)
		other := combine(w, ^m)
		if high != nil {
			other = combine(w, high(w, in))
		}
		setPred(w, in.d, p)
		if two {
			setPred(w, opposite, other)
		}
	}
}

// predicateTest describes a setp that combines a comparison with a predicate by .and or .or.
type predicateTest struct {
	compare comparer
	slot    uint32 // of the predicate
	negated bool
	or      bool
}

// testOf returns the description of a setp with the predicate in argument k, or nil if the
// predicate and the comparison are not combined by .and or .or.
func (d *decoder) testOf(low comparer, k int) any {
	op := d.i.Mod("bool")
	if op != "and" && op != "or" {
		return nil
	}
	arg := d.i.Args[k]
	not, negated := arg.(*ptx.Not)
	if negated {
		arg = not.X
	}
	n, ok := arg.(*ptx.Name)
	if !ok {
		return nil
	}
	return &predicateTest{compare: low, slot: d.f.slots[n.Sym.Index], negated: negated, or: op == "or"}
}

func decodeSet(d *decoder) execFunc {
	d.in.d = d.result(0)
	low, high := d.comparers(1, 2)
	combine := d.combiner(3)
	t := d.i.Type(0)
	if high != nil {
		one := map[ptx.Type]uint32{ptx.F16x2: 0x3c00, ptx.BF16x2: 0x3f80}[t]
		if one == 0 {
			one = 0xffff
		}
		return func(w *warp, in *inst) {
			l, h := combine(w, low(w, in)), combine(w, high(w, in))
			d := dst[uint32](w, in)
			for i := range d {
				d[i] = one*(l>>i&1) | one*(h>>i&1)<<16
			}
		}
	}
	trueBits := map[ptx.Type]uint32{ptx.F32: math.Float32bits(1), ptx.F16: 0x3c00, ptx.BF16: 0x3f80}[t]
	if trueBits == 0 {
		trueBits = full
	}
	if t.Bits() == 16 {
		return func(w *warp, in *inst) {
			m := combine(w, low(w, in))
			d := dst[uint16](w, in)
			for i := range d {
				d[i] = uint16(trueBits * (m >> i & 1))
			}
		}
	}
	return func(w *warp, in *inst) {
		m := combine(w, low(w, in))
		d := dst[uint32](w, in)
		for i := range d {
			d[i] = trueBits * (m >> i & 1)
		}
	}
}

func decodeSelp(d *decoder) execFunc {
	d.operands()
	return typed{ptx.U16: execSelp[uint16], ptx.U32: execSelp[uint32],
		ptx.U64: execSelp[uint64]}[unsignedOf(d.i.Type(0).Bits())]
}

func execSelp[T unsigned](w *warp, in *inst) {
	d, a, b, c := dst[T](w, in), reg[T](w, in.a), reg[T](w, in.b), *pred(w, in.c)
	for i := range d {
		v := b[i]
		if c>>i&1 != 0 {
			v = a[i]
		}
		d[i] = v
	}
}

func decodeSlct(d *decoder) execFunc {
	d.operands()
	bits := d.i.Type(0).Bits()
	if d.i.Type(3) == ptx.F32 { // -0 counts as 0, and so do subnormals with .ftz
		ftz := d.i.Has("ftz")
		return selectBy(bits, func(c float32) bool { return c >= 0 || ftz && flush32(c) == 0 })
	}
	return selectBy(bits, func(c int32) bool { return c >= 0 })
}

// selectBy selects a if holds(c) is true, and b otherwise.
func selectBy[C float32 | int32](bits int, holds func(c C) bool) execFunc {
	return typed{
		ptx.U16: op3(func(a, b uint16, c C) uint16 { return choose(holds(c), a, b) }),
		ptx.U32: op3(func(a, b uint32, c C) uint32 { return choose(holds(c), a, b) }),
		ptx.U64: op3(func(a, b uint64, c C) uint64 { return choose(holds(c), a, b) }),
	}[unsignedOf(bits)]
}

func choose[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}
