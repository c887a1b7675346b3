package build

import (
	"fmt"

	"tilework/ptx"
)

// Barrier waits until every thread of the block has come here; what they have
// written to shared memory can then be read.
func (k *Kernel) Barrier() { k.emit("bar.sync", &ptx.Imm{}) }

// BarrierOf is a barrier of so many threads, whole warps, that come to the one of the 16
// that id names. Barrier is number 0.
func (k *Kernel) BarrierOf(id Value, threads int) { k.Do("bar.sync", id, threads) }

// Return ends the thread.
func (k *Kernel) Return() { k.emit("ret") }

// Branch is an If that may still get an Else.
type Branch struct {
	k     *Kernel
	known bool   // the condition was a constant …
	taken bool   // … and held
	in    *scope // where the If stands
	end   *ptx.Label
	skip  *ptx.Instr // the branch past what runs if the condition holds
	// number is the If's own, for its labels.
	number int
}

// If runs then in the threads in which the predicate p holds.
func (k *Kernel) If(p Value, then func()) *Branch {
	c, ok := k.condition("If", p)
	b := &Branch{k: k, in: k.cur}
	switch {
	case !ok:
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

// Else runs otherwise in the other threads. It follows its If directly.
func (b *Branch) Else(otherwise func()) {
	k := b.k
	if b.known {
		if !b.taken {
			otherwise()
		}
		return
	}
	n := len(k.cur.stmts) - 1
	if k.cur != b.in || n < 0 || k.cur.stmts[n] != ptx.Stmt(b.end) {
		k.fail("Else does not follow its If")
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

// For runs body for i = from, from+1, … while i < to. i is of the type that from
// and to meet in, u32 if both are constants; its largest value is at least to.
func (k *Kernel) For(from, to Value, body func(i Reg)) { k.ForStep(from, to, 1, body) }

// ForStep runs body for i = from, from+step, … while i < to. to + step must be
// a value of i's type.
func (k *Kernel) ForStep(from, to, step Value, body func(i Reg)) {
	x, y, t := k.pair("For", from, to)
	z := k.reg(step)
	if !x.ok() || !z.ok() || !k.mayBranch("For") {
		return
	}
	if t == ptx.NoType {
		t = ptx.U32
	}
	if !whole(t) || x.v.float || y.v.float {
		k.fail("For counts in whole numbers, not in .%v", t)
		return
	}
	if n, ok := z.Int(); !z.v.constant || !ok || n < 1 {
		k.fail("For by steps of %s: want a positive constant", z)
		return
	}
	certain := x.v.constant && y.v.constant
	if certain && x.v.i >= y.v.i {
		return
	}
	number := k.number()
	loop := &scope{ahead: true}
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

// While runs body as long as the predicate that cond computes holds.
func (k *Kernel) While(cond func() Reg, body func()) {
	if !k.mayBranch("While") {
		return
	}
	number := k.number()
	head, end := k.label(number, "loop"), k.label(number, "end")
	loop := k.block(&scope{ahead: true}, func() {
		if p, ok := k.condition("While", cond()); ok && !p.v.constant {
			k.branchUnless(p, end)
		} else if ok {
			k.fail("While of a constant")
		}
		body()
		k.emit("bra", &ptx.Name{Name: head.Name})
	})
	k.cur.stmts = append(append(append(k.cur.stmts, head), loop.stmts...), end)
}

// When executes each instruction of f under the predicate p, without a branch: for
// a few instructions, in which the threads of a warp should not part. There are no
// branches in it.
func (k *Kernel) When(p Value, f func()) {
	c := k.reg(p)
	switch {
	case !c.ok():
		return
	case c.v.typ != ptx.Pred:
		k.fail("When %s, which is no predicate", c)
		return
	case c.v.constant:
		if c.isBool(true) {
			f()
		}
		return
	}
	s := k.block(&scope{ahead: true, guard: k.guarded(c)}, f)
	k.cur.stmts = append(k.cur.stmts, s.stmts...)
}

// guarded is p and the predicate that the current block stands under.
func (k *Kernel) guarded(p Reg) Reg {
	if k.cur.guard.v == nil {
		return p
	}
	return k.And(p, k.cur.guard)
}

func (k *Kernel) condition(what string, p Value) (c Reg, ok bool) {
	c = k.reg(p)
	switch {
	case !c.ok():
		return c, false
	case c.v.typ != ptx.Pred:
		k.fail("%s %s, which is no predicate", what, c)
		return c, false
	}
	return c, c.v.constant || k.mayBranch(what)
}

func (k *Kernel) mayBranch(what string) bool {
	if k.cur.guard.v != nil {
		k.fail("%s inside of When: use If instead of When", what)
		return false
	}
	return true
}

func (k *Kernel) branchUnless(p Reg, to *ptx.Label) *ptx.Instr {
	i := k.emit("bra", &ptx.Name{Name: to.Name})
	i.Guard = &ptx.Guard{Neg: true, Pred: p.v.node}
	return i
}

// number is the next construct's number, for its labels.
func (k *Kernel) number() int {
	k.constructs++
	return k.constructs
}

func (k *Kernel) label(number int, what string) *ptx.Label {
	return &ptx.Label{Pos: k.caller(), Name: fmt.Sprintf("L%d_%s", number, what)}
}
