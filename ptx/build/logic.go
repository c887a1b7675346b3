package build

import "tilework/ptx"

// Shl is a shifted left by n bits.
func (k *Kernel) Shl(a, n Value) Reg { return k.shift("Shl", "shl", a, n) }

// Shr is a shifted right by n bits: by its sign where it is signed, else by zeros.
func (k *Kernel) Shr(a, n Value) Reg { return k.shift("Shr", "shr", a, n) }

func (k *Kernel) shift(what, op string, a, n Value) Reg {
	x, y := k.reg(a), k.reg(n)
	switch {
	case !x.ok() || !y.ok():
		return Reg{bad}
	case x.v.constant && y.v.constant && op == "shl":
		return constInt(x.v.i << uint(y.v.i))
	case x.v.constant && y.v.constant:
		return constInt(x.v.i >> uint(y.v.i))
	case x.v.constant:
		return k.fail("%s of a constant: give it a type with Var", what)
	case !whole(x.v.typ):
		return k.fail("%s of a value of type .%v", what, x.v.typ)
	case y.isInt(0):
		return k.same(x)
	}
	t := x.v.typ
	if op == "shl" {
		return k.pureOp(t, op+"."+bitsOf(t).String(), t, x, y)
	}
	return k.pureOp(t, op+"."+t.String(), t, x, y)
}

// And is a ∧ b, of whole numbers bit by bit, or of predicates.
func (k *Kernel) And(a, b Value) Reg {
	x, y, t := k.pair("And", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.Pred && (x.isBool(true) || y.isBool(false)):
		return k.same(y)
	case t == ptx.Pred && (y.isBool(true) || x.isBool(false)):
		return k.same(x)
	case t == ptx.NoType:
		return constInt(x.v.i & y.v.i)
	}
	return k.bitwise("And", "and", t, x, y)
}

// Or is a ∨ b, of whole numbers bit by bit, or of predicates.
func (k *Kernel) Or(a, b Value) Reg {
	x, y, t := k.pair("Or", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.Pred && (x.isBool(false) || y.isBool(true)):
		return k.same(y)
	case t == ptx.Pred && (y.isBool(false) || x.isBool(true)):
		return k.same(x)
	case t == ptx.NoType:
		return constInt(x.v.i | y.v.i)
	}
	return k.bitwise("Or", "or", t, x, y)
}

// Xor is a ⊕ b, of whole numbers bit by bit.
func (k *Kernel) Xor(a, b Value) Reg {
	x, y, t := k.pair("Xor", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return constInt(x.v.i ^ y.v.i)
	}
	return k.bitwise("Xor", "xor", t, x, y)
}

// Not is ¬a, of a whole number bit by bit, or of a predicate.
func (k *Kernel) Not(a Value) Reg {
	x := k.reg(a)
	switch {
	case !x.ok():
		return x
	case x.v.constant && x.v.typ == ptx.Pred:
		return constBool(x.v.i == 0)
	case x.v.constant:
		return constInt(^x.v.i)
	}
	return k.bitwise("Not", "not", x.v.typ, x)
}

func (k *Kernel) bitwise(what, op string, t ptx.Type, args ...Reg) Reg {
	if t.Class() == ptx.Float {
		return k.fail("%s of a value of type .%v: take its Bits", what, t)
	}
	in := t
	if t != ptx.Pred {
		in = bitsOf(t)
	}
	return k.pureOp(t, op+"."+in.String(), t, args...)
}

// comparison is a way to compare, with what it gives for constants.
type comparison struct {
	what, op string
	fold     func(a, b float64) bool
}

var (
	lt = comparison{"Lt", "lt", func(a, b float64) bool { return a < b }}
	le = comparison{"Le", "le", func(a, b float64) bool { return a <= b }}
	gt = comparison{"Gt", "gt", func(a, b float64) bool { return a > b }}
	ge = comparison{"Ge", "ge", func(a, b float64) bool { return a >= b }}
	eq = comparison{"Eq", "eq", func(a, b float64) bool { return a == b }}
	ne = comparison{"Ne", "ne", func(a, b float64) bool { return a != b }}
)

// Lt is the predicate a < b; false if one of them is NaN, as in Go.
func (k *Kernel) Lt(a, b Value) Reg { return k.compare(lt, a, b) }

// Le is the predicate a ≤ b; false if one of them is NaN.
func (k *Kernel) Le(a, b Value) Reg { return k.compare(le, a, b) }

// Gt is the predicate a > b; false if one of them is NaN.
func (k *Kernel) Gt(a, b Value) Reg { return k.compare(gt, a, b) }

// Ge is the predicate a ≥ b; false if one of them is NaN.
func (k *Kernel) Ge(a, b Value) Reg { return k.compare(ge, a, b) }

// Eq is the predicate a = b; false if one of them is NaN.
func (k *Kernel) Eq(a, b Value) Reg { return k.compare(eq, a, b) }

// Ne is the predicate a ≠ b; true if one of them is NaN.
func (k *Kernel) Ne(a, b Value) Reg { return k.compare(ne, a, b) }

func (k *Kernel) compare(c comparison, a, b Value) Reg {
	x, y, t := k.pair(c.what, a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return constBool(c.fold(x.number(), y.number()))
	case t == ptx.Pred:
		return k.fail("%s of predicates", c.what)
	}
	op := c.op
	if c.op == "ne" && t.Class() == ptx.Float {
		op = "neu"
	}
	return k.pureOp(ptx.Pred, "setp."+op+"."+t.String(), t, x, y)
}

// Select is a where the predicate p holds and b elsewhere.
func (k *Kernel) Select(p, a, b Value) Reg {
	c := k.reg(p)
	x, y, t := k.pair("Select", a, b)
	switch {
	case !c.ok() || !x.ok():
		return Reg{bad}
	case c.v.typ != ptx.Pred:
		return k.fail("Select by %s, which is no predicate", c)
	case c.isBool(true):
		return k.same(x)
	case c.isBool(false):
		return k.same(y)
	case t == ptx.NoType || t == ptx.Pred:
		return k.fail("Select among constants or predicates")
	}
	return k.result(t, "selp."+moveType(t).String(), k.operand(x, t), k.operand(y, t), c.v.node)
}

// Min is the smaller of a and b; of floating point the one that is no NaN.
func (k *Kernel) Min(a, b Value) Reg {
	x, y, t := k.pair("Min", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return fold(x, y, func(a, b int64) int64 { return min(a, b) }, func(a, b float64) float64 { return min(a, b) })
	}
	return k.compute(arithmetic(t), "min", x, y)
}

// Max is the larger of a and b; of floating point the one that is no NaN.
func (k *Kernel) Max(a, b Value) Reg {
	x, y, t := k.pair("Max", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return fold(x, y, func(a, b int64) int64 { return max(a, b) }, func(a, b float64) float64 { return max(a, b) })
	}
	return k.compute(arithmetic(t), "max", x, y)
}

// Neg is -a.
func (k *Kernel) Neg(a Value) Reg { return k.unary("Neg", "neg", a) }

// Abs is |a|.
func (k *Kernel) Abs(a Value) Reg { return k.unary("Abs", "abs", a) }

// Exp2 is 2 to the a, of type F32, within 2 units in the last place, and 0 where that is
// below the normal range.
func (k *Kernel) Exp2(a Value) Reg { return k.unary("Exp2", "ex2.approx.ftz", a) }

// Reciprocal is 1 / a, of type F32, within a unit in the last place; a quotient below the
// normal range is 0, and so is that of such an a infinite. Unlike [Kernel.Div] it is one
// instruction, which branches nowhere.
func (k *Kernel) Reciprocal(a Value) Reg { return k.unary("Reciprocal", "rcp.approx.ftz", a) }

// unary emits an operation on one register.
func (k *Kernel) unary(what, op string, a Value) Reg {
	x := k.reg(a)
	switch {
	case !x.ok():
		return x
	case x.v.constant:
		return k.fail("%s of a constant", what)
	}
	return k.compute(x.v.typ, op, x)
}
