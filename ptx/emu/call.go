package emu

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"tilework/ptx"
)

// call holds the operands of a call instruction.
type call struct {
	fn *function
	// Locations of the arguments and the result in the caller, and in the callee.
	args, params   []passedValue
	result, target passedValue
	returns        bool
}

// passedValue is the location of an argument or result in a frame: a register or bytes of the
// frame's local memory.
type passedValue struct {
	register bool
	offset   uint64
	size     uint64
}

// bytes returns the value of a lane.
func (p passedValue) bytes(w *warp, f *frame, lane int) []byte {
	if p.register {
		return unsafe.Slice((*byte)(f.at(uint32(p.offset)+uint32(lane)*uint32(p.size))), p.size)
	}
	at := uint64(lane)*uint64(w.block.run.localSize) + f.local + p.offset
	return unsafe.Slice((*byte)(unsafe.Pointer(&w.local[0])), len(w.local)*8)[at : at+p.size]
}

// pass copies the values of the active lanes from a location in one frame to a location in another.
func (w *warp) pass(to passedValue, callee *frame, from passedValue, caller *frame) {
	for m := w.active; m != 0; m &= m - 1 {
		lane := firstLane(m)
		copy(to.bytes(w, callee, lane), from.bytes(w, caller, lane))
	}
	if w.tracks {
		w.passUndefined(to, callee, from, caller)
	}
}

func decodeCall(d *decoder) execFunc {
	var results, args []ptx.Operand
	var callee, through *ptx.Name // through is the prototype or the list of functions
	target := 0                   // index of the argument callee
	for k, arg := range d.i.Args {
		switch a := arg.(type) {
		case *ptx.Name:
			if d.i.Operand(k).Kind == ptx.ProtoOperand {
				through = a
			} else {
				callee, target = a, k
			}
		case *ptx.Args:
			if d.i.Operand(k).Dst {
				results = a.List
			} else {
				args = a.List
			}
		}
	}
	if through != nil {
		return d.indirectCall(d.source(target), d.p.callable(through.Sym), results, args)
	}
	fn := d.p.functions[callee.Name]
	if fn.Body == nil {
		return d.deviceCall(fn, results, args)
	}
	c := d.callOf(fn, results, args)
	return func(w *warp, in *inst) { w.call(in, c) }
}

// callOf decodes the arguments and results of a call of fn.
func (d *decoder) callOf(fn *function, results, args []ptx.Operand) *call {
	d.f.calls = append(d.f.calls, fn)
	c := &call{fn: fn}
	for k, arg := range args {
		c.args = append(c.args, d.passed(arg, fn.Params[k], false))
		c.params = append(c.params, d.parameter(fn.Params[k], fn))
	}
	if len(results) > 0 {
		if _, sink := results[0].(*ptx.Sink); !sink {
			c.result, c.returns = d.passed(results[0], fn.Results[0], true), true
			c.target = d.parameter(fn.Results[0], fn)
		}
	}
	return c
}

// Functions have addresses of their own, which no memory has. Their order is that of the source.
const (
	functionWindow = 0x40_0000_0000
	functionStep   = 16
)

// callable returns the functions that an indirect call can call, given the symbol of its prototype
// or list of functions.
func (p *Program) callable(through *ptx.Symbol) []*function {
	var fs []*function
	if through.Kind == ptx.TargetsSymbol {
		for _, n := range through.Targets.List {
			fs = append(fs, p.functions[n.Name])
		}
		return fs
	}
	return p.addressed[signature(through.Func)]
}

// signature returns a text that functions have in common if [ptx.Func.SameSignature] is true for
// them.
func signature(f *ptx.Func) string {
	var b strings.Builder
	fmt.Fprint(&b, f.Entry)
	for _, list := range [][]*ptx.Var{f.Results, f.Params} {
		fmt.Fprint(&b, ":")
		for _, v := range list {
			fmt.Fprint(&b, v.Space, v.Size(), ",")
		}
	}
	return b.String()
}

// findAddressed sets p.addressed to the functions whose addresses the module uses.
func (p *Program) findAddressed() {
	names := map[string]bool{}
	use := func(o ptx.Operand) {
		if n, ok := o.(*ptx.Name); ok && n.Sym != nil && n.Sym.Kind == ptx.FuncSymbol {
			names[n.Name] = true
		}
	}
	var initial func(n *ptx.Init)
	initial = func(n *ptx.Init) {
		use(n.Value)
		for _, e := range n.List {
			initial(e)
		}
	}
	for _, d := range p.module.Decls {
		if v, ok := d.(*ptx.Var); ok && v.Init != nil {
			initial(v.Init)
		}
		if f, ok := d.(*ptx.Func); ok && f.Body != nil {
			f.Body.Walk(func(s ptx.Stmt) {
				if i, ok := s.(*ptx.Instr); ok && i.Op == "mov" && len(i.Args) == 2 {
					use(i.Args[1])
				}
			})
		}
	}
	p.addressed = map[string][]*function{}
	for _, f := range p.ordered() {
		if names[f.Name] {
			p.addressed[signature(f.Func)] = append(p.addressed[signature(f.Func)], f)
		}
	}
}

// maxIndirect is the maximum number of operands of all indirect calls of a program, where a call
// counts once for each function that it can call.
const maxIndirect = 1 << 20

// indirectCall decodes a call of the function whose address is in a slot.
func (d *decoder) indirectCall(slot uint32, callees []*function, results, args []ptx.Operand) execFunc {
	if d.p.indirect += len(callees) * (1 + len(results) + len(args)); d.p.indirect > maxIndirect {
		d.fail(unsupported(d.i.Pos, "a program whose indirect calls have more than %d operands, counted for each function "+
			"that they can call,", maxIndirect))
		return nil
	}
	calls := map[uint64]*call{}
	for _, fn := range callees {
		if fn.Body == nil {
			d.fail(unsupported(d.i.Pos, "an indirect call of function %s, which is declared but not defined,", fn.Name))
			return nil
		}
		calls[fn.address] = d.callOf(fn, results, args)
	}
	return func(w *warp, in *inst) {
		address := uniform(w, in, reg[uint64](w, slot))
		if c := calls[address]; c != nil {
			w.call(in, c)
			return
		}
		w.misuse(in, "address %#x is not that of a function which this instruction can call", address)
	}
}

// passed returns the location of an argument or a result in the caller.
func (d *decoder) passed(arg ptx.Operand, param *ptx.Var, result bool) passedValue {
	if n, ok := arg.(*ptx.Name); ok && n.Sym.Kind == ptx.VarSymbol {
		v := n.Sym.Var
		if at, ok := d.f.layout[v]; ok && v.Space == ptx.Param && !d.f.buffered[v] {
			return passedValue{offset: at, size: uint64(v.Size())}
		}
	}
	p := passedValue{register: true, size: uint64(param.Type.Bytes())}
	if result {
		p.offset = uint64(d.writable(arg, param.Type))
	} else {
		p.offset = uint64(d.value(arg, param.Type))
	}
	return p
}

// parameter returns the location of a parameter in the callee.
func (d *decoder) parameter(v *ptx.Var, callee *function) passedValue {
	if v.Type == ptx.Pred || v.Space == ptx.RegSpace && v.Vec > 0 {
		d.fail(unsupported(v.Pos, "the type of parameter %s", v.Name))
	}
	if v.Space != ptx.RegSpace {
		return passedValue{offset: callee.layout[v], size: uint64(v.Size())}
	}
	at := callee.inRegisters[v]
	if at == always {
		return passedValue{} // the callee does not use it
	}
	return passedValue{register: true, offset: uint64(at), size: uint64(v.Type.Bytes())}
}

// call calls a function for the active lanes.
func (w *warp) call(in *inst, c *call) {
	if w.frame.localEnd()+c.fn.stackBytes() > uint64(w.block.run.localSize) {
		w.fail(w.siteError(ErrMisuse, in, "nested calls exceed the %s of local memory per thread",
			bytesText(uint64(w.block.run.localSize))))
		return
	}
	f, err := w.newFrame(c.fn, w.frame, w.active)
	if err != nil {
		w.fail(fmt.Errorf("%v: warp %d of block %v: %w", in.site, w.index, w.block.index, err))
		return
	}
	f.call, f.passing, f.next = in, c, w.pc
	for k := range c.args {
		w.pass(c.params[k], f, c.args[k], w.frame)
	}
	w.continueIn(f, 0)
}

// execRet exits the threads in a kernel and returns to the caller in a function.
func execRet(w *warp, in *inst) {
	f := w.frame
	if f.caller == nil {
		w.exit(w.active)
		return
	}
	if slices.ContainsFunc(w.matrices.using, func(u use) bool { return u.frame == f }) {
		w.misuse(in, "the function returns with a wgmma.mma_async in flight: want a wgmma.wait_group before")
		return
	}
	if c := f.passing; c.returns {
		w.pass(c.result, f.caller, c.target, f)
	}
	w.release(f, w.active)
	w.continueIn(f.caller, f.next)
}

// continueIn moves the active lanes to a frame.
func (w *warp) continueIn(f *frame, pc int32) {
	g := &w.groups[w.group]
	w.groups = append(w.groups, group{frame: f, pc: pc, mask: w.active, from: none, polls: g.polls, polled: g.polled})
	w.leaveGroup(w.active)
}
