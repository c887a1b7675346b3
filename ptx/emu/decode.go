package emu

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"tilework/ptx"
)

// always is the slot of a predicate that is true for all lanes. It guards instructions without a
// guard.
const always = 0

// slotAlign is the alignment of register slots: a cache line.
const slotAlign = 64

// decoder decodes one function.
type decoder struct {
	p      *Program
	f      *function
	labels map[*ptx.Label]int32
	consts map[constant]uint32
	filled map[fill]uint32
	unused map[*ptx.Instr]uint64 // unused bytes of loads
	// State of the current instruction.
	i       *ptx.Instr
	in      *inst
	negated []negation
	err     error
}

// negation is a negated predicate operand: the slots of the predicate and of its negation.
type negation struct{ from, to uint32 }

// decodeFunc sets the operands of the current instruction and returns its execFunc. It returns nil
// if the emulator does not support the instruction.
type decodeFunc func(d *decoder) execFunc

func (p *Program) decode(f *function) error {
	f.first = len(p.sites)
	switch {
	case f.Entry && f.paramSize > maxParams:
		return unsupported(f.Pos, "%s: %d bytes of parameters, more than %d,", f.Name, f.paramSize, maxParams)
	case len(f.registers) > maxRegisters:
		return unsupported(f.Pos, "%s: a function of more than %d registers", f.Name, maxRegisters)
	}
	d := &decoder{p: p, f: f, labels: map[*ptx.Label]int32{}, consts: map[constant]uint32{}, filled: map[fill]uint32{}}
	d.collect()
	for k := range f.code {
		in := &f.code[k]
		d.i, d.in = in.site.Instr, in
		if err := d.instruction(); err != nil {
			return err
		}
	}
	if f.frameSize > maxFrame {
		return unsupported(f.Pos, "%s: a function with %s of registers and constants per warp, more than %s,", f.Name,
			bytesText(uint64(f.frameSize)), bytesText(maxFrame))
	}
	f.findDeciding()
	// A body that ends without ret or exit returns.
	f.code = append(f.code, inst{exec: execRet, pc: int32(len(f.code)), index: int32(len(p.sites)), site: &Site{
		Func: f.Name, Index: len(p.sites), Pos: f.Body.Pos, Opcode: "ret", Instr: &ptx.Instr{Op: "ret"},
	}})
	p.sites = append(p.sites, f.code[len(f.code)-1].site)
	return d.orderBlocks()
}

// findDeciding sets Site.Decides of the volatile loads whose result the branch after them may
// depend on: through registers, or through a variable of the thread, as in code without
// optimisation. It follows the registers that decide a branch backwards from the branch.
func (f *function) findDeciding() {
	branch := 1                                 // number of the branch, counted from the end
	decides := make([]int, len(f.registers))    // by register: the last branch that its value decides
	mark := func(list []register, branch int) { // branch 0 is none
		for _, r := range list {
			decides[r.index] = branch
		}
	}
	for k := range slices.Backward(f.code) {
		in := &f.code[k]
		i := in.site.Instr
		decided := slices.ContainsFunc(in.writes, func(r register) bool { return decides[r.index] == branch })
		if i.Op == "ld" && i.Has("volatile") {
			in.site.Decides = decided
		}
		ends := i.Op == "bra" && i.Guard != nil || i.Op == "ret" || i.Op == "exit"
		if ends {
			branch++
		}
		mark(in.writes, 0)
		switch {
		case ends && i.Guard != nil:
			decides[i.Guard.Pred.Sym.Index] = branch
		case ends:
		case decided, i.Op == "st" && !i.Has("volatile"):
			mark(in.reads, branch) // includes the guard
		}
	}
}

// Limits of a function. maxParams is the number of bytes of a kernel's parameters (manual:
// "kernel-function-parameters").
const (
	maxParams    = 32764
	maxRegisters = 1 << 20
	maxFrame     = 1 << 30 // bytes of a frame's register file
)

// layOut assigns offsets to the function's parameters and registers. Calls need them before the
// function itself is decoded.
func (f *function) layOut() {
	f.uses = map[*variable]bool{}
	f.layout, f.inRegisters = map[*ptx.Var]uint64{}, map[*ptx.Var]uint32{}
	var size uint64
	for _, v := range slices.Concat(f.Results, f.Params) {
		if v.Space == ptx.RegSpace {
			f.inRegisters[v] = always // not used
			continue
		}
		size = alignUp(size, v.Alignment())
		f.layout[v] = size
		size += uint64(v.Size())
	}
	if f.Entry {
		f.paramSize = int(min(size, math.MaxInt32))
		f.buffered = make(map[*ptx.Var]bool, len(f.Params))
		for _, v := range f.Params {
			f.buffered[v] = true
		}
	} else {
		f.localSize = size
	}
	f.registers = f.Func.Registers
	f.slots = make([]uint32, len(f.registers))
	at := uint32(slotAlign) // the first slot holds always
	for n, sym := range f.registers {
		f.slots[n] = at
		if _, ok := f.inRegisters[sym.Var]; ok {
			f.inRegisters[sym.Var] = at
		}
		at += slotSize(sym.Type) * uint32(max(sym.Vec, 1))
	}
	f.clear, f.frameSize = at, at
}

func alignUp(n uint64, align int) uint64 {
	return (n + uint64(align) - 1) &^ (uint64(align) - 1)
}

// slotSize returns the bytes of a register of type t for 32 lanes.
func slotSize(t ptx.Type) uint32 {
	if t == ptx.Pred {
		return slotAlign
	}
	return max(lanes*uint32(t.Bytes()), slotAlign)
}

// collect lists the instructions, labels and variables of the body.
func (d *decoder) collect() {
	f, p := d.f, d.p
	instructions := 1 // the return at the end of the body
	f.Body.Walk(func(s ptx.Stmt) {
		if _, ok := s.(*ptx.Instr); ok {
			instructions++
		}
	})
	f.code, p.sites = make([]inst, 0, instructions), slices.Grow(p.sites, instructions)
	d.unused = map[*ptx.Instr]uint64{}
	unused := uint64(0) // of the next instruction
	var source ptx.Pos
	lines := sourceLines{program: p, calls: map[ptx.Loc]*ptx.Loc{}}
	f.Body.Walk(func(s ptx.Stmt) {
		switch s := s.(type) {
		case *ptx.Label:
			d.labels[s] = int32(len(f.code))
		case *ptx.Loc:
			source = lines.of(s)
		case *ptx.Pragma:
			// Padding of a structure that is copied by words (manual: "pragma-strings-used-bytes-mask").
			if text, ok := strings.CutPrefix(s.Text, "used_bytes_mask "); ok {
				if used, err := strconv.ParseUint(strings.TrimSpace(text), 0, 32); err == nil {
					unused = ^used
				}
			}
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
			if unused != 0 {
				d.unused[s], unused = unused, 0
			}
		}
	})
}

// sourceLines finds the source lines of a function's instructions.
type sourceLines struct {
	program *Program
	calls   map[ptx.Loc]*ptx.Loc // InlinedAt of the lines so far
}

// maxInlined is the maximum number of calls that are followed from an inlined line. The calls can
// be recursive.
const maxInlined = 64

// of returns the position of l in the file of the kernel. For a line in a function of another file
// that was inlined, such as a header of CUDA, this is the position of the call.
func (s *sourceLines) of(l *ptx.Loc) ptx.Pos {
	place := func(l *ptx.Loc) ptx.Loc { return ptx.Loc{File: l.File, Line: l.Line, Col: l.Col} }
	if l.InlinedAt != nil {
		s.calls[place(l)] = l.InlinedAt
	}
	outer := l
	for range min(len(s.calls)+1, maxInlined) {
		at := outer.InlinedAt
		if at == nil {
			at = s.calls[place(outer)]
		}
		if at == nil {
			break
		}
		outer = at
	}
	for range min(len(s.calls)+1, maxInlined) {
		if l.File == outer.File {
			break
		}
		if l.InlinedAt == nil {
			l = s.calls[place(l)]
		} else {
			l = l.InlinedAt
		}
	}
	return s.program.source(l)
}

// instruction decodes the current instruction.
func (d *decoder) instruction() error {
	i := d.i
	if reason := refused(i); reason != "" {
		return unsupported(i.Pos, "%s (%s)", i.Mnemonic(), reason)
	}
	d.err, d.negated = nil, nil
	row := instructions[i.Op]
	d.in.flow, d.in.bits = row.flow, row.bits
	d.in.guard = always
	if g := i.Guard; g != nil {
		d.in.guard = d.register(g.Pred, &d.in.reads)
		if g.Neg {
			d.in.guardNot = full
		}
	}
	if row.decode != nil {
		d.in.exec = row.decode(d)
	}
	switch {
	case d.err != nil:
		return d.err
	case d.in.exec == nil:
		return unsupported(i.Pos, "%s", i.Mnemonic())
	case d.negated != nil:
		d.in.exec = negating(d.negated, d.in.exec)
	}
	return nil
}

// negating returns an execFunc that sets the negated operands before it calls exec.
func negating(operands []negation, exec execFunc) execFunc {
	return func(w *warp, in *inst) {
		for _, n := range operands {
			*pred(w, n.to) = ^*pred(w, n.from)
		}
		exec(w, in)
	}
}

// fail records the first error of the current instruction.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// register returns the slot of a register and appends the register to list.
func (d *decoder) register(n *ptx.Name, list *[]register) uint32 {
	sym := n.Sym
	*list = append(*list, register{sym.Index, sym})
	at := d.f.slots[sym.Index]
	if n.Member != "" && sym.Vec > 0 {
		at += uint32(memberIndex(n.Member)) * slotSize(sym.Type)
	}
	return at
}

// memberIndex returns the index of a vector member: x, y, z, w or r, g, b, a.
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

// operands sets d, a, b, c and e to the slots of the operands, in order. The first operand is the
// result. Each must be a single register.
func (d *decoder) operands() {
	slots := []*uint32{&d.in.a, &d.in.b, &d.in.c, &d.in.e}
	d.in.d = d.result(0)
	for k := 1; k < len(d.i.Args); k++ {
		*slots[k-1] = d.source(k)
	}
}

// result returns the slot of argument k as a result that the instruction writes through dst.
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

// writable returns the slot of a register to write, or an unused slot if the operand is a sink.
func (d *decoder) writable(arg ptx.Operand, t ptx.Type) uint32 {
	if n, ok := arg.(*ptx.Name); ok {
		return d.register(n, &d.in.writes)
	}
	return d.reserve(slotSize(t)) // sink
}

// secondResult returns the slot of the predicate after | in argument k. ok is false if there is
// none.
func (d *decoder) secondResult(k int) (slot uint32, ok bool) {
	p, ok := d.i.Args[k].(*ptx.Pair)
	if !ok {
		return 0, false
	}
	return d.writable(p.Second, ptx.Pred), true
}

// source returns the slot of argument k as a source operand.
func (d *decoder) source(k int) uint32 { return d.value(d.i.Args[k], d.i.Type(k)) }

// value returns the slot of an operand that is read as type t.
func (d *decoder) value(arg ptx.Operand, t ptx.Type) uint32 {
	switch a := arg.(type) {
	case *ptx.Not:
		n := negation{d.register(a.X, &d.in.reads), d.reserve(slotAlign)}
		d.negated = append(d.negated, n)
		return n.to
	case *ptx.Minus:
		return d.register(a.X, &d.in.reads) // the instruction negates it
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
		case ptx.FuncSymbol:
			return d.constant(t, d.p.functions[a.Name].address)
		}
	}
	d.fail(unsupported(d.i.Pos, "%s: operand %s", d.i.Mnemonic(), ptx.Format(arg)))
	return always
}

// vector returns the slots of the elements of argument k.
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

// constant returns the slot of an immediate of type t.
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

// reserve adds n bytes to the frame, after the registers, and returns their offset.
func (d *decoder) reserve(n uint32) uint32 {
	at := d.f.frameSize
	d.f.frameSize += n
	return at
}

// immediate returns the bits of m as a value of type t.
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

// constInt returns the value of argument k, which is an immediate.
func (d *decoder) constInt(k int) int64 { return int64(d.i.Args[k].(*ptx.Imm).Bits) }

// address returns the slot of the address of v plus an offset, as a value of size bytes.
func (d *decoder) address(v *ptx.Var, offset int64, size int) uint32 {
	f := fill{size: uint8(size), add: uint64(offset)}
	if at, ok := d.f.layout[v]; ok {
		f.add += at
		if f.kind = fillLocal; d.f.buffered[v] {
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

// fill returns the slot of a value that each call of the function sets.
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
