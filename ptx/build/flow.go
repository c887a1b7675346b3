package build

import (
	"fmt"
	"math"

	"tilework/ptx"
)

// Barrier waits until all threads of the block have arrived. Their earlier writes to shared
// memory are then visible.
func (k *Kernel) Barrier() { k.emit("bar.sync", &ptx.Imm{}) }

// NamedBarrier waits at the named barrier id, 0 to 15, until the given number of threads has
// arrived. Whole warps take part. Barrier uses number 0.
func (k *Kernel) NamedBarrier(id Value, threads int) { k.Do("bar.sync", id, threads) }

// Return exits the thread.
func (k *Kernel) Return() { k.emit("ret") }

// Branch is an If that can be followed by an Else.
type Branch struct {
	k     *Kernel
	known bool   // the condition is a constant
	taken bool   // value of a constant condition
	in    *scope // block that contains the If
	end   *ptx.Label
	skip  *ptx.Instr // branch over the body
	// number makes the names of the labels unique.
	number int
}

// If executes then in the threads whose predicate p is true.
func (k *Kernel) If(p Value, then func()) *Branch {
	c, ok := k.condition("If", p)
	b := &Branch{k: k, in: k.cur}
	switch {
	case !ok || k.isNil("If", then == nil):
		b.known, b.taken = true, true
		return b
	case c.v.constant:
		b.known, b.taken = true, c.isBool(true)
		if b.taken {
			then()
		}
		return b
	}
	b.number = k.number()
	body := k.block(&scope{}, then)
	b.end = k.label(b.number, "endif")
	b.skip = k.branchUnless(c, b.end)
	k.cur.stmts = append(append(k.cur.stmts, body.stmts...), b.end)
	return b
}

// Else executes otherwise in the remaining threads. It must directly follow its If.
func (b *Branch) Else(otherwise func()) {
	k := b.k
	if k.isNil("Else", otherwise == nil) {
		return
	}
	if b.known {
		if !b.taken {
			otherwise()
		}
		return
	}
	n := len(k.cur.stmts) - 1
	if k.cur != b.in || n < 0 || k.cur.stmts[n] != ptx.Stmt(b.end) {
		k.fail("Else does not directly follow its If")
		return
	}
	body := k.block(&scope{}, otherwise)
	k.cur.stmts = k.cur.stmts[:n]
	other := k.label(b.number, "else")
	b.skip.Args[0] = &ptx.Name{Name: other.Name}
	k.emit("bra", &ptx.Name{Name: b.end.Name})
	k.cur.stmts = append(append(append(k.cur.stmts, other), body.stmts...), b.end)
	b.in = nil
}

// For executes body for i = from, from+1, … while i < to. i has the common type of from and to,
// or U32 if both are constants.
func (k *Kernel) For(from, to Value, body func(i Reg)) { k.ForStep(from, to, 1, body) }

// ForStep executes body for i = from, from+step, … while i < to. to + step must not overflow i's
// type.
func (k *Kernel) ForStep(from, to, step Value, body func(i Reg)) {
	x, y, t := k.pair("For", from, to)
	z := k.reg(step)
	if !x.ok() || !z.ok() || !k.mayBranch("For") || k.isNil("For", body == nil) {
		return
	}
	certain := t == ptx.NoType
	if certain {
		t = ptx.U32
	}
	if !isInteger(t) || x.v.float || y.v.float {
		k.fail("For: the bounds have type .%v, want integers", t)
		return
	}
	n, ok := z.Int()
	switch {
	case !ok || n < 1 || !fits(z, t):
		k.fail("For: the step is %s, want a positive constant of type .%v", z, t)
		return
	case certain && x.v.i >= y.v.i:
		return
	case certain && (x.v.i < 0 || y.v.i > math.MaxUint32-n):
		k.fail("For from %s to %s in steps of %s: want constants in the range of .u32", x, y, z)
		return
	}
	number := k.number()
	loop := &scope{hoist: true}
	i := Reg{k.newValue(t, loop)}
	i.v.name = "i"
	k.block(loop, func() {
		body(i)
		next := i.v.node
		k.emit("add."+arithmetic(t).String(), next, next, k.operand(z, t))
	})
	head, end := k.label(number, "loop"), k.label(number, "end")
	k.emit("mov."+t.String(), i.v.node, k.operand(x, t))
	if !certain {
		p := k.result(ptx.Pred, "setp.le."+arithmetic(t).String(), k.operand(y, t), k.operand(x, t))
		k.emit("bra", &ptx.Name{Name: end.Name}).Guard = &ptx.Guard{Pred: p.v.node}
	}
	k.cur.stmts = append(append(k.cur.stmts, head), loop.stmts...)
	p := k.result(ptx.Pred, "setp.lt."+arithmetic(t).String(), i.v.node, k.operand(y, t))
	k.emit("bra", &ptx.Name{Name: head.Name}).Guard = &ptx.Guard{Pred: p.v.node}
	if !certain {
		k.cur.stmts = append(k.cur.stmts, end)
	}
}

// While executes body while the predicate computed by cond is true.
func (k *Kernel) While(cond func() Reg, body func()) {
	if !k.mayBranch("While") || k.isNil("While", cond == nil || body == nil) {
		return
	}
	number := k.number()
	head, end := k.label(number, "loop"), k.label(number, "end")
	loop := k.block(&scope{hoist: true}, func() {
		if p, ok := k.condition("While", cond()); ok && !p.v.constant {
			k.branchUnless(p, end)
		} else if ok {
			k.fail("While: the condition is a constant, want a predicate computed at run time")
		}
		body()
		k.emit("bra", &ptx.Name{Name: head.Name})
	})
	k.cur.stmts = append(append(append(k.cur.stmts, head), loop.stmts...), end)
}

// When predicates each instruction of f with p instead of branching. It is meant for a few
// instructions on which the threads of a warp should not diverge. f must not contain branches.
func (k *Kernel) When(p Value, f func()) {
	c := k.reg(p)
	switch {
	case !c.ok() || k.isNil("When", f == nil):
		return
	case c.v.typ != ptx.Pred:
		k.fail("When: the condition is %s, want a predicate", c)
		return
	case c.v.constant:
		if c.isBool(true) {
			f()
		}
		return
	}
	s := k.block(&scope{hoist: true, guard: k.guarded(c)}, f)
	k.cur.stmts = append(k.cur.stmts, s.stmts...)
}

// isNil records an error of the method, and returns true, if a function of the caller is nil.
func (k *Kernel) isNil(method string, missing bool) bool {
	if missing {
		k.fail("%s: a function is nil, want one that writes instructions", method)
	}
	return missing
}

// guarded returns the conjunction of p and the predicate of the current block.
func (k *Kernel) guarded(p Reg) Reg {
	guard := k.cur.guard
	if guard.v == nil {
		return p
	}
	if both := k.And(p, guard); both.v.scope.guard.v == nil {
		return both
	}
	// p is known only in a predicated block. A predicated "and" would leave its result undefined
	// where guard is false.
	both := Reg{k.newValue(ptx.Pred, k.cur)}
	k.emit("mov.pred", both.v.node, &ptx.Imm{}).Guard = nil
	k.emit("mov.pred", both.v.node, p.v.node)
	return both
}

// condition returns the predicate of a branch. ok is false if it is invalid here.
func (k *Kernel) condition(method string, p Value) (c Reg, ok bool) {
	c = k.reg(p)
	switch {
	case !c.ok():
		return c, false
	case c.v.typ != ptx.Pred:
		k.fail("%s: the condition is %s, want a predicate", method, c)
		return c, false
	}
	return c, c.v.constant || k.mayBranch(method)
}

// mayBranch reports whether the current block can contain branches, and fails if it cannot.
func (k *Kernel) mayBranch(method string) bool {
	if k.cur.guard.v != nil {
		k.fail("%s inside When: use If instead of When", method)
		return false
	}
	return true
}

func (k *Kernel) branchUnless(p Reg, to *ptx.Label) *ptx.Instr {
	i := k.emit("bra", &ptx.Name{Name: to.Name})
	i.Guard = &ptx.Guard{Neg: true, Pred: p.v.node}
	return i
}

// number returns a number for the labels of the next loop or branch.
func (k *Kernel) number() int {
	k.constructs++
	return k.constructs
}

func (k *Kernel) label(number int, suffix string) *ptx.Label {
	return &ptx.Label{Pos: k.caller(), Name: fmt.Sprintf("L%d_%s", number, suffix)}
}
