package split

import (
	"fmt"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/program"
)

// Work is a division as a program. Member i has the lanes 2·i of kernels, its default stream, and
// 2·i+1 of copies from other members, which are beside the kernels. In order, it uses the first
// only.
type Work struct {
	*program.Program
	Actions []Action // by [program.Op.Step]

	job      *Job
	division *Division
	spaces   []space // by member
}

// Work returns the program of the division.
//
// Copies from other members wait until the source has done all earlier work, and until the panel
// that used the memory before is computed. A panel waits for its copies. At the end, each member
// waits for the copies of its results and from its memory, so that later work may overwrite or free
// the operands.
func (p *Job) Work(d *Division) *Work { return p.write(d).laidOut() }

// newWork returns the work of the division without ops.
func (p *Job) newWork(d *Division) *Work {
	return &Work{Program: &program.Program{}, job: p, division: d}
}

// laidOut returns the work with the memory that it needs.
func (w *Work) laidOut() *Work {
	for i := range w.division.Shares {
		w.spaces = append(w.spaces, w.job.space(&w.division.Shares[i]))
	}
	return w
}

// Action describes an op of a division.
type Action struct {
	Member int // that executes it
	Copy       // of a copy
	// Panel is the number of the panel that a launch computes or for which a copy gathers operands.
	// It is negative for operands that all panels need.
	Panel  int
	Slot   int    // of the panel
	Result bool   // whether copies bring results to the members that store them
	Moves  []Copy // of an exchange: those to and from other ranks
}

// Lanes is the number of lanes of a member.
const Lanes = 2

// writer writes the program of a division.
type writer struct {
	*Work
	*Division
	members []memberOps
}

// memberOps holds the numbers of a member's ops; none for no op.
type memberOps struct {
	started  int        // after the earlier work of the member
	gathered int        // the last copy from another member
	results  int        // the last one of results
	readers  []int      // by member, the last copy to it
	last     [Slots]int // the last launch of a panel in each slot
	panels   []int      // the launches
}

const none = -1

// write writes the program of the division.
func (p *Job) write(d *Division) *Work {
	w := &writer{Work: p.newWork(d), Division: d, members: make([]memberOps, len(d.Shares))}
	for i := range d.Shares {
		worker := 0
		if d.Concurrent {
			worker = i
		}
		for l, name := range [Lanes]string{"kernels", "copies"} {
			w.AddLane(program.Lane{Name: fmt.Sprintf("%s of %d", name, i), Worker: worker, Engine: Lanes*i + l})
		}
	}
	for i := range w.members {
		w.members[i] = memberOps{started: w.add(program.Join, Action{Member: i}), gathered: none, results: none,
			readers: slices.Repeat([]int{none}, len(w.members)), last: [Slots]int{none, none}}
	}
	for i := range d.Shares {
		w.multiply(p, i)
	}
	for i := range d.Shares {
		w.collect(p, i)
	}
	for i := range d.Shares {
		w.finish(i)
	}
	return w.Work
}

// add adds an op to the lane of its member's kernels.
func (w *writer) add(kind program.Kind, s Action, after ...int) int {
	return w.addOp(program.Op{Kind: kind, Lane: Lanes * s.Member}, s, after...)
}

func (w *writer) addOp(op program.Op, s Action, after ...int) int {
	op.Step = len(w.Actions)
	w.Actions = append(w.Actions, s)
	return w.Add(op, after...)
}

// copy adds a copy to a member. A copy within the member is between two kernels. In a stream beside
// them it delayed the copies after it: bfloat16 16384³ on four H200s took 4.9 ms, and 3.6 ms with
// the copies between the kernels.
func (w *writer) copy(p *Job, s Action, after ...int) {
	op := program.Op{Kind: program.Copy, Operand: s.Operand, Part: s.Part, Lane: Lanes * s.Member,
		Bytes: p.Layout(s.Operand).Type.Bytes(s.Part.Len())}
	to := &w.members[s.Member]
	if s.From == s.Member {
		w.addOp(op, s, after...)
		return
	}
	if !w.InOrder {
		op.Lane++
	}
	to.gathered = w.addOp(op, s, append(after, w.members[s.From].started, to.started)...)
	w.members[s.From].readers[s.Member] = to.gathered
	if s.Result {
		to.results = to.gathered
	}
}

// multiply adds the copies and launches of a member's panels.
func (w *writer) multiply(p *Job, member int) {
	s, ops := &w.Shares[member], &w.members[member]
	for _, c := range s.Gather {
		w.copy(p, Action{Member: member, Copy: c, Panel: none})
	}
	gathered := 0
	for i := range s.Panels {
		x, slot := &s.Panels[i], gathered%Slots
		for _, c := range x.Gather {
			w.copy(p, Action{Member: member, Copy: c, Panel: i, Slot: slot}, ops.last[slot])
		}
		op := program.Op{Kind: program.Launch, Operand: gemm.C, Part: x.C, Lane: Lanes * member}
		ops.panels = append(ops.panels, w.addOp(op, Action{Member: member, Panel: i, Slot: slot}, ops.gathered))
		if len(x.Gather) > 0 {
			ops.last[slot] = ops.panels[i]
			gathered++
		}
	}
}

// collect adds the copies of results that other members have computed, or that the member has
// computed outside its part of C.
func (w *writer) collect(p *Job, member int) {
	for from := range w.Shares {
		for i := range w.Shares[from].Panels {
			for _, c := range w.Shares[from].Panels[i].Scatter {
				if c.To == member {
					w.copy(p, Action{Member: member, Copy: c, Panel: i, Result: true}, w.members[from].panels[i])
				}
			}
		}
	}
}

// finish lets a member wait for the copies of its results and from its memory. It waits for the
// last copy of a reader from any member, for which others wait too, so that a reader records one
// event.
func (w *writer) finish(member int) {
	var needed, waits []int
	need := func(reader, last int) {
		if last != none && w.Waits(Lanes*member, last) {
			needed, waits = append(needed, last), append(waits, w.members[reader].gathered)
		}
	}
	for i, last := range w.members[member].readers {
		need(i, last)
	}
	need(member, w.members[member].results)
	for i := 0; i < len(waits); {
		others := slices.Delete(slices.Clone(waits), i, i+1)
		if w.follow(others, needed) {
			waits = others
		} else {
			i++
		}
	}
	w.add(program.Join, Action{Member: member}, waits...)
}

// follow reports whether each of the ops needed is followed by one of others.
func (w *writer) follow(others, needed []int) bool {
	for _, op := range needed {
		if !slices.ContainsFunc(others, func(x int) bool { return w.Follows(x, op) }) {
			return false
		}
	}
	return true
}

// Calls returns the number of launches, copies and events with which the work of each member is
// enqueued, without the launches that a panel needs besides that of its kernel.
func (w *Work) Calls() []int {
	calls := make([]int, len(w.Lanes)/Lanes)
	for i := range w.Ops {
		calls[w.Ops[i].Lane/Lanes] += w.Program.Calls(i)
	}
	return calls
}
