package build

import (
	"math"

	"tilework/ptx"
)

// Ptr points to elements of one type in global or shared memory.
type Ptr struct {
	k     *Kernel
	space ptx.Space
	elem  ptx.Type
	base  Reg       // an address, u64 in global memory and u32 in shared
	sym   *ptx.Name // or a shared array
	off   int64     // bytes behind that
	fixed bool      // what it points to does not change while the kernel runs
}

// Param declares a parameter of the kernel and returns its value.
func (k *Kernel) Param(name string, t ptx.Type) Reg {
	if !t.Declarable() || t == ptx.Pred {
		return k.fail("a parameter of type .%v", t)
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
	return Ptr{k: k, space: ptx.Global, elem: elem, base: k.Named(name+"_g", k.pureOp(ptx.U64, "cvta.to.global.u64", ptx.U64, address))}
}

// ReadOnly is p for memory that nothing writes while the kernel runs: loads may go
// through the read-only cache.
func (p Ptr) ReadOnly() Ptr {
	p.fixed = p.space == ptx.Global
	return p
}

// As points to the same place, where elements of another type are.
func (p Ptr) As(elem ptx.Type) Ptr {
	p.elem = elem
	return p
}

// Elem is the type of the elements.
func (p Ptr) Elem() ptx.Type { return p.elem }

// Loaded is the type in which the elements are loaded: bytes come as 32-bit integers.
func (p Ptr) Loaded() ptx.Type { return loadedAs(p.elem) }

// At points i elements further. i is at most 32 bits wide where p is shared.
func (p Ptr) At(i Value) Ptr { return p.plus(i, int64(p.elem.Bytes())) }

// Skip points bytes further.
func (p Ptr) Skip(bytes Value) Ptr { return p.plus(bytes, 1) }

// plus points i times bytes further.
func (p Ptr) plus(i Value, bytes int64) Ptr {
	k := p.k
	r := k.reg(i)
	if n, ok := r.Int(); ok {
		p.off += n * bytes
		if p.off == int64(int32(p.off)) {
			return p
		}
		r, p.off, bytes = constInt(p.off), 0, 1 // too far for an instruction's offset
	}
	if i, ok := r.previous(); ok {
		return p.plus(i, bytes).plus(1, bytes)
	}
	p.base = p.moved(r, constInt(bytes))
	p.sym = nil
	return p
}

// moved is the address i·step bytes behind p's base.
func (p Ptr) moved(i, step Reg) Reg {
	k := p.k
	if before, ok := i.previous(); ok {
		return k.Add(p.moved(before, step), step)
	}
	switch {
	case !i.ok() || !step.ok() || !p.start().ok():
		return Reg{bad}
	case i.v.typ != ptx.NoType && !whole(i.v.typ):
		return k.fail("an index of type .%v: want a whole number", i.v.typ)
	case i.v.typ.Class() == ptx.Signed && p.space == ptx.Global:
		i = k.alias(ptx.U64, k.To(ptx.S64, i)) // extends the sign
	case i.v.typ.Class() == ptx.Signed && i.v.typ.Bits() == 32:
		i = k.alias(ptx.U32, i)
	}
	if p.space == ptx.Shared && i.v.typ.Bits() == 64 {
		return k.fail("an index of 64 bits into shared memory: convert it with To")
	}
	return k.Mad(i, step, p.start())
}

// start is p's base as a register.
func (p Ptr) start() Reg {
	if p.sym == nil {
		return p.base
	}
	k := p.k
	return k.Named(p.sym.Name+"_s", k.place(ptx.U32, "mov.u32", "address "+p.sym.Name, []ptx.Operand{p.sym}, nil))
}

// Address is where p points to: a u64 in global memory, a u32 in shared.
func (p Ptr) Address() Reg {
	return p.k.Add(p.start(), p.off)
}

func (p Ptr) addr() *ptx.Addr {
	if p.sym != nil {
		return &ptx.Addr{Base: p.sym, Offset: p.off}
	}
	return &ptx.Addr{Base: p.base.v.node, Offset: p.off}
}

// usable reports whether p can be accessed here.
func (p Ptr) usable() bool {
	return p.sym != nil || p.k.reg(p.base).ok()
}

// memoryType is the name of t for ld and st, which know the formats of half
// precision by their bits.
func memoryType(t ptx.Type) string { return moveType(t).String() }

// loadedAs is the type of the register that a value of memory comes in: bytes are
// extended, 8-bit floats as the bits that they are.
func loadedAs(t ptx.Type) ptx.Type {
	switch t {
	case ptx.S8:
		return ptx.S32
	case ptx.U8, ptx.B8, ptx.E4M3, ptx.E5M2:
		return ptx.U32
	}
	return t
}

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

// Load reads an element. Bytes come as 32-bit integers.
func (p Ptr) Load() Reg { return p.LoadVec(1)[0] }

// LoadVec reads n consecutive elements at once: 1, 2 or 4, of at most 16 bytes
// together. The address must be a multiple of their size.
func (p Ptr) LoadVec(n int) []Reg {
	vs := p.destinations(n)
	if vs != nil {
		p.k.emit(p.mnemonic("ld", n), vector(vs), p.addr())
	}
	return p.orBad(vs, n)
}

// LoadTo is LoadVec into variables.
func (p Ptr) LoadTo(vars ...Reg) {
	for _, v := range vars {
		if !p.k.variable("LoadTo", v) {
			return
		}
		if v.v.typ != loadedAs(p.elem) {
			p.k.fail("a load from memory of type .%v into %s", p.elem, v)
			return
		}
	}
	if p.usable() && p.vectorOf(len(vars)) {
		p.k.emit(p.mnemonic("ld", len(vars)), vector(vars), p.addr())
	}
}

// LoadVecOr0 is LoadVec where the predicate ok holds and zeros elsewhere, without a
// branch.
func (p Ptr) LoadVecOr0(ok Value, n int) []Reg {
	k := p.k
	c := k.reg(ok)
	switch {
	case !c.ok():
		return p.orBad(nil, n)
	case c.isBool(true):
		return p.LoadVec(n)
	case c.v.typ != ptx.Pred:
		k.fail("a load under %s, which is no predicate", c)
		return p.orBad(nil, n)
	}
	vs := p.destinations(n)
	for _, v := range vs {
		k.emit("mov."+moveType(v.v.typ).String(), v.v.node, k.operand(constInt(0), v.v.typ))
	}
	if vs != nil && !c.v.constant {
		guard := k.guarded(c)
		k.emit(p.mnemonic("ld", n), vector(vs), p.addr()).Guard = &ptx.Guard{Pred: guard.v.node}
	}
	return p.orBad(vs, n)
}

// destinations makes the registers of a load, unless there is something wrong with it.
func (p Ptr) destinations(n int) []Reg {
	if !p.usable() || !p.vectorOf(n) {
		return nil
	}
	vs := make([]Reg, n)
	for i := range vs {
		vs[i] = Reg{p.k.newValue(loadedAs(p.elem), p.k.cur)}
	}
	return vs
}

func (p Ptr) orBad(vs []Reg, n int) []Reg {
	if vs == nil {
		vs = make([]Reg, max(n, 1))
		for i := range vs {
			vs[i] = Reg{bad}
		}
	}
	return vs
}

func (p Ptr) vectorOf(n int) bool {
	if n != 1 && n != 2 && n != 4 || n*p.elem.Bytes() > 16 {
		p.k.fail("a vector of %d elements of type .%v: want 1, 2 or 4, in 16 bytes", n, p.elem)
		return false
	}
	return true
}

// Store writes v to an element.
func (p Ptr) Store(v Value) { p.StoreVec(v) }

// StoreVec writes consecutive elements at once, as [Ptr.LoadVec] reads them.
func (p Ptr) StoreVec(vs ...Value) {
	k := p.k
	if !p.usable() || !p.vectorOf(len(vs)) {
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
			k.fail("a store of %s to memory of type .%v: convert it with To", r, p.elem)
			return
		}
		operands[i] = r.v.node
	}
	k.emit(p.mnemonic("st", len(vs)), p.addr(), vectorOf(operands))
}

// constant is a constant in a register, for instructions that take no immediate of
// its type.
func (k *Kernel) constant(t ptx.Type, r Reg) Reg {
	mov := "mov." + moveType(t).String()
	o := k.operand(r, moveType(t))
	return k.place(t, mov, mov+" "+ptx.Format(o), []ptx.Operand{o}, nil)
}

func vector(vs []Reg) ptx.Operand {
	operands := make([]ptx.Operand, len(vs))
	for i, v := range vs {
		operands[i] = v.v.node
	}
	return vectorOf(operands)
}

// vectorOf is a list of operands as one: a single one stands for itself.
func vectorOf(operands []ptx.Operand) ptx.Operand {
	if len(operands) == 1 {
		return operands[0]
	}
	return &ptx.Vector{Elems: operands}
}

// sharedAlign is what shared arrays are aligned to, in bytes: what the widest vector
// access and ldmatrix ask for, and 128-byte swizzles.
const sharedAlign = 128

// dynamicName is the variable that dynamic shared memory goes by.
const dynamicName = "dynamic_shared"

// Array is a matrix in shared memory: rows×cols elements, row after row.
type Array struct {
	Ptr
	Rows, Cols int
	pitch      int64 // bytes
}

// Shared declares a matrix in shared memory. More columns than are used keep the
// rows out of each other's banks.
func (k *Kernel) Shared(name string, elem ptx.Type, rows, cols int) Array {
	if _, ok := k.sharedBytes(name, elem, rows, cols); ok {
		k.shared = append(k.shared, &ptx.Var{Pos: k.caller(), Space: ptx.Shared, Align: sharedAlign, Type: bitsOf(elem), Name: name, Dims: []int{rows, cols}})
	}
	return k.array(&ptx.Name{Name: name}, elem, rows, cols, 0)
}

// SharedDynamic is [Kernel.Shared] in dynamic shared memory, of which a block can
// have more than 48 KiB; see [Kernel.DynamicBytes].
func (k *Kernel) SharedDynamic(name string, elem ptx.Type, rows, cols int) Array {
	at := k.dynamic
	if bytes, ok := k.sharedBytes(name, elem, rows, cols); ok {
		k.dynamic += (bytes + sharedAlign - 1) / sharedAlign * sharedAlign
	}
	return k.array(&ptx.Name{Name: dynamicName}, elem, rows, cols, int64(at))
}

func (k *Kernel) array(sym *ptx.Name, elem ptx.Type, rows, cols int, at int64) Array {
	p := Ptr{k: k, space: ptx.Shared, elem: elem, sym: sym, off: at}
	return Array{p, rows, cols, int64(cols) * int64(elem.Bytes())}
}

func (k *Kernel) sharedBytes(name string, elem ptx.Type, rows, cols int) (n int, ok bool) {
	if !k.identifier(name) {
		return 0, false
	}
	if rows < 1 || cols < 1 || elem.Bytes() < 1 || int64(rows)*int64(cols) > math.MaxInt32/16 {
		k.fail("a shared array %s of %d×%d .%v", name, rows, cols, elem)
		return 0, false
	}
	return rows * cols * elem.Bytes(), true
}

// At points to element (i, j).
func (a Array) At(i, j Value) Ptr { return a.From(i, j).Ptr }

// From is the part of a that begins at element (i, j): with constant indices behind
// it, an access needs no further arithmetic.
func (a Array) From(i, j Value) Array {
	rows := index{i, constInt(a.pitch)}
	cols := index{j, constInt(int64(a.elem.Bytes()))}
	a.Ptr = a.Ptr.displaced(rows, cols)
	return a
}

// Load reads element (i, j).
func (a Array) Load(i, j Value) Reg { return a.At(i, j).Load() }

// LoadVec reads n elements from (i, j) on.
func (a Array) LoadVec(i, j Value, n int) []Reg { return a.At(i, j).LoadVec(n) }

// Store writes v to element (i, j).
func (a Array) Store(i, j, v Value) { a.At(i, j).Store(v) }
