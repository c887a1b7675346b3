package emu

import (
	"math/bits"

	"tilework/ptx"
)

func execAnd[T unsigned](w *warp, in *inst) {
	map2(dst[T](w, in), reg[T](w, in.a), reg[T](w, in.b), func(a, b T) T { return a & b })
}

func execOr[T unsigned](w *warp, in *inst) {
	map2(dst[T](w, in), reg[T](w, in.a), reg[T](w, in.b), func(a, b T) T { return a | b })
}

func execXor[T unsigned](w *warp, in *inst) {
	map2(dst[T](w, in), reg[T](w, in.a), reg[T](w, in.b), func(a, b T) T { return a ^ b })
}

// predOp returns the execFunc of an operation on two predicates.
func predOp(f func(a, b uint32) uint32) execFunc {
	return func(w *warp, in *inst) { setPred(w, in.d, f(*pred(w, in.a), *pred(w, in.b))) }
}

var (
	andBits = typed{ptx.U16: execAnd[uint16], ptx.U32: execAnd[uint32], ptx.U64: execAnd[uint64],
		ptx.Pred: predOp(func(a, b uint32) uint32 { return a & b })}
	orBits = typed{ptx.U16: execOr[uint16], ptx.U32: execOr[uint32], ptx.U64: execOr[uint64],
		ptx.Pred: predOp(func(a, b uint32) uint32 { return a | b })}
	xorBits = typed{ptx.U16: execXor[uint16], ptx.U32: execXor[uint32], ptx.U64: execXor[uint64],
		ptx.Pred: predOp(func(a, b uint32) uint32 { return a ^ b })}
	notBits = typed{ptx.U16: op1(invert[uint16]), ptx.U32: op1(invert[uint32]), ptx.U64: op1(invert[uint64]),
		ptx.Pred: func(w *warp, in *inst) { setPred(w, in.d, ^*pred(w, in.a)) }}
	cnotBits = typed{ptx.U16: op1(isZero[uint16]), ptx.U32: op1(isZero[uint32]), ptx.U64: op1(isZero[uint64])}
	popcBits = typed{ptx.U32: op1(func(a uint32) uint32 { return uint32(bits.OnesCount32(a)) }),
		ptx.U64: op1(func(a uint64) uint32 { return uint32(bits.OnesCount64(a)) })}
	clzBits = typed{ptx.U32: op1(func(a uint32) uint32 { return uint32(bits.LeadingZeros32(a)) }),
		ptx.U64: op1(func(a uint64) uint32 { return uint32(bits.LeadingZeros64(a)) })}
	brevBits = typed{ptx.U32: op1(bits.Reverse32), ptx.U64: op1(bits.Reverse64)}
	bfeBits  = typed{ptx.U32: op3(field[uint32]), ptx.U64: op3(field[uint64]), ptx.S32: op3(signedField[int32](31)),
		ptx.S64: op3(signedField[int64](63))}
	bfiBits = typed{ptx.U32: op4(insert[uint32]), ptx.U64: op4(insert[uint64])}
)

func invert[T unsigned](a T) T { return ^a }

func isZero[T unsigned](a T) T {
	if a == 0 {
		return 1
	}
	return 0
}

// Shift counts beyond the width shift out all bits.

func execShl[T unsigned](w *warp, in *inst) {
	map2(dst[T](w, in), reg[T](w, in.a), reg[uint32](w, in.b), func(a T, n uint32) T { return a << n })
}

func execShr[T integer](w *warp, in *inst) {
	map2(dst[T](w, in), reg[T](w, in.a), reg[uint32](w, in.b), func(a T, n uint32) T { return a >> n })
}

var (
	shlBits = typed{ptx.U16: execShl[uint16], ptx.U32: execShl[uint32], ptx.U64: execShl[uint64]}
	shrBits = integers(execShr[uint16], execShr[uint32], execShr[uint64], execShr[int16], execShr[int32], execShr[int64])
)

func decodeShf(d *decoder) execFunc {
	d.operands()
	left, clamp := d.i.Mod("dir") == "l", d.i.Mod("mode") == "clamp"
	return op3(func(a, b, c uint32) uint32 {
		n := c & 31
		if clamp {
			n = min(c, 32)
		}
		if pair := uint64(b)<<32 | uint64(a); left {
			return uint32(pair << n >> 32)
		} else {
			return uint32(pair >> n)
		}
	})
}

func decodeLop3(d *decoder) execFunc {
	d.in.d = d.result(0)
	d.in.a, d.in.b, d.in.c = d.source(1), d.source(2), d.source(3)
	table := uint8(d.constInt(4))
	f := op3(func(a, b, c uint32) uint32 { return lookUp(table, a, b, c) })
	op := d.i.Mod("bool")
	if op == "" {
		return f
	}
	nonzero, wanted := d.secondResult(0)
	q := d.source(5)
	return func(w *warp, in *inst) {
		f(w, in)
		y := dst[uint32](w, in)
		p := test(y, y, func(y, _ uint32) bool { return y != 0 })
		if op == "and" {
			p &= *pred(w, q)
		} else {
			p |= *pred(w, q)
		}
		if wanted {
			setPred(w, nonzero, p)
		}
	}
}

// lookUp returns the bitwise function of a, b and c with a truth table.
func lookUp(table uint8, a, b, c uint32) uint32 {
	var y uint32
	for k := range 8 { // each row of the truth table
		if table>>k&1 != 0 {
			y |= (a ^ -(^uint32(k) >> 2 & 1)) & (b ^ -(^uint32(k) >> 1 & 1)) & (c ^ -(^uint32(k) & 1))
		}
	}
	return y
}

// field returns length bits of a starting at bit pos. Both are taken modulo 256.
func field[T uint32 | uint64](a T, pos, length uint32) T {
	return a >> (pos & 0xff) & (T(1)<<(length&0xff) - 1)
}

// signedField returns the bfe function for signed numbers whose highest bit is msb. The result is
// sign-extended from the highest bit of the field, or from msb if the field extends beyond it.
func signedField[T int32 | int64](msb uint32) func(a T, pos, length uint32) T {
	return func(a T, pos, length uint32) T {
		pos, length = pos&0xff, length&0xff
		if length == 0 {
			return 0
		}
		above := msb - min(pos+length-1, msb)
		return a << above >> (above + pos)
	}
}

// insert replaces length bits of b, starting at bit pos, by the low bits of a.
func insert[T uint32 | uint64](a, b T, pos, length uint32) T {
	mask := (T(1)<<(length&0xff) - 1) << (pos & 0xff)
	return a<<(pos&0xff)&mask | b&^mask
}
