package split

import (
	"math/bits"

	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/program"
)

// Place is the place of an operand: a part of a divided matrix that starts at a stored row and
// column. The layout of the operand has the size of the part.
type Place struct {
	Matrix   *Matrix
	Row, Col int
	Step     Step // of a batch, whose first matrix is at the row and column
}

// Job is a product of divided matrices. Each member computes some rows and columns of C. Each
// element of C is summed over K by one member.
type Job struct {
	gemm.Problem
	Places  [gemm.Operands]Place // of the operands that the problem uses
	Weights []float64            // of the members, in proportion to their rates
	// UnitM and UnitN are the rows and columns at whose multiples the kernel's tiles begin. They
	// are multiples of Align and Grain.
	UnitM, UnitN int
	// Grain is the number of rows and columns at whose multiples C may be cut, where tiles are not
	// cut: 1, Align if the vectors that a kernel loads must not change, or the side of a block that
	// shares a scale.
	Grain int
	// AtOnce is the number of tiles that a member computes at once, one per SM unless blocks share
	// a tile.
	AtOnce int
	// Seconds is the predicted time of the whole product on the first member, and Rate the rate in
	// bytes per second at which each member receives copies while all do.
	Seconds, Rate float64
	// SecondsOf returns the predicted time of a part of C on the first member, in units of UnitM
	// rows and UnitN columns. If it is nil, the time is in proportion to the rounds of tiles.
	SecondsOf func(rows, cols int) float64
	// CallSeconds is the time in which the host that enqueues the work of all members enqueues a
	// launch, a copy or an event. It is zero if each member has a host of its own.
	CallSeconds float64
	// PanelBytes limits the size of a panel. A panel has at least one tile.
	PanelBytes int
	// Pick returns the index of the division to use. If it is nil, that is the one that is
	// predicted to be the fastest. Tests set it.
	Pick func([]Division) int
}

// Align is the number of elements whose multiples in a row are aligned like the start of the row.
const Align = 16

// Copy is the copy of a part of a stored matrix from one member to another.
type Copy struct {
	Operand  gemm.Operand
	From, To int
	Part     program.Rect
	// At is the place of the part in the memory that holds gathered parts of the operand: Part
	// itself, except for groups of rows, whose matrices may be closer to each other there.
	At program.Rect
}

// Panel is a part of C that a member computes in one launch.
type Panel struct {
	C program.Rect // rows and columns of C
	// Held holds the part of each operand that is gathered for this panel, as it is in memory.
	// Gather lists the copies.
	Held   [gemm.Operands]program.Rect
	Gather []Copy
	// Scatter lists the copies of the panel to the members that store it, if they do not compute
	// it. Their parts are in C's memory.
	Scatter []Copy
}

// Share is the part of a product that a member computes.
type Share struct {
	C program.Rect
	// Held holds the part of each operand that is gathered before the first panel. Gather lists the
	// copies. C is held if the member does not store the elements that it computes.
	Held   [gemm.Operands]program.Rect
	Gather []Copy
	Panels []Panel
}

// Several reports whether several members compute parts of C.
func (d *Division) Several() bool {
	n := 0
	for i := range d.Shares {
		if !d.Shares[i].C.Empty() {
			n++
		}
	}
	return n > 1
}

// Slots is the number of panels that are in memory at the same time.
const Slots = 2

// reads reports whether the product reads an operand.
func (p *Job) reads(o gemm.Operand) bool {
	switch o {
	case gemm.A, gemm.B:
		return p.ReadsAB()
	case gemm.C:
		return p.Beta != 0 || p.grouped() // rows after the last group do not change
	}
	return p.Uses(o)
}

// Needs returns the part of operand o's matrix that belongs to a part of C. It is empty if the
// product does not use o.
func (p *Job) Needs(o gemm.Operand, c program.Rect) program.Rect {
	switch {
	case !p.Uses(o):
		return program.Rect{}
	case p.batched():
		return p.matrices(o, c.Rows)
	case p.grouped() && o == gemm.B:
		return p.groups(c.Cols)
	}
	l := p.Layout(o)
	r := program.First(l.OpRows()).By(program.First(l.OpCols()))
	switch o {
	case gemm.A:
		r.Rows = c.Rows
	case gemm.B, gemm.Up:
		r.Cols = c.Cols
	case gemm.C, gemm.Residual:
		r = c
	case gemm.ScaleA:
		side, _ := p.ScaleSides()
		r.Rows = c.Rows.Blocks(side)
	case gemm.ScaleB:
		_, side := p.ScaleSides()
		r.Cols = c.Cols.Blocks(side)
	default:
		switch p.Epilogue.VectorDim(o) {
		case gemm.BiasRow:
			r.Cols = c.Rows
		case gemm.BiasCol:
			r.Cols = c.Cols
		}
	}
	if l.Trans {
		r = r.T()
	}
	at := p.Places[o]
	return r.Plus(at.Row, at.Col)
}

// inPlace reports whether a member can use a part of an operand where it is stored: it has all of
// it, and its address is aligned as well as that of the operand on a single member.
func (p *Job) inPlace(o gemm.Operand, part program.Rect, member int) bool {
	at := p.Places[o]
	have := at.Matrix.Part(member)
	if part.Empty() || o > gemm.Up {
		return have.Contains(part)
	}
	whole := program.First(at.Matrix.Rows).By(program.First(at.Matrix.Cols))
	return have.Contains(part) && alignment(have, part.Rows.From, part.Cols.From) >= alignment(whole, at.Row, at.Col)
}

// alignment returns the largest power of two up to Align that divides the distance of an element
// from the start of r in memory. Rows are padded so that each starts as aligned as the first, but a
// single column is contiguous.
func alignment(r program.Rect, row, col int) int {
	n := col - r.Cols.From
	if r.Cols.Len() == 1 {
		n = row - r.Rows.From
	}
	return 1 << bits.TrailingZeros(uint(n|Align))
}

// gather returns the copies that bring the part of an operand for a part of C to a member.
func (p *Job) gather(o gemm.Operand, c program.Rect, member int) (all []Copy) {
	for i, part := range p.copied(o, c) {
		moved := p.moved(o, c, i)
		for _, piece := range p.Places[o].Matrix.Pieces(part, member) {
			all = append(all, Copy{o, piece.Member, member, piece.Part, piece.Part.Plus(moved.Rows, moved.Cols)})
		}
	}
	return all
}

// scatter returns the copies that bring a part of C from the member that computed it to all members
// that store it. held reports whether the member computed it outside its own part.
func (p *Job) scatter(c program.Rect, member int, held bool) (all []Copy) {
	for _, part := range p.copied(gemm.C, c) {
		for _, piece := range p.Places[gemm.C].Matrix.Holds(part) {
			if piece.Member != member || held {
				all = append(all, Copy{gemm.C, member, piece.Member, piece.Part, piece.Part})
			}
		}
	}
	return all
}

// shares returns the shares of members that compute the parts of a grid, in panels that take the
// given number of rounds.
func (p *Job) shares(grid []program.Rect, rounds int) []Share {
	all := make([]Share, len(grid))
	repeated := len(grid) > 1 && !grid[0].Empty() && grid[0] == grid[1] // each member computes all of C, for itself
	for i, c := range grid {
		if !c.Empty() {
			all[i] = p.share(c, i, repeated, rounds)
		}
	}
	return all
}

// share returns the share of a member that computes c, for itself alone if repeated is set.
func (p *Job) share(c program.Rect, member int, repeated bool, rounds int) Share {
	s := Share{C: c}
	var missing [gemm.Operands]program.Rect
	for o := range gemm.Operands {
		if part := p.Needs(o, c); (p.reads(o) || o == gemm.C) && !part.Empty() && !p.inPlace(o, part, member) {
			missing[o] = p.held(o, c)
		}
	}
	streamed := p.streamed(&missing)
	for o, part := range missing {
		if o := gemm.Operand(o); !part.Empty() && !streamed(o) {
			s.Held[o] = part
			if p.reads(o) {
				s.Gather = append(s.Gather, p.gather(o, c, member)...)
			}
		}
	}
	scattered := !repeated && len(p.scatter(c, member, !s.Held[gemm.C].Empty())) > 0
	for _, panel := range p.panels(c, member, streamed, scattered, rounds) {
		x := Panel{C: panel}
		for o := range gemm.Operands {
			if part := p.Needs(o, panel); streamed(o) && !p.inPlace(o, part, member) {
				x.Held[o] = p.held(o, panel)
				x.Gather = append(x.Gather, p.gather(o, panel, member)...)
			}
		}
		if !repeated {
			x.Scatter = p.scatter(panel, member, !s.Held[gemm.C].Empty())
		}
		s.Panels = append(s.Panels, x)
	}
	return s
}

// streamed returns a function that reports whether an operand is gathered in panels: A, or B with
// Up, whichever the member lacks more of. The other one is gathered before the first panel, and so
// are both of a batch. Of groups, only B is gathered in panels.
func (p *Job) streamed(missing *[gemm.Operands]program.Rect) func(gemm.Operand) bool {
	columns := missing[gemm.B].Len() + missing[gemm.Up].Len()
	switch {
	case missing[gemm.A].Len()+columns == 0 || p.batched():
		return func(gemm.Operand) bool { return false }
	case missing[gemm.A].Len() > columns && !p.grouped():
		return func(o gemm.Operand) bool { return o == gemm.A }
	}
	return func(o gemm.Operand) bool { return o == gemm.B || o == gemm.Up && !missing[gemm.Up].Empty() }
}

// panels cuts a member's part of C into panels in the order in which their operands arrive: first
// the panel that needs no copies, if there is one, and then those of the other members. A part that
// no copies delay is one panel, or several if other members copy the result.
func (p *Job) panels(c program.Rect, member int, streamed func(gemm.Operand) bool, scattered bool,
	rounds int) (all []program.Rect) {
	rows := func(s program.Span) program.Rect { return s.By(c.Cols) }
	cols := func(s program.Span) program.Rect { return c.Rows.By(s) }
	tileRows, tileCols := ints.CeilDiv(c.Rows.Len(), p.UnitM), ints.CeilDiv(c.Cols.Len(), p.UnitN)
	var cuts []program.Span
	of := cols
	switch {
	case streamed(gemm.A):
		of = rows
		cuts = p.cuts(gemm.A, c.Rows, p.panelSize(gemm.A, p.UnitM, tileCols, rounds), rounds, member, of)
	case streamed(gemm.B):
		cuts = p.cuts(gemm.B, c.Cols, p.panelSize(gemm.B, p.UnitN, tileRows, rounds), rounds, member, of)
	case scattered && p.grouped():
		cuts = c.Cols.Cut(p.panelSize(gemm.C, p.UnitN, tileRows, rounds))
	case scattered:
		of = rows
		cuts = c.Rows.Cut(p.panelSize(gemm.C, p.UnitM, tileCols, rounds))
	default:
		return []program.Rect{c}
	}
	for _, s := range cuts {
		all = append(all, of(s))
	}
	return all
}

// panelSize returns the rows or columns of C, multiples of unit, of a panel that a member computes
// in the given number of rounds. across is the number of its tiles in the other direction, and o
// the operand that is gathered for it, or C.
func (p *Job) panelSize(o gemm.Operand, unit, across, rounds int) int {
	each := float64(unit) * float64(p.K) * p.size(o) // bytes of a row or column of tiles
	if o == gemm.B && p.Uses(gemm.Up) {
		each *= 2
	}
	if o == gemm.B && p.grouped() {
		each *= float64(p.Batch.Count)
	}
	n := int(float64(p.PanelBytes) / max(each, 1))
	if rounds != allRounds {
		n = min(n, rounds*p.AtOnce/across)
	}
	return max(n, 1) * unit
}

// cuts cuts a range of rows or columns of C along the parts of streamed operand o, and each part
// into panels of n. A range that is to be computed in all rounds is not cut if it has at most n. of
// returns the part of C of a range. All cuts are multiples of Align and Grain from the start.
func (p *Job) cuts(o gemm.Operand, whole program.Span, n, rounds, member int,
	of func(program.Span) program.Rect) (all []program.Span) {
	if rounds == allRounds && whole.Len() <= n {
		return []program.Span{whole}
	}
	for _, s := range p.parts(o, whole, member) {
		if p.inPlace(o, p.Needs(o, of(s)), member) {
			all = append(all, s)
			continue
		}
		for ; s.Len() > 0; s.From += n {
			all = append(all, program.Range(s.From, min(s.From+n, s.To)))
		}
	}
	return all
}

// size returns the bytes of an element of o.
func (p *Job) size(o gemm.Operand) float64 {
	return float64(p.Layout(o).Type.Bits()) / 8
}

// ends returns the ends of the parts of operand o, which is A, B or C, as rows or columns of C. It
// is not ok if the members have copies, if the parts divide K or if C must not be divided there.
func (p *Job) ends(o gemm.Operand) (rows bool, ends []int, ok bool) {
	if p.batched() {
		ends, ok := p.productEnds(o)
		return true, ends, ok
	}
	at := p.Places[o]
	m := at.Matrix
	if m == nil || m.By == OnEach {
		return false, nil, false
	}
	first := at.Col
	if m.By == Rows {
		first = at.Row
	}
	for _, end := range m.Ends {
		ends = append(ends, end-first)
	}
	rows = (m.By == Rows) != p.Layouts[o].Trans // of op(o)
	if p.grouped() {
		whole := at.Step.Rows == 0
		if m.By == Columns {
			whole = at.Step.Cols == 0
		}
		return rows, ends, o != gemm.A && !rows && whole
	}
	return rows, ends, o == gemm.C || rows == (o == gemm.A)
}

// parts divides a range of rows or columns of C along the member's own part of operand o: that part
// first, then the rows or columns after it, and then those before it. So the members begin at
// different ones.
func (p *Job) parts(o gemm.Operand, whole program.Span, member int) (all []program.Span) {
	_, ends, ok := p.ends(o)
	if !ok {
		return []program.Span{whole}
	}
	grain := max(p.Grain, Align)
	cut := func(end int) int { // rounded down to a grain from the start
		return min(whole.From+max(end-whole.From, 0)/grain*grain, whole.To)
	}
	own := whole
	if member > 0 {
		own.From = cut(ends[member-1])
	}
	if member < len(ends)-1 {
		own.To = cut(ends[member])
	}
	for _, s := range []program.Span{own, program.Range(own.To, whole.To), program.Range(whole.From, own.From)} {
		if s.Len() > 0 {
			all = append(all, s)
		}
	}
	return all
}
