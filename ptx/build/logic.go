package build

import (
	"cmp"

	"tilework/ptx"
)

// Shl returns a shifted left by n bits.
func (k *Kernel) Shl(a, n Value) Reg { return k.shift("Shl", "shl", a, n) }

// Shr returns a shifted right by n bits, arithmetically for signed types and logically for
// others.
func (k *Kernel) Shr(a, n Value) Reg { return k.shift("Shr", "shr", a, n) }

func (k *Kernel) shift(method, op string, a, n Value) Reg {
	x, y := k.reg(a), k.reg(n)
	switch {
	case !x.ok() || !y.ok():
		return Reg{bad}
	case y.v.typ == ptx.Pred || y.v.float:
		return k.fail("%s by %s: want an integer", method, y)
	case y.v.constant && y.number() < 0:
		return k.fail("%s by %s: want at least 0", method, y)
	case x.v.constant && y.v.constant && op == "shl":
		return k.foldInts(method, x, y, func(a, n int64) int64 { return a << n })
	case x.v.constant && y.v.constant:
		return k.foldInts(method, x, y, func(a, n int64) int64 { return a >> n })
	case x.v.constant:
		return k.fail("%s of a constant by a register: give the constant a type with Var", method)
	case !isInteger(x.v.typ):
		return k.fail("%s of a value of type .%v: want an integer", method, x.v.typ)
	case y.isInt(0):
		return k.same(x)
	}
	t := x.v.typ
	if op == "shl" {
		return k.pureOp(t, op+"."+bitsOf(t).String(), t, x, y)
	}
	return k.pureOp(t, op+"."+t.String(), t, x, y)
}

// And returns a ∧ b: bitwise for integers, logical for predicates.
func (k *Kernel) And(a, b Value) Reg {
	x, y, t := k.bitPair("And", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.Pred && (x.isBool(true) || y.isBool(false)):
		return k.same(y)
	case t == ptx.Pred && (y.isBool(true) || x.isBool(false)):
		return k.same(x)
	case t == ptx.NoType:
		return k.foldInts("And", x, y, func(a, b int64) int64 { return a & b })
	}
	return k.bitwise("And", "and", t, x, y)
}

// Or returns a ∨ b: bitwise for integers, logical for predicates.
func (k *Kernel) Or(a, b Value) Reg {
	x, y, t := k.bitPair("Or", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.Pred && (x.isBool(false) || y.isBool(true)):
		return k.same(y)
	case t == ptx.Pred && (y.isBool(false) || x.isBool(true)):
		return k.same(x)
	case t == ptx.NoType:
		return k.foldInts("Or", x, y, func(a, b int64) int64 { return a | b })
	}
	return k.bitwise("Or", "or", t, x, y)
}

// Xor returns the bitwise a ⊕ b of integers.
func (k *Kernel) Xor(a, b Value) Reg {
	x, y, t := k.bitPair("Xor", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return k.foldInts("Xor", x, y, func(a, b int64) int64 { return a ^ b })
	}
	return k.bitwise("Xor", "xor", t, x, y)
}

// Not returns ¬a: bitwise for an integer, logical for a predicate.
func (k *Kernel) Not(a Value) Reg {
	x := k.reg(a)
	switch {
	case !x.ok():
		return x
	case x.v.constant && x.v.typ == ptx.Pred:
		return constBool(x.v.i == 0)
	case x.v.float:
		return k.fail("Not of %s: want an integer or a predicate", x)
	case x.v.constant:
		return constInt(^x.v.i)
	}
	return k.bitwise("Not", "not", x.v.typ, x)
}

// bitwise emits a bitwise operation on integers, or a logical one on predicates.
func (k *Kernel) bitwise(method, op string, t ptx.Type, args ...Reg) Reg {
	if t.Class() == ptx.Float {
		return k.fail("%s of a value of type .%v: want an integer, convert it with Bits", method, t)
	}
	in := t
	if t != ptx.Pred {
		in = bitsOf(t)
	}
	return k.pureOp(t, op+"."+in.String(), t, args...)
}

// foldInts evaluates an operation on integer constants. It fails if they are of other types.
func (k *Kernel) foldInts(method string, x, y Reg, f func(a, b int64) int64) Reg {
	a, ok := x.Int()
	b, both := y.Int()
	if !ok || !both {
		return k.fail("%s of %s and %s: want integers", method, x, y)
	}
	return constInt(f(a, b))
}

// comparison is a comparison operator. fold evaluates it for constants.
type comparison struct {
	method, op string
	fold       func(a, b float64) bool
}

var (
	lt = comparison{"Lt", "lt", func(a, b float64) bool { return a < b }}
	le = comparison{"Le", "le", func(a, b float64) bool { return a <= b }}
	gt = comparison{"Gt", "gt", func(a, b float64) bool { return a > b }}
	ge = comparison{"Ge", "ge", func(a, b float64) bool { return a >= b }}
	eq = comparison{"Eq", "eq", func(a, b float64) bool { return a == b }}
	ne = comparison{"Ne", "ne", func(a, b float64) bool { return a != b }}
)

// Lt returns the predicate a < b, which is false if a or b is NaN, as in Go.
func (k *Kernel) Lt(a, b Value) Reg { return k.compare(lt, a, b) }

// Le returns the predicate a ≤ b, which is false if a or b is NaN.
func (k *Kernel) Le(a, b Value) Reg { return k.compare(le, a, b) }

// Gt returns the predicate a > b, which is false if a or b is NaN.
func (k *Kernel) Gt(a, b Value) Reg { return k.compare(gt, a, b) }

// Ge returns the predicate a ≥ b, which is false if a or b is NaN.
func (k *Kernel) Ge(a, b Value) Reg { return k.compare(ge, a, b) }

// Eq returns the predicate a = b, which is false if a or b is NaN.
func (k *Kernel) Eq(a, b Value) Reg { return k.compare(eq, a, b) }

// Ne returns the predicate a ≠ b, which is true if a or b is NaN.
func (k *Kernel) Ne(a, b Value) Reg { return k.compare(ne, a, b) }

func (k *Kernel) compare(c comparison, a, b Value) Reg {
	x, y, t := k.pair(c.method, a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType && !x.v.float && !y.v.float: // a float64 cannot represent all integers
		return constBool(c.fold(float64(cmp.Compare(x.v.i, y.v.i)), 0))
	case t == ptx.NoType:
		return constBool(c.fold(x.number(), y.number()))
	case t == ptx.Pred:
		return k.fail("%s of predicates: want numbers", c.method)
	}
	op := c.op
	if c.op == "ne" && t.Class() == ptx.Float {
		op = "neu"
	}
	return k.pureOp(ptx.Pred, "setp."+op+"."+t.String(), t, x, y)
}

// Select returns a where the predicate p is true, and otherwise b.
func (k *Kernel) Select(p, a, b Value) Reg {
	c := k.reg(p)
	x, y, t := k.pair("Select", a, b)
	switch {
	case !c.ok() || !x.ok():
		return Reg{bad}
	case c.v.typ != ptx.Pred:
		return k.fail("Select: the condition is %s, want a predicate", c)
	case c.isBool(true):
		return k.same(x)
	case c.isBool(false):
		return k.same(y)
	case t == ptx.NoType || t == ptx.Pred:
		return k.fail("Select between constants or predicates: want at least one register of a numeric type")
	}
	return k.result(t, "selp."+moveType(t).String(), k.operand(x, t), k.operand(y, t), c.v.node)
}

// Min returns the smaller of a and b. If one of them is NaN, it returns the other.
func (k *Kernel) Min(a, b Value) Reg {
	x, y, t := k.pair("Min", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return fold(x, y, func(a, b int64) int64 { return min(a, b) }, func(a, b float64) float64 { return min(a, b) })
	}
	return k.compute(t, "min", x, y)
}

// Max returns the larger of a and b. If one of them is NaN, it returns the other.
func (k *Kernel) Max(a, b Value) Reg {
	x, y, t := k.pair("Max", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return fold(x, y, func(a, b int64) int64 { return max(a, b) }, func(a, b float64) float64 { return max(a, b) })
	}
	return k.compute(t, "max", x, y)
}

// Neg returns -a.
func (k *Kernel) Neg(a Value) Reg { return k.unary("Neg", "neg", a) }

// Abs returns |a|.
func (k *Kernel) Abs(a Value) Reg { return k.unary("Abs", "abs", a) }

// Exp2 returns 2 to the power of a, of type F32, within 2 units in the last place. Results below
// the normal range are flushed to 0.
func (k *Kernel) Exp2(a Value) Reg { return k.unary("Exp2", "ex2.approx.ftz", a) }

// Reciprocal returns 1 / a, of type F32, within one unit in the last place. Subnormal operands
// and results are flushed to 0. Unlike [Kernel.Div] it is a single instruction without branches.
func (k *Kernel) Reciprocal(a Value) Reg { return k.unary("Reciprocal", "rcp.approx.ftz", a) }

// unary emits an operation on one register.
func (k *Kernel) unary(method, op string, a Value) Reg {
	x := k.reg(a)
	switch {
	case !x.ok():
		return x
	case x.v.constant:
		return k.fail("%s of a constant: want a register", method)
	}
	return k.compute(x.v.typ, op, x)
}
