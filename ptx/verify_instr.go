package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// instruction binds and checks one instruction.
func (v *verifier) instruction(s *scope, i *Instr) {
	v.instr = i
	if i.Guard != nil {
		p := i.Guard.Pred
		switch sym := v.resolve(s, p); {
		case sym == nil:
		case sym.Kind != RegisterSymbol || sym.Type != Pred || sym.Vec > 0:
			v.bad("guard %s is a %s, want a predicate", p.Name, describe(sym))
		case p.Member != "":
			v.bad("guard %s has no member .%s", p.Name, p.Member)
		}
	}
	if err := Bind(i); err != nil {
		v.add(err.(*Error))
		return
	}
	for k, arg := range i.Args {
		v.operand(s, k, arg)
	}
	if i.Op == "call" {
		v.call(s)
	}
	v.require(i.Pos, i.Mnemonic(), i.Need())
}

// bad reports an error in the current instruction.
func (v *verifier) bad(format string, args ...any) {
	v.fail(v.instr.Pos, ErrInvalid, "%s: %s", v.instr.Mnemonic(), fmt.Sprintf(format, args...))
}

// resolve finds the symbol of n and numbers it if it is a register that is used for the first time.
// It returns nil after an error.
func (v *verifier) resolve(s *scope, n *Name) *Symbol {
	if n.Sym = s.lookup(n.Name); n.Sym == nil {
		v.bad("%s is not declared", n.Name)
	} else if n.Sym.Type.Class() == Opaque {
		v.fail(v.instr.Pos, ErrUnsupported, "%s: variables of type .%v (%s) are not supported", v.instr.Mnemonic(),
			n.Sym.Type, n.Name)
	} else if n.Sym.Kind == RegisterSymbol && n.Sym.Index < 0 {
		n.Sym.Index = len(v.fn.Registers)
		v.fn.Registers = append(v.fn.Registers, n.Sym)
	}
	return n.Sym
}

// describe returns the kind and type of a symbol, such as "register of type .u32".
func describe(sym *Symbol) string {
	switch sym.Kind {
	case FuncSymbol, LabelSymbol, TargetsSymbol, PrototypeSymbol:
		return sym.Kind.String()
	}
	t := sym.Type.String()
	if sym.Vec > 0 {
		t = fmt.Sprintf("v%d.%s", sym.Vec, t)
	}
	return fmt.Sprintf("%s of type .%s", sym.Kind, t)
}

// operand checks argument k of the current instruction.
func (v *verifier) operand(s *scope, k int, arg Operand) {
	i := v.instr
	o, want := i.args[k], i.types[k]
	switch o.Kind {
	case ConstOperand:
		m, ok := arg.(*Imm)
		switch {
		case !ok || m.Kind > Uint:
			v.bad("operand %s is %s, want an integer", o.Name, Format(arg))
		case m.Kind == Uint || !o.admits(int64(m.Bits)):
			v.bad("operand %s is %s, want %s", o.Name, m.text(), rangeText(o.Ranges))
		}
	case AddressOperand:
		v.address(s, k, arg.(*Addr))
	case LabelOperand, FuncOperand, TargetsOperand, ProtoOperand:
		v.target(s, o.Kind, arg.(*Name))
	case ValueOperand:
		switch a := arg.(type) {
		case *Pair:
			v.value(s, o, a.First, want, 0)
			v.value(s, o, a.Second, Pred, 0)
		case *Not:
			v.value(s, o, a.X, want, 0)
		case *Minus:
			v.value(s, o, a.X, want, 0)
		case *Vector:
			v.vector(s, o, a, want)
		default:
			v.value(s, o, arg, want, i.Form.vectorLen(o, i.slots))
		}
	}
}

// targetSymbols holds the kind of symbol that each kind of operand names.
var targetSymbols = map[OperandKind]SymbolKind{LabelOperand: LabelSymbol, FuncOperand: FuncSymbol,
	TargetsOperand: TargetsSymbol, ProtoOperand: PrototypeSymbol}

// target checks the name of the target, or of the list of targets, of a branch or a call. A list of
// functions can take the place of a prototype.
func (v *verifier) target(s *scope, kind OperandKind, n *Name) {
	sym, want := v.resolve(s, n), targetSymbols[kind]
	switch {
	case sym == nil:
	case n.Member != "":
		v.bad("%s is a %s, which has no member .%s", n.Name, sym.Kind, n.Member)
	case sym.Kind == TargetsSymbol && sym.Targets.Call != (kind == ProtoOperand):
		v.bad("%s lists other targets than those of this instruction", n.Name)
	case sym.Kind != want && !(sym.Kind == TargetsSymbol && kind == ProtoOperand):
		v.bad("%s is a %s, want a %v", n.Name, describe(sym), want)
	case sym.Kind == TargetsSymbol:
		if v.listed += len(sym.Targets.List); v.listed > maxListed {
			v.fail(v.instr.Pos, ErrUnsupported, "%s: more than %d targets in the lists of all instructions are not supported",
				v.instr.Mnemonic(), maxListed)
		}
	}
}

// rangeText describes the values in ranges, such as "0 to 15".
func rangeText(ranges []Range) string {
	s := ""
	for n, r := range ranges {
		if n > 0 {
			s += " or "
		}
		switch {
		case r.Lo == r.Hi:
			s += fmt.Sprint(r.Lo)
		case r.Step > 1:
			s += fmt.Sprintf("a multiple of %d from %d to %d", r.Step, r.Lo, r.Hi)
		default:
			s += fmt.Sprintf("%d to %d", r.Lo, r.Hi)
		}
	}
	return s
}

// vector checks the elements of {a, b, c, d}. Only moves, memory accesses and operands with ranges
// accept immediates as elements, and only the former sinks, and not sinks alone. Registers that are
// wider than the type must all have the same width.
func (v *verifier) vector(s *scope, o *OperandForm, a *Vector, want Type) {
	width := 0
	for k, e := range a.Elems {
		form := o
		if len(o.Ranges) > 0 {
			element := *o
			element.Ranges = o.Ranges[min(k, len(o.Ranges)-1):][:1]
			form = &element
		}
		v.value(s, form, e, want, 0)
		switch e := e.(type) {
		case *Name:
			if e.Sym == nil || e.Sym.Kind != RegisterSymbol {
				continue
			}
			if bits := e.Sym.Type.Bits(); width != 0 && bits != width {
				v.bad("operand %s: %s has %d bits, want %d as the previous elements of the vector",
					o.Name, Format(e), bits, width)
			} else {
				width = bits
			}
		default:
			switch v.instr.Op {
			case "mov", "ld", "ldu", "st", "atom", "red":
			default:
				if len(o.Ranges) > 0 && !isSink(e) {
					continue
				}
				v.bad("operand %s: vector element %s is not a register", o.Name, Format(e))
			}
		}
	}
	if !slices.ContainsFunc(a.Elems, func(e Operand) bool { return !isSink(e) }) {
		v.bad("operand %s: all elements of the vector are _", o.Name)
	}
}

func isSink(o Operand) bool {
	_, ok := o.(*Sink)
	return ok
}

// value checks a register, an immediate or a symbol that represents one value, or a vector of
// length vec if vec is not 0.
func (v *verifier) value(s *scope, o *OperandForm, arg Operand, want Type, vec int) {
	switch a := arg.(type) {
	case *Imm:
		if o.Dst {
			v.bad("operand %s is %s, want a register to write", o.Name, a.text())
		} else if slices.Contains(simdVideoOps, v.instr.Op) {
			v.bad("operand %s is %s, want a register", o.Name, a.text())
		} else if msg := immediateFits(a, want); msg != "" {
			v.bad("operand %s: %s", o.Name, msg)
		} else if len(o.Ranges) > 0 && !o.admits(int64(a.Bits)) {
			v.bad("operand %s is %s, want %s", o.Name, a.text(), rangeText(o.Ranges))
		}
	case *Sum:
		switch sym := v.resolve(s, a.Base); {
		case sym == nil:
		case sym.Kind != VarSymbol:
			v.bad("operand %s: %s is a %s, want a variable", o.Name, a.Base.Name, describe(sym))
		default:
			v.register(o, a.Base, sym, want, vec)
		}
	case *Sink:
		if !o.Dst {
			v.bad("operand %s is _, want a register to read", o.Name)
		}
	case *Name:
		if sym := v.resolve(s, a); sym != nil {
			v.register(o, a, sym, want, vec)
		}
	default:
		v.bad("operand %s is %s, want a register", o.Name, Format(arg))
	}
}

// register checks the name of a register, or the name of a variable or function that stands for its
// address.
func (v *verifier) register(o *OperandForm, n *Name, sym *Symbol, want Type, vec int) {
	have := sym.Vec
	if n.Member != "" {
		have = 0
	}
	switch {
	case n.Member != "" && o.Part && (sym.Vec > 0 || !selects(v.instr.Op, n.Member, o.Dst)):
		v.bad("operand %s: .%s does not select parts of %s", o.Name, n.Member, n.Name)
	case n.Member != "" && !o.Part && (sym.Kind == VarSymbol || !hasMember(sym.Vec, n.Member)):
		v.bad("operand %s: %s has no member .%s", o.Name, n.Name, n.Member)
	case sym.Kind == FuncSymbol && o.Symbol && v.instr.Op == "mov":
		if want.Bits() != 64 {
			v.bad("operand %s: the address of function %s has 64 bits, want %d", o.Name, n.Name, want.Bits())
		}
	case sym.Kind == FuncSymbol || sym.Kind >= LabelSymbol:
		v.bad("operand %s: %s is a %v, want a register", o.Name, n.Name, sym.Kind)
	case sym.Kind == VarSymbol && !o.Symbol:
		v.bad("operand %s: %s is a variable in .%v, want a register", o.Name, n.Name, sym.Var.Space)
	case sym.Kind == VarSymbol:
		if space := v.instr.space(); space != Generic && !contains(space, sym.Var.Space) {
			v.bad("operand %s: %s is in .%v, want a variable in .%v", o.Name, n.Name, sym.Var.Space, space)
		}
	case sym.Kind == SpecialSymbol && !o.Special:
		v.bad("operand %s: %s is a special register, which only mov and cvt can read", o.Name, n.Name)
	case have != vec:
		v.bad("operand %s: %s has %d elements, want %d", o.Name, n.Name, max(have, 1), max(vec, 1))
	case !agrees(sym.Type, want, o.Wider):
		v.bad("operand %s: %s is of type .%v, want .%v", o.Name, Format(n), sym.Type, want)
	}
}

// hasMember reports whether a vector of n elements has the member: x, y, z or w, or r, g, b or a.
func hasMember(n int, member string) bool {
	n = min(n, 4)
	return len(member) == 1 && strings.Contains("xyzw"[:n]+"rgba"[:n], member)
}

// immediateFits checks that an immediate is a valid value of type t. It returns an error message,
// or "" if it is valid. Integers can be written as signed or as unsigned: 255 and -1 are the same
// eight bits.
func immediateFits(m *Imm, t Type) string {
	switch class, bits := t.Class(), t.Bits(); {
	case bits > 64:
		return fmt.Sprintf("%s: a constant cannot have %d bits", m.text(), bits)
	case t.Info().Storage != t:
		return fmt.Sprintf("%s is a constant, want a register of type .%v", m.text(), t.Info().Storage)
	case m.Kind > Uint && (t == F32 || t == F64): // converted
	case m.Kind == F32Bits && t == B32, m.Kind == F64Bits && t == B64:
	case m.Kind > Uint || class == Float:
		return fmt.Sprintf("%s is not a value of type .%v", m.text(), t)
	case m.Kind == Uint && bits < 64, bits < 64 && !fitsIn(int64(m.Bits), bits):
		return fmt.Sprintf("%s does not fit in %d bits", m.text(), bits)
	}
	return ""
}

// fitsIn reports whether n is a signed or an unsigned number of the given width.
func fitsIn(n int64, bits int) bool {
	return n >= -(int64(1)<<(bits-1)) && n < int64(1)<<bits
}

// address checks [base + offset].
func (v *verifier) address(s *scope, k int, a *Addr) {
	i, o := v.instr, v.instr.args[k]
	if a.Offset != int64(int32(a.Offset)) {
		v.bad("operand %s: offset %d does not fit in 32 bits", o.Name, a.Offset)
	}
	if a.Coords != nil {
		if a.Offset != 0 {
			v.bad("operand %s: an address with coordinates has the offset %d, want none", o.Name, a.Offset)
		}
		for _, c := range a.Coords.Elems {
			v.value(s, &OperandForm{Name: o.Name}, c, S32, 0)
		}
	}
	base, ok := a.Base.(*Name)
	if !ok {
		if m, isImm := a.Base.(*Imm); !isImm || m.Kind > Uint {
			v.bad("operand %s: %s is not an address", o.Name, Format(a.Base))
		} else if i.Space(k) != Local {
			v.bad("operand %s: a constant address is allowed only in .local, not in .%v", o.Name, i.Space(k))
		}
		return
	}
	sym := v.resolve(s, base)
	if sym == nil {
		return
	}
	if base.Member != "" {
		v.bad("operand %s: the base of the address is %s, want %s without a member", o.Name, Format(base), base.Name)
		return
	}
	space := i.Space(k)
	switch sym.Kind {
	case VarSymbol:
		if have := sym.Var.Space; !contains(space, have) {
			v.bad("operand %s: %s is in .%v, want a variable in .%v", o.Name, base.Name, have, space)
		}
	case RegisterSymbol:
		if i.Op == "st" && space == Param {
			v.bad("operand %s: %s is a register, want the name of a parameter", o.Name, base.Name)
		} else if !addressRegister(sym, space) {
			want := "a 64-bit integer"
			if space == Tensor {
				want = "a 32-bit integer"
			}
			v.bad("operand %s: %s is a %s, want %s", o.Name, base.Name, describe(sym), want)
		}
	default:
		v.bad("operand %s: %s is a %v, want a register or a variable", o.Name, base.Name, sym.Kind)
	}
}

// contains reports whether an access to space can refer to a variable in the space variable.
func contains(space, variable Space) bool {
	switch space {
	case Generic:
		return variable != Param && variable != RegSpace
	case SharedCluster:
		return variable == Shared
	}
	return variable == space
}

// addressRegister reports whether a register can hold an address in space: a 64-bit integer, or
// also a 32-bit integer unless the space is generic or global. Addresses of tensor memory have 32
// bits.
func addressRegister(sym *Symbol, space Space) bool {
	if sym.Vec > 0 || sym.Type.Class() == Float {
		return false
	}
	switch sym.Type.Bits() {
	case 32:
		return space != Generic && space != Global
	case 64:
		return space != Tensor
	}
	return false
}

// call checks the results and arguments of a call against the declaration of the callee or, for an
// indirect call, against the prototype or the functions that can be called.
func (v *verifier) call(s *scope) {
	var callees []*Func
	var results, args []Operand
	for k, arg := range v.instr.Args {
		switch a := arg.(type) {
		case *Name:
			switch sym := a.Sym; {
			case sym == nil:
			case sym.Kind == TargetsSymbol && v.listed <= maxListed:
				for _, t := range sym.Targets.List {
					if t.Sym != nil && t.Sym.Func != nil {
						callees = append(callees, t.Sym.Func)
					}
				}
			case sym.Func != nil:
				callees = append(callees, sym.Func)
			}
		case *Args:
			if v.instr.args[k].Dst {
				results = a.List
			} else {
				args = a.List
			}
		}
	}
	for _, callee := range callees {
		if callee.Entry {
			v.bad("%s is an .entry, want a .func", callee.Name)
		}
		v.callList(s, callee, "results", results, callee.Results)
		v.callList(s, callee, "arguments", args, callee.Params)
	}
}

// callList checks the results or arguments of a call against the variables of the callee.
func (v *verifier) callList(s *scope, callee *Func, what string, args []Operand, params []*Var) {
	if len(args) != len(params) {
		v.bad("%d %s for %s, want %d", len(args), what, callee.Name, len(params))
		return
	}
	for k, arg := range args {
		param := params[k]
		n, ok := arg.(*Name)
		if !ok {
			v.value(s, &OperandForm{Name: what, Dst: what == "results"}, arg, param.Type, param.Vec)
			continue
		}
		sym := v.resolve(s, n)
		switch {
		case sym == nil:
		case sym.Kind == VarSymbol && sym.Var.Space == Param && n.Member == "":
			if sym.Var.Size() != param.Size() {
				v.bad("%s: %s has %d bytes, want %d for %s", what, n.Name, sym.Var.Size(), param.Size(), callee.Name)
			}
		default:
			v.register(&OperandForm{Name: what, Dst: what == "results"}, n, sym, param.Type, param.Vec)
		}
	}
}
