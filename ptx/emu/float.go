package emu

import (
	"math"

	"tilework/ptx"
)

// floatOp is an operation on floating-point numbers, on up to three operands.
type floatOp struct {
	operands int
	// odd is the result, rounded to odd, for operands of formats up to float32.
	odd func(a, b, c float64) float64
	f64 func(a, b, c float64, r rounding) float64
	// fast are loops for results rounded to nearest: of float32, plainly and with
	// .ftz, and of float64. What has none takes the long way.
	fast, fastFlush, fast64 execFunc
}

var (
	addFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return addOdd(a, b) },
		f64:      func(a, b, _ float64, r rounding) float64 { return add64(a, b, r) },
		fast:     execAddF32, fast64: execAddF64,
	}
	subFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return addOdd(a, -b) },
		f64:      func(a, b, _ float64, r rounding) float64 { return add64(a, -b, r) },
		fast:     execSubF32, fast64: execSubF64,
	}
	mulFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return a * b },
		f64:      func(a, b, _ float64, r rounding) float64 { return mul64(a, b, r) },
		fast:     execMulF32, fast64: execMulF64,
	}
	fmaFloat = &floatOp{
		operands: 3,
		odd:      fmaOdd,
		f64:      fma64,
		fast:     execFmaF32, fastFlush: execFmaFlushF32, fast64: execFmaF64,
	}
	divFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return divOdd(a, b) },
		f64:      func(a, b, _ float64, r rounding) float64 { return div64(a, b, r) },
	}
	rcpFloat = &floatOp{
		operands: 1,
		odd:      func(a, _, _ float64) float64 { return divOdd(1, a) },
		f64:      func(a, _, _ float64, r rounding) float64 { return div64(1, a, r) },
	}
	sqrtFloat = &floatOp{
		operands: 1,
		odd:      func(a, _, _ float64) float64 { return sqrtOdd(a) },
		f64:      func(a, _, _ float64, r rounding) float64 { return sqrt64(a, r) },
	}
	minFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return minNumber(a, b) },
		f64:      func(a, b, _ float64, _ rounding) float64 { return minNumber(a, b) },
	}
	maxFloat = &floatOp{
		operands: 2,
		odd:      func(a, b, _ float64) float64 { return -minNumber(-a, -b) },
		f64:      func(a, b, _ float64, _ rounding) float64 { return -minNumber(-a, -b) },
	}
)

// minNumber is the smaller of a and b, -0 being smaller than 0; of a number and a NaN, the
// number.
func minNumber(a, b float64) float64 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return min(a, b)
}

// nan32 is the canonical NaN of float32.
const nan32 = 0x7fffffff

func canonical(v float32) float32 {
	if v != v {
		return math.Float32frombits(nan32)
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
	map3(dst[float64](w, in), reg[float64](w, in.a), reg[float64](w, in.b), reg[float64](w, in.c), func(a, b, c float64) float64 {
		return known64(math.FMA(a, b, c), a, c, b)
	})
}

// known64 is y, but if that is NaN, the NaN that a GPU gives.
func known64(y, a, b, c float64) float64 {
	if y != y {
		return nan64(a, b, c)
	}
	return y
}

// nan64 is the NaN of a float64 operation on the given operands, as an H200 gives it: the last
// of those that are NaN, made quiet, and else the one that x86 processors give too.
func nan64(operands ...float64) float64 {
	for n := len(operands) - 1; n >= 0; n-- {
		if v := operands[n]; v != v {
			return math.Float64frombits(math.Float64bits(v) | 1<<51)
		}
	}
	return math.Float64frombits(invalid64)
}

// invalid64 is the NaN of operations without a result.
const invalid64 = 0xfff8000000000000

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

// flush32 is a, or a zero of its sign if a is subnormal.
func flush32(a float32) float32 {
	if b := math.Float32bits(a); b>>23&0xff == 0 {
		return math.Float32frombits(b & (1 << 31))
	}
	return a
}

// variant is how an instruction wants its result beyond the operation itself.
type variant struct {
	rnd      rounding
	ftz, sat bool
	relu     bool // negative results become 0
	nan      bool // a NaN operand makes the result NaN
	xorsign  bool // of absolute values; the sign is the operands' signs' exclusive or
	whole    bool // a conversion between floats gives a whole number
	oob      bool // an operand of the special NaN makes the result 0
}

func (d *decoder) variant() variant {
	v := variant{
		ftz: d.i.Has("ftz"), sat: d.i.Has("sat"), relu: d.i.Has("relu"),
		nan: d.i.Has("NaN"), xorsign: d.i.Has("xorsign"), oob: d.i.Has("oob"),
	}
	for _, mod := range d.i.Mods {
		if r, ok := roundings[mod]; ok {
			v.rnd = r
			v.whole = len(mod) == 3 && mod[2] == 'i'
		}
	}
	return v
}

// float decodes an instruction of the given operation, whose operands are set.
func (d *decoder) float(op *floatOp) execFunc {
	v := d.variant()
	switch t := d.mainType(); t {
	case ptx.F32:
		plain := v == variant{}
		switch {
		case plain && op.fast != nil:
			return op.fast
		case v == variant{ftz: true} && op.fastFlush != nil:
			return op.fastFlush
		}
		f := v.narrow(op, &formatF32)
		return lanesOp(op, func(a, b, c float32) float32 {
			return canonical(float32(f(float64(a), float64(b), float64(c))))
		})
	case ptx.F64:
		if v.rnd == nearest && op.fast64 != nil {
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
		return halves(op, v.half(op, codecF16), t == ptx.F16x2)
	case ptx.BF16, ptx.BF16x2:
		return halves(op, v.half(op, codecBF16), t == ptx.BF16x2)
	}
	return nil
}

// lanesOp applies f, of as many operands as op has, to each lane.
func lanesOp[T any](op *floatOp, f func(a, b, c T) T) execFunc {
	switch op.operands {
	case 1:
		return op1(func(a T) T { return f(a, a, a) })
	case 2:
		return op2(func(a, b T) T { return f(a, b, b) })
	}
	return op3(f)
}

// narrow is the operation on operands of a format, with all that the variant asks for.
func (v variant) narrow(op *floatOp, format *format) func(a, b, c float64) float64 {
	return func(a, b, c float64) float64 {
		if v.ftz {
			a, b, c = format.flush(a), format.flush(b), format.flush(c)
		}
		sign := math.Signbit(a) != math.Signbit(b)
		if v.xorsign {
			a, b = math.Abs(a), math.Abs(b)
		}
		y := op.odd(a, b, c)
		if y == 0 && v.rnd == down && cancels(op, a, b, c) {
			y = math.Copysign(0, -1)
		}
		y = format.round(y, v.rnd)
		switch {
		case v.nan && (a != a || b != b):
			y = math.NaN()
		case v.xorsign && y == y:
			y = math.Abs(y)
			if sign {
				y = -y
			}
		}
		if v.ftz {
			y = format.flush(y)
		}
		if v.sat && !(y > 0) || v.relu && y <= 0 { // a NaN saturates to 0
			y = 0
		}
		if v.sat {
			y = min(y, 1)
		}
		return y
	}
}

// cancels reports whether an operation whose result is 0 is the sum of numbers of different
// signs: such a sum is -0 when rounding down.
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

// half is the operation on operands of a 16-bit format.
func (v variant) half(op *floatOp, k *codec) func(a, b, c uint16) uint16 {
	f := v.narrow(op, k.format)
	return func(a, b, c uint16) uint16 {
		if v.oob && (a&0x7fff == oobNaN || b&0x7fff == oobNaN) {
			return 0
		}
		y := f(k.decode(a), k.decode(b), k.decode(c))
		return k.encode(y)
	}
}

// oobNaN is the NaN, of either sign, that stands for an element out of bounds in fma.oob: an
// H200 knows no other.
const oobNaN = 0x7ff7

// halves applies f to the 16-bit values in each lane.
func halves(op *floatOp, f func(a, b, c uint16) uint16, packed bool) execFunc {
	if !packed {
		return lanesOp(op, f)
	}
	return lanesOp(op, func(a, b, c uint32) uint32 {
		return uint32(f(uint16(a), uint16(b), uint16(c))) | uint32(f(uint16(a>>16), uint16(b>>16), uint16(c>>16)))<<16
	})
}
