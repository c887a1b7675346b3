package emu

import (
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
}

func decodeCall(d *decoder) execFunc {
	var results, args []ptx.Operand
	var name string
	for k, arg := range d.i.Args {
		switch a := arg.(type) {
		case *ptx.Name:
			name = a.Name
		case *ptx.Args:
			if d.i.Operand(k).Dst {
				results = a.List
			} else {
				args = a.List
			}
		}
	}
	callee := d.p.functions[name]
	if callee.Body == nil {
		return d.deviceCall(callee, results, args)
	}
	d.f.calls = append(d.f.calls, callee)
	c := &call{fn: callee}
	for k, arg := range args {
		c.args = append(c.args, d.passed(arg, callee.Params[k], false))
		c.params = append(c.params, d.parameter(callee.Params[k], callee))
	}
	if len(results) > 0 {
		if _, sink := results[0].(*ptx.Sink); !sink {
			c.result, c.returns = d.passed(results[0], callee.Results[0], true), true
			c.target = d.parameter(callee.Results[0], callee)
		}
	}
	d.in.x = c
	return execCall
}

// passed returns the location of an argument or a result in the caller.
func (d *decoder) passed(arg ptx.Operand, param *ptx.Var, result bool) passedValue {
	if n, ok := arg.(*ptx.Name); ok && n.Sym.Kind == ptx.VarSymbol {
		v := n.Sym.Var
		if at, ok := d.f.layout[v]; ok && v.Space == ptx.Param && !(d.f.Entry && isParameter(d.f, v)) {
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
	p := passedValue{register: true, size: uint64(v.Type.Bytes())}
	for n, sym := range callee.registers {
		if sym.Var == v {
			p.offset = uint64(callee.slots[n])
			return p
		}
	}
	return passedValue{} // the callee does not use it
}

func execCall(w *warp, in *inst) {
	c := in.x.(*call)
	f := w.newFrame(c.fn, w.frame, w.active)
	if f.local+c.fn.localSize > uint64(w.block.run.localSize) {
		w.fail(w.siteError(ErrMisuse, in, "nested calls exceed the %s of local memory per thread",
			bytesText(uint64(w.block.run.localSize))))
		return
	}
	f.call, f.next = in, w.pc
	for k := range c.args {
		w.pass(c.params[k], f, c.args[k], w.frame)
	}
	if f.written != nil { // parameters in registers are initialized
		for n, sym := range c.fn.registers {
			if sym.Var != nil && sym.Var.Count == 0 && isParameter(c.fn, sym.Var) {
				f.written[n] = w.active
			}
		}
	}
	w.groups = append(w.groups, group{frame: f, mask: w.active, from: none})
	w.leaveGroup(w.active)
}

func isParameter(f *function, v *ptx.Var) bool {
	for _, p := range f.Params {
		if p == v {
			return true
		}
	}
	return false
}

// execRet exits the threads in a kernel and returns to the caller in a function.
func execRet(w *warp, in *inst) {
	f := w.frame
	if f.caller == nil {
		w.exit(w.active)
		return
	}
	if c := f.call.x.(*call); c.returns {
		w.pass(c.result, f.caller, c.target, f)
	}
	w.groups = append(w.groups, group{frame: f.caller, pc: f.next, mask: w.active, from: none})
	w.release(f, w.active)
	w.leaveGroup(w.active)
}
