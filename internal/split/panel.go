package split

import (
	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/program"
)

// Memory is the memory of a member that holds a part of an operand.
type Memory uint8

// The memory of a part of an operand. InNone is that of a part that a panel does not read.
const (
	InNone Memory = iota
	InPart        // the member's part of the divided matrix
	InHeld        // gathered before the first panel
	InSlot        // gathered for the panel
)

// At is the place of a part of an operand: Offset bytes from the start of the memory.
type At struct {
	In     Memory
	Offset int
}

// LayoutOf returns the layout of a part of a matrix in memory of its own.
func LayoutOf(t dtype.Type, part program.Rect) gemm.Layout {
	return gemm.Padded(gemm.Dense(t, part.Rows.Len(), part.Cols.Len()))
}

// Offset returns the distance in bytes from the start of a stored part to that of a smaller one.
func Offset(t dtype.Type, from program.Rect, ld int, to program.Rect) int {
	return t.Bytes((to.Rows.From-from.Rows.From)*ld + to.Cols.From - from.Cols.From)
}

// Launch returns the product that a member computes for a panel of its share, and the places of the
// operands.
func (p *Job) Launch(member int, s *Share, panel *Panel) (q gemm.Problem, places [gemm.Operands]At) {
	q = p.Problem
	if p.batched() {
		q.Batch.Count = panel.C.Rows.Len()
	} else {
		q.M, q.N = panel.C.Rows.Len(), panel.C.Cols.Len()
	}
	for o := range gemm.Operands {
		if !q.Uses(o) {
			continue
		}
		var l gemm.Layout
		l, places[o] = p.locate(o, member, s, panel)
		if o < gemm.Bias {
			q.Layouts[o] = l
			step := p.Places[o].Step
			if o == gemm.B && p.grouped() && places[o].In == InSlot {
				step = p.heldStep(panel.C.Cols)
			}
			q.Batch.Stride[o] = step.Rows*l.LD + step.Cols
		}
	}
	return q, places
}

// locate returns the layout and the place of the part of operand o that a panel needs.
func (p *Job) locate(o gemm.Operand, member int, s *Share, panel *Panel) (gemm.Layout, At) {
	l, need := p.Layout(o), p.held(o, panel.C)
	at, has := At{In: InSlot}, panel.Held[o]
	if has.Empty() {
		at.In, has = InHeld, s.Held[o]
	}
	if has.Empty() {
		at.In, has, need = InPart, p.Places[o].Matrix.Part(member), p.Needs(o, panel.C)
	}
	ld := LayoutOf(l.Type, has).LD
	switch {
	case p.grouped() && o == gemm.B: // the matrix of one group
		one := p.group(0, panel.C.Cols)
		l.Rows, l.Cols = one.Rows.Len(), one.Cols.Len()
	case !p.batched():
		l.Rows, l.Cols = need.Rows.Len(), need.Cols.Len()
	}
	l.LD = max(ld, l.Cols, 1) // of an operand that is not read
	if need.Empty() || !has.Contains(need) {
		return l, At{}
	}
	at.Offset = Offset(l.Type, has, ld, need)
	return l, at
}
