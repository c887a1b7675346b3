package build

import (
	"fmt"
	"math"
	"reflect"

	"tilework/dtype"
	"tilework/ptx"
)

// Value is an operand: a [Reg], or a Go integer, float or bool, which is a constant. A Go number
// takes the type of the registers that it is combined with.
type Value = any

// Reg is a run-time value of a thread: a typed register, or a constant computed from Go numbers.
// The zero Reg has no value.
type Reg struct{ v *value }

type value struct {
	typ  ptx.Type // NoType for a constant number
	node *ptx.Name
	name string // set by Named
	// scope is the block that created the value.
	scope   *scope
	mutable bool // the value is a variable
	// before is v if this value was computed as v + 1 without wraparound, and otherwise nil.
	before *value

	constant, float bool
	i               int64
	f               float64
}

// bad is the value of every failed operation.
var bad = &value{}

// Type returns the type of r, or NoType for a numeric constant.
func (r Reg) Type() ptx.Type {
	if r.v == nil {
		return ptx.NoType
	}
	return r.v.typ
}

// Int returns the value of an integer constant. ok is false for any other Reg.
func (r Reg) Int() (n int64, ok bool) {
	if r.v == nil || !r.v.constant || r.v.float || r.v.typ == ptx.Pred {
		return 0, false
	}
	return r.v.i, true
}

func (r Reg) isInt(n int64) bool {
	i, ok := r.Int()
	return ok && i == n
}

func (r Reg) isBool(b bool) bool {
	return r.v.constant && r.v.typ == ptx.Pred && (r.v.i != 0) == b
}

func (r Reg) ok() bool { return r.v != bad }

func constInt(n int64) Reg     { return Reg{&value{constant: true, i: n}} }
func constFloat(f float64) Reg { return Reg{&value{constant: true, float: true, f: f}} }
func constBool(b bool) Reg {
	v := &value{constant: true, typ: ptx.Pred}
	if b {
		v.i = 1
	}
	return Reg{v}
}

// number returns a constant as a float64.
func (r Reg) number() float64 {
	if r.v.float {
		return r.v.f
	}
	return float64(r.v.i)
}

// reg returns x as a Reg. It fails if x cannot be used in the current block.
func (k *Kernel) reg(x Value) Reg {
	switch x := x.(type) {
	case Reg:
		switch {
		case x.v == nil:
			return k.fail("operand is a zero Reg")
		case x.v.scope != nil && !k.cur.within(x.v.scope):
			return k.fail("%s is used outside the block that created it: declare it with Var before the block", x)
		}
		return x
	case int:
		return constInt(int64(x))
	case ptx.Type, Axis: // integers to reflect, but not numbers
		return k.fail("operand is a %T: want a Reg, a Go number or a bool", x)
	}
	switch v := reflect.ValueOf(x); {
	case v.CanInt():
		return constInt(v.Int())
	case v.CanUint() && v.Uint() <= math.MaxInt64:
		return constInt(int64(v.Uint()))
	case v.CanUint():
		return k.fail("constant %d: want at most 1<<63 - 1", x)
	case v.CanFloat():
		return constFloat(v.Float())
	case v.Kind() == reflect.Bool:
		return constBool(v.Bool())
	}
	return k.fail("operand is a %T: want a Reg, a Go number or a bool", x)
}

// String returns the name of a register or the value of a constant.
func (r Reg) String() string {
	switch v := r.v; {
	case v == nil || v == bad:
		return "no value"
	case v.constant && v.typ == ptx.Pred:
		return fmt.Sprint(v.i != 0)
	case v.float:
		return fmt.Sprint(v.f)
	case v.constant:
		return fmt.Sprint(v.i)
	case v.name != "":
		return v.name
	default:
		return fmt.Sprintf("a register of type .%v", v.typ)
	}
}

// operand returns r as an operand of type t. There are no immediates of 16-bit floating-point
// types: their constants are moved to registers.
func (k *Kernel) operand(r Reg, t ptx.Type) ptx.Operand {
	switch {
	case !r.v.constant:
		return r.v.node
	case t == ptx.F16 || t == ptx.BF16:
		return k.constant(t, r).v.node
	}
	return k.immediate(r, t)
}

// moved returns r as the source of a mov to a register of type t.
func (k *Kernel) moved(r Reg, t ptx.Type) ptx.Operand {
	if !r.v.constant {
		return r.v.node
	}
	return k.immediate(r, t)
}

// immediate returns a constant as an immediate of type t, or the bits of one of a 16-bit
// floating-point type.
func (k *Kernel) immediate(r Reg, t ptx.Type) *ptx.Imm {
	switch n := r.number(); {
	case t == ptx.NoType && r.v.float: // from Do
		k.fail("constant %s has no type: want a float32 or a float64", r)
	case t == ptx.F32:
		return &ptx.Imm{Kind: ptx.F32Bits, Bits: uint64(math.Float32bits(float32(n)))}
	case t == ptx.F64:
		return &ptx.Imm{Kind: ptx.F64Bits, Bits: math.Float64bits(n)}
	case t == ptx.F16:
		return &ptx.Imm{Bits: uint64(dtype.Float16From64(n))}
	case t == ptx.BF16:
		return &ptx.Imm{Bits: uint64(dtype.BFloat16From64(n))}
	case t.Class() == ptx.Float && math.Float64bits(n) == 0: // has no bits set in any type
	case t.Class() == ptx.Float || r.v.float:
		k.fail("constant %s: want a value of type .%v", r, t)
	}
	return &ptx.Imm{Bits: uint64(r.v.i)}
}

// newValue returns a new register of type t in block s.
func (k *Kernel) newValue(t ptx.Type, s *scope) *value {
	v := &value{typ: t, node: &ptx.Name{}, scope: s}
	k.values[v.node] = v
	return v
}

// Var declares a variable with an initial value. Set and FMA change it. If name is empty, the
// variable gets a number.
func (k *Kernel) Var(name string, t ptx.Type, init Value) Reg {
	r := k.Fresh(t)
	if name != "" {
		k.Named(name, r)
	}
	k.Set(r, init)
	return r
}

// Vars declares n variables called name0 to name(n-1).
func (k *Kernel) Vars(name string, t ptx.Type, n int, init Value) []Reg {
	vs := make([]Reg, max(n, 0))
	for i := range vs {
		vs[i] = k.Var(fmt.Sprintf("%s%d", name, i), t, init)
	}
	return vs
}

// Fresh declares an uninitialized variable as a destination for [Kernel.Do].
func (k *Kernel) Fresh(t ptx.Type) Reg {
	if !t.Info().Storage.Declarable() {
		return k.fail("a variable cannot have type .%v", t)
	}
	v := k.newValue(t, k.cur)
	v.mutable = true
	return Reg{v}
}

// Set assigns x to a variable.
func (k *Kernel) Set(v Reg, x Value) {
	r := k.reg(x)
	if !k.variable("Set", v) || !r.ok() {
		return
	}
	if r.v.typ != v.v.typ {
		r = k.To(v.v.typ, r)
	}
	if r.ok() {
		k.emit(move(v.v.typ), v.v.node, k.moved(r, v.v.typ))
	}
}

// variable reports whether v is a variable that can be used here, and fails if it is not.
func (k *Kernel) variable(method string, v Reg) bool {
	switch {
	case v.v == bad:
		return false
	case v.v == nil || !v.v.mutable:
		k.fail("%s writes %s, which is not a variable: declare it with Var", method, v)
		return false
	case !k.reg(v).ok():
		return false
	}
	return true
}

// moveType returns the type of the mov instruction for a register of type t.
func moveType(t ptx.Type) ptx.Type {
	if t.Class() == ptx.Float && t != ptx.F32 && t != ptx.F64 {
		return bitsOf(t)
	}
	return t
}

// move returns the mov instruction for a register of type t.
func move(t ptx.Type) string { return "mov." + moveType(t).String() }

// bitsOf returns the untyped type of t's width.
func bitsOf(t ptx.Type) ptx.Type {
	switch t.Bits() {
	case 8:
		return ptx.B8
	case 16:
		return ptx.B16
	case 32:
		return ptx.B32
	}
	return ptx.B64
}
