package build

import (
	"math/bits"

	"tilework/ptx"
)

// pair returns two operands converted to their common type t, or constants. t is NoType if both
// are constants. Error messages start with the name of the calling method.
func (k *Kernel) pair(method string, a, b Value) (x, y Reg, t ptx.Type) {
	x, y = k.reg(a), k.reg(b)
	if !x.ok() || !y.ok() {
		return Reg{bad}, Reg{bad}, ptx.NoType
	}
	t, ok := k.common(method, x, y)
	if !ok {
		return Reg{bad}, Reg{bad}, ptx.NoType
	}
	return k.widen(x, t), k.widen(y, t), t
}

// bitPair is like pair, for bitwise operations. A constant next to a register of a signed type can
// also be an unsigned number of its width: a mask such as 0x80000000.
func (k *Kernel) bitPair(method string, a, b Value) (x, y Reg, t ptx.Type) {
	x, y = k.reg(a), k.reg(b)
	return k.pair(method, maskOf(x, y.Type()), maskOf(y, x.Type()))
}

// maskOf returns a constant x that is too large for the signed type t as the negative number with
// the same bits, if t has enough bits. It returns any other x unchanged.
func maskOf(x Reg, t ptx.Type) Reg {
	if n, ok := x.Int(); ok && t.Class() == ptx.Signed && !fits(x, t) && fits(x, bitsOf(t)) {
		return constInt(n - 1<<t.Bits())
	}
	return x
}

// common returns the common type of operands: the type of the registers among them, and the
// widest type if all are signed or all unsigned.
func (k *Kernel) common(method string, xs ...Reg) (t ptx.Type, ok bool) {
	for _, x := range xs {
		if !x.ok() {
			return ptx.NoType, false
		}
		switch u := x.v.typ; {
		case u == ptx.NoType || u == t:
		case t == ptx.NoType:
			t = u
		case u.Class() == t.Class() && isInteger(u) && u.Class() != ptx.Bits:
			if u.Bits() > t.Bits() {
				t = u
			}
		default:
			k.fail("%s of .%v and .%v: want the same type, convert one of them with To", method, t, u)
			return ptx.NoType, false
		}
	}
	for _, x := range xs {
		if t != ptx.NoType && x.v.constant && !fits(x, t) {
			k.fail("%s: constant %s is not a value of type .%v", method, x, t)
			return ptx.NoType, false
		}
	}
	return t, true
}

// isInteger reports whether t is an integer type: signed, unsigned or untyped bits.
func isInteger(t ptx.Type) bool {
	return t.Class() == ptx.Unsigned || t.Class() == ptx.Signed || t.Class() == ptx.Bits
}

// fits reports whether a constant is a value of type t. Unsigned and untyped integers accept
// negative constants, as in C: adding -1 subtracts 1.
func fits(x Reg, t ptx.Type) bool {
	switch {
	case t == ptx.Pred || x.v.typ == ptx.Pred:
		return t == x.v.typ
	case t.Class() == ptx.Float:
		return true
	case x.v.float:
		return false
	case t.Bits() == 64:
		return true
	case t.Class() == ptx.Signed:
		return x.v.i >= -(1<<(t.Bits()-1)) && x.v.i < 1<<(t.Bits()-1)
	}
	return x.v.i >= -(1<<(t.Bits()-1)) && x.v.i < 1<<t.Bits()
}

// widen converts a register to a type that can represent all its values.
func (k *Kernel) widen(x Reg, t ptx.Type) Reg {
	if x.v.constant || x.v.typ == t {
		return x
	}
	return k.To(t, x)
}

// same returns x as the result of an operation that does not change it: x itself, or a copy of
// the current value if x is a variable.
func (k *Kernel) same(x Reg) Reg {
	if !x.v.mutable {
		return x
	}
	return k.result(x.v.typ, move(x.v.typ), x.v.node)
}

// compute emits an arithmetic operation in type t, on operands of type t.
func (k *Kernel) compute(t ptx.Type, op string, args ...Reg) Reg {
	if isInteger(t) || t == ptx.Pred {
		in := arithmetic(t)
		return k.pureOp(t, op+"."+in.String(), in, args...)
	}
	operands := make([]ptx.Operand, len(args))
	for n, a := range args {
		operands[n] = k.operand(a, t)
	}
	return k.result(t, op+"."+t.String(), operands...)
}

// rounded returns the opcode of an operation in type t. Floating-point operations get an explicit
// .rn, which also keeps the compiler from fusing them.
func rounded(op string, t ptx.Type) string {
	if t.Class() == ptx.Float {
		return op + ".rn"
	}
	return op
}

// fold evaluates an operation on constants.
func fold(x, y Reg, i func(a, b int64) int64, f func(a, b float64) float64) Reg {
	if x.v.float || y.v.float {
		return constFloat(f(x.number(), y.number()))
	}
	return constInt(i(x.v.i, y.v.i))
}

// Add returns a + b.
func (k *Kernel) Add(a, b Value) Reg {
	x, y, t := k.pair("Add", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return fold(x, y, func(a, b int64) int64 { return a + b }, func(a, b float64) float64 { return a + b })
	case isInteger(t) && y.isInt(0):
		return k.same(x)
	case isInteger(t) && x.isInt(0):
		return k.same(y)
	case x.v.constant:
		x, y = y, x
	}
	return k.compute(t, rounded("add", t), x, y)
}

// Sub returns a - b.
func (k *Kernel) Sub(a, b Value) Reg {
	x, y, t := k.pair("Sub", a, b)
	switch {
	case !x.ok():
		return x
	case t == ptx.NoType:
		return fold(x, y, func(a, b int64) int64 { return a - b }, func(a, b float64) float64 { return a - b })
	case isInteger(t) && y.isInt(0):
		return k.same(x)
	}
	return k.compute(t, rounded("sub", t), x, y)
}

// Mul returns a·b, or the low half of the product for integers.
func (k *Kernel) Mul(a, b Value) Reg {
	x, y, t := k.pair("Mul", a, b)
	if !x.ok() {
		return x
	}
	if t == ptx.NoType {
		return fold(x, y, func(a, b int64) int64 { return a * b }, func(a, b float64) float64 { return a * b })
	}
	if !isInteger(t) {
		return k.compute(t, "mul.rn", x, y)
	}
	if x.v.constant {
		x, y = y, x
	}
	n, ok := y.Int()
	switch {
	case ok && n == 0:
		return y
	case ok && n == 1:
		return k.same(x)
	case ok && n > 0 && n&(n-1) == 0:
		return k.Shl(x, bits.TrailingZeros64(uint64(n)))
	}
	return k.compute(t, "mul.lo", x, y)
}

// Mad returns a·b + c. For floating point this is a fused multiply-add with a single rounding.
// For integers it is the low half, and the operands are widened to the widest of the three types
// before the multiplication.
func (k *Kernel) Mad(a, b, c Value) Reg {
	x, y, z := k.reg(a), k.reg(b), k.reg(c)
	t, ok := k.common("Mad", x, y, z)
	switch {
	case !ok:
		return Reg{bad}
	case t == ptx.NoType || isInteger(t) &&
		(x.v.constant && y.v.constant || z.isInt(0) || trivialFactor(x) || trivialFactor(y)):
		return k.Add(k.Mul(k.widen(x, t), k.widen(y, t)), z)
	case t.Class() == ptx.Float:
		return k.compute(t, "fma.rn", x, y, z)
	case t.Bits() == 64 && narrow(x) && narrow(y):
		if x.v.constant {
			x, y = y, x
		}
		from := x.v.typ
		return k.pureOp(t, "mad.wide."+from.String(), from, x, y, k.widen(z, t))
	}
	return k.compute(t, "mad.lo", k.widen(x, t), k.widen(y, t), k.widen(z, t))
}

// trivialFactor reports whether multiplying by x needs no multiplication.
func trivialFactor(x Reg) bool { return x.isInt(0) || x.isInt(1) }

// narrow reports whether x can be an operand of mad.wide: a 32-bit register or a non-negative
// constant below 1<<31.
func narrow(x Reg) bool {
	if n, ok := x.Int(); ok {
		return n >= 0 && n < 1<<31
	}
	return x.v.typ.Bits() == 32
}

// arithmetic returns the type for arithmetic on values of type t: unsigned for untyped bits.
func arithmetic(t ptx.Type) ptx.Type {
	switch t {
	case ptx.B16:
		return ptx.U16
	case ptx.B32:
		return ptx.U32
	case ptx.B64:
		return ptx.U64
	}
	return t
}

// FMA adds a·b to a variable: as a fused multiply-add for floating point, and the low half of the
// product for integers.
func (k *Kernel) FMA(acc Reg, a, b Value) {
	x, y, t := k.pair("FMA", a, b)
	if !k.variable("FMA", acc) || !x.ok() {
		return
	}
	if t != acc.v.typ && t != ptx.NoType {
		k.fail("FMA of .%v into a variable of type .%v: want the same type, convert with To", t, acc.v.typ)
		return
	}
	t = arithmetic(acc.v.typ)
	op := "fma.rn"
	if isInteger(t) {
		op = "mad.lo"
	}
	k.emit(op+"."+t.String(), acc.v.node, k.operand(x, t), k.operand(y, t), acc.v.node)
}

// Div returns a / b, truncated toward zero for integers and rounded to nearest for floating
// point.
func (k *Kernel) Div(a, b Value) Reg {
	x, y, t := k.pair("Div", a, b)
	n, constant := y.Int()
	switch {
	case !x.ok():
		return x
	case constant && n == 0 && !x.v.float && t.Class() != ptx.Float:
		return k.fail("Div by zero")
	case t == ptx.NoType:
		return fold(x, y, func(a, b int64) int64 { return a / b }, func(a, b float64) float64 { return a / b })
	case isInteger(t) && n == 1:
		return k.same(x)
	case t.Class() == ptx.Unsigned && n > 0 && n&(n-1) == 0:
		return k.Shr(x, bits.TrailingZeros64(uint64(n)))
	}
	return k.compute(t, rounded("div", t), x, y)
}

// Rem returns the remainder of a / b for integers.
func (k *Kernel) Rem(a, b Value) Reg {
	x, y, t := k.pair("Rem", a, b)
	n, constant := y.Int()
	switch {
	case !x.ok():
		return x
	case t.Class() == ptx.Float || x.v.float || y.v.float:
		return k.fail("Rem of floating-point numbers: want integers")
	case constant && n == 0:
		return k.fail("Rem by zero")
	case t == ptx.NoType:
		return constInt(x.v.i % n)
	case n == 1:
		return constInt(0)
	case t.Class() == ptx.Unsigned && n > 0 && n&(n-1) == 0:
		return k.And(x, n-1)
	}
	return k.compute(t, "rem", x, y)
}

// CeilDiv returns a / b rounded up, for integers that are not negative. a + b must not overflow.
func (k *Kernel) CeilDiv(a, b Value) Reg {
	return k.Div(k.Add(a, k.Sub(b, 1)), b)
}
