package kernel

import (
	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// planeParts are the parts that a float32 is the sum of, and planeUnit what the elements of
// a row of one part are a multiple of, behind the operand's zeros: what a box has.
const SplitTerms, SplitRowUnit = 3, 64

// planesOf is the layout of the parts of a matrix of float32, which stand side by side in
// its rows.
func SplitLayout(l gemm.Layout) gemm.Layout {
	l.Type, l.Cols = dtype.BF16, SplitTerms*max(RoundUp(l.Cols, SplitRowUnit), SplitRowUnit)
	l.LD = l.Cols
	return l
}

// planes takes float32 apart into three bfloat16 whose sum each is, exactly: the nearest
// one, the nearest to planeScale times the rest, and that of its rest. Neighbouring threads
// have neighbours.
var SplitF32 = &Kernel{
	Name:         "planes",
	Adds:         "the parts of float32: the nearest bfloat16, that of the rest, and that of its rest",
	SM:           80,
	CheckTile:    func(Tile) error { return nil },
	BlockThreads: func(Tile) device.Dim3 { return device.Dim3{X: PackThreads, Y: 1, Z: 1} },
	Write:        writeSplitF32,
}

func writeSplitF32(k *build.Kernel, c Config) {
	from, to, sizes := declarePackParams(k, splitF32Params, &c)
	rows, cols, part := sizes[0], sizes[1], sizes[3] // part is the length of a row's terms of one kind
	source := k.Matrix(from, rows, cols, sizes[2])
	target := k.Matrix(to, rows, part, k.Mul(part, SplitTerms))

	k.Threads(PackThreads, 1, 1)
	tid := k.ThreadIdx(build.X)
	const passes = PackSide * PackSide / PackThreads
	col := k.Mad(k.To(ptx.U64, k.BlockIdx(build.X)), PackSide, k.To(ptx.U64, k.Rem(tid, PackSide)))
	row0 := k.Var("row0", ptx.U64, k.Mad(k.To(ptx.U64, k.BlockIdx(build.Y)), PackSide, k.To(ptx.U64, k.Div(tid, PackSide))))
	k.While(func() build.Reg { return k.Lt(row0, rows) }, func() {
		var values [passes]build.Reg
		row := func(n int) build.Reg { return k.Add(row0, n*PackThreads/PackSide) }
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
		k.Set(row0, k.Add(row0, k.Mul(k.To(ptx.U64, k.GridDim(build.Y)), PackSide)))
	})
}

// partsOfFloat are the parts of a float32, as bits.
//
// What is not finite is in the last part, which is multiplied by first parts alone, and 1 of
// its sign in the first: whatever the other factor is, that gives what the product of the
// two gives, and no infinity meets the zero or the opposite sign of a rest. For that a first
// part must not be zero either unless the number is.
func splitTerms(k *build.Kernel, x build.Reg) (parts [SplitTerms]build.Reg) {
	const sign, one, infinite = 1 << 31, 0x3f800000, 0x7f800000
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

// nearestBF16 is the nearest bfloat16 to x, in the lower half of a word.
func nearestBF16(k *build.Kernel, x build.Reg) build.Reg {
	return k.Bits(ptx.U32, k.Pack(ptx.BF16, x, k.Var("", ptx.F32, 0)))
}

// within is x, or the nearest number to it that no bfloat16 is smaller or larger than, so
// that it rounds neither to zero nor to an infinity.
func clampToBF16(k *build.Kernel, x build.Reg) build.Reg {
	const sign, least, most = 1 << 31, 0x00010000, 0x7f7f0000
	bits := k.Bits(ptx.U32, x)
	magnitude := k.And(bits, sign-1)
	inside := k.Select(k.Eq(magnitude, 0), magnitude, k.Max(k.Min(magnitude, most), least))
	return k.Bits(ptx.F32, k.Or(k.And(bits, sign), inside))
}

// planeScale is how much larger a float32's second part is kept than it is, and the third
// one than the second. A bfloat16 has 8 bits: the rest that it leaves of a number is 2⁸
// times smaller, and would be lost below 2⁻¹³³.
const SplitTermScale = 1 << 8
