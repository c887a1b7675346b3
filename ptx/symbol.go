package ptx

import (
	"fmt"
	"strconv"
)

// SymbolKind says what a name stands for.
type SymbolKind uint8

const (
	RegisterSymbol SymbolKind = iota
	SpecialSymbol
	VarSymbol
	FuncSymbol
	LabelSymbol
)

func (k SymbolKind) String() string {
	return [...]string{"register", "special register", "variable", "function", "label"}[k]
}

// Symbol is what a name stands for. There is one for each register, variable,
// function and label of a verified module.
type Symbol struct {
	Kind SymbolKind
	Name string
	Type Type // of a register or a variable
	Vec  int  // of a register: 2 or 4; 0 for a scalar
	// Index numbers a function's registers from 0, in the order in which they are
	// first named.
	Index int
	Var   *Var // the declaration of a variable or a register
	Func  *Func
	Label *Label
	need  Need // of a special register
}

// scope is the names of one block, or of the module.
type scope struct {
	outer  *scope
	names  map[string]*Symbol
	ranges map[string]*Var // by prefix: %r<5> declares %r0 to %r4
}

func newScope(outer *scope) *scope {
	return &scope{outer: outer, names: map[string]*Symbol{}}
}

// find looks name up in s alone. The registers of a range get their symbol when
// they are first looked up.
func (s *scope) find(name string) *Symbol {
	if sym := s.names[name]; sym != nil || s.ranges == nil {
		return sym
	}
	for end := len(name); end > 1 && isDigit(name[end-1]); end-- {
		v := s.ranges[name[:end-1]]
		digits := name[end-1:]
		if v == nil || len(digits) > 1 && digits[0] == '0' {
			continue
		}
		if n, err := strconv.Atoi(digits); err == nil && n < v.Count {
			sym := &Symbol{Kind: RegisterSymbol, Name: name, Type: v.Type, Vec: v.Vec, Index: -1, Var: v}
			s.names[name] = sym
			return sym
		}
	}
	return nil
}

// lookup finds name in s and the scopes around it.
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

// declare adds sym and says what is wrong with that, if anything.
func (s *scope) declare(sym *Symbol) error {
	if specials[sym.Name] != nil {
		return fmt.Errorf("%s is the name of a special register", sym.Name)
	}
	if old := s.find(sym.Name); old != nil && !old.completedBy(sym) {
		return fmt.Errorf("%s is declared twice (before as a %v)", sym.Name, old.Kind)
	}
	s.names[sym.Name] = sym
	return nil
}

// completedBy reports whether later is the definition of what old only announced,
// or announces it again.
func (old *Symbol) completedBy(later *Symbol) bool {
	if old.Kind != later.Kind {
		return false
	}
	switch old.Kind {
	case VarSymbol:
		return (old.Var.Linkage == "extern" || later.Var.Linkage == "extern") && old.Var.Space == later.Var.Space && old.Type == later.Type
	case FuncSymbol:
		return (old.Func.Body == nil || later.Func.Body == nil) && old.Func.sameSignature(later.Func)
	}
	return false
}

func (f *Func) sameSignature(g *Func) bool {
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

// declareRange adds registers that are declared by number.
func (s *scope) declareRange(v *Var) error {
	if s.ranges == nil {
		s.ranges = map[string]*Var{}
	}
	if s.ranges[v.Name] != nil {
		return fmt.Errorf("%s<%d> is declared twice", v.Name, v.Count)
	}
	for name := range s.names {
		if digits, ok := cutPrefix(name, v.Name); ok && digits < v.Count {
			return fmt.Errorf("%s is declared twice, the second time by %s<%d>", name, v.Name, v.Count)
		}
	}
	s.ranges[v.Name] = v
	return nil
}

// cutPrefix reads the number of a register of the given prefix.
func cutPrefix(name, prefix string) (n int, ok bool) {
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return 0, false
	}
	n, err := strconv.Atoi(name[len(prefix):])
	return n, err == nil && strconv.Itoa(n) == name[len(prefix):]
}
