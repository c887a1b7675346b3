package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"tilework/internal/bench"
)

// largeSize is where small sizes end and large ones begin: it is in both charts.
const largeSize = 1024

func timeSmall(s *study) []*Chart {
	return s.timeCharts("time", "Time at small sizes", 1, func(r row) bool { return r.N <= largeSize })
}

func timeLarge(s *study) []*Chart {
	return s.timeCharts("time-large", "Time at large sizes", largeSize+1, func(r row) bool { return r.N >= largeSize })
}

// contenders are what the charts of time compare, each being the fastest kernel of
// ours at each size.
var contenders = []struct {
	name string
	keep []func(row) bool
}{
	{"textbook loop, CPU", []func(row) bool{of(onCPU), isLoop}},
	{"fastest kernel, CPU", []func(row) bool{of(onCPU), not(isLoop)}},
	{"fastest kernel, GPU", []func(row) bool{of(onGPU), not(copies)}},
	{"with copies, GPU", []func(row) bool{of(onGPU), copies}},
}

// isLoop reports whether the subject is the textbook's three loops.
func isLoop(r row) bool { return r.Subject == "loop" }

// race is the fastest rows of each contender, by N, from one source.
type race struct {
	loop, cpu, gpu, copied []row
	suffix                 string // names the source where there are several
}

func newRace(rows []row, suffix string) race {
	curve := func(i int) []row { return fastest(filter(rows, contenders[i].keep...)) }
	return race{curve(0), curve(1), curve(2), curve(3), suffix}
}

// timeCharts has a chart for each element type of the square products to keep, some of
// which have an N of least or more.
func (s *study) timeCharts(id, title string, least int, keep func(row) bool) []*Chart {
	question := "From which size on does the GPU pay?"
	if !slices.ContainsFunc(s.rows, of(onGPU)) {
		question = "How long does a product take?"
	}
	rows := filter(s.rows, isSquare, keep, not(isPeer), not(isInexact))
	if !slices.ContainsFunc(rows, func(r row) bool { return r.N >= least }) {
		return []*Chart{{ID: id, Title: title, Question: question, Notes: []string{"No kernel was timed on square products of these sizes in their elements' own arithmetic."}}}
	}
	var all []*Chart
	types := groupBy(rows, func(r row) string { return r.Types() })
	isRace := func(g group) bool { return contested(g.rows) }
	races := slices.ContainsFunc(types, isRace) // who runs alone is left out beside one
	for _, g := range types {
		if !slices.ContainsFunc(g.rows, func(r row) bool { return r.N >= least }) || !isRace(g) && (races || oneSize(g.rows)) {
			continue
		}
		all = append(all, s.timeChart(&Chart{ID: id + "-" + word(g.name), Title: title + ", " + g.name, Question: question}, g.rows))
	}
	if all == nil {
		all = []*Chart{{ID: id, Title: title, Question: question, Notes: []string{"Kernels were timed on square products of one size alone."}}}
	}
	return all
}

// oneSize reports whether rows are of one shape alone, of which no line can be drawn.
func oneSize(rows []row) bool {
	return !slices.ContainsFunc(rows, func(r row) bool { return shape(r.Record) != shape(rows[0].Record) })
}

// contested reports whether several of the contenders are among rows.
func contested(rows []row) bool {
	n := 0
	for _, c := range contenders {
		if len(filter(rows, c.keep...)) > 0 {
			n++
		}
	}
	return n > 1
}

func (s *study) timeChart(c *Chart, rows []row) *Chart {
	lines := &Lines{
		X: Axis{Label: "N, of N×N matrices", Log: true, Binary: true, Text: tick},
		Y: Axis{Label: "time of a product", Log: true, Text: bench.Duration},
	}
	c.Drawing = lines
	c.Table.Columns = []string{"matrices", "N", "kernel", "median", "spread", "rate"}
	var answers []string
	absent := map[string][]string{} // what is missing, and the sources that miss it
	for source, name := range s.sources {
		suffix := ""
		if len(s.sources) > 1 {
			suffix = " (" + name + ")"
		}
		r := newRace(filter(rows, func(r row) bool { return r.source == source }), suffix)
		for i, curve := range [][]row{r.loop, r.cpu, r.gpu, r.copied} {
			c.add(lines, Series{Name: contenders[i].name + suffix, Colour: i, Glyph: s.glyph(i, source)}, curve)
		}
		answer, missing := r.answer()
		if answer != "" {
			answers = append(answers, answer+suffix+".")
		}
		for _, m := range missing {
			absent[m] = append(absent[m], name)
		}
		if at := r.crossingLoop(); at > 0 {
			lines.Marks = append(lines.Marks, Mark{at, fmt.Sprintf("N ≈ %.0f, the loop", at) + suffix})
		}
		if at, _ := r.crossing(); at > 0 {
			lines.Marks = append(lines.Marks, Mark{at, fmt.Sprintf("N ≈ %.0f", at) + suffix})
		}
	}
	c.Headline = strings.Join(answers, "\n")
	for _, m := range slices.Sorted(maps.Keys(absent)) {
		note := m
		if len(absent[m]) < len(s.sources) {
			note += " (" + list(absent[m]) + ")"
		}
		c.Notes = append(c.Notes, note+".")
	}
	return c
}

// add draws a curve and lists it, if it has points.
func (c *Chart) add(lines *Lines, series Series, curve []row) {
	if len(curve) == 0 {
		return
	}
	for _, r := range curve {
		series.Points = append(series.Points, Point{X: float64(r.N), Y: r.Seconds.Median, Text: telling(series.Name+": "+r.Subject, r), Aside: aside(curve, r.N)})
		c.Table.Rows = append(c.Table.Rows, []string{series.Name, strconv.Itoa(r.N), r.Subject, bench.Duration(r.Seconds.Median), fmt.Sprintf("%.1f %%", 100*r.Seconds.Spread), r.rate()})
	}
	lines.Series = append(lines.Series, series)
}

// rivals are the two that the crossover is between, and in words: the CPU's fastest
// kernel, or else the textbook's loop, and the GPU with its copies, or else without.
func (r race) rivals() (cpu, gpu []row, who, how string) {
	cpu, who = r.cpu, "the fastest CPU kernel"
	if len(cpu) == 0 {
		cpu, who = r.loop, "the textbook loop"
	}
	gpu, how = r.copied, "its copies included"
	if len(gpu) == 0 {
		gpu, how = r.gpu, "without the copies to it and back"
	}
	return cpu, gpu, who, how
}

func (r race) crossing() (at float64, last int) {
	cpu, gpu, _, _ := r.rivals()
	return overtakes(cpu, gpu)
}

// crossingLoop is where the GPU overtakes the textbook's loop, where that is not what the
// crossing is about; 0 where it does not.
func (r race) crossingLoop() float64 {
	_, gpu, _, _ := r.rivals()
	if len(r.loop) == 0 || len(r.cpu) == 0 {
		return 0 // there is no other
	}
	at, _ := overtakes(r.loop, gpu)
	return max(at, 0)
}

// answer says who wins from where on, and what is missing to say more; neither ends
// with a full stop.
func (r race) answer() (say string, missing []string) {
	cpu, gpu, who, how := r.rivals()
	at, last := r.crossing()
	switch {
	case len(gpu) == 0 && len(cpu) == 0:
		return "", []string{"Nothing was timed at these sizes"}
	case len(gpu) == 0:
		return r.gain(), []string{"No GPU records: no crossover"}
	case len(cpu) == 0:
		end := gpu[len(gpu)-1]
		say = fmt.Sprintf("At %s the GPU, %s, takes %s", shape(end.Record), how, bench.Duration(end.Seconds.Median))
		return say, []string{"No CPU records: no crossover"}
	case len(r.copied) == 0:
		missing = append(missing, "No GPU records with the copies (bench --transfers): the crossover leaves them out")
	}
	if last == 0 {
		return "The CPU and the GPU were timed on no common size", missing
	}
	ratio := atSize(cpu, last).Seconds.Median / atSize(gpu, last).Seconds.Median
	var overtaken, stands string
	if at := r.crossingLoop(); at > 0 {
		overtaken = fmt.Sprintf("the textbook loop at N ≈ %.0f and ", at)
		stands = "overtakes " + overtaken
	}
	switch {
	case at == 0:
		say = fmt.Sprintf("The GPU, %s, %sis behind %s at N = %d, with %s its speed", how, stands, who, last, times(ratio))
	case math.IsInf(at, -1):
		say = fmt.Sprintf("The GPU, %s, %sis ahead of %s at every size; at N = %d it is %s as fast", how, stands, who, last, times(ratio))
	default:
		say = fmt.Sprintf("The GPU, %s, overtakes %s%s at N ≈ %.0f; at N = %d it is %s as fast", how, overtaken, who, at, last, times(ratio))
	}
	return say, missing
}

// gain compares the fastest kernel with the textbook loop at the largest size that both
// were timed on.
func (r race) gain() string {
	for _, best := range slices.Backward(r.cpu) {
		if l := atSize(r.loop, best.N); l.Record != nil {
			return fmt.Sprintf("At %s, %s takes %s: it is %s as fast as the textbook loop", shape(best.Record), best.Subject,
				bench.Duration(best.Seconds.Median), times(l.Seconds.Median/best.Seconds.Median))
		}
	}
	cpu, _, _, _ := r.rivals()
	end := cpu[len(cpu)-1]
	return fmt.Sprintf("At %s, %s takes %s", shape(end.Record), end.Subject, bench.Duration(end.Seconds.Median))
}

// atSize is the row of that N, its Record nil if there is none.
func atSize(rows []row, n int) row {
	if i := slices.IndexFunc(rows, func(r row) bool { return r.N == n }); i >= 0 {
		return rows[i]
	}
	return row{}
}

// overtakes is the size from which on b is the faster, where straight lines between the
// measured sizes meet on two logarithmic axes: 0 where b is behind at the end, -Inf
// where it is ahead from the start. Both are compared from the first to the last of the
// sizes that both were timed on; last is that one, 0 if there is none.
func overtakes(a, b []row) (at float64, last int) {
	var sizes []int
	first := 0
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
		return 0, 0
	}
	for _, y := range b {
		sizes = append(sizes, y.N)
	}
	slices.Sort(sizes)
	sizes = slices.DeleteFunc(slices.Compact(sizes), func(n int) bool { return n < first || n > last })
	ahead := func(n int) float64 { return logSeconds(a, n) - logSeconds(b, n) }
	if ahead(last) <= 0 {
		return 0, last
	}
	for i := len(sizes) - 1; i > 0; i-- {
		p, q := sizes[i-1], sizes[i]
		if behind := -ahead(p); behind >= 0 {
			return float64(p) * math.Pow(float64(q)/float64(p), behind/(behind+ahead(q))), last
		}
	}
	return math.Inf(-1), last
}

// logSeconds is the logarithm of a curve's time at n, which is in its range.
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
