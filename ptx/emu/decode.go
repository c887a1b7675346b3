package emu

import (
	"math"
	"slices"

	"tilework/ptx"
)

// always is the place of the predicate that guards an instruction without a guard.
const always = 0

// slotAlign is what the places of registers are multiples of: a cache line.
const slotAlign = 64

// decoder decodes one function.
type decoder struct {
	p      *Program
	f      *function
	labels map[*ptx.Label]int32
	consts map[constant]uint32
	filled map[fill]uint32
	// Of the instruction under way.
	i   *ptx.Instr
	in  *inst
	err error
}

// decodeFunc sets the operands of the instruction under way and returns what executes
// it; nil for what the emulator does not execute.
type decodeFunc func(d *decoder) execFunc

func (p *Program) decode(f *function) error {
	f.first = len(p.sites)
	d := &decoder{p: p, f: f, labels: map[*ptx.Label]int32{}, consts: map[constant]uint32{}, filled: map[fill]uint32{}}
	d.collect()
	for k := range f.code {
		in := &f.code[k]
		d.i, d.in = in.site.Instr, in
		if err := d.instruction(); err != nil {
			return err
		}
	}
	// A body that ends without ret or exit returns.
	f.code = append(f.code, inst{exec: execRet, pc: int32(len(f.code)), index: int32(len(p.sites)), site: &Site{
		Func: f.Name, Index: len(p.sites), Pos: f.Body.Pos, Opcode: "ret", Instr: &ptx.Instr{Op: "ret"},
	}})
	p.sites = append(p.sites, f.code[len(f.code)-1].site)
	d.orderBlocks()
	return nil
}

// place lays the function's parameters and registers out. Calls need to know where they are
// before the function itself is decoded.
func (f *function) layOut() {
	f.uses = map[*variable]bool{}
	f.layout = map[*ptx.Var]uint64{}
	var size uint64
	for _, v := range slices.Concat(f.Results, f.Params) {
		if v.Space == ptx.RegSpace {
			continue
		}
		size = alignUp(size, v.Alignment())
		f.layout[v] = size
		size += uint64(v.Size())
	}
	if f.Entry {
		f.paramSize = int(size)
	} else {
		f.localSize = size
	}
	f.registers = f.Func.Registers
	f.slots = make([]uint32, len(f.registers))
	at := uint32(slotAlign) // the first holds always
	for n, sym := range f.registers {
		f.slots[n] = at
		at += slotSize(sym.Type) * uint32(max(sym.Vec, 1))
	}
	f.clear, f.frameSize = at, at
}

func alignUp(n uint64, align int) uint64 {
	return (n + uint64(align) - 1) &^ (uint64(align) - 1)
}

// slotSize is the bytes that a register of 32 lanes takes.
func slotSize(t ptx.Type) uint32 {
	if t == ptx.Pred {
		return slotAlign
	}
	return max(lanes*uint32(t.Bytes()), slotAlign)
}

// collect lists the instructions of the body, with their places, the labels and the
// variables that are declared in it.
func (d *decoder) collect() {
	f, p := d.f, d.p
	var source ptx.Pos
	f.Body.Walk(func(s ptx.Stmt) {
		switch s := s.(type) {
		case *ptx.Label:
			d.labels[s] = int32(len(f.code))
		case *ptx.Loc:
			source = p.module.Source(s)
		case *ptx.Var:
			switch s.Space {
			case ptx.RegSpace:
			case ptx.Local, ptx.Param:
				at := alignUp(f.localSize, s.Alignment())
				f.layout[s] = at
				f.localSize = at + uint64(s.Size())
			default:
				p.newVariable(s)
			}
		case *ptx.Instr:
			site := &Site{
				Func: f.Name, Index: len(p.sites), Pos: s.Pos, Source: source,
				Opcode: s.Mnemonic(), Instr: s,
			}
			p.sites = append(p.sites, site)
			f.code = append(f.code, inst{pc: int32(len(f.code)), index: int32(site.Index), site: site})
		}
	})
}

// instruction decodes the instruction under way.
func (d *decoder) instruction() error {
	i := d.i
	if reason := refused(i); reason != "" {
		return unsupported(i.Pos, "%s (%s)", i.Mnemonic(), reason)
	}
	d.err = nil
	d.in.guard = always
	if g := i.Guard; g != nil {
		d.in.guard = d.register(g.Pred, &d.in.reads)
		if g.Neg {
			d.in.guardNot = full
		}
	}
	if decode := registry[i.Op]; decode != nil {
		d.in.exec = decode(d)
	}
	switch {
	case d.err != nil:
		return d.err
	case d.in.exec == nil:
		return unsupported(i.Pos, "%s", i.Mnemonic())
	}
	return nil
}

// fail keeps the first thing that is wrong with the instruction under way.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// register is the place of a register, which is noted in list.
func (d *decoder) register(n *ptx.Name, list *[]register) uint32 {
	sym := n.Sym
	*list = append(*list, register{sym.Index, sym})
	at := d.f.slots[sym.Index]
	if n.Member != "" {
		at += uint32(memberIndex(n.Member)) * slotSize(sym.Type)
	}
	return at
}

// memberIndex is the element that a member names: x, y, z, w or r, g, b, a.
func memberIndex(member string) int {
	for _, names := range []string{"xyzw", "rgba"} {
		for k := range names {
			if names[k:k+1] == member {
				return k
			}
		}
	}
	return 0
}

// operands sets d, a, b, c and e to the instruction's operands, in order. The
// result is the first one; all have one register each.
func (d *decoder) operands() {
	slots := []*uint32{&d.in.a, &d.in.b, &d.in.c, &d.in.e}
	d.in.d = d.result(0)
	for k := 1; k < len(d.i.Args); k++ {
		*slots[k-1] = d.source(k)
	}
}

// result is the place of argument k, to write it whole: all lanes by way of dst.
func (d *decoder) result(k int) uint32 {
	arg := d.i.Args[k]
	if p, ok := arg.(*ptx.Pair); ok {
		arg = p.First
	}
	t := d.i.Type(k)
	if t != ptx.Pred {
		d.in.blend = uint8(t.Info().Storage.Bytes())
	}
	return d.writable(arg, t)
}

// writable is the place of a register to write, or a place that nobody reads.
func (d *decoder) writable(arg ptx.Operand, t ptx.Type) uint32 {
	if n, ok := arg.(*ptx.Name); ok {
		return d.register(n, &d.in.writes)
	}
	return d.reserve(slotSize(t)) // a sink
}

// second is the place of the predicate behind | in argument k; ok is false without
// one.
func (d *decoder) secondResult(k int) (slot uint32, ok bool) {
	p, ok := d.i.Args[k].(*ptx.Pair)
	if !ok {
		return 0, false
	}
	return d.writable(p.Second, ptx.Pred), true
}

// source is the place of argument k, to read it.
func (d *decoder) source(k int) uint32 { return d.value(d.i.Args[k], d.i.Type(k)) }

// negated tells whether argument k is !p.
func (d *decoder) isNegated(k int) bool {
	_, ok := d.i.Args[k].(*ptx.Not)
	return ok
}

// value is the place of an operand to read as type t.
func (d *decoder) value(arg ptx.Operand, t ptx.Type) uint32 {
	switch a := arg.(type) {
	case *ptx.Not:
		return d.register(a.X, &d.in.reads)
	case *ptx.Imm:
		return d.constant(t, immediate(a, t))
	case *ptx.Sum:
		return d.address(a.Base.Sym.Var, a.Offset, t.Bytes())
	case *ptx.Name:
		switch a.Sym.Kind {
		case ptx.RegisterSymbol:
			return d.register(a, &d.in.reads)
		case ptx.SpecialSymbol:
			return d.special(a)
		case ptx.VarSymbol:
			return d.address(a.Sym.Var, 0, t.Bytes())
		}
	}
	d.fail(unsupported(d.i.Pos, "%s: operand %s", d.i.Mnemonic(), ptx.Format(arg)))
	return always
}

// vector is the places of the elements of argument k, to read or to write.
func (d *decoder) vector(k int) []uint32 {
	arg, t := d.i.Args[k], d.i.Type(k)
	var elems []ptx.Operand
	switch a := arg.(type) {
	case *ptx.Vector:
		elems = a.Elems
	case *ptx.Name:
		if a.Sym.Kind == ptx.RegisterSymbol && a.Sym.Vec > 0 && a.Member == "" {
			for n := range a.Sym.Vec {
				elems = append(elems, &ptx.Name{Name: a.Name, Sym: a.Sym, Member: "xyzw"[n : n+1]})
			}
		}
	}
	if elems == nil {
		elems = []ptx.Operand{arg}
	}
	slots := make([]uint32, len(elems))
	for n, e := range elems {
		if d.i.Operand(k).Dst {
			slots[n] = d.writable(e, t)
		} else {
			slots[n] = d.value(e, t)
		}
	}
	return slots
}

// constant is the place of an immediate of type t.
func (d *decoder) constant(t ptx.Type, bits uint64) uint32 {
	c := constant{size: uint8(t.Info().Storage.Bytes()), bits: bits}
	if t == ptx.Pred {
		c.size = 0
	}
	at, ok := d.consts[c]
	if !ok {
		at = d.reserve(slotSize(t))
		d.consts[c] = at
		c.offset = at
		d.f.constants = append(d.f.constants, c)
	}
	return at
}

// grow adds n bytes to the frame behind the registers.
func (d *decoder) reserve(n uint32) uint32 {
	at := d.f.frameSize
	d.f.frameSize += n
	return at
}

// immediate is the bits of m as a value of type t.
func immediate(m *ptx.Imm, t ptx.Type) uint64 {
	switch {
	case m.Kind == ptx.F32Bits && t == ptx.F64:
		return math.Float64bits(float64(math.Float32frombits(uint32(m.Bits))))
	case m.Kind == ptx.F64Bits && t == ptx.F32:
		return uint64(math.Float32bits(float32(math.Float64frombits(m.Bits))))
	case t == ptx.Pred:
		return -(m.Bits & 1) // a mask
	}
	return m.Bits
}

// constInt is argument k, which is an immediate.
func (d *decoder) constInt(k int) int64 { return int64(d.i.Args[k].(*ptx.Imm).Bits) }

// address is the place of the address of a variable plus an offset, size bytes wide.
func (d *decoder) address(v *ptx.Var, offset int64, size int) uint32 {
	f := fill{size: uint8(size), add: uint64(offset)}
	if at, ok := d.f.layout[v]; ok {
		f.add += at
		if f.kind = fillLocal; d.f.Entry && isParameter(d.f, v) {
			return d.constant(map[int]ptx.Type{4: ptx.U32, 8: ptx.U64}[size], f.add)
		}
	} else {
		n := d.p.byVar[v]
		d.f.uses[n] = true
		if f.kind, f.index = fillVariable, int32(n.index); v.Space == ptx.Shared {
			f.kind = fillShared
		}
	}
	return d.fill(f)
}

// fill is the place of a value that each call of the function sets.
func (d *decoder) fill(f fill) uint32 {
	at, ok := d.filled[f]
	if !ok {
		at = d.reserve(max(lanes*uint32(f.size), slotAlign))
		d.filled[f] = at
		f.offset = at
		d.f.fills = append(d.f.fills, f)
	}
	return at
}
