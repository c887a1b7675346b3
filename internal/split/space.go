package split

import (
	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/program"
)

// space is the memory of a member for operands and results that it does not store, by offsets in
// bytes.
type space struct {
	held  [gemm.Operands]int        // for all panels
	slots [Slots][gemm.Operands]int // for the panel of a slot
	bytes int
}

// spaceAlign is the alignment of the parts of a space.
const spaceAlign = 256

// space returns the space for a share.
func (p *Job) space(s *Share) (x space) {
	bytes := func(o int, r program.Rect) int {
		if r.Empty() {
			return 0
		}
		return LayoutOf(p.Layout(gemm.Operand(o)).Type, r).Bytes()
	}
	take := func(n int) (at int) {
		at = x.bytes
		x.bytes += ints.RoundUp(n, spaceAlign)
		return at
	}
	for o, r := range s.Held {
		x.held[o] = take(bytes(o, r))
	}
	var most [gemm.Operands]int
	gathering := 0
	for i := range s.Panels {
		for o, r := range s.Panels[i].Held {
			most[o] = max(most[o], bytes(o, r))
		}
		if len(s.Panels[i].Gather) > 0 {
			gathering++
		}
	}
	for slot := range min(gathering, Slots) {
		for o, n := range most {
			x.slots[slot][o] = take(n)
		}
	}
	return x
}

// Space returns the bytes of memory that a member needs for operands and results that it does not
// store.
func (w *Work) Space(member int) int { return w.spaces[member].bytes }

// Area is an area of a member's memory, with rows of LD elements.
type Area struct {
	Own    bool // in the member's part of the operand; otherwise in its space
	Offset int  // in bytes
	LD     int
}

// Operand returns the memory of an operand of a launch at a place, which is not InNone.
func (w *Work) Operand(x *Action, o gemm.Operand, at At) (own bool, offset int) {
	switch s := &w.spaces[x.Member]; at.In {
	case InHeld:
		return false, s.held[o] + at.Offset
	case InSlot:
		return false, s.slots[x.Slot][o] + at.Offset
	}
	return true, at.Offset
}

// Source returns the memory of member c.From from which a copy of an action reads.
func (w *Work) Source(x *Action, c *Copy) Area {
	if held := w.division.Shares[c.From].Held[gemm.C]; x.Result && !held.Empty() {
		return w.area(c, w.spaces[c.From].held[gemm.C], held, c.Part)
	}
	return w.own(c, c.From, c.Part)
}

// Target returns the memory of member c.To that a copy of an action writes.
func (w *Work) Target(x *Action, c *Copy) Area {
	share, space := &w.division.Shares[c.To], &w.spaces[c.To]
	switch {
	case x.Result:
		return w.own(c, c.To, c.At)
	case x.Panel < 0:
		return w.area(c, space.held[c.Operand], share.Held[c.Operand], c.At)
	}
	return w.area(c, space.slots[x.Slot][c.Operand], share.Panels[x.Panel].Held[c.Operand], c.At)
}

// own returns the area of a part of a member's part of the operand.
func (w *Work) own(c *Copy, member int, part program.Rect) Area {
	a := w.area(c, 0, w.job.Places[c.Operand].Matrix.Part(member), part)
	a.Own = true
	return a
}

// area returns the area of a part of the memory at an offset, which holds the rectangle has.
func (w *Work) area(c *Copy, offset int, has, part program.Rect) Area {
	t := w.job.Layout(c.Operand).Type
	ld := LayoutOf(t, has).LD
	return Area{Offset: offset + Offset(t, has, ld, part), LD: ld}
}
