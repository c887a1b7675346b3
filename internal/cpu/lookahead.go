package cpu

import (
	"math"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
)

// lookahead yields the cache lines that micro-kernels prefetch into L2 while they multiply: runs of
// equally spaced lines. After the last run it yields one line again and again.
type lookahead[T scalar] struct {
	data       []T
	run, at    int // the start of the run in data, and the next line relative to it
	apart, end int // elements between lines, and in a run
	next, last int // elements between the starts of runs, and the end of the last one
}

// take returns the first of the next n lines and the distance between them.
func (l *lookahead[T]) take(n int) (first *T, apart int) {
	first = &l.data[min(l.run+l.at, len(l.data)-1)]
	if l.run >= l.last {
		return first, 0
	}
	if l.at += n * l.apart; l.at >= l.end {
		l.run, l.at = l.run+l.next, 0
	}
	return first, l.apart
}

// rowsAhead is the lookahead of a task that reads the rows of A below it, from row i on.
func (d *direct[T]) rowsAhead(i int) lookahead[T] {
	return lookahead[T]{data: d.a, run: i * d.rsa, apart: dtype.Of[T]().Elements(asm.Line), end: math.MaxInt,
		last: math.MaxInt}
}

// stripAhead is the lookahead of a strip of B, of k rows from row p on in the task's columns.
// Memory delivers the lines of a row fastest in their order, and hardware fetches the other line of
// each pair.
func (d *direct[T]) stripAhead(p, k, j0, cols int) lookahead[T] {
	const pair = 2 * asm.Line
	return lookahead[T]{data: d.b, run: p*d.ldb + j0, apart: dtype.Of[T]().Elements(pair), end: cols, next: d.ldb,
		last: (p + k) * d.ldb}
}

// panelAhead is the lookahead of the panel of B that follows the one at (p, j), of k steps. The
// task's columns are j0 to jEnd-1.
func (d *direct[T]) panelAhead(p, j, k, j0, jEnd int) lookahead[T] {
	at := p*d.ldb + j + d.mk.NR
	switch {
	case j+d.mk.NR < jEnd:
	case p+k < d.k:
		at = (p+k)*d.ldb + j0
	default:
		at = jEnd
	}
	return linesAhead(d.b, at, d.ldb, k)
}

// panelAhead is the lookahead of the panel of B that follows the one at (p, j), of k steps, if
// tiles copy B.
func (d *blocked[T]) panelAhead(p, j, k int) lookahead[T] {
	at := d.b.index(j+d.mk.NR, p)
	if j+d.mk.NR >= d.n {
		at = d.b.index(0, p+k)
	}
	return linesAhead(d.b.data, at, d.b.ld, k)
}

// linesAhead yields the lines of the panel of k rows at element at, which are ld elements apart: a
// line of all rows, then another one. It starts with the line of the last element that could be in
// a row's first one. If the row starts before that line, the panel to the left has fetched its
// start.
func linesAhead[T scalar](data []T, at, ld, k int) lookahead[T] {
	line := dtype.Of[T]().Elements(asm.Line)
	return lookahead[T]{data: data, run: at + line - 1, apart: ld, end: k * ld, next: line, last: math.MaxInt}
}
