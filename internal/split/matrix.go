// Package split describes matrices that are divided among members, such as the GPUs of a host, and
// products of them: the part of C that each member computes, and the parts that it copies from
// others. It is pure data and knows no devices.
package split

import "fmt"

// By is the way in which a matrix is divided.
type By uint8

// The ways to divide a stored matrix.
const (
	Rows    By = iota // each member has some rows
	Columns           // each member has some columns
	OnEach            // each member has the whole matrix
	ways
)

// String returns the way in words, as in "split by rows".
func (b By) String() string {
	return [ways]string{"split by rows", "split by columns", "whole on each"}[b]
}

// T returns the way in which the transpose is divided.
func (b By) T() By {
	switch b {
	case Rows:
		return Columns
	case Columns:
		return Rows
	}
	return b
}

// Result returns the way to divide the product of matrices that are divided as a and b that moves
// the least: as A if its rows are divided, and else as B if its columns are.
func Result(a, b By) By {
	if a == OnEach && b != Rows {
		return b
	}
	return Rows
}

// Span is a range of rows or columns, without To.
type Span struct{ From, To int }

// Len returns the number of rows or columns.
func (s Span) Len() int { return max(s.To-s.From, 0) }

// and returns the common part of two ranges.
func (s Span) and(o Span) Span { return Span{max(s.From, o.From), min(s.To, o.To)} }

// plus returns the range moved by n.
func (s Span) plus(n int) Span { return Span{s.From + n, s.To + n} }

// blocks returns the range of the blocks of n rows or columns that have some of s.
func (s Span) blocks(n int) Span { return Span{s.From / n, (s.To + n - 1) / n} }

// String returns the range with its last row or column.
func (s Span) String() string { return fmt.Sprintf("%d to %d", s.From, s.To-1) }

// Rect is a rectangular part of a matrix.
type Rect struct{ Rows, Cols Span }

// Empty reports whether r has no elements.
func (r Rect) Empty() bool { return r.Rows.Len() == 0 || r.Cols.Len() == 0 }

// Len returns the number of elements.
func (r Rect) Len() int { return r.Rows.Len() * r.Cols.Len() }

// And returns the common part of two rectangles.
func (r Rect) And(o Rect) Rect { return Rect{r.Rows.and(o.Rows), r.Cols.and(o.Cols)} }

// Contains reports whether all elements of o are in r.
func (r Rect) Contains(o Rect) bool { return o.Empty() || r.And(o) == o }

// plus returns the rectangle moved by a step.
func (r Rect) plus(s Step) Rect { return Rect{r.Rows.plus(s.Rows), r.Cols.plus(s.Cols)} }

// T returns the rectangle in the transpose.
func (r Rect) T() Rect { return Rect{r.Cols, r.Rows} }

// Matrix is a stored matrix that is divided among members.
type Matrix struct {
	By         By
	Rows, Cols int
	// Ends holds, for each member, the row or column after its last one. It is ascending. If By is
	// OnEach, only its length counts.
	Ends []int
}

// New divides the rows or columns of a matrix in proportion to the weights of the members, at
// multiples of unit. Members of a small matrix may have none.
func New(by By, rows, cols int, weights []float64, unit int) Matrix {
	m := Matrix{By: by, Rows: rows, Cols: cols}
	n := rows
	if by == Columns {
		n = cols
	}
	m.Ends = ends(n, weights, unit)
	return m
}

// UsualUnit is the usual unit of [Even], a tile of the largest kernels.
const UsualUnit = 128

// Even is New with the unit of [EvenUnit].
func Even(by By, rows, cols int, weights []float64, unit int) Matrix {
	return New(by, rows, cols, weights, EvenUnit(by, rows, cols, len(weights), unit))
}

// EvenUnit returns unit, or a smaller one for matrices of few units per member.
func EvenUnit(by By, rows, cols, members, unit int) int {
	n := rows
	if by == Columns {
		n = cols
	}
	if n < 4*unit*members {
		unit = min(unit, Align)
	}
	return unit
}

// ends divides n rows or columns in proportion to weights, at multiples of unit.
func ends(n int, weights []float64, unit int) []int {
	total, sum := 0., 0.
	for _, w := range weights {
		total += w
	}
	all := make([]int, len(weights))
	for i, w := range weights {
		sum += w
		units := int(sum/total*float64(n)/float64(unit) + 0.5)
		all[i] = min(max(units, 1)*unit, n)
	}
	all[len(all)-1] = n
	return all
}

// Members returns the number of members.
func (m *Matrix) Members() int { return len(m.Ends) }

// Part returns the part of the stored matrix that a member has.
func (m *Matrix) Part(member int) Rect {
	r := Rect{Span{0, m.Rows}, Span{0, m.Cols}}
	switch m.By {
	case Rows:
		r.Rows = m.span(member)
	case Columns:
		r.Cols = m.span(member)
	}
	return r
}

func (m *Matrix) span(member int) Span {
	if member == 0 {
		return Span{0, m.Ends[0]}
	}
	return Span{m.Ends[member-1], m.Ends[member]}
}

// Piece is a part of a stored matrix that a member has.
type Piece struct {
	Member int
	Part   Rect
}

// Pieces divides a part of the stored matrix into pieces of single members. Each element is in one
// piece. The first piece is the reader's own, and the members after the reader follow, so that
// readers do not all start with the same member.
func (m *Matrix) Pieces(part Rect, reader int) []Piece {
	if part.Empty() {
		return nil
	}
	if m.By == OnEach {
		return []Piece{{reader, part}}
	}
	var all []Piece
	for i := range m.Ends {
		member := (reader + i) % len(m.Ends)
		if p := m.Part(member).And(part); !p.Empty() {
			all = append(all, Piece{member, p})
		}
	}
	return all
}

// Holds returns the pieces of a part at all members that have some of it. Unlike those of
// [Matrix.Pieces], pieces of copies hold the same elements.
func (m *Matrix) Holds(part Rect) (all []Piece) {
	for i := range m.Ends {
		if p := m.Part(i).And(part); !p.Empty() {
			all = append(all, Piece{i, p})
		}
	}
	return all
}
