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
	v := &verifier{m: m, globals: newScope(nil, nil), have: Need{Version: m.Version, Target: m.Target}}
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
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *Var:
			need = need.and(d.Type.Info().Need)
		case *Func:
			need = need.and(d.need())
		}
	}
	if v, ok := need.Target.MinVersion(); ok {
		need.Version = max(need.Version, v)
	}
	return need
}

// need returns the requirement of f.
func (f *Func) need() Need {
	var need Need
	for _, p := range slices.Concat(f.Results, f.Params) {
		need = need.and(p.Type.Info().Need)
	}
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
	listed  int    // number of targets in the lists of all instructions so far
}

// maxListed is the maximum number of targets in the lists of all instructions of a module, where a
// list counts for each instruction that uses it.
const maxListed = 1 << 20

// fail adds an error at a position.
func (v *verifier) fail(at Pos, kind error, format string, args ...any) {
	v.add(&Error{Pos: at, Kind: kind, Msg: fmt.Sprintf(format, args...)})
}

// add adds an error of the current function, unless there are too many.
func (v *verifier) add(err *Error) {
	if v.found++; v.found > maxErrors {
		v.errs[len(v.errs)-1].Truncated = true
		return
	}
	err.Func = v.fn
	v.errs = append(v.errs, err)
}

// header checks the directives at the start of the module.
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

// function checks a function and declares it.
func (v *verifier) function(f *Func) {
	v.declare(v.globals, f.Pos, &Symbol{Kind: FuncSymbol, Name: f.Name, Index: -1, Func: f})
	outside := v.found
	v.fn, v.found, f.Registers = f, 0, nil
	defer func() { v.fn, v.found = nil, outside }()
	v.attrs(f)
	switch {
	case f.Linkage == "common":
		v.fail(f.Pos, ErrInvalid, "%s: a function is declared .common, which is for variables", f.Name)
	case f.Linkage == "extern" && f.Body != nil:
		v.fail(f.Pos, ErrInvalid, "%s: an .extern function has a body, want none", f.Name)
	case f.Entry && len(f.Results) > 0:
		v.fail(f.Pos, ErrInvalid, "%s: an .entry cannot have results", f.Name)
	case f.Entry && f.Body == nil:
		v.fail(f.Pos, ErrUnsupported, "%s: an .entry without a body is not supported", f.Name)
	case len(f.Results) > 1:
		v.fail(f.Pos, ErrUnsupported, "%s: %d results are not supported: want at most 1", f.Name, len(f.Results))
	}
	s := newScope(v.globals, f.Body)
	for _, p := range f.Results {
		if v.parameter(s, f, p); p.Space == Param && p.Size() == 0 {
			v.fail(p.Pos, ErrInvalid, "%s: the result is an array without a length, want one", p.Name)
		}
	}
	for k, p := range f.Params {
		v.parameter(s, f, p)
		if p.Space == Param && p.Size() == 0 && (f.Entry || k+1 < len(f.Params)) {
			v.fail(p.Pos, ErrInvalid, "%s: the parameter is an array without a length, want one", p.Name)
		}
	}
	if f.Body != nil {
		v.block(s, f.Body)
	}
}

// parameter checks a parameter or a result of f and declares it in s, the scope of f's body.
func (v *verifier) parameter(s *scope, f *Func, p *Var) {
	switch {
	case p.Space != Param && (f.Entry || p.Space != RegSpace):
		v.fail(p.Pos, ErrInvalid, "%s: the parameter is in .%v, want .param", p.Name, p.Space)
	case p.Space == Param && p.Vec > 0:
		v.fail(p.Pos, ErrInvalid, "%s: the parameter is a vector, want a scalar or an array", p.Name)
	case p.Type.Class() == Opaque:
		v.fail(p.Pos, ErrUnsupported, "%s: parameters of type .%v are not supported", p.Name, p.Type)
	case p.Name != "" && f.Body != nil:
		v.variable(s, p)
	case f.Body != nil:
		v.fail(p.Pos, ErrInvalid, "%s: a parameter has no name", f.Name)
	}
}

// functionAttrs holds the directives that can appear between a function's parameters and its
// body.
var functionAttrs = map[string]struct {
	entry    bool   // for an .entry, else for a .func
	args     int    // maximum number of arguments
	positive bool   // the arguments must be at least 1
	not      string // directive that excludes this one
	need     Need
}{
	"maxntid":           {entry: true, args: 3, positive: true, not: "reqntid"},
	"reqntid":           {entry: true, args: 3, positive: true},
	"minnctapersm":      {entry: true, args: 1, positive: true},
	"maxnctapersm":      {entry: true, args: 1, positive: true},
	"maxnreg":           {entry: true, args: 1, positive: true},
	"noreturn":          {need: need("6.4", "sm_30")},
	"maxclusterrank":    {entry: true, args: 1, not: "reqnctapercluster", need: need("7.8", "sm_90")},
	"reqnctapercluster": {entry: true, args: 3, need: need("7.8", "sm_90")},
	"explicitcluster":   {entry: true, need: need("7.8", "sm_90")},
}

// attrs checks the directives between the parameters of f and its body.
func (v *verifier) attrs(f *Func) {
	var earlier []string // each directive once
	for _, a := range f.Attrs {
		row := functionAttrs[a.Name]
		v.require(f.Pos, "."+a.Name, row.need)
		conflict := slices.IndexFunc(earlier, func(b string) bool {
			return row.not == b || functionAttrs[b].not == a.Name
		})
		switch {
		case row.entry && !f.Entry:
			v.fail(f.Pos, ErrInvalid, "%s: .%s is allowed only for an .entry", f.Name, a.Name)
		case !row.entry && f.Entry:
			v.fail(f.Pos, ErrInvalid, "%s: .%s is allowed only for a .func", f.Name, a.Name)
		case row.positive && slices.Contains(a.Args, 0):
			v.fail(f.Pos, ErrInvalid, "%s: .%s %d: want at least 1", f.Name, a.Name, a.Args)
		case conflict >= 0:
			v.fail(f.Pos, ErrInvalid, "%s: .%s and .%s: want one of them", f.Name, earlier[conflict], a.Name)
		}
		if !slices.Contains(earlier, a.Name) {
			earlier = append(earlier, a.Name)
		}
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
			if st.Space == Param && st.Size() == 0 {
				v.fail(st.Pos, ErrInvalid, "%s: the array has no length, want one", st.Name)
			}
			v.variable(s, st)
		case *Targets:
			v.targets(s, st)
		case *Prototype:
			v.declare(s, st.Pos, &Symbol{Kind: PrototypeSymbol, Name: st.Name, Index: -1, Func: st.Func})
		case *Block:
			v.block(newScope(s, st), st)
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
