package build

import (
	"tilework/ptx"
)

// Ptr is a pointer to elements of one type in global or shared memory. Methods of Kernel make it.
// The zero Ptr points nowhere: as an operand it is an error, and its methods panic.
type Ptr struct {
	k     *Kernel
	space ptx.Space
	elem  ptx.Type
	base  Reg       // address, of type u64 in global and u32 in shared memory
	sym   *ptx.Name // shared array used instead of base, or nil
	off   int64     // offset in bytes from base or sym
	fixed bool      // the memory is read-only while the kernel runs
}

// Param declares a parameter of the kernel and returns its value.
func (k *Kernel) Param(name string, t ptx.Type) Reg {
	if !t.Declarable() || t == ptx.Pred {
		return k.fail("a parameter cannot have type .%v", t)
	}
	if !k.identifier(name) {
		return Reg{bad}
	}
	k.params = append(k.params, &ptx.Var{Pos: k.caller(), Space: ptx.Param, Type: t, Name: name})
	addr := &ptx.Addr{Base: &ptx.Name{Name: name}}
	return k.Named(name, k.place(t, "ld.param."+memoryType(t), "param "+name, []ptx.Operand{addr}, nil))
}

// Pointer declares a parameter that points to elements in global memory.
func (k *Kernel) Pointer(name string, elem ptx.Type) Ptr {
	address := k.Param(name, ptx.U64)
	base := k.Named(name+"_g", k.pureOp(ptx.U64, "cvta.to.global.u64", ptx.U64, address))
	return Ptr{k: k, space: ptx.Global, elem: elem, base: base}
}

// ReadOnly returns p as a pointer to memory that is not written while the kernel runs. Loads
// through it use the read-only cache.
func (p Ptr) ReadOnly() Ptr {
	p.fixed = p.space == ptx.Global
	return p
}

// As returns p as a pointer to elements of another type.
func (p Ptr) As(elem ptx.Type) Ptr {
	p.elem = elem
	return p
}

// Elem returns the type of the elements.
func (p Ptr) Elem() ptx.Type { return p.elem }

// Loaded returns the type of a loaded element: 8-bit elements are loaded as 32-bit integers.
func (p Ptr) Loaded() ptx.Type { return loadedAs(p.elem) }

// At returns p advanced by i elements. In shared memory, i has at most 32 bits.
func (p Ptr) At(i Value) Ptr { return p.plus(i, int64(p.elem.Bytes())) }

// Skip returns p advanced by the given number of bytes.
func (p Ptr) Skip(bytes Value) Ptr { return p.plus(bytes, 1) }

// plus returns p advanced by i times the given number of bytes.
func (p Ptr) plus(i Value, bytes int64) Ptr {
	k := p.k
	r := k.reg(i)
	if n, ok := r.Int(); ok {
		p.off += n * bytes
		if p.off == int64(int32(p.off)) {
			return p
		}
		r, p.off, bytes = constInt(p.off), 0, 1 // the offset of an instruction has 32 bits
	}
	if i, ok := r.previous(); ok {
		return p.plus(i, bytes).plus(1, bytes)
	}
	p.base = p.moved(r, constInt(bytes))
	p.sym = nil
	return p
}

// moved returns the address i·step bytes after p's base.
func (p Ptr) moved(i, step Reg) Reg {
	k := p.k
	if before, ok := i.previous(); ok {
		return k.Add(p.moved(before, step), step)
	}
	switch {
	case !i.ok() || !step.ok() || !p.start().ok():
		return Reg{bad}
	case i.v.typ != ptx.NoType && !isInteger(i.v.typ):
		return k.fail("index has type .%v: want an integer", i.v.typ)
	case i.v.typ.Class() == ptx.Signed && p.space == ptx.Global:
		i = k.alias(ptx.U64, k.To(ptx.S64, i)) // sign extension
	case i.v.typ.Class() == ptx.Signed && i.v.typ.Bits() == 32:
		i = k.alias(ptx.U32, i)
	}
	if p.space == ptx.Shared && i.v.typ.Bits() == 64 {
		return k.fail("index into shared memory has 64 bits: want at most 32, convert it with To")
	}
	return k.Mad(i, step, p.start())
}

// start returns p's base as a register.
func (p Ptr) start() Reg {
	if p.sym == nil {
		return p.base
	}
	k := p.k
	return k.Named(p.sym.Name+"_s", k.place(ptx.U32, "mov.u32", "address "+p.sym.Name, []ptx.Operand{p.sym}, nil))
}

// Address returns the address in p, of type u64 in global and u32 in shared memory.
func (p Ptr) Address() Reg {
	if p.k == nil {
		return Reg{} // an error where it is used
	}
	return p.k.Add(p.start(), p.off)
}

func (p Ptr) addr() *ptx.Addr {
	if p.sym != nil {
		return &ptx.Addr{Base: p.sym, Offset: p.off}
	}
	return &ptx.Addr{Base: p.base.v.node, Offset: p.off}
}

// usable reports whether p can be accessed in the current block.
func (p Ptr) usable() bool {
	return p.sym != nil || p.k.reg(p.base).ok()
}

// memoryType returns the name of t for ld and st, which treat 16-bit floats as untyped.
func memoryType(t ptx.Type) string { return moveType(t).String() }

// loadedAs returns the type of the register that holds a loaded value. Bytes are extended to 32
// bits; 8-bit floats are loaded as untyped bytes.
func loadedAs(t ptx.Type) ptx.Type {
	switch t {
	case ptx.S8:
		return ptx.S32
	case ptx.U8, ptx.B8, ptx.E4M3, ptx.E5M2:
		return ptx.U32
	}
	return t
}

// mnemonic returns the instruction op, ld or st, for n elements.
func (p Ptr) mnemonic(op string, n int) string {
	s := op + "." + p.space.String()
	if op == "ld" && p.fixed {
		s += ".nc"
	}
	switch n {
	case 2:
		s += ".v2"
	case 4:
		s += ".v4"
	}
	return s + "." + memoryType(p.elem)
}

// Load loads an element. Bytes are extended to 32-bit integers.
func (p Ptr) Load() Reg { return p.LoadVec(1)[0] }

// LoadVec loads n consecutive elements with one instruction: 1, 2 or 4 elements of at most 16
// bytes in total. The address must be a multiple of the total size.
func (p Ptr) LoadVec(n int) []Reg {
	vs := p.destinations(n)
	if vs != nil {
		p.k.emit(p.mnemonic("ld", n), vector(vs), p.addr())
	}
	return p.orBad(vs, n)
}

// LoadTo is like LoadVec, but loads into variables.
func (p Ptr) LoadTo(vars ...Reg) {
	for _, v := range vars {
		if !p.k.variable("LoadTo", v) {
			return
		}
		if v.v.typ != loadedAs(p.elem) {
			p.k.fail("LoadTo from memory of type .%v into %s: want a variable of type .%v", p.elem, v, loadedAs(p.elem))
			return
		}
	}
	if p.usable() && p.validLength(len(vars)) {
		p.k.emit(p.mnemonic("ld", len(vars)), vector(vars), p.addr())
	}
}

// LoadVecOr0 is like LoadVec where the predicate ok is true, and returns zeros elsewhere. It does
// not branch.
func (p Ptr) LoadVecOr0(ok Value, n int) []Reg {
	k := p.k
	c := k.reg(ok)
	switch {
	case !c.ok():
		return p.orBad(nil, n)
	case c.isBool(true):
		return p.LoadVec(n)
	case c.v.typ != ptx.Pred:
		k.fail("LoadVecOr0: the condition is %s, want a predicate", c)
		return p.orBad(nil, n)
	}
	vs := p.destinations(n)
	for _, v := range vs {
		k.emit(move(v.v.typ), v.v.node, k.moved(constInt(0), v.v.typ))
	}
	if vs != nil && !c.v.constant {
		guard := k.guarded(c)
		k.emit(p.mnemonic("ld", n), vector(vs), p.addr()).Guard = &ptx.Guard{Pred: guard.v.node}
	}
	return p.orBad(vs, n)
}

// destinations returns new registers for a load of n elements, or nil if the load is invalid.
func (p Ptr) destinations(n int) []Reg {
	if !p.usable() || !p.validLength(n) {
		return nil
	}
	vs := make([]Reg, n)
	for i := range vs {
		vs[i] = Reg{p.k.newValue(loadedAs(p.elem), p.k.cur)}
	}
	return vs
}

// orBad returns vs, or n invalid registers if vs is nil.
func (p Ptr) orBad(vs []Reg, n int) []Reg {
	if vs == nil {
		vs = make([]Reg, max(n, 1))
		for i := range vs {
			vs[i] = Reg{bad}
		}
	}
	return vs
}

// validLength reports whether a load or store can access n elements, and fails if it cannot.
func (p Ptr) validLength(n int) bool {
	if n != 1 && n != 2 && n != 4 || n*p.elem.Bytes() > 16 {
		p.k.fail("vector of %d elements of type .%v: want 1, 2 or 4 elements in at most 16 bytes", n, p.elem)
		return false
	}
	return true
}

// Store stores v to an element.
func (p Ptr) Store(v Value) { p.StoreVec(v) }

// StoreVec stores consecutive elements with one instruction; see [Ptr.LoadVec] for the limits.
func (p Ptr) StoreVec(vs ...Value) {
	k := p.k
	if !p.usable() || !p.validLength(len(vs)) {
		return
	}
	want := loadedAs(p.elem)
	operands := make([]ptx.Operand, len(vs))
	for i, v := range vs {
		r := k.reg(v)
		switch {
		case !r.ok():
			return
		case r.v.constant && fits(r, want):
			r = k.constant(want, r)
		case r.v.typ != want:
			k.fail("store of %s to memory of type .%v: want a value of type .%v, convert it with To", r, p.elem, want)
			return
		}
		operands[i] = r.v.node
	}
	k.emit(p.mnemonic("st", len(vs)), p.addr(), vectorOf(operands))
}

// constant returns a constant in a register of type t, for instructions that accept no immediate.
func (k *Kernel) constant(t ptx.Type, r Reg) Reg {
	mov := move(t)
	o := k.immediate(r, t)
	return k.place(t, mov, mov+" "+ptx.Format(o), []ptx.Operand{o}, nil)
}

// vector returns registers as one operand.
func vector(vs []Reg) ptx.Operand {
	operands := make([]ptx.Operand, len(vs))
	for i, v := range vs {
		operands[i] = v.v.node
	}
	return vectorOf(operands)
}

// vectorOf returns a list of operands as one operand: a vector, or the operand itself if there is
// only one.
func vectorOf(operands []ptx.Operand) ptx.Operand {
	if len(operands) == 1 {
		return operands[0]
	}
	return &ptx.Vector{Elems: operands}
}
