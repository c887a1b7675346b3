// Package number describes the floating-point types of PTX, and computes with their rounding modes.
// Numbers are float64 values, which represent those of the narrower types exactly.
package number

import (
	"math"

	"tilework/dtype"
	"tilework/ptx"
)

// Format is a floating-point type.
type Format struct {
	Bits      int
	Precision int     // significand bits, including the leading one
	MinExp    int     // exponent of the smallest normal number
	Max       float64 // largest finite value
	Decode    func(bits uint64) float64
	// Encode returns the bits of a number of the type, or of NaN. Types of up to 8 bits encode no
	// infinities. It is nil for UE4M3, to which nothing is converted.
	Encode func(v float64) uint64
}

// The NaNs of invalid operations: the canonical NaNs of the 16-bit types and of float32, and that
// of float64 on GPUs and on x86.
const (
	NaN16 = 0x7fff
	NaN32 = 0x7fffffff
	NaN64 = 0xfff8000000000000
)

// tf32Unused is the number of low bits that tf32 does not use of a float32.
const tf32Unused = 13

// Types of up to 8 bits (Micikevicius et al., "FP8 Formats for Deep Learning", 2022; OCP,
// "Microscaling Formats", 2023).
var (
	E5M2 = narrow(8, 3, -14, 57344, func(b uint64) float64 { return dtype.Float8E5M2(b).Float64() })
	E4M3 = narrow(8, 4, -6, 448, func(b uint64) float64 { return dtype.Float8E4M3(b).Float64() })
	E3M2 = narrow(6, 3, -2, 28, decodeSmall(3, 2))
	E2M3 = narrow(6, 4, 0, 7.5, decodeSmall(2, 3))
	E2M1 = narrow(4, 2, 0, 6, decodeSmall(2, 1))
)

var (
	F64 = &Format{64, 53, -1022, math.MaxFloat64, math.Float64frombits, math.Float64bits}
	F32 = &Format{32, 24, -126, math.MaxFloat32,
		func(b uint64) float64 { return float64(math.Float32frombits(uint32(b))) },
		func(v float64) uint64 {
			if v != v {
				return NaN32
			}
			return uint64(math.Float32bits(float32(v)))
		}}
	TF32 = &Format{32, 11, -126, 0x1.ffcp127,
		func(b uint64) float64 { return F32.Decode(b >> tf32Unused << tf32Unused) },
		func(v float64) uint64 { return F32.Encode(v) >> tf32Unused << tf32Unused }}
	F16 = &Format{16, 11, -14, 65504,
		func(b uint64) float64 { return dtype.Float16(b).Float64() },
		func(v float64) uint64 {
			if v != v {
				return NaN16
			}
			return uint64(dtype.Float16From64(v))
		}}
	BF16 = &Format{16, 8, -126, 0x1.fep127,
		func(b uint64) float64 { return dtype.BFloat16(b).Float64() },
		func(v float64) uint64 {
			if v != v {
				return NaN16
			}
			return uint64(dtype.BFloat16From64(v))
		}}
	// UE8M0 is the type of scales that are powers of 2, and UE4M3 is E4M3 without a sign.
	UE8M0 = &Format{8, 1, -127, 0x1p127, decodeUE8M0, encodeUE8M0}
	UE4M3 = &Format{8, 4, -6, 448, func(b uint64) float64 { return math.Abs(dtype.Float8E4M3(b).Float64()) }, nil}
)

// formats lists the types that Of returns.
var formats = map[ptx.Type]*Format{
	ptx.F64: F64, ptx.F32: F32, ptx.TF32: TF32, ptx.F16: F16, ptx.BF16: BF16, ptx.E5M2: E5M2, ptx.E4M3: E4M3,
	ptx.E3M2: E3M2, ptx.E2M3: E2M3, ptx.E2M1: E2M1, ptx.UE8M0: UE8M0, ptx.UE4M3: UE4M3,
}

// Of returns the format of a floating-point type, or nil for other types.
func Of(t ptx.Type) *Format { return formats[t] }

// narrow returns a type of up to 8 bits.
func narrow(bits, precision, minExp int, most float64, decode func(bits uint64) float64) *Format {
	f := &Format{bits, precision, minExp, most, decode, nil}
	f.Encode = f.encodeNarrow
	return f
}

// encodeNarrow returns the bits of v, a finite number or NaN. The result for NaN is the positive
// NaN of 8-bit types, and the maximum of others.
func (f *Format) encodeNarrow(v float64) uint64 {
	sign := uint64(1) << (f.Bits - 1)
	if v != v {
		return sign - 1
	}
	a := math.Abs(v)
	exp := max(math.Ilogb(a), f.MinExp)
	b := uint64(exp-f.MinExp)<<(f.Precision-1) + uint64(math.Ldexp(a, f.Precision-1-exp))
	if math.Signbit(v) {
		b |= sign
	}
	return b
}

// decodeSmall returns a function that decodes floats with a sign, exponent bits and fraction bits,
// without infinities and NaNs.
func decodeSmall(exponent, fraction int) func(bits uint64) float64 {
	bias := 1<<(exponent-1) - 1
	return func(b uint64) float64 {
		e, f := int(b>>fraction)&(1<<exponent-1), float64(b&(1<<fraction-1))
		v := math.Ldexp(f, 1-bias-fraction)
		if e > 0 {
			v = math.Ldexp(1+math.Ldexp(f, -fraction), e-bias)
		}
		if b>>(exponent+fraction)&1 != 0 {
			return -v
		}
		return v
	}
}

func decodeUE8M0(b uint64) float64 {
	exp := int(uint8(b))
	if exp == 0xff {
		return math.NaN()
	}
	return math.Ldexp(1, exp-127)
}

// encodeUE8M0 returns the bits of the power of 2 v, or of the smallest scale if v is 0. The result
// for infinities is NaN.
func encodeUE8M0(v float64) uint64 {
	if v-v != 0 {
		return 0xff
	}
	return uint64(math.Ilogb(max(v, 0x1p-127)) + 127)
}
