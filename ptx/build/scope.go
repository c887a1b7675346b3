package build

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tilework/ptx"
)

// scope is a block of the kernel: what is emitted in it and what it has computed.
type scope struct {
	outer *scope
	// ahead says that what needs nothing made in the block is emitted before it: the
	// body of a loop, or instructions under a predicate.
	ahead bool
	guard Reg // the predicate that instructions of the block stand under, if any
	stmts []ptx.Stmt
	known map[string]Reg // the results of pure instructions, by their text
}

// within reports whether s is o or a block inside of it.
func (s *scope) within(o *scope) bool {
	for ; s != nil; s = s.outer {
		if s == o {
			return true
		}
	}
	return false
}

// block runs f in a new block and returns the block.
func (k *Kernel) block(s *scope, f func()) *scope {
	s.outer, s.known = k.cur, map[string]Reg{}
	k.cur = s
	f()
	k.cur = s.outer
	return s
}

// emit adds an instruction to the current block.
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

// result emits an instruction in place and returns what it computes.
func (k *Kernel) result(t ptx.Type, mnemonic string, args ...ptx.Operand) Reg {
	v := k.newValue(t, k.cur)
	k.pure[k.emit(mnemonic, append([]ptx.Operand{v.node}, args...)...)] = v
	return Reg{v}
}

// pureOp is an instruction that gives the same result wherever it stands: it is
// emitted where [Kernel.home] says, unless it has been before.
func (k *Kernel) pureOp(t ptx.Type, mnemonic string, in ptx.Type, args ...Reg) Reg {
	operands := make([]ptx.Operand, len(args))
	key := mnemonic
	for n, a := range args {
		if !a.ok() {
			return a
		}
		operands[n] = k.operand(a, in)
		if a.v.constant {
			key += " " + ptx.Format(operands[n])
		} else {
			key += fmt.Sprintf(" %p", a.v.node)
		}
	}
	return k.place(t, mnemonic, key, operands, args)
}

// place emits a pure instruction, or finds it by its key.
func (k *Kernel) place(t ptx.Type, mnemonic, key string, operands []ptx.Operand, args []Reg) Reg {
	if slices.ContainsFunc(args, func(a Reg) bool { return a.v.mutable }) {
		return k.result(t, mnemonic, operands...)
	}
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

// home is the block in which a pure operation on args is best emitted: the one
// outside of all loops that make none of args.
func (k *Kernel) home(args []Reg) *scope {
	home := k.cur
	for s := k.cur; s.outer != nil; s = s.outer {
		if slices.ContainsFunc(args, func(a Reg) bool { return a.v.scope == s }) {
			break
		}
		if s.ahead {
			home = s.outer
		}
	}
	return home
}

// prune leaves out the pure instructions whose results nothing uses. Uses stand
// behind what they use, so one pass from the end sees them first.
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

// eachName calls f for each name that the instructions of body name, in order.
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
		case *ptx.Sum:
			walk(o.Base)
		}
	}
	for _, a := range i.Args {
		walk(a)
	}
}

// locate puts a .loc before each instruction of another source line than the one
// before it, and the files into m. Of a file's path only its name is kept, so that
// the text does not depend on where it was written.
func (k *Kernel) locate(m *ptx.Module, body []ptx.Stmt) []ptx.Stmt {
	files := map[string]int{}
	var out []ptx.Stmt
	var last ptx.Pos
	for _, s := range body {
		if i, ok := s.(*ptx.Instr); ok && i.Pos != last && i.Pos.Line > 0 {
			last = i.Pos
			n := files[last.File]
			if n == 0 {
				n = len(files) + 1
				files[last.File] = n
				m.Decls = append(m.Decls, &ptx.File{Index: n, Path: filepath.Base(last.File)})
			}
			out = append(out, &ptx.Loc{File: n, Line: last.Line, Col: 1})
		}
		out = append(out, s)
	}
	return out
}
