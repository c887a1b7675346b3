package program

import (
	"fmt"

	"tilework/internal/ints"
)

// Span is a range of rows, columns or terms, without To.
type Span struct{ From, To int }

// Range returns the range with from and without to.
func Range(from, to int) Span { return Span{from, to} }

// First returns the range of the first n.
func First(n int) Span { return Span{0, n} }

// Len returns the number of rows, columns or terms.
func (s Span) Len() int { return max(s.To-s.From, 0) }

// And returns the common part of two ranges.
func (s Span) And(o Span) Span { return Span{max(s.From, o.From), min(s.To, o.To)} }

// Plus returns the range moved by n.
func (s Span) Plus(n int) Span { return Span{s.From + n, s.To + n} }

// Blocks returns the range of the blocks of n rows or columns that have some of s.
func (s Span) Blocks(n int) Span { return Span{s.From / n, ints.CeilDiv(s.To, n)} }

// Cut cuts the range into ranges of each elements. The last one may be shorter.
func (s Span) Cut(each int) (all []Span) {
	for at := s.From; at < s.To; at += each {
		all = append(all, Span{at, min(at+each, s.To)})
	}
	return all
}

// String returns the range with its last row or column.
func (s Span) String() string { return fmt.Sprintf("%d to %d", s.From, s.To-1) }

// Rect is a rectangular part of a matrix.
type Rect struct{ Rows, Cols Span }

// By returns the rectangle with the rows s.
func (s Span) By(cols Span) Rect { return Rect{s, cols} }

// RectAt returns the rectangle of rows×cols elements that begins at (row, col).
func RectAt(row, col, rows, cols int) Rect { return Rect{Span{row, row + rows}, Span{col, col + cols}} }

// Empty reports whether r has no elements.
func (r Rect) Empty() bool { return r.Rows.Len() == 0 || r.Cols.Len() == 0 }

// Len returns the number of elements.
func (r Rect) Len() int { return r.Rows.Len() * r.Cols.Len() }

// And returns the common part of two rectangles.
func (r Rect) And(o Rect) Rect { return Rect{r.Rows.And(o.Rows), r.Cols.And(o.Cols)} }

// Contains reports whether all elements of o are in r.
func (r Rect) Contains(o Rect) bool { return o.Empty() || r.And(o) == o }

// Plus returns the rectangle moved by a number of rows and columns.
func (r Rect) Plus(rows, cols int) Rect { return Rect{r.Rows.Plus(rows), r.Cols.Plus(cols)} }

// T returns the rectangle in the transpose.
func (r Rect) T() Rect { return Rect{r.Cols, r.Rows} }

// String returns the rows and columns.
func (r Rect) String() string { return fmt.Sprintf("rows %v of columns %v", r.Rows, r.Cols) }
