package build

import "tilework/ptx"

// To is a in another type: a whole number keeps its low bits, floating point is
// rounded to nearest, and towards zero where it becomes a whole number, as in C.
func (k *Kernel) To(t ptx.Type, a Value) Reg {
	x := k.reg(a)
	if !x.ok() {
		return x
	}
	from := x.v.typ
	switch {
	case t == from:
		return k.same(x)
	case x.v.constant:
		return k.constantTo(t, x)
	case t == ptx.Pred || from == ptx.Pred:
		return k.fail("To between .%v and .%v: compare, or Select", from, t)
	case whole(t) && whole(from) && t.Bits() == from.Bits():
		return k.alias(t, x)
	case whole(t) && whole(from):
		return k.pureOp(t, "cvt."+integer(t)+"."+integer(from), t, x)
	case t == ptx.BF16:
		return k.toBF16(k.To(ptx.F32, x))
	case from == ptx.BF16:
		return k.To(t, k.fromBF16(x))
	}
	rnd := ""
	switch {
	case whole(t):
		rnd = ".rzi"
	case whole(from), t.Bits() < from.Bits():
		rnd = ".rn"
	}
	return k.result(t, "cvt"+rnd+"."+integer(t)+"."+integer(from), x.v.node)
}

func (k *Kernel) constantTo(t ptx.Type, x Reg) Reg {
	switch {
	case !fits(x, t):
		return k.fail("the constant %s is no value of type .%v", x, t)
	case t.Class() == ptx.Float:
		return constFloat(x.number())
	}
	return x
}

// integer is the name of a type for cvt, which takes no untyped bits.
func integer(t ptx.Type) string { return arithmetic(t).String() }

// alias is the same register under another type of its width: whole numbers and
// untyped bits agree with each other in every instruction.
func (k *Kernel) alias(t ptx.Type, x Reg) Reg {
	v := *k.same(x).v
	v.typ = t
	return Reg{&v}
}

// Bits is a's bits as a value of another type of its width.
func (k *Kernel) Bits(t ptx.Type, a Value) Reg {
	x := k.reg(a)
	switch {
	case !x.ok():
		return x
	case x.v.constant || x.v.typ == ptx.Pred || t == ptx.Pred || x.v.typ.Bits() != t.Bits():
		return k.fail("Bits of %s as .%v: want a register of %d bits", x, t, t.Bits())
	case x.v.typ == t:
		return k.same(x)
	case whole(t) && whole(x.v.typ):
		return k.alias(t, x)
	}
	return k.result(t, "mov."+bitsOf(t).String(), x.v.node)
}

// Pack is two F32 values rounded to nearest in type t, F16 or BF16, side by side in a
// register, lo in its lower half (sm_80).
func (k *Kernel) Pack(t ptx.Type, lo, hi Value) Reg {
	d := k.Fresh(ptx.B32)
	k.Do("cvt.rn."+t.String()+"x2.f32", d, hi, lo)
	return d
}

// fromBF16 widens: a bfloat16 is the upper half of a float32. The instruction for
// it came with sm_80, two shifts do everywhere.
func (k *Kernel) fromBF16(x Reg) Reg {
	u := k.result(ptx.U32, "cvt.u32.u16", x.v.node)
	return k.Bits(ptx.F32, k.Shl(u, 16))
}

// toBF16 rounds to nearest, ties to even: half a step less one, and one more where
// the last bit that stays is odd. A NaN becomes the quiet one.
func (k *Kernel) toBF16(x Reg) Reg {
	u := k.Bits(ptx.U32, x)
	odd := k.And(k.Shr(u, 16), 1)
	u = k.Shr(k.Add(k.Add(u, 0x7fff), odd), 16)
	u = k.Select(k.Ne(x, x), 0x7fff, u)
	return k.Bits(ptx.BF16, k.To(ptx.U16, u))
}
