package ptx

import (
	"fmt"
	"slices"
	"strconv"
)

// SymbolKind is the kind of declaration that a name refers to.
type SymbolKind uint8

const (
	RegisterSymbol SymbolKind = iota
	SpecialSymbol
	VarSymbol
	FuncSymbol
	LabelSymbol
	TargetsSymbol
	PrototypeSymbol
)

func (k SymbolKind) String() string {
	return [...]string{"register", "special register", "variable", "function", "label", "list of targets", "prototype"}[k]
}

// Symbol is the declaration that a name refers to. A verified module has one Symbol for each
// register, variable, function and label.
type Symbol struct {
	Kind SymbolKind
	Name string
	Type Type // of a register or variable
	Vec  int  // length of a vector register, 2 or 4; 0 for a scalar
	// Index numbers the registers of a function from 0, in order of first use.
	Index int
	Var   *Var  // declaration of a variable or register
	Func  *Func // also the function that a prototype describes
	Label *Label
	// Targets is the directive of a list of targets.
	Targets *Targets
	need    Need // requirements of a special register
}

// scope holds the names declared in one block, or at the top level of the module.
type scope struct {
	outer  *scope
	names  map[string]*Symbol
	ranges map[string]*Var // by name prefix: %r<5> declares %r0 to %r4
	// later holds the ranges that the block declares anywhere, and taken the first name that each of
	// them redeclares.
	later map[string]*Var
	taken map[*Var]string
}

// newScope returns the scope of block b, or of the module if b is nil.
func newScope(outer *scope, b *Block) *scope {
	s := &scope{outer: outer, names: map[string]*Symbol{}}
	if b == nil {
		return s
	}
	for _, st := range b.Stmts {
		if v, ok := st.(*Var); ok && v.Count > 0 && s.later[v.Name] == nil {
			if s.later == nil {
				s.later, s.taken = map[string]*Var{}, map[*Var]string{}
			}
			s.later[v.Name] = v
		}
	}
	return s
}

// add adds sym to the names of s.
func (s *scope) add(sym *Symbol) {
	s.names[sym.Name] = sym
	if v := rangeOf(s.later, sym.Name); v != nil && s.taken[v] == "" {
		s.taken[v] = sym.Name
	}
}

// maxCountDigits is the number of digits of the largest Count.
const maxCountDigits = 10

// rangeOf returns the range that contains a name, or nil.
func rangeOf(ranges map[string]*Var, name string) *Var {
	if ranges == nil {
		return nil
	}
	for end := len(name); end > max(1, len(name)-maxCountDigits) && isDigit(name[end-1]); end-- {
		v := ranges[name[:end-1]]
		digits := name[end-1:]
		if v == nil || len(digits) > 1 && digits[0] == '0' {
			continue
		}
		if n, err := strconv.Atoi(digits); err == nil && n < v.Count {
			return v
		}
	}
	return nil
}

// find returns the symbol called name that is declared in s itself, or nil. Registers of a range
// get their Symbol at the first lookup.
func (s *scope) find(name string) *Symbol {
	sym := s.names[name]
	if sym == nil {
		if v := rangeOf(s.ranges, name); v != nil {
			sym = &Symbol{Kind: RegisterSymbol, Name: name, Type: v.Type, Vec: v.Vec, Index: -1, Var: v}
			s.add(sym)
		}
	}
	return sym
}

// lookup returns the symbol called name in s, in an enclosing scope or among the special
// registers. It returns nil if there is none.
func (s *scope) lookup(name string) *Symbol {
	for ; s != nil; s = s.outer {
		if sym := s.find(name); sym != nil {
			return sym
		}
	}
	if row := specials[name]; row != nil {
		sym := &Symbol{Kind: SpecialSymbol, Name: name, Type: row.typ, need: row.need}
		if row.vec {
			sym.Vec = 4
		}
		return sym
	}
	return nil
}

// declare adds sym to s. It returns an error if the name is taken.
func (s *scope) declare(sym *Symbol) error {
	if specials[sym.Name] != nil {
		return fmt.Errorf("%s is the name of a special register", sym.Name)
	}
	old := s.find(sym.Name)
	switch {
	case old == nil:
		s.add(sym)
	case sym.Kind == VarSymbol && sym.completedBy(old) && old.Var.Size() > 0: // the more complete one stays
	case old.completedBy(sym):
		s.names[sym.Name] = sym
	default:
		return fmt.Errorf("%s is already declared, as a %v", sym.Name, old.Kind)
	}
	return nil
}

// completedBy reports whether old is a declaration and later declares the same variable or function
// again, or defines it.
func (old *Symbol) completedBy(later *Symbol) bool {
	if old.Kind != later.Kind {
		return false
	}
	switch old.Kind {
	case VarSymbol:
		v, w := old.Var, later.Var
		return v.Linkage == "extern" && w.Linkage != "" && v.Space == w.Space && v.Type == w.Type &&
			v.sameShape(w)
	case FuncSymbol:
		f, g := old.Func, later.Func
		return f.Body == nil && f.SameSignature(g) &&
			(f.Linkage == g.Linkage || f.Linkage != "extern" && g.Linkage == "")
	}
	return false
}

// sameShape reports whether v and w have the same vector length and the same dimensions. The first
// dimension can be unknown in one of them.
func (v *Var) sameShape(w *Var) bool {
	n := len(v.Dims)
	return v.Vec == w.Vec && n == len(w.Dims) && (n == 0 || slices.Equal(v.Dims[1:], w.Dims[1:])) &&
		(v.Size() == w.Size() || v.Size() == 0 || w.Size() == 0)
}

// SameSignature reports whether f and g are functions of the same kind, and their parameters and
// results have the same sizes and state spaces.
func (f *Func) SameSignature(g *Func) bool {
	return f.Entry == g.Entry && sameVars(f.Params, g.Params) && sameVars(f.Results, g.Results)
}

func sameVars(a, b []*Var) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Space != b[i].Space || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}

// declareRange adds a numbered range of registers to s.
func (s *scope) declareRange(v *Var) error {
	if s.ranges == nil {
		s.ranges = map[string]*Var{}
	}
	if s.ranges[v.Name] != nil {
		return fmt.Errorf("%s<%d>: a range with this prefix is already declared", v.Name, v.Count)
	}
	if name := s.taken[v]; name != "" {
		return fmt.Errorf("%s<%d> redeclares %s", v.Name, v.Count, name)
	}
	s.ranges[v.Name] = v
	return nil
}
