package build

import (
	"fmt"
	"slices"
	"strings"

	"tilework/ptx"
)

// scope is a block of the kernel, with the instructions emitted in it and the values computed so
// far.
type scope struct {
	outer *scope
	// hoist reports whether operations on values from outside the block are emitted before
	// it. It is set for loop bodies and for predicated instructions.
	hoist bool
	guard Reg // predicate of the instructions in the block, if any
	stmts []ptx.Stmt
	known map[string]Reg // results of pure instructions, by the keys of place
}

// within reports whether s is o or nested inside o.
func (s *scope) within(o *scope) bool {
	for ; s != nil; s = s.outer {
		if s == o {
			return true
		}
	}
	return false
}

// block calls f with s as the current block and returns s.
func (k *Kernel) block(s *scope, f func()) *scope {
	s.outer, s.known = k.cur, map[string]Reg{}
	k.cur = s
	f()
	k.cur = s.outer
	return s
}

// emit appends an instruction to the current block.
func (k *Kernel) emit(mnemonic string, args ...ptx.Operand) *ptx.Instr {
	return k.emitIn(k.cur, mnemonic, args...)
}

func (k *Kernel) emitIn(s *scope, mnemonic string, args ...ptx.Operand) *ptx.Instr {
	parts := strings.Split(mnemonic, ".")
	i := &ptx.Instr{Pos: k.caller(), Op: parts[0], Mods: parts[1:], Args: args}
	if s.guard.v != nil {
		i.Guard = &ptx.Guard{Pred: s.guard.v.node}
	}
	s.stmts = append(s.stmts, i)
	return i
}

// result emits an instruction in the current block and returns its result.
func (k *Kernel) result(t ptx.Type, mnemonic string, args ...ptx.Operand) Reg {
	v := k.newValue(t, k.cur)
	k.pure[k.emit(mnemonic, append([]ptx.Operand{v.node}, args...)...)] = v
	return Reg{v}
}

// pureOp returns the result of an instruction without side effects. It emits the instruction in
// the block that [Kernel.home] selects, unless an equal one is already available.
func (k *Kernel) pureOp(t ptx.Type, mnemonic string, in ptx.Type, args ...Reg) Reg {
	operands := make([]ptx.Operand, len(args))
	key := mnemonic
	for n, a := range args {
		if !a.ok() {
			return a
		}
		operands[n] = k.operand(a, in)
		if name, ok := operands[n].(*ptx.Name); ok {
			key += fmt.Sprintf(" %p", name)
		} else {
			key += " " + ptx.Format(operands[n])
		}
	}
	return k.place(t, mnemonic, key, operands, args)
}

// place emits a pure instruction, or returns the result of an earlier one of type t with the same
// key.
func (k *Kernel) place(t ptx.Type, mnemonic, key string, operands []ptx.Operand, args []Reg) Reg {
	if slices.ContainsFunc(args, func(a Reg) bool { return a.v.mutable }) {
		return k.result(t, mnemonic, operands...)
	}
	key = t.String() + " " + key
	for s := k.cur; s != nil; s = s.outer {
		if r, ok := s.known[key]; ok {
			return r
		}
	}
	home := k.home(args)
	v := k.newValue(t, home)
	i := k.emitIn(home, mnemonic, append([]ptx.Operand{v.node}, operands...)...)
	k.pure[i] = v
	home.known[key] = Reg{v}
	return Reg{v}
}

// home returns the block in which to emit a pure operation on args: outside all loops in which
// args are invariant.
func (k *Kernel) home(args []Reg) *scope {
	home := k.cur
	for s := k.cur; s.outer != nil; s = s.outer {
		if slices.ContainsFunc(args, func(a Reg) bool { return a.v.scope == s }) {
			break
		}
		if s.hoist {
			home = s.outer
		}
	}
	return home
}

// prune removes pure instructions whose results are unused. Uses follow definitions, so one
// backward pass suffices.
func (k *Kernel) prune(stmts []ptx.Stmt) []ptx.Stmt {
	used := map[*value]bool{}
	kept := make([]ptx.Stmt, 0, len(stmts))
	for _, s := range slices.Backward(stmts) {
		i, ok := s.(*ptx.Instr)
		if ok {
			if v := k.pure[i]; v != nil && !used[v] {
				continue
			}
			eachOperand(i, func(n *ptx.Name) { used[k.values[n]] = true })
		}
		kept = append(kept, s)
	}
	slices.Reverse(kept)
	return kept
}

// eachName calls f for each name in the instructions of body, in order.
func eachName(body []ptx.Stmt, f func(*ptx.Name)) {
	for _, s := range body {
		if i, ok := s.(*ptx.Instr); ok {
			eachOperand(i, f)
		}
	}
}

func eachOperand(i *ptx.Instr, f func(*ptx.Name)) {
	if i.Guard != nil {
		f(i.Guard.Pred)
	}
	var walk func(ptx.Operand)
	walk = func(o ptx.Operand) {
		switch o := o.(type) {
		case *ptx.Name:
			f(o)
		case *ptx.Vector:
			for _, e := range o.Elems {
				walk(e)
			}
		case *ptx.Addr:
			walk(o.Base)
			if o.Coords != nil {
				walk(o.Coords)
			}
		case *ptx.Pair:
			walk(o.First)
			walk(o.Second)
		case *ptx.Not:
			walk(o.X)
		case *ptx.Minus:
			walk(o.X)
		case *ptx.Sum:
			walk(o.Base)
		}
	}
	for _, a := range i.Args {
		walk(a)
	}
}
