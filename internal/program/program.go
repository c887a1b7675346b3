// Package program represents divided work as data: copies, launches and stores on lanes, each with
// the ops that it waits for. Planners write programs, a [Runner] executes them, and
// [Program.Simulate] predicts their time.
package program

import (
	"fmt"
	"slices"
	"strings"

	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
)

// Kind is a kind of op.
type Kind uint8

// The kinds of ops.
const (
	Join     Kind = iota // no work: a point where a lane waits, or for which others wait
	Load                 // a copy from host memory, which has been read when the call returns
	Copy                 // a copy from another device, or within one
	Exchange             // copies to and from other processes, which have been enqueued when the call returns
	Pack                 // a launch that rearranges an operand
	Launch               // the launches that compute a part of C
	Store                // a copy to host memory, which has been written when the call returns
	kinds
)

var kindNames = [kinds]string{"join", "load", "copy", "exchange", "pack", "launch", "store"}

// String returns the name of the kind.
func (k Kind) String() string { return kindNames[k] }

// timed returns the kind of work that a timeline records for an op. A join is no work.
func (k Kind) timed() (kind timeline.Kind, work bool) {
	switch k {
	case Load:
		return timeline.FromHost, true
	case Copy, Exchange:
		return timeline.FromGPU, true
	case Store:
		return timeline.ToHost, true
	}
	return timeline.Compute, k != Join
}

// An Op is a copy, a launch or a store of a part of an operand. It begins when the earlier ops of
// its lane and the ops in After have ended.
type Op struct {
	Kind    Kind
	Operand gemm.Operand
	Lane    int
	After   []int // earlier ops of other lanes
	Part    Rect  // of the operand; of a Launch, the part of C
	Bytes   int   // copied
	Step    int   // number of the step in the planner's list
	Source  int   // of a Copy whose source another op has brought to a device: that op

	// event reports whether streams of other lanes wait for the op, and signal whether other workers
	// do.
	event, signal bool
	ended         clock // the ops of other lanes that have ended when the op begins
}

// A Lane executes its ops in order, as a stream of a GPU does.
type Lane struct {
	Name string
	// Worker is the number of the goroutine that enqueues the ops of the lane. It enqueues the ops
	// of all its lanes in order.
	Worker int
	// Engine is the number of the part of the hardware that executes the ops. Simulate lets the ops
	// of an engine run one after the other.
	Engine int
}

// A Program is a list of ops on lanes. The zero value is an empty program without lanes.
type Program struct {
	Lanes []Lane
	Ops   []Op

	last   []int // by lane, the number of ops up to its last one
	after  []int // the memory of Op.After
	sorted []int // the memory of Add
}

// AddLane adds a lane and returns its number.
func (p *Program) AddLane(l Lane) int {
	p.Lanes, p.last = append(p.Lanes, l), append(p.last, 0)
	return len(p.Lanes) - 1
}

// Add adds an op that waits for earlier ones, and returns its number. It leaves out negative
// numbers, and ops that end before others for which the op waits.
func (p *Program) Add(op Op, after ...int) int {
	if n := p.last[op.Lane]; n > 0 {
		op.ended = p.Ops[n-1].ended
	}
	first := len(p.after)
	p.sorted = append(p.sorted[:0], after...)
	slices.Sort(p.sorted)
	for _, i := range slices.Backward(p.sorted) { // an op waits for earlier ones only
		if i < 0 || p.Ops[i].Lane == op.Lane || i < op.ended.at(p.Ops[i].Lane) {
			continue
		}
		on := &p.Ops[i]
		op.ended = op.ended.and(on.ended, on.Lane, i+1, len(p.Lanes))
		on.event = true
		on.signal = on.signal || p.Lanes[on.Lane].Worker != p.Lanes[op.Lane].Worker
		p.after = append(p.after, i)
	}
	op.After = p.after[first:len(p.after):len(p.after)]
	p.Ops = append(p.Ops, op)
	p.last[op.Lane] = len(p.Ops)
	return len(p.Ops) - 1
}

// Waits reports whether the next op of a lane would wait for op i.
func (p *Program) Waits(lane, i int) bool {
	last := p.last[lane]
	return p.Ops[i].Lane != lane && (last == 0 || i >= p.Ops[last-1].ended.at(p.Ops[i].Lane))
}

// Follows reports whether op b is op a, or begins after a ends.
func (p *Program) Follows(b, a int) bool {
	if p.Ops[a].Lane == p.Ops[b].Lane {
		return a <= b
	}
	return a < p.Ops[b].ended.at(p.Ops[a].Lane)
}

// clock holds, by lane, the number of ops up to the last one that has ended. Ops share clocks, so a
// clock never changes. Lanes may be missing at the end.
type clock []int

func (c clock) at(lane int) int {
	if lane < len(c) {
		return c[lane]
	}
	return 0
}

// and returns the clock of both c and o, and of the first n ops for a lane.
func (c clock) and(o clock, lane, n, lanes int) clock {
	all := make(clock, lanes)
	for i := range all {
		all[i] = max(c.at(i), o.at(i))
	}
	all[lane] = max(all[lane], n)
	return all
}

// Bytes returns the number of bytes that the ops of some kinds copy.
func (p *Program) Bytes(of ...Kind) (n int) {
	for i := range p.Ops {
		if slices.Contains(of, p.Ops[i].Kind) {
			n += p.Ops[i].Bytes
		}
	}
	return n
}

// Calls returns the number of calls that enqueue op i: its waits, its work and its event.
func (p *Program) Calls(i int) int {
	op := &p.Ops[i]
	n := len(op.After)
	if op.Kind != Join {
		n++
	}
	if op.event {
		n++
	}
	return n
}

// maxLines is the maximum number of ops that String lists.
const maxLines = 64

// String lists the ops, one on each line.
func (p *Program) String() string {
	var b strings.Builder
	width := 0
	for _, l := range p.Lanes {
		width = max(width, len(l.Name))
	}
	for i := range p.Ops[:min(len(p.Ops), maxLines)] {
		op := &p.Ops[i]
		fmt.Fprintf(&b, "%4d  %-*s  %v", i, width, p.Lanes[op.Lane].Name, op.Kind)
		if op.Kind != Join && op.Kind != Exchange {
			fmt.Fprintf(&b, " %s, %v", op.Operand.Phrase(), op.Part)
		}
		for j, on := range op.After {
			fmt.Fprintf(&b, "%s %d", [...]string{", after", ","}[min(j, 1)], on)
		}
		b.WriteByte('\n')
	}
	if n := len(p.Ops) - maxLines; n > 0 {
		fmt.Fprintf(&b, "and %d more\n", n)
	}
	return b.String()
}
