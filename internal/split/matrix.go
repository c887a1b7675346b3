// Package split describes matrices that are divided among members, such as the GPUs of a host, and
// products of them: the part of C that each member computes, and the parts that it copies from
// others. It is pure data and knows no devices.
package split

import "tilework/internal/program"

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
func (m *Matrix) Part(member int) program.Rect {
	r := program.First(m.Rows).By(program.First(m.Cols))
	switch m.By {
	case Rows:
		r.Rows = m.span(member)
	case Columns:
		r.Cols = m.span(member)
	}
	return r
}

func (m *Matrix) span(member int) program.Span {
	if member == 0 {
		return program.First(m.Ends[0])
	}
	return program.Range(m.Ends[member-1], m.Ends[member])
}

// Piece is a part of a stored matrix that a member has.
type Piece struct {
	Member int
	Part   program.Rect
}

// Pieces divides a part of the stored matrix into pieces of single members. Each element is in one
// piece. The first piece is the reader's own, and the members after the reader follow, so that
// readers do not all start with the same member.
func (m *Matrix) Pieces(part program.Rect, reader int) []Piece {
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
func (m *Matrix) Holds(part program.Rect) (all []Piece) {
	for i := range m.Ends {
		if p := m.Part(i).And(part); !p.Empty() {
			all = append(all, Piece{i, p})
		}
	}
	return all
}
