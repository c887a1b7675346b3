package ptx

import "fmt"

// maxVarBytes is the maximum size of a variable in bytes: 1 TiB, more than any GPU has. It keeps
// sizes and addresses within 64 bits.
const maxVarBytes = 1 << 40

// global checks a variable outside of functions and declares it.
func (v *verifier) global(d *Var) {
	switch d.Space {
	case Global, Const, Shared:
	default:
		v.fail(d.Pos, ErrInvalid, "%s: a variable outside functions is in .%v, want .global, .const or .shared",
			d.Name, d.Space)
	}
	v.variable(v.globals, d)
}

// variable checks a declaration and adds it to s.
func (v *verifier) variable(s *scope, d *Var) {
	if msg := badVar(d); msg != "" {
		v.fail(d.Pos, ErrInvalid, "%s: %s", d.Name, msg)
	}
	if d.Name == "" {
		return
	}
	v.require(d.Pos, "type ."+d.Type.String(), d.Type.Info().Need)
	var err error
	if d.Count > 0 {
		err = s.declareRange(d)
	} else {
		sym := &Symbol{Kind: VarSymbol, Name: d.Name, Type: d.Type, Vec: d.Vec, Index: -1, Var: d}
		if d.Space == RegSpace {
			sym.Kind = RegisterSymbol
		}
		err = s.declare(sym)
	}
	if err != nil {
		v.fail(d.Pos, ErrInvalid, "%v", err)
	}
	if d.Init != nil && d.Init.Properties == "" { // the value can contain the address of d itself
		v.initial(d, d.Init, 0)
	}
}

// badVar returns why a declaration is invalid, or "" if it is valid.
func badVar(d *Var) string {
	reg := d.Space == RegSpace
	switch {
	case d.Name == "":
		return "the variable has no name"
	case d.Type.Class() == Opaque && d.Space != Global:
		return fmt.Sprintf("a variable of type .%v is in .%v, want .global", d.Type, d.Space)
	case d.Type == Pred && !reg:
		return fmt.Sprintf("a predicate is declared in .%v, want .reg", d.Space)
	case reg && (len(d.Dims) > 0 || d.Init != nil):
		return "a register can be neither an array nor initialized"
	case d.Count > 0 && !reg:
		return fmt.Sprintf("<%d> is valid only for registers", d.Count)
	case d.Vec > 0 && d.Vec*d.Type.Bits() > 128:
		return fmt.Sprintf("a vector of %d %v is larger than 128 bits", d.Vec, d.Type)
	case d.Init != nil && d.Space != Global && d.Space != Const:
		return fmt.Sprintf("an initialized variable is in .%v, want .global or .const", d.Space)
	case d.Init != nil && d.Linkage == "extern":
		return "an .extern variable is initialized"
	case d.Linkage == "common" && d.Space != Global:
		return fmt.Sprintf("a .common variable is in .%v, want .global", d.Space)
	}
	bytes := float64(d.Type.Bytes() * max(d.Vec, 1))
	for i, n := range d.Dims {
		first := i == 0 && (d.Linkage == "extern" || d.Space == Param)
		switch {
		case n < 0 && i == 0 && d.Init != nil:
			n = len(d.Init.List)
		case n < 0 && !first:
			return "an array without a length must be .extern or initialized"
		}
		if n == 0 && !first {
			return "an array has no elements"
		}
		bytes *= float64(max(n, 1))
	}
	if bytes > maxVarBytes {
		return fmt.Sprintf("a variable of %.3g bytes, want at most %.3g", bytes, float64(maxVarBytes))
	}
	return ""
}

// initial checks an initial value. depth is the number of braces around it.
func (v *verifier) initial(d *Var, n *Init, depth int) {
	bad := func(format string, args ...any) {
		v.fail(d.Pos, ErrInvalid, "%s: initial value: %s", d.Name, fmt.Sprintf(format, args...))
	}
	lengths := d.Dims // of the lists
	if d.Vec > 0 {
		lengths = append(lengths[:len(lengths):len(lengths)], d.Vec)
	}
	switch {
	case n.Value == nil && depth >= len(lengths):
		bad("more braces than dimensions")
	case n.Value != nil && depth < len(lengths):
		bad("found %s, want a list in braces", n.text())
	case n.Value == nil:
		if length := lengths[depth]; length >= 0 && len(n.List) > length {
			bad("%d values, want at most %d", len(n.List), length)
			return
		}
		for _, e := range n.List {
			v.initial(d, e, depth+1)
		}
	default:
		if msg := v.initialScalar(d, n); msg != "" {
			bad("%s", msg)
		}
	}
}

// initialScalar returns why n is not a valid value of one element of d, or "" if it is valid: a
// number, or the address of a variable or a function.
func (v *verifier) initialScalar(d *Var, n *Init) string {
	var base *Name
	switch val := n.Value.(type) {
	case *Imm:
		return immediateFits(val, d.Type)
	case *Name:
		base = val
	case *Sum:
		base = val.Base
	default:
		return Format(val) + " is not a constant"
	}
	base.Sym = v.globals.lookup(base.Name)
	_, offset := n.Value.(*Sum)
	switch sym := base.Sym; {
	case sym == nil || sym.Kind != VarSymbol && sym.Kind != FuncSymbol:
		return base.Name + " is neither a variable nor a function"
	case sym.Kind == FuncSymbol && (offset || n.Generic):
		return fmt.Sprintf("found %s, want %s alone for the address of a function", n.text(), base.Name)
	case sym.Kind == VarSymbol && sym.Var.Space != Global && sym.Var.Space != Const:
		return fmt.Sprintf("%s is in .%v, want a variable in .global or .const", base.Name, sym.Var.Space)
	case !(d.Type == U8 && n.Mask != 0) && d.Type != U32 && d.Type != U64:
		return fmt.Sprintf("the type of an address is .%v, want .u32 or .u64, or .u8 with a mask", d.Type)
	case n.Mask != 0 && !isByteMask(n.Mask):
		return fmt.Sprintf("mask %#x does not select one byte, want 0xFF, 0xFF00 and so on", n.Mask)
	}
	return ""
}

// isByteMask reports whether mask selects one byte: 0xFF, 0xFF00 and so on.
func isByteMask(mask uint64) bool {
	for mask&0xff == 0 && mask != 0 {
		mask >>= 8
	}
	return mask == 0xff
}
