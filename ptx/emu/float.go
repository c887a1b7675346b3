package emu

import (
	"math"

	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// floatOp is a floating-point operation on up to three operands.
type floatOp struct {
	operands int
	// odd returns the result rounded to odd. The operands are in formats up to float32.
	odd func(a, b, c float64) float64
	f64 func(a, b, c float64, r number.Rounding) float64
	// Specialized loops for results rounded to nearest: of float32, of float32 with .ftz, and of
	// float64. Operations without one use odd and f64.
	fast, fastFlush, fast64 execFunc
}

var (
	addFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return number.AddOdd(a, b) },
		f64:      func(a, b, _ float64, r number.Rounding) float64 { return number.Add64(a, b, r) },
		fast:     execAddF32, fast64: execAddF64,
	}
	subFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return number.AddOdd(a, -b) },
		f64:      func(a, b, _ float64, r number.Rounding) float64 { return number.Add64(a, -b, r) },
		fast:     execSubF32, fast64: execSubF64,
	}
	mulFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return a * b },
		f64:      func(a, b, _ float64, r number.Rounding) float64 { return number.Mul64(a, b, r) },
		fast:     execMulF32, fast64: execMulF64,
	}
	fmaFloat = &floatOp{
		operands: 3,
		odd:      number.FMAOdd,
		f64:      number.FMA64,
		fast:     execFmaF32, fastFlush: execFmaFlushF32, fast64: execFmaF64,
	}
	divFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return number.DivOdd(a, b) },
		f64:      func(a, b, _ float64, r number.Rounding) float64 { return number.Div64(a, b, r) },
	}
	rcpFloat = &floatOp{
		operands: 1,
		odd:      func(a, _, _ float64) float64 { return number.DivOdd(1, a) },
		f64:      func(a, _, _ float64, r number.Rounding) float64 { return number.Div64(1, a, r) },
	}
	sqrtFloat = &floatOp{
		operands: 1,
		odd:      func(a, _, _ float64) float64 { return number.SqrtOdd(a) },
		f64:      func(a, _, _ float64, r number.Rounding) float64 { return number.Sqrt64(a, r) },
	}
	minFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return minNumber(a, b) },
		f64:      func(a, b, _ float64, _ number.Rounding) float64 { return minNumber(a, b) },
	}
	maxFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return -minNumber(-a, -b) },
		f64:      func(a, b, _ float64, _ number.Rounding) float64 { return -minNumber(-a, -b) },
	}
)

// The operations of min and max with three operands.
var (
	min3Float = &floatOp{operands: 3, odd: func(a, b, c float64) float64 { return minNumber(minNumber(a, b), c) }}
	max3Float = &floatOp{operands: 3, odd: func(a, b, c float64) float64 { return -minNumber(minNumber(-a, -b), -c) }}
)

// minNumber returns the smaller of a and b, where -0 is less than 0. If one of them is NaN, it
// returns the other.
func minNumber(a, b float64) float64 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return min(a, b)
}

func canonical(v float32) float32 {
	if v != v {
		return math.Float32frombits(number.NaN32)
	}
	return v
}

func execAddF32(w *warp, in *inst) {
	map2(dst[float32](w, in), reg[float32](w, in.a), reg[float32](w, in.b), func(a, b float32) float32 {
		return canonical(a + b)
	})
}

func execSubF32(w *warp, in *inst) {
	map2(dst[float32](w, in), reg[float32](w, in.a), reg[float32](w, in.b), func(a, b float32) float32 {
		return canonical(a - b)
	})
}

func execMulF32(w *warp, in *inst) {
	map2(dst[float32](w, in), reg[float32](w, in.a), reg[float32](w, in.b), func(a, b float32) float32 {
		return canonical(a * b)
	})
}

func execAddF64(w *warp, in *inst) {
	map2(dst[float64](w, in), reg[float64](w, in.a), reg[float64](w, in.b), func(a, b float64) float64 {
		return known64(a+b, a, a, b)
	})
}

func execSubF64(w *warp, in *inst) {
	map2(dst[float64](w, in), reg[float64](w, in.a), reg[float64](w, in.b), func(a, b float64) float64 {
		return known64(a-b, a, a, b)
	})
}

func execMulF64(w *warp, in *inst) {
	map2(dst[float64](w, in), reg[float64](w, in.a), reg[float64](w, in.b), func(a, b float64) float64 {
		return known64(a*b, a, a, b)
	})
}

func execFmaF64(w *warp, in *inst) {
	map3(dst[float64](w, in), reg[float64](w, in.a), reg[float64](w, in.b), reg[float64](w, in.c),
		func(a, b, c float64) float64 {
			return known64(math.FMA(a, b, c), a, c, b)
		})
}

// known64 returns y, or the NaN of a GPU if y is NaN.
func known64(y, a, b, c float64) float64 {
	if y != y {
		return nan64(a, b, c)
	}
	return y
}

// nan64 returns the NaN of a float64 operation as observed on an H200: the last NaN operand, made
// quiet, or number.NaN64 if no operand is NaN.
func nan64(operands ...float64) float64 {
	for n := len(operands) - 1; n >= 0; n-- {
		if v := operands[n]; v != v {
			return math.Float64frombits(math.Float64bits(v) | 1<<51)
		}
	}
	return math.Float64frombits(number.NaN64)
}

func execFmaF32(w *warp, in *inst) {
	fmaF32(dst[float32](w, in), reg[float32](w, in.a), reg[float32](w, in.b), reg[float32](w, in.c))
}

func execFmaFlushF32(w *warp, in *inst) {
	var a, b, c [lanes]float32
	map1(&a, reg[float32](w, in.a), flush32)
	map1(&b, reg[float32](w, in.b), flush32)
	map1(&c, reg[float32](w, in.c), flush32)
	d := dst[float32](w, in)
	fmaF32(d, &a, &b, &c)
	map1(d, d, flush32)
}

// flush32 returns a, or a zero of the same sign if a is subnormal.
func flush32(a float32) float32 {
	if b := math.Float32bits(a); b>>23&0xff == 0 {
		return math.Float32frombits(b & (1 << 31))
	}
	return a
}

// variant holds the modifiers of a floating-point instruction.
type variant struct {
	rnd      number.Rounding
	ftz, sat bool
	relu     bool // negative results become 0
	nan      bool // the result is NaN if an operand is NaN
	abs      bool // operates on absolute values
	xorsign  bool // as abs; the sign of the result is the XOR of the operands' signs
	whole    bool // converts a float to an integral float
	oob      bool // the result is 0 if an operand is oobNaN
	finite   bool // results are at most the maximum of the format
}

func (d *decoder) variant() variant {
	v := variant{
		ftz: d.i.Has("ftz"), sat: d.i.Has("sat"), relu: d.i.Has("relu"),
		nan: d.i.Has("NaN"), abs: d.i.Has("abs"), xorsign: d.i.Has("xorsign"), oob: d.i.Has("oob"),
		finite: d.i.Has("satfinite"),
	}
	for _, mod := range d.i.Mods {
		if r, ok := number.Roundings[mod]; ok {
			v.rnd = r
			v.whole = len(mod) == 3 && mod[2] == 'i'
		}
	}
	return v
}

// float decodes an instruction with operation op. The operands are already decoded.
func (d *decoder) float(op *floatOp) execFunc {
	v := d.variant()
	t := d.mainType()
	if mixed := d.i.Type(0) == ptx.F32; mixed && t == ptx.F16 {
		return mixedOp(op, v.single(op), number.F16)
	} else if mixed && t == ptx.BF16 {
		return mixedOp(op, v.single(op), number.BF16)
	}
	switch t {
	case ptx.F32:
		plain := v == variant{}
		switch {
		case plain && op.fast != nil:
			return op.fast
		case v == variant{ftz: true} && op.fastFlush != nil:
			return op.fastFlush
		}
		return lanesOp(op, v.single(op))
	case ptx.F32x2:
		f := v.single(op)
		part := func(a, b, c uint64, shift int) uint64 {
			word := func(x uint64) float32 { return math.Float32frombits(uint32(x >> shift)) }
			return uint64(math.Float32bits(f(word(a), word(b), word(c)))) << shift
		}
		return lanesOp(op, func(a, b, c uint64) uint64 { return part(a, b, c, 0) | part(a, b, c, 32) })
	case ptx.F64:
		if v.rnd == number.Nearest && op.fast64 != nil {
			return op.fast64
		}
		return lanesOp(op, func(a, b, c float64) float64 {
			y := op.f64(a, b, c, v.rnd)
			switch op {
			case fmaFloat:
				return known64(y, a, c, b)
			case divFloat:
				return known64(y, c, b, a)
			}
			return known64(y, a, b, c)
		})
	case ptx.F16, ptx.F16x2:
		return halves(op, v.half(op, number.F16), t == ptx.F16x2)
	case ptx.BF16, ptx.BF16x2:
		return halves(op, v.half(op, number.BF16), t == ptx.BF16x2)
	}
	return nil
}

// lanesOp returns an execFunc that applies f to each lane. f ignores operands that op does not
// have.
func lanesOp[T any](op *floatOp, f func(a, b, c T) T) execFunc {
	switch op.operands {
	case 1:
		return op1(func(a T) T { return f(a, a, a) })
	case 2:
		return op2(func(a, b T) T { return f(a, b, b) })
	}
	return op3(f)
}

// mixedOp returns an execFunc that applies f to float32 numbers and operands of a 16-bit format.
// The last operand is a float32.
func mixedOp(op *floatOp, f func(a, b, c float32) float32, k *number.Format) execFunc {
	wide := func(a uint16) float32 { return float32(k.Decode(uint64(a))) }
	if op.operands == 2 {
		return op2(func(a uint16, b float32) float32 { return f(wide(a), b, b) })
	}
	return op3(func(a, b uint16, c float32) float32 { return f(wide(a), wide(b), c) })
}

// narrow returns the operation on operands of a format, with the modifiers of v.
func (v variant) narrow(op *floatOp, format *number.Format) func(a, b, c float64) float64 {
	return func(a, b, c float64) float64 {
		if v.ftz {
			a, b, c = format.Flush(a), format.Flush(b), format.Flush(c)
		}
		sign := math.Signbit(a) != math.Signbit(b)
		if v.abs {
			a, b, c = math.Abs(a), math.Abs(b), math.Abs(c)
		}
		y := op.odd(a, b, c)
		if y == 0 && v.rnd == number.Down && cancels(op, a, b, c) {
			y = math.Copysign(0, -1)
		}
		y = format.Round(y, v.rnd)
		switch {
		case v.nan && (a != a || b != b || c != c):
			y = math.NaN()
		case v.xorsign && y == y:
			y = math.Abs(y)
			if sign {
				y = -y
			}
		}
		if v.ftz {
			y = format.Flush(y)
		}
		if v.sat && !(y > 0) || v.relu && y <= 0 { // NaN saturates to 0
			y = 0
		}
		if v.sat {
			y = min(y, 1)
		}
		return y
	}
}

// cancels reports whether a zero result of op is a sum of numbers with different signs. Such a sum
// is -0 when rounding down.
func cancels(op *floatOp, a, b, c float64) bool {
	switch op {
	case addFloat:
		return math.Signbit(a) != math.Signbit(b)
	case subFloat:
		return math.Signbit(a) == math.Signbit(b)
	case fmaFloat:
		return (math.Signbit(a) != math.Signbit(b)) != math.Signbit(c)
	}
	return false
}

// single returns the operation on float32.
func (v variant) single(op *floatOp) func(a, b, c float32) float32 {
	f := v.narrow(op, number.F32)
	return func(a, b, c float32) float32 {
		return canonical(float32(f(float64(a), float64(b), float64(c))))
	}
}

// half returns the operation on operands of a 16-bit format.
func (v variant) half(op *floatOp, k *number.Format) func(a, b, c uint16) uint16 {
	f := v.narrow(op, k)
	return func(a, b, c uint16) uint16 {
		if v.oob && (a&0x7fff == oobNaN || b&0x7fff == oobNaN) {
			return 0
		}
		return uint16(k.Encode(f(k.Decode(uint64(a)), k.Decode(uint64(b)), k.Decode(uint64(c)))))
	}
}

// oobNaN is the NaN, of either sign, that fma.oob treats as an out-of-bounds element. An H200
// accepts no other.
const oobNaN = 0x7ff7

// halves returns an execFunc that applies f to the 16-bit values in each lane.
func halves(op *floatOp, f func(a, b, c uint16) uint16, packed bool) execFunc {
	if !packed {
		return lanesOp(op, f)
	}
	return lanesOp(op, func(a, b, c uint32) uint32 {
		return uint32(f(uint16(a), uint16(b), uint16(c))) | uint32(f(uint16(a>>16), uint16(b>>16), uint16(c>>16)))<<16
	})
}
