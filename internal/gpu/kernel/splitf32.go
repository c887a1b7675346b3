package kernel

import (
	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// SplitTerms is the number of bfloat16 terms that a float32 is split into (bf16x3). SplitRowUnit is
// the unit, in elements, of a row of one term, which is padded with zeros: the width of a TMA box.
const SplitTerms, SplitRowUnit = 3, 64

// SplitLayout returns the layout of the terms of a float32 matrix. The terms of a row are adjacent:
// all first terms, then all second, then all third.
func SplitLayout(l gemm.Layout) gemm.Layout {
	l.Type, l.Cols = dtype.BF16, SplitTerms*SplitRowUnit*Tiles(l.Cols, SplitRowUnit)
	l.LD = l.Cols
	return l
}

// SplitF32 splits a float32 into three bfloat16 that represent it exactly. The first is the nearest
// bfloat16. The second is the nearest bfloat16 to [SplitTermScale] times the remainder, and the
// third that of the second remainder. Adjacent threads process adjacent elements.
var SplitF32 = &Kernel{
	Name:         "planes",
	Adds:         "the parts of float32: the nearest bfloat16, that of the rest, and that of its rest",
	SM:           80,
	BlockThreads: func(Tile) device.Dim3 { return device.Dim3{X: PackThreads, Y: 1, Z: 1} },
	Write:        writeSplitF32,
}

func writeSplitF32(k *build.Kernel, c Config) {
	d := &Declarer[PackArgs]{k, &c, splitF32Params}
	b, size := declarePackOrigins(d), declarePackSize(d, "", "part")
	rows, part := size.rows, size.to // part is the length of a row's terms of one kind
	source := k.Matrix(b.from, rows, size.cols, size.ldFrom)
	target := k.Matrix(b.to, rows, part, k.Mul(part, SplitTerms))

	k.Threads(PackThreads, 1, 1)
	tid := k.ThreadIdx(build.X)
	b.place(k, part, c.Tile)
	const passes = PackSide * PackSide / PackThreads
	col := k.Add(b.col0, k.To(ptx.U64, k.Rem(tid, PackSide)))
	first := k.Add(b.row0, k.To(ptx.U64, k.Div(tid, PackSide)))
	var values [passes]build.Reg
	row := func(n int) build.Reg { return k.Add(first, n*PackThreads/PackSide) }
	for n := range values {
		values[n] = source.LoadOr0(row(n), col)
	}
	for n, x := range values {
		parts := splitTerms(k, x)
		k.If(k.Lt(row(n), rows), func() {
			for i, p := range parts {
				target.At(row(n), k.Add(col, k.Mul(part, i))).Store(p)
			}
		})
	}
}

// splitTerms returns the terms of a float32, as bits. The third term of an infinity or NaN is x
// itself, and the first is ±1. A third term is only multiplied by first terms, so the product is
// the same as that of the original numbers. An infinity never meets a remainder, which could be
// zero or have the opposite sign. This requires the first term of a nonzero number to be nonzero.
func splitTerms(k *build.Kernel, x build.Reg) (parts [SplitTerms]build.Reg) {
	const sign, one, infinite = uint32(1 << 31), 0x3f800000, 0x7f800000
	bits := k.Bits(ptx.U32, x)
	special := k.Ge(k.And(bits, sign-1), infinite)
	rest := k.Select(special, k.Bits(ptx.F32, k.Or(k.And(bits, sign), one)), x)
	last := SplitTerms - 1
	for i := range last {
		word := nearestBF16(k, clampToBF16(k, rest))
		parts[i] = k.To(ptx.U16, word)
		rest = k.Mul(k.Sub(rest, k.Bits(ptx.F32, k.Shl(word, 16))), SplitTermScale)
	}
	parts[last] = k.To(ptx.U16, nearestBF16(k, k.Select(special, x, rest)))
	return parts
}

// nearestBF16 returns the nearest bfloat16 to x, in the lower half of a word.
func nearestBF16(k *build.Kernel, x build.Reg) build.Reg {
	return k.Bits(ptx.U32, k.Pack(ptx.BF16, x, k.Var("", ptx.F32, 0)))
}

// clampToBF16 clamps the magnitude of a nonzero x to a range in which it rounds neither to zero nor
// to infinity in bfloat16.
func clampToBF16(k *build.Kernel, x build.Reg) build.Reg {
	const sign, least, most = uint32(1 << 31), 0x00010000, 0x7f7f0000
	bits := k.Bits(ptx.U32, x)
	magnitude := k.And(bits, sign-1)
	inside := k.Select(k.Eq(magnitude, 0), magnitude, k.Max(k.Min(magnitude, most), least))
	return k.Bits(ptx.F32, k.Or(k.And(bits, sign), inside))
}

// SplitTermScale is the factor by which the second term is scaled up, and the third again. A
// bfloat16 has 8 significant bits, so each remainder is 2⁸ times smaller. Unscaled, it would be
// lost below 2⁻¹³³.
const SplitTermScale = 1 << 8
