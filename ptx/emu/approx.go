package emu

import (
	"math"

	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// The .approx instructions compute in float64 and round once.
var (
	rsqrtFloat = &floatOp{operands: 1, odd: func(a, _, _ float64) float64 { return 1 / math.Sqrt(a) }}
	sinFloat   = &floatOp{operands: 1, odd: func(a, _, _ float64) float64 { return math.Sin(a) }}
	cosFloat   = &floatOp{operands: 1, odd: func(a, _, _ float64) float64 { return math.Cos(a) }}
	lg2Float   = &floatOp{operands: 1, odd: func(a, _, _ float64) float64 { return math.Log2(a) }}
	ex2Float   = &floatOp{operands: 1, odd: func(a, _, _ float64) float64 { return math.Exp2(a) }}
	tanhFloat  = &floatOp{operands: 1, odd: func(a, _, _ float64) float64 { return math.Tanh(a) }}
	// divApprox returns 0 for divisors above 2^126 (manual: div.approx).
	divApprox = &floatOp{operands: 2, odd: func(a, b, _ float64) float64 {
		if y := math.Abs(b); y > 0x1p126 && !math.IsInf(b, 0) {
			if math.IsInf(a, 0) {
				return math.NaN()
			}
			return math.Copysign(0, a) * math.Copysign(1, b)
		}
		return number.DivOdd(a, b)
	}}
)

// unary returns the decoder of a floating-point instruction with one operand.
func unary(op *floatOp) decodeFunc {
	return func(d *decoder) execFunc {
		d.operands()
		return d.float(op)
	}
}

func decodeDiv(d *decoder) execFunc {
	d.operands()
	switch t := d.mainType(); {
	case t.Class() != ptx.Float:
		return divInt[t]
	case d.i.Has("approx"):
		return d.float(divApprox)
	}
	return d.float(divFloat)
}

func decodeRcp(d *decoder) execFunc {
	d.operands()
	if d.mainType() == ptx.F64 && d.i.Has("approx") {
		return op1(highHalfOp(func(a float64) float64 { return 1 / a }))
	}
	return d.float(rcpFloat)
}

func decodeSqrt(d *decoder) execFunc {
	d.operands()
	return d.float(sqrtFloat)
}

func decodeRsqrt(d *decoder) execFunc {
	d.operands()
	switch {
	case d.mainType() == ptx.F32:
		return d.float(rsqrtFloat)
	case d.i.Has("ftz"):
		return op1(highHalfOp(func(a float64) float64 { return 1 / math.Sqrt(a) }))
	}
	return op1(func(a float64) float64 { return 1 / math.Sqrt(a) })
}

// highHalfOp returns f in the precision of .approx.ftz.f64 instructions. They ignore the low 32
// bits of the operand and clear those of the result (manual: rcp.approx.ftz.f64).
func highHalfOp(f func(a float64) float64) func(a float64) float64 {
	high := func(v float64) float64 {
		return number.F64.Flush(math.Float64frombits(math.Float64bits(v) >> 32 << 32))
	}
	return func(a float64) float64 {
		if y := f(high(a)); y == y {
			return high(y)
		}
		return math.Float64frombits(number.NaN32 << 32)
	}
}

// Instructions that work on the bit pattern of a number.

func decodeAbs(d *decoder) execFunc {
	return d.sign(absInt, func(b, sign uint64) uint64 { return b &^ sign })
}

func decodeNeg(d *decoder) execFunc {
	return d.sign(negInt, func(b, sign uint64) uint64 { return b ^ sign })
}

// sign decodes abs and neg: f changes the sign bit of a pattern. A NaN becomes the canonical NaN. A
// float64 NaN keeps its payload and becomes quiet.
func (d *decoder) sign(ints typed, f func(b, sign uint64) uint64) execFunc {
	d.operands()
	ftz := d.i.Has("ftz")
	half := func(k *number.Format) func(b uint16) uint16 {
		return func(b uint16) uint16 {
			v := k.Decode(uint64(b))
			if v != v {
				return number.NaN16
			}
			if ftz {
				b = uint16(k.Encode(k.Flush(v)))
			}
			return uint16(f(uint64(b), 1<<15))
		}
	}
	pair := func(half func(b uint16) uint16) execFunc {
		return op1(func(a uint32) uint32 { return uint32(half(uint16(a))) | uint32(half(uint16(a>>16)))<<16 })
	}
	switch t := d.mainType(); t {
	case ptx.F32:
		return op1(func(a float32) float32 {
			if ftz {
				a = flush32(a)
			}
			return canonical(math.Float32frombits(uint32(f(uint64(math.Float32bits(a)), 1<<31))))
		})
	case ptx.F64:
		return op1(func(a float64) float64 {
			if a != a {
				return nan64(a)
			}
			return math.Float64frombits(f(math.Float64bits(a), 1<<63))
		})
	case ptx.F16:
		return op1(half(number.F16))
	case ptx.BF16:
		return op1(half(number.BF16))
	case ptx.F16x2:
		return pair(half(number.F16))
	case ptx.BF16x2:
		return pair(half(number.BF16))
	default:
		return ints[t]
	}
}

func decodeCopysign(d *decoder) execFunc {
	d.operands()
	return typed{
		ptx.F32: op2(func(a, b uint32) uint32 { return a&(1<<31) | b&^(1<<31) }),
		ptx.F64: op2(func(a, b uint64) uint64 { return a&(1<<63) | b&^(1<<63) }),
	}[d.mainType()]
}

func decodeTestp(d *decoder) execFunc {
	d.operands()
	if d.mainType() == ptx.F64 {
		return testp[float64](testps[d.i.Mod("kind")], number.F64)
	}
	return testp[float32](testps[d.i.Mod("kind")], number.F32)
}

func testp[T float32 | float64](f func(v float64, k *number.Format) bool, k *number.Format) execFunc {
	return func(w *warp, in *inst) {
		a := reg[T](w, in.a)
		setPred(w, in.d, test(a, a, func(a, _ T) bool { return f(float64(a), k) }))
	}
}

var testps = map[string]func(v float64, k *number.Format) bool{
	"finite":     func(v float64, _ *number.Format) bool { return !math.IsInf(v, 0) && v == v },
	"infinite":   func(v float64, _ *number.Format) bool { return math.IsInf(v, 0) },
	"number":     func(v float64, _ *number.Format) bool { return v == v },
	"notanumber": func(v float64, _ *number.Format) bool { return v != v },
	// GPUs classify zero as normal.
	"normal":    func(v float64, k *number.Format) bool { return !math.IsInf(v, 0) && v == k.Flush(v) },
	"subnormal": func(v float64, k *number.Format) bool { return v != 0 && k.Flush(v) == 0 },
}
