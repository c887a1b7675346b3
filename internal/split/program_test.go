package split

import (
	"slices"
	"testing"

	"tilework/internal/gemm"
	"tilework/internal/program"
	"tilework/internal/program/programtest"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// access is an access to a rectangle in memory of a member: its part of an operand, or memory where
// operands or results are gathered.
type access struct {
	member, slot int // a slot below 0 is memory for all panels
	panel        int // in a slot
	in           Memory
	operand      gemm.Operand
	rect         program.Rect
	writes       bool
}

// accesses lists the accesses of an op of a division.
func (w *Work) accesses(p *Job, d *Division, op *program.Op) (all []access) {
	x := w.Actions[op.Step]
	s := &d.Shares[x.Member]
	switch {
	case op.Kind == program.Exchange:
		for _, c := range x.Moves {
			for _, y := range x.copies(d, c) {
				if y.member == x.Member {
					all = append(all, y)
				}
			}
		}
	case op.Kind == program.Copy:
		return x.copies(d, x.Copy)
	case op.Kind == program.Launch:
		panel := &s.Panels[x.Panel]
		_, places := p.Launch(x.Member, s, panel)
		for o, at := range places {
			if o := gemm.Operand(o); at.In != InNone && (o == gemm.C || p.reads(o)) {
				to := access{x.Member, none, 0, at.In, o, p.Needs(o, panel.C), o == gemm.C}
				if at.In == InHeld && p.reads(o) { // the first panel waits for all of them
					all = append(all, access{x.Member, none, 0, InHeld, o, s.Held[o], false})
				}
				if at.In == InSlot {
					to.slot, to.panel, to.rect = x.Slot, x.Panel, panel.Held[o]
				}
				all = append(all, to)
			}
		}
	}
	return all
}

// copies lists the accesses of a copy.
func (x *Action) copies(d *Division, c Copy) []access {
	from := access{c.From, none, 0, InPart, c.Operand, c.Part, false}
	to := access{c.To, none, 0, InPart, c.Operand, c.At, true}
	switch {
	case x.Result && !d.Shares[c.From].Held[gemm.C].Empty():
		from.in = InHeld
	case x.Result:
	case x.Panel < 0:
		to.in = InHeld
	default:
		to.slot, to.panel, to.in = x.Slot, x.Panel, InSlot
	}
	return []access{from, to}
}

// conflict reports whether two accesses must be ordered. The panels of a slot share memory.
func (a access) conflict(b access) bool {
	return a.member == b.member && a.slot == b.slot && a.in == b.in && a.operand == b.operand && (a.writes || b.writes) &&
		(a.panel != b.panel || !a.rect.And(b.rect).Empty())
}

// TestWorkOrder checks the waits of the programs of random divisions. Each access to memory waits
// for the earlier ones that it must not overlap. The first op of a member follows its earlier work,
// which may use all of its memory, and its later work follows the last one.
func TestWorkOrder(t *testing.T) {
	rng := testrand.New(t)
	for range testkit.Cases(40, 400) {
		p := random(t, rng)
		p.CallSeconds = 3e-6
		p.Pick = func(all []Division) int { return rng.IntN(len(all)) }
		d := p.Divide()
		starts := map[int]int{}
		for i := range d.Shares {
			starts[i] = i
		}
		checkOrder(t, p, &d, p.Work(&d), starts)
		rank := rng.IntN(len(d.Shares))
		checkOrder(t, p, &d, p.RankWork(&d, rank), map[int]int{rank: 0})
	}
}

// TestWorkDocumented checks the programs of docs/architecture.md.
func TestWorkDocumented(t *testing.T) {
	p := square(t, 8192, 2, Rows, Rows, Rows)
	p.PanelBytes = 64 << 20
	d := Division{Shares: p.shares([]program.Rect{program.First(4096).By(program.First(8192)),
		program.Range(4096, 8192).By(program.First(8192))}, allRounds)}
	page := "../../docs/architecture.md"
	testkit.CheckPage(t, page, "program: two GPUs", testkit.Fenced(p.Work(&d).Program.String()))
	testkit.CheckPage(t, page, "program: rank 1 of 2", testkit.Fenced(p.RankWork(&d, 1).Program.String()))
}

// checkOrder checks the waits of a program. starts holds the first op of each member that has ops.
func checkOrder(t *testing.T, p *Job, d *Division, w *Work, starts map[int]int) {
	t.Helper()
	uses := make([][]access, len(w.Ops))
	for i := range w.Ops {
		uses[i] = w.accesses(p, d, &w.Ops[i])
	}
	for member, start := range starts {
		var all []access
		for _, list := range uses {
			for _, x := range list {
				if x.member == member {
					x.writes = true
					all = append(all, x)
				}
			}
		}
		uses[start] = all
		w.Add(program.Op{Kind: program.Join, Lane: w.Ops[start].Lane})
		uses = append(uses, all)
	}
	programtest.CheckOrder(t, w.Program, func(a, b int) bool {
		return slices.ContainsFunc(uses[a], func(x access) bool { return slices.ContainsFunc(uses[b], x.conflict) })
	})
	if t.Failed() {
		t.FailNow()
	}
}
