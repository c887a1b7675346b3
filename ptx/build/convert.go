package build

import "tilework/ptx"

// To converts a to type t, as C does: integers keep their low bits, floating-point numbers are
// rounded to nearest, and conversions to integers truncate.
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
		return k.fail("To from .%v to .%v is not supported for predicates: use a comparison or Select", from, t)
	case isInteger(t) && isInteger(from) && t.Bits() == from.Bits():
		return k.alias(t, x)
	case isInteger(t) && isInteger(from):
		return k.pureOp(t, "cvt."+integer(t)+"."+integer(from), t, x)
	case t == ptx.BF16:
		return k.toBF16(k.To(ptx.F32, x))
	case from == ptx.BF16:
		return k.To(t, k.fromBF16(x))
	}
	rnd := ""
	switch {
	case isInteger(t):
		rnd = ".rzi"
	case isInteger(from), t.Bits() < from.Bits():
		rnd = ".rn"
	}
	return k.result(t, "cvt"+rnd+"."+integer(t)+"."+integer(from), x.v.node)
}

func (k *Kernel) constantTo(t ptx.Type, x Reg) Reg {
	switch {
	case !fits(x, t):
		return k.fail("constant %s is not a value of type .%v", x, t)
	case t.Class() == ptx.Float:
		return constFloat(x.number())
	}
	return x
}

// integer returns the name of t for cvt, which does not accept untyped bits.
func integer(t ptx.Type) string { return arithmetic(t).String() }

// alias returns the same register with another type of the same width. Instructions accept all
// integer and untyped registers of the right width.
func (k *Kernel) alias(t ptx.Type, x Reg) Reg {
	v := *k.same(x).v
	v.typ = t
	return Reg{&v}
}

// Bits reinterprets the bits of a as type t, which must have the same width.
func (k *Kernel) Bits(t ptx.Type, a Value) Reg {
	x := k.reg(a)
	switch {
	case !x.ok():
		return x
	case x.v.constant || x.v.typ == ptx.Pred || t == ptx.Pred || x.v.typ.Bits() != t.Bits():
		return k.fail("Bits of %s as .%v: want a register of %d bits", x, t, t.Bits())
	case x.v.typ == t:
		return k.same(x)
	case isInteger(t) && isInteger(x.v.typ):
		return k.alias(t, x)
	}
	return k.result(t, "mov."+bitsOf(t).String(), x.v.node)
}

// Pack rounds two F32 values to nearest in type t, F16 or BF16, and packs them into one register
// with lo in the low half (sm_80).
func (k *Kernel) Pack(t ptx.Type, lo, hi Value) Reg {
	d := k.Fresh(ptx.B32)
	k.Do("cvt.rn."+t.String()+"x2.f32", d, hi, lo)
	return d
}

// fromBF16 converts BF16 to F32 by shifting its bits into the high half. This works on all
// targets; the conversion instruction requires sm_80.
func (k *Kernel) fromBF16(x Reg) Reg {
	u := k.result(ptx.U32, "cvt.u32.u16", x.v.node)
	return k.Bits(ptx.F32, k.Shl(u, 16))
}

// toBF16 rounds F32 to BF16, to nearest with ties to even: it adds just under half a unit in the
// last place, plus one if the last remaining bit is odd. A NaN becomes the canonical NaN.
func (k *Kernel) toBF16(x Reg) Reg {
	u := k.Bits(ptx.U32, x)
	odd := k.And(k.Shr(u, 16), 1)
	u = k.Shr(k.Add(k.Add(u, 0x7fff), odd), 16)
	u = k.Select(k.Ne(x, x), 0x7fff, u)
	return k.Bits(ptx.BF16, k.To(ptx.U16, u))
}
