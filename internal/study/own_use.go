package study

import (
	"slices"

	"tilework/ptx"
)

// use describes how a kernel uses a parameter, as far as its instructions show it.
type use struct {
	read, written, updated bool     // the memory that the parameter points to, updated by atomics
	element                ptx.Type // of that memory
	value                  bool     // the kernel reads the parameter
}

// pointer reports whether the kernel uses the parameter as an address.
func (u *use) pointer() bool { return u.read || u.written || u.updated }

// uses describes the uses of a kernel's parameters, threads and shared memory.
type uses struct {
	params map[*ptx.Var]*use
	plane  bool // it reads the y of a thread's index
	shared bool // it uses dynamic shared memory

	from  map[*ptx.Symbol]*ptx.Var // the parameter whose value, plus an offset, a register holds
	types map[*ptx.Symbol]ptx.Type // the type that arithmetic gives to a register

	learned   []*ptx.Symbol                // registers that were added to from or types, in this order
	followers map[*ptx.Symbol][]*ptx.Instr // instructions that pass on the parameter or the type of a register
}

// usesOf follows the parameters of a kernel through its registers. It ignores the order of the
// instructions, and loses values that the kernel keeps in local memory.
func usesOf(f *ptx.Func) *uses {
	u := &uses{params: map[*ptx.Var]*use{}, from: map[*ptx.Symbol]*ptx.Var{}, types: map[*ptx.Symbol]ptx.Type{},
		followers: map[*ptx.Symbol][]*ptx.Instr{}}
	for _, v := range f.Params {
		u.params[v] = &use{}
	}
	each := func(do func(i *ptx.Instr)) {
		f.Body.Walk(func(s ptx.Stmt) {
			if i, ok := s.(*ptx.Instr); ok && i.Form != nil {
				do(i)
			}
		})
	}
	each(u.names)
	each(u.start)
	for n := 0; n < len(u.learned); n++ {
		for _, i := range u.followers[u.learned[n]] {
			u.follow(i)
		}
	}
	each(u.access)
	return u
}

// names records the parameters, special registers and variables that an instruction names.
func (u *uses) names(i *ptx.Instr) {
	for _, arg := range i.Args {
		var n *ptx.Name
		switch o := arg.(type) {
		case *ptx.Name:
			n = o
		case *ptx.Addr:
			n, _ = o.Base.(*ptx.Name)
		case *ptx.Sum:
			n = o.Base
		}
		if n == nil || n.Sym == nil {
			continue
		}
		u.plane = u.plane || n.Sym.Kind == ptx.SpecialSymbol && n.Name == "%tid" && n.Member == "y"
		if v := n.Sym.Var; v != nil && n.Sym.Kind == ptx.VarSymbol {
			u.shared = u.shared || v.Space == ptx.Shared && v.Linkage == "extern"
			if p := u.params[v]; p != nil {
				p.value = true
			}
		}
	}
}

// registers returns the registers of an operand.
func registers(o ptx.Operand) []*ptx.Symbol {
	switch o := o.(type) {
	case *ptx.Name:
		if o.Sym != nil && o.Sym.Kind == ptx.RegisterSymbol {
			return []*ptx.Symbol{o.Sym}
		}
	case *ptx.Vector:
		var all []*ptx.Symbol
		for _, e := range o.Elems {
			all = append(all, registers(e)...)
		}
		return all
	}
	return nil
}

// base returns the variable or register of an address.
func base(o ptx.Operand) *ptx.Symbol {
	if a, ok := o.(*ptx.Addr); ok {
		if n, ok := a.Base.(*ptx.Name); ok {
			return n.Sym
		}
	}
	return nil
}

// sources returns the operands of an instruction whose parameter its result has too.
func sources(i *ptx.Instr) []ptx.Operand {
	switch {
	case len(i.Args) < 2:
		return nil
	case i.Op == "mov" || i.Op == "add" || i.Op == "cvta" || i.Op == "selp":
		return i.Args[1:]
	case i.Op == "sub":
		return i.Args[1:2]
	case i.Op == "mad":
		return i.Args[3:] // the addend
	}
	return nil
}

// start records the types and the parameter that an instruction gives to its registers, and the
// registers whose parameter or type it passes on.
func (u *uses) start(i *ptx.Instr) {
	for _, o := range sources(i) {
		for _, s := range registers(o) {
			u.followers[s] = append(u.followers[s], i)
		}
	}
	switch {
	case len(i.Args) < 2:
		return
	case i.Op == "ld":
		if s := base(i.Args[1]); s != nil && u.params[s.Var] != nil {
			u.derive(registers(i.Args[0]), s.Var)
		}
		return
	case i.Op == "mov":
		for _, s := range registers(i.Args[0]) {
			u.followers[s] = append(u.followers[s], i)
		}
	}
	u.follow(i)
	if i.Op == "mov" || i.Op == "st" {
		return // of any type of the same size
	}
	for k, o := range i.Args {
		if t := i.Type(k); slices.Contains([]ptx.Class{ptx.Float, ptx.Signed, ptx.Unsigned}, t.Class()) {
			for _, s := range registers(o) {
				u.setType(s, t)
			}
		}
	}
}

// follow gives the result of an instruction the parameter of its sources, and both sides of a copy
// the same type.
func (u *uses) follow(i *ptx.Instr) {
	if i.Op == "mov" {
		u.copyTypes(registers(i.Args[0]), registers(i.Args[1]))
	}
	for _, o := range sources(i) {
		for _, s := range registers(o) {
			if v := u.from[s]; v != nil {
				u.derive(registers(i.Args[0]), v)
			}
		}
	}
}

func (u *uses) derive(result []*ptx.Symbol, v *ptx.Var) {
	if len(result) == 1 && u.from[result[0]] == nil {
		u.from[result[0]] = v
		u.learned = append(u.learned, result[0])
	}
}

func (u *uses) setType(s *ptx.Symbol, t ptx.Type) {
	if _, known := u.types[s]; !known {
		u.types[s] = t
		u.learned = append(u.learned, s)
	}
}

func (u *uses) copyTypes(a, b []*ptx.Symbol) {
	for range 2 {
		for _, s := range a {
			if t, ok := u.types[s]; ok {
				for _, other := range b {
					u.setType(other, t)
				}
			}
		}
		a, b = b, a
	}
}

// access records an access to memory that a parameter points to.
func (u *uses) access(i *ptx.Instr) {
	for k, o := range i.Args {
		s := base(o)
		p := u.params[u.from[s]]
		if s == nil || p == nil {
			continue
		}
		data := 0
		switch {
		case i.Op == "atom":
			p.updated = true
		case i.Op == "red":
			p.updated, data = true, 1
		case i.Op == "st" || i.Has("store"):
			p.written, data = true, 1
		case i.Op == "cp":
			p.read, p.written = p.read || k > 0, p.written || k == 0
			continue
		default:
			p.read = true
		}
		if p.element != ptx.NoType || data >= len(i.Args) {
			continue
		}
		p.element = i.Type(data)
		for _, r := range registers(i.Args[data]) {
			if t, ok := u.types[r]; ok {
				p.element = t
				break
			}
		}
	}
}

// elementType returns the name of the type of a matrix whose elements a kernel uses as t.
func elementType(t ptx.Type) string {
	switch t {
	case ptx.F16, ptx.F16x2, ptx.B16:
		return "float16"
	case ptx.BF16, ptx.BF16x2:
		return "bfloat16"
	case ptx.F64, ptx.B64:
		return "float64"
	case ptx.S8, ptx.B8:
		return "int8"
	case ptx.S32:
		return "int32"
	case ptx.U8, ptx.U16, ptx.U32, ptx.U64, ptx.S16, ptx.S64:
		return t.String()
	}
	return "float32"
}
