package ptx

import (
	"fmt"
	"slices"
)

// Verify checks m against the instruction table and the manual's rules for declarations, and
// binds it: it sets the Form of each instruction and the Symbol of each name. If it returns nil,
// all instructions of m are supported, their operands have valid kinds, types and ranges, and the
// module's .version and .target are sufficient for them.
//
// The error is of type [Errors]. Its elements wrap ErrInvalid, ErrUnsupported or ErrTarget, and
// name the function that they were found in. Functions without errors are bound even if others
// have errors.
func Verify(m *Module) error {
	v := &verifier{m: m, globals: newScope(nil), have: Need{Version: m.Version, Target: m.Target}}
	v.header()
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *Var:
			v.global(d)
		case *Func:
			v.function(d)
		}
	}
	return v.errs.err()
}

// Need returns the lowest .version and .target that can compile m. The module must have been
// bound by [Verify]. Need is valid even if Verify has rejected m's own .version or .target.
func (m *Module) Need() Need {
	need := Need{Version: targets[0].Version, Target: targets[0].Target}
	for _, f := range m.Funcs() {
		need = need.and(f.need())
	}
	if v, ok := need.Target.MinVersion(); ok {
		need.Version = max(need.Version, v)
	}
	return need
}

func (f *Func) need() Need {
	var need Need
	for _, a := range f.Attrs {
		need = need.and(functionAttrs[a.Name].need)
	}
	if f.Body == nil {
		return need
	}
	f.Body.Walk(func(s Stmt) {
		switch s := s.(type) {
		case *Instr:
			if s.Form != nil {
				need = need.and(s.Need())
			}
		case *Var:
			need = need.and(s.Type.Info().Need)
		}
	})
	return need
}

// Need returns the requirement of i, which depends on its form, its modifiers and the special
// registers that it reads. The instruction must be bound.
func (i *Instr) Need() Need {
	need := i.Form.Need
	for _, mod := range i.slots {
		more, ok := modifierNeeds[i.Op+"."+mod]
		if !ok {
			more = modifierNeeds[mod]
		}
		need = need.and(more)
	}
	for _, a := range i.Args {
		switch a := a.(type) {
		case *Name:
			if a.Sym != nil {
				need = need.and(a.Sym.need)
			}
		case *Sink:
			if i.Op == "mbarrier" && i.Has("arrive") {
				need.Version = max(need.Version, 71)
			}
		}
	}
	return need
}

type verifier struct {
	m       *Module
	have    Need
	globals *scope
	errs    Errors
	found   int    // number of errors in fn, or outside of functions
	fn      *Func  // the function being checked; nil outside of functions
	instr   *Instr // the instruction being checked
}

func (v *verifier) fail(at Pos, kind error, format string, args ...any) {
	v.add(&Error{Pos: at, Kind: kind, Msg: fmt.Sprintf(format, args...)})
}

func (v *verifier) add(err *Error) {
	if v.found++; v.found <= maxErrors {
		err.Func = v.fn
		v.errs = append(v.errs, err)
	}
}

func (v *verifier) header() {
	least, known := v.m.Target.MinVersion()
	switch {
	case !known:
		v.fail(Pos{}, ErrUnsupported, "target %v is not supported", v.m.Target)
	case v.m.Version < least:
		v.fail(Pos{}, ErrTarget, "target %v requires .version %v, the module has %v", v.m.Target, least, v.m.Version)
	}
	if v.m.AddressSize != 64 {
		v.fail(Pos{}, ErrUnsupported, "address size %d is not supported: want 64", v.m.AddressSize)
	}
}

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
	bad := func(format string, args ...any) {
		v.fail(d.Pos, ErrInvalid, "%s: %s", d.Name, fmt.Sprintf(format, args...))
	}
	reg := d.Space == RegSpace
	switch {
	case d.Name == "":
		bad("the variable has no name")
		return
	case d.Type.Class() == Opaque && d.Space != Global:
		bad("a variable of type .%v is in .%v, want .global", d.Type, d.Space)
	case d.Type == Pred && !reg:
		bad("a predicate is declared in .%v, want .reg", d.Space)
	case reg && (len(d.Dims) > 0 || d.Init != nil):
		bad("a register can be neither an array nor initialized")
	case d.Count > 0 && !reg:
		bad("<%d> is valid only for registers", d.Count)
	case d.Vec > 0 && d.Vec*d.Type.Bits() > 128:
		bad("a vector of %d %v is larger than 128 bits", d.Vec, d.Type)
	case d.Init != nil && d.Space != Global && d.Space != Const:
		bad("an initialized variable is in .%v, want .global or .const", d.Space)
	}
	for i, n := range d.Dims {
		if n < 0 && (i > 0 || d.Linkage != "extern" && d.Init == nil && d.Space != Param) {
			bad("an array without a length must be .extern or initialized")
		}
	}
	if d.Init != nil && d.Init.Properties == "" {
		v.initial(d, d.Init, 0)
	}
	v.require(d.Pos, "type ."+d.Type.String(), d.Type.Info().Need)
	var err error
	if d.Count > 0 {
		err = s.declareRange(d)
	} else {
		sym := &Symbol{Kind: VarSymbol, Name: d.Name, Type: d.Type, Vec: d.Vec, Index: -1, Var: d}
		if reg {
			sym.Kind = RegisterSymbol
		}
		err = s.declare(sym)
	}
	if err != nil {
		v.fail(d.Pos, ErrInvalid, "%v", err)
	}
}

// initial checks an initial value. depth is the number of braces around it.
func (v *verifier) initial(d *Var, n *Init, depth int) {
	bad := func(format string, args ...any) {
		v.fail(d.Pos, ErrInvalid, "%s: initial value: %s", d.Name, fmt.Sprintf(format, args...))
	}
	if n.Value == nil {
		levels := len(d.Dims)
		if d.Vec > 0 {
			levels++
		}
		length := d.Vec
		if depth < len(d.Dims) {
			length = d.Dims[depth]
		}
		switch {
		case depth >= levels:
			bad("more braces than dimensions")
			return
		case length >= 0 && len(n.List) > length:
			bad("%d values, want at most %d", len(n.List), length)
		}
		for _, e := range n.List {
			v.initial(d, e, depth+1)
		}
		return
	}
	switch val := n.Value.(type) {
	case *Imm:
		if msg := immediateFits(val, d.Type); msg != "" {
			bad("%s", msg)
		}
	case *Name:
		v.initialSymbol(d, val)
	case *Sum:
		v.initialSymbol(d, val.Base)
	default:
		bad("%s is not a constant", Format(val))
	}
}

func (v *verifier) initialSymbol(d *Var, n *Name) {
	n.Sym = v.globals.lookup(n.Name)
	if n.Sym == nil || n.Sym.Kind != VarSymbol && n.Sym.Kind != FuncSymbol {
		v.fail(d.Pos, ErrInvalid, "%s: initial value: %s is neither a variable nor a function", d.Name, n.Name)
	}
}

func (v *verifier) function(f *Func) {
	v.declare(v.globals, f.Pos, &Symbol{Kind: FuncSymbol, Name: f.Name, Index: -1, Func: f})
	outside := v.found
	v.fn, v.found, f.Registers = f, 0, nil
	defer func() { v.fn, v.found = nil, outside }()
	for _, a := range f.Attrs {
		v.require(f.Pos, "."+a.Name, functionAttrs[a.Name].need)
	}
	switch {
	case f.Entry && len(f.Results) > 0:
		v.fail(f.Pos, ErrInvalid, "%s: an .entry cannot have results", f.Name)
	case f.Entry && f.Body == nil:
		v.fail(f.Pos, ErrUnsupported, "%s: an .entry without a body is not supported", f.Name)
	case len(f.Results) > 1:
		v.fail(f.Pos, ErrUnsupported, "%s: %d results are not supported: want at most 1", f.Name, len(f.Results))
	}
	s := newScope(v.globals)
	for _, p := range slices.Concat(f.Results, f.Params) {
		switch {
		case p.Space != Param && (f.Entry || p.Space != RegSpace):
			v.fail(p.Pos, ErrInvalid, "%s: the parameter is in .%v, want .param", p.Name, p.Space)
		case p.Type.Class() == Opaque:
			v.fail(p.Pos, ErrUnsupported, "%s: parameters of type .%v are not supported", p.Name, p.Type)
		case p.Name != "" && f.Body != nil:
			v.variable(s, p)
		case f.Body != nil:
			v.fail(p.Pos, ErrInvalid, "%s: a parameter has no name", f.Name)
		}
	}
	if f.Body != nil {
		v.block(s, f.Body)
	}
}

// block checks the statements of b in scope s, which belongs to b alone. A label is visible in
// its whole block, any other name only after its declaration.
func (v *verifier) block(s *scope, b *Block) {
	for _, st := range b.Stmts {
		if l, ok := st.(*Label); ok {
			v.declare(s, l.Pos, &Symbol{Kind: LabelSymbol, Name: l.Name, Index: -1, Label: l})
		}
	}
	for _, st := range b.Stmts {
		switch st := st.(type) {
		case *Var:
			if st.Space == Const {
				v.fail(st.Pos, ErrInvalid, "%s: a variable in .const is declared inside a function, want it outside",
					st.Name)
			}
			v.variable(s, st)
		case *Targets:
			v.targets(s, st)
		case *Prototype:
			v.declare(s, st.Pos, &Symbol{Kind: PrototypeSymbol, Name: st.Name, Index: -1, Func: st.Func})
		case *Block:
			v.block(newScope(s), st)
		case *Instr:
			v.instruction(s, st)
		}
	}
}

// targets checks a list of targets and declares it.
func (v *verifier) targets(s *scope, t *Targets) {
	v.declare(s, t.Pos, &Symbol{Kind: TargetsSymbol, Name: t.Name, Index: -1, Targets: t})
	kind := LabelSymbol
	if t.Call {
		kind = FuncSymbol
	}
	for _, n := range t.List {
		if n.Sym = s.lookup(n.Name); n.Sym == nil || n.Sym.Kind != kind {
			v.fail(t.Pos, ErrInvalid, "%s: %s is not a %v", t.Name, n.Name, kind)
		}
	}
}

func (v *verifier) declare(s *scope, at Pos, sym *Symbol) {
	if err := s.declare(sym); err != nil {
		v.fail(at, ErrInvalid, "%v", err)
	}
}

// require checks that the module's version and target satisfy need.
func (v *verifier) require(at Pos, what string, need Need) {
	if need.Version > v.have.Version {
		v.fail(at, ErrTarget, "%s: requires .version %v, the module has %v", what, need.Version, v.have.Version)
	}
	if need.Target.SM > 0 && !need.supportedBy(v.have.Target) {
		v.fail(at, ErrTarget, "%s: requires .target %v, the module has %v", what, need.targets(), v.have.Target)
	}
}
