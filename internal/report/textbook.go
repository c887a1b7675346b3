package report

import (
	"fmt"
	"slices"
	"strings"
)

// textbookLines are the lines of the textbook's charts.
var (
	loopLine    = textbookLine{"textbook loop, CPU", []func(row) bool{of(onCPU), isLoop}}
	copiedLine  = textbookLine{"naive, GPU with copies", []func(row) bool{of(onGPU), named("naive"), copies}}
	naiveLine   = textbookLine{"naive, GPU", []func(row) bool{of(onGPU), named("naive"), not(copies)}}
	tiledLine   = textbookLine{"tiled, GPU", []func(row) bool{of(onGPU), named("tiled"), not(copies)}}
	libraryLine = textbookLine{"fastest library, GPU", []func(row) bool{of(onGPU), isPeer, not(copies)}}
)

// textbookLine is a line with the fastest rows that satisfy keep.
type textbookLine struct {
	name string
	keep []func(row) bool
}

// nameFor returns the name of the line: that of the library if there is only one.
func (l textbookLine) nameFor(rows []row) string {
	if all := subjects(rows); rows[0].Peer && len(all) == 1 {
		return all[0] + ", GPU"
	}
	return l.name
}

// named returns a function that reports whether a row is of one of our kernels, in any tile.
func named(kernel string) func(row) bool {
	return func(r row) bool {
		name, _, _ := strings.Cut(r.Subject, ":")
		return name == kernel && !r.Peer
	}
}

// textbookCharts are the charts of a textbook's study: the CPU and the GPU at small and at large
// sizes, and the GPU's kernels beside a library.
var textbookCharts = []struct {
	id, title string
	lines     []textbookLine
	keep      func(n int) bool
}{
	{"small", "The CPU and the GPU at small sizes", []textbookLine{loopLine, copiedLine, naiveLine},
		func(n int) bool { return n <= smallSize }},
	{"large", "The CPU and the GPU at large sizes", []textbookLine{loopLine, copiedLine, naiveLine},
		func(n int) bool { return n >= smallSize }},
	{"kernels", "Naive, tiled and a library", []textbookLine{naiveLine, tiledLine, libraryLine},
		func(int) bool { return true }},
}

// smallSize is the last size in the textbook's chart of small sizes and the first in that of large
// ones. The loop's largest size of the preset study is 8 times as large.
const smallSize = 128

// textbook returns the textbook's charts of each element type. Each has three lines over several
// sizes. Sources that are compared have no such charts.
func textbook(s *study) ([]*Chart, string) {
	var all []*Chart
	exact := filter(s.rows, isSquare, hasRate, not(isInexact), not(several))
	for _, g := range groupBy(exact, func(r row) string { return r.Types() }) {
		for _, b := range textbookCharts {
			rows := filter(g.rows, func(r row) bool { return b.keep(r.N) })
			var curves []curve
			for _, line := range b.lines {
				if of := fastest(filter(rows, line.keep...)); len(of) > 1 {
					curves = append(curves, curve{name: line.nameFor(of), peer: of[0].Peer, rows: of})
				}
			}
			if len(curves) == len(b.lines) && !s.compares() {
				all = append(all, s.textbookChart("textbook-"+b.id+"-"+word(g.name), b.title+", "+g.name, curves))
			}
		}
	}
	return all, ""
}

func (s *study) textbookChart(id, title string, curves []curve) *Chart {
	lines := s.lines(curves, timePoint)
	lines.X, lines.Y = sizeAxis(), timeAxis()
	return &Chart{ID: id, Title: title, Drawing: lines, Table: s.sizeTable(curves, "s", timeCell),
		Answer: textbookAnswer(curves)}
}

// textbookAnswer states the times at the largest size that all curves have, and the gain of each
// over the first.
func textbookAnswer(curves []curve) string {
	first := curves[0].rows
	for _, end := range slices.Backward(first) {
		text := fmt.Sprintf("At %s, %s takes %s", shape(end.Record), curves[0].name, end.time())
		missing := false
		for _, c := range curves[1:] {
			r := atSize(c.rows, end.N)
			if missing = missing || r.Record == nil; !missing {
				text += fmt.Sprintf("; %s takes %s, %s as fast", c.name, r.time(), gain(end, r))
			}
		}
		if !missing {
			return text + "."
		}
	}
	return "The lines have no size in common."
}
