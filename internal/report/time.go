package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"tilework/internal/bench"
	"tilework/internal/phrase"
)

// largeSize is the last size in the chart of small sizes and the first in the chart of large sizes.
const largeSize = 1024

func timeQuestion(s *study) string {
	if slices.ContainsFunc(s.rows, of(onGPU)) {
		return "From which size is the GPU faster?"
	}
	return "How long does a product take?"
}

// timeCharts compares the times of the CPU and the GPU at small and at large sizes.
func timeCharts(s *study) ([]*Chart, string) {
	small, reason := s.timeChartsFor("time", "Time at small sizes", 1, func(r row) bool { return r.N <= largeSize })
	large, _ := s.timeChartsFor("time-large", "Time at large sizes", largeSize+1,
		func(r row) bool { return r.N >= largeSize })
	if all := append(small, large...); len(all) > 0 {
		return all, ""
	}
	return nil, reason
}

// curveKinds are the curves of a chart of times: our fastest kernel of each kind at each size.
var curveKinds = []struct {
	name string
	keep []func(row) bool
}{
	{"textbook loop, CPU", []func(row) bool{of(onCPU), isLoop}},
	{"fastest kernel, CPU", []func(row) bool{of(onCPU), not(isLoop)}},
	{"fastest kernel, GPU", []func(row) bool{of(onGPU), not(copies)}},
	{"GPU with copies", []func(row) bool{of(onGPU), copies}},
}

// isLoop reports whether the subject is the textbook's three loops.
func isLoop(r row) bool { return r.Subject == "loop" }

// timeCurves holds the fastest rows of each kind by N, from one source.
type timeCurves struct{ loop, cpu, gpu, copied []row }

func newTimeCurves(rows []row) timeCurves {
	curve := func(i int) []row { return fastest(filter(rows, curveKinds[i].keep...)) }
	return timeCurves{curve(0), curve(1), curve(2), curve(3)}
}

// timeChartsFor returns a chart for each element type, of the square products that satisfy keep. It
// omits types without an N of at least least.
func (s *study) timeChartsFor(id, title string, least int, keep func(row) bool) ([]*Chart, string) {
	rows := filter(s.timeRows(), keep)
	large := func(r row) bool { return r.N >= least }
	if len(filter(rows, large)) == 0 {
		return nil, "No kernel was timed on square products in the arithmetic of their elements."
	}
	types := groupBy(rows, func(r row) string { return r.Types() })
	var all []*Chart
	for _, g := range types {
		if hasSeveralKinds(filter(g.rows, large)) && sizes(g.rows) > 1 {
			all = append(all, s.timeChart(&Chart{ID: id + "-" + word(g.name), Title: title + ", " + g.name}, g.rows))
		}
	}
	return all, "Only one of the textbook loop, the kernels of the CPU and those of the GPU was timed on several sizes, " +
		"so there is no crossover."
}

// timeRows returns our kernels on square products that do not round the elements.
func (s *study) timeRows() []row { return filter(s.rows, isSquare, not(isPeer), not(isInexact)) }

// hasSeveralKinds reports whether rows have several of the curveKinds.
func hasSeveralKinds(rows []row) bool {
	n := 0
	for _, c := range curveKinds {
		if len(filter(rows, c.keep...)) > 0 {
			n++
		}
	}
	return n > 1
}

func (s *study) timeChart(c *Chart, rows []row) *Chart {
	c.Table.Columns = []Column{{"series", ""}, {"N", ""}, {"kernel", ""}, {"time", "s"}, {"spread", "%"},
		{"rate", "G" + rows[0].unit()}}
	var curves []curve
	var marks []Mark
	var answers []string
	absent := map[string][]string{} // the sources that lack a kind of record
	for source, name := range s.sources {
		r := newTimeCurves(filter(rows, func(r row) bool { return r.source == source }))
		for i, rows := range [][]row{r.loop, r.cpu, r.gpu, r.copied} {
			if len(rows) == 0 {
				continue
			}
			curves = append(curves, curve{name: curveKinds[i].name, source: source, rows: rows})
			for _, r := range rows {
				c.Table.add(textCell(s.label(curveKinds[i].name, source)), sizeCell(r.N), textCell(r.Subject), timeCell(r),
					spreadCell(r), rateCell(r, 1))
			}
		}
		answer, missing := r.answer()
		if answer != "" {
			answers = append(answers, s.label(answer, source)+".")
		}
		for _, m := range missing {
			absent[m] = append(absent[m], name)
		}
		if x := r.crossingLoop(); x.at > 0 {
			marks = append(marks, Mark{x.at, s.label(x.size()+": GPU passes the loop", source)})
		}
		if x := r.crossing(); x.at > 0 {
			marks = append(marks, Mark{x.at, s.label(x.size()+": GPU passes the CPU", source)})
		}
	}
	lines := s.lines(curves, func(c curve, r row) Point {
		p := timePoint(c, r)
		p.Text = describe(s.label(c.name, c.source)+": "+r.Subject, r)
		return p
	})
	lines.X, lines.Y, lines.Marks = sizeAxis(), timeAxis(), marks
	c.Drawing, c.Answer = lines, strings.Join(answers, "\n")
	for _, m := range slices.Sorted(maps.Keys(absent)) {
		note := m
		if len(absent[m]) < len(s.sources) {
			note += " (" + phrase.List(absent[m]) + ")"
		}
		c.Notes = append(c.Notes, note+".")
	}
	return c
}

// compared returns the two curves of the crossover with their names: the fastest CPU kernel, or
// else the textbook loop, and the GPU with copies, or else without.
func (r timeCurves) compared() (cpu, gpu []row, who, how string) {
	cpu, who = r.cpu, "the fastest CPU kernel"
	if len(cpu) == 0 {
		cpu, who = r.loop, "the textbook loop"
	}
	gpu, how = r.copied, "copies included"
	if len(gpu) == 0 {
		gpu, how = r.gpu, "without copies"
	}
	return cpu, gpu, who, how
}

func (r timeCurves) crossing() crossing {
	cpu, gpu, _, _ := r.compared()
	return overtakes(cpu, gpu)
}

// crossingLoop returns the crossing of the GPU with the textbook loop. There is none if the loop is
// one of the compared curves.
func (r timeCurves) crossingLoop() crossing {
	_, gpu, _, _ := r.compared()
	if len(r.loop) == 0 || len(r.cpu) == 0 {
		return crossing{}
	}
	return overtakes(r.loop, gpu)
}

// answer returns a sentence about the crossover, and the missing kinds of records, without full
// stops.
func (r timeCurves) answer() (sentence string, missing []string) {
	cpu, gpu, who, how := r.compared()
	x := r.crossing()
	switch {
	case len(gpu) == 0 && len(cpu) == 0:
		return "", []string{"Nothing was timed at these sizes"}
	case len(gpu) == 0:
		return r.gain(), []string{"No GPU records: no crossover"}
	case len(cpu) == 0:
		end := gpu[len(gpu)-1]
		sentence = fmt.Sprintf("At %s the GPU, %s, takes %s", shape(end.Record), how, end.time())
		return sentence, []string{"No CPU records: no crossover"}
	case len(r.copied) == 0:
		missing = append(missing, "No GPU records with copies (bench --transfers): the crossover excludes copies")
	}
	if x.last == 0 {
		return "The CPU and the GPU have no timed size in common", missing
	}
	ratio := gain(atSize(cpu, x.last), atSize(gpu, x.last))
	var overtaken, alsoOvertakes string
	if loop := r.crossingLoop(); loop.at > 0 {
		overtaken = "the textbook loop at " + loop.size() + " and "
		alsoOvertakes = "overtakes " + overtaken
	}
	switch {
	case x.at == 0:
		sentence = fmt.Sprintf("The GPU, %s, %sis slower than %s at N = %d, at %s its speed", how, alsoOvertakes, who, x.last,
			ratio)
	case math.IsInf(x.at, -1):
		sentence = fmt.Sprintf("The GPU, %s, %sis faster than %s at every common size; at N = %d it is %s as fast", how,
			alsoOvertakes, who, x.last, ratio)
	default:
		sentence = fmt.Sprintf("The GPU, %s, overtakes %s%s at %s; at N = %d it is %s as fast", how, overtaken, who, x.size(),
			x.last, ratio)
	}
	return sentence, missing
}

// gain compares the fastest kernel with the textbook loop at the largest common size.
func (r timeCurves) gain() string {
	for _, best := range slices.Backward(r.cpu) {
		if l := atSize(r.loop, best.N); l.Record != nil {
			return fmt.Sprintf("At %s, %s takes %s: it is %s as fast as the textbook loop", shape(best.Record), best.Subject,
				best.time(), gain(l, best))
		}
	}
	cpu, _, _, _ := r.compared()
	end := cpu[len(cpu)-1]
	return fmt.Sprintf("At %s, %s takes %s", shape(end.Record), end.Subject, end.time())
}

// atSize returns the row with that N. Its Record is nil if there is none.
func atSize(rows []row, n int) row {
	if i := slices.IndexFunc(rows, func(r row) bool { return r.N == n }); i >= 0 {
		return rows[i]
	}
	return row{}
}

// crossing is the size from which one curve is faster than another, interpolated linearly on
// logarithmic axes.
type crossing struct {
	at        float64 // 0 if it is slower at the end, -Inf if it is faster from the start
	uncertain bool    // a time beside the crossing is uncertain
	last      int     // the last common size, or 0 if there is none
}

// size formats the size: "N ≈ 512".
func (x crossing) size() string { return bench.Marked(fmt.Sprintf("N ≈ %.0f", x.at), x.uncertain) }

// overtakes returns the crossing from which b is faster than a, in the range from the first to the
// last common size.
func overtakes(a, b []row) crossing {
	var sizes []int
	first, last := 0, 0
	for _, x := range a {
		sizes = append(sizes, x.N)
		if atSize(b, x.N).Record != nil {
			if first == 0 {
				first = x.N
			}
			last = x.N
		}
	}
	if last == 0 {
		return crossing{}
	}
	for _, y := range b {
		sizes = append(sizes, y.N)
	}
	slices.Sort(sizes)
	sizes = slices.DeleteFunc(slices.Compact(sizes), func(n int) bool { return n < first || n > last })
	ahead := func(n int) float64 { return logSeconds(a, n) - logSeconds(b, n) }
	if ahead(last) <= 0 {
		return crossing{last: last}
	}
	for i := len(sizes) - 1; i > 0; i-- {
		p, q := sizes[i-1], sizes[i]
		if behind := -ahead(p); behind >= 0 {
			at := float64(p) * math.Pow(float64(q)/float64(p), behind/(behind+ahead(q)))
			return crossing{at, hasUncertain(a, p, q) || hasUncertain(b, p, q), last}
		}
	}
	return crossing{at: math.Inf(-1), last: last}
}

// hasUncertain reports whether a curve's times from size p to size q depend on an uncertain time.
func hasUncertain(rows []row, p, q int) bool {
	for i, r := range rows {
		before := i+1 < len(rows) && rows[i+1].N <= p
		after := i > 0 && rows[i-1].N >= q
		if !before && !after && r.Uncertain() {
			return true
		}
	}
	return false
}

// logSeconds returns the logarithm of a curve's time at n, which must be in the curve's range.
func logSeconds(rows []row, n int) float64 {
	for i, r := range rows {
		y := math.Log(r.Seconds.Median)
		if r.N == n {
			return y
		}
		if r.N > n && i > 0 {
			before := rows[i-1]
			part := math.Log(float64(n)/float64(before.N)) / math.Log(float64(r.N)/float64(before.N))
			return math.Log(before.Seconds.Median)*(1-part) + y*part
		}
	}
	return math.NaN()
}
