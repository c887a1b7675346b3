package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tilework/internal/bench"
)

// hasRate reports whether a row has a rate. The peer that only reads B has none.
func hasRate(r row) bool {
	_, ok := r.Rate()
	return ok
}

// slowRate and fastRate return the rates at the 90th and the 10th percentile of the time.
func (r row) slowRate() float64 { return r.GFLOPS * r.Seconds.Median / r.Seconds.P90 }
func (r row) fastRate() float64 { return r.GFLOPS * r.Seconds.Median / r.Seconds.P10 }

// rateUnit returns the unit of an axis of rates, and the factor from GFLOP/s to it.
func rateUnit(rows []row) (unit string, factor float64) {
	top := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) })
	if top.GFLOPS >= 1000 {
		return "T" + top.unit(), 1e-3
	}
	return "G" + top.unit(), 1
}

func rateCell(r row, factor float64) Cell {
	return numberCell(bench.Marked(digits(r.GFLOPS*factor), r.Uncertain()), r.GFLOPS*factor)
}

func peakCell(r row) Cell {
	if p, known := r.PercentOfPeak(); known {
		return numberCell(fmt.Sprintf("%.1f %%", p), p)
	}
	return textCell("")
}

func sizeCell(n int) Cell { return numberCell(strconv.Itoa(n), float64(n)) }

// sizeCharts draws the time of each kernel against the size.
func sizeCharts(s *study) ([]*Chart, string) {
	var all []*Chart
	for _, g := range groupBy(filter(s.rows, isSquare, hasRate, not(copies), not(several)),
		func(r row) string { return r.kind() + ", " + r.Types() }) {
		curves := s.curves(g.rows, "kind", "type")
		if len(subjects(filter(g.rows, not(isPeer)))) < 3 || fewSizes(g.rows) {
			continue // the charts of rates and of the crossover suffice
		}
		drawn := fastestCurves(curves)
		lines := s.lines(drawn, timePoint)
		lines.X, lines.Y = sizeAxis(), timeAxis()
		c := &Chart{
			ID: "sizes-" + word(g.name), Title: "Time by size: " + g.name, Drawing: lines,
			Answer: s.sizeAnswer(curves, g.rows), Table: s.sizeTable(curves, "s", timeCell),
		}
		c.noteLeftOut(drawn, curves)
		all = append(all, c)
	}
	return all, ""
}

// sizeAnswer compares the slowest and the fastest curve at the largest size that several have, or
// states the time at the largest size if there is none.
func (s *study) sizeAnswer(curves []curve, rows []row) string {
	sizes := groupBy(bySize(rows), func(r row) string { return shape(r.Record) })
	end := sizes[len(sizes)-1].rows
	for _, size := range slices.Backward(sizes) {
		if len(size.rows) > 1 {
			end = size.rows
			break
		}
	}
	byTime := func(a, b row) int { return cmp.Compare(a.Seconds.Median, b.Seconds.Median) }
	slow, fast := slices.MaxFunc(end, byTime), slices.MinFunc(end, byTime)
	answer := fmt.Sprintf("At %s, %s takes %s", shape(slow.Record), s.nameIn(curves, slow), slow.time())
	if len(end) > 1 {
		answer += fmt.Sprintf(" and %s takes %s", s.nameIn(curves, fast), fast.time())
	}
	return answer + "."
}

// subjects returns the names of the subjects of rows.
func subjects(rows []row) []string {
	return values(rows, func(r row) string { return r.Subject })
}

func timeAxis() Axis { return Axis{Label: "time of one product", Log: true, Text: bench.Duration} }

// timePoint places a row by its size and time.
func timePoint(c curve, r row) Point {
	return Point{X: float64(r.N), Y: r.Seconds.Median, Low: r.Seconds.P10, High: r.Seconds.P90, Text: describe(c.name, r)}
}

// rates draws rates against the size, with the device's peak.
func rates(s *study) ([]*Chart, string) {
	var all []*Chart
	var single []row // of facets with one or two sizes
	for _, g := range s.byFacet(filter(s.rows, isSquare, hasRate, not(copies), not(several))) {
		if fewSizes(g.rows) {
			single = append(single, g.rows...)
			continue
		}
		all = append(all, s.rateChart(g))
	}
	for _, g := range groupBy(single, row.kind) {
		all = append(all, s.rateBars(g, "few sizes"))
	}
	if all == nil {
		return nil, "No square product was timed."
	}
	return all, ""
}

func (s *study) rateChart(g group) *Chart {
	curves := s.curves(g.rows, "kind", "type")
	drawn := fastestCurves(curves)
	unit, factor := rateUnit(g.rows)
	top := slices.MaxFunc(g.rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) })
	lines := s.lines(drawn, func(c curve, r row) Point {
		return Point{X: float64(r.N), Y: r.GFLOPS * factor, Low: r.slowRate() * factor, High: r.fastRate() * factor,
			Text: describe(c.name, r)}
	})
	lines.X, lines.Y = sizeAxis(), Axis{Label: unit, Text: tick, To: 1.05 * top.GFLOPS * factor}
	c := &Chart{ID: "rate-" + word(g.name), Title: "Rate: " + g.name, Drawing: lines}
	c.Table = s.sizeTable(curves, unit, func(r row) Cell {
		return numberCell(rateCell(r, factor).Text+ofPeak(r), r.GFLOPS*factor)
	})
	c.Answer = fmt.Sprintf("%s reaches %s%s at %s.", s.nameIn(curves, top), top.rate(), ofPeak(top), shape(top.Record))
	if best := fastestOurs(g.rows); best.Record != nil && best != top {
		c.Answer = fmt.Sprintf("Our fastest kernel, %s, reaches %s%s at %s; %s reaches %s%s at %s.",
			s.nameIn(curves, best), best.rate(), ofPeak(best), shape(best.Record), s.nameIn(curves, top), top.rate(),
			ofPeak(top), shape(top.Record))
	}
	c.noteLeftOut(drawn, curves)
	c.addPeaks(lines, g.rows, factor)
	return c
}

// noteLeftOut adds a note about curves that are not drawn.
func (c *Chart) noteLeftOut(drawn, all []curve) {
	if len(drawn) < len(all) {
		c.Notes = append(c.Notes, fmt.Sprintf("The chart has the %d fastest of %d series. The table has all.", len(drawn),
			len(all)))
	}
}

// maxCurves is the largest number of series in a chart of lines.
const maxCurves = 10

// fastestCurves returns the maxCurves curves with the highest rates, in their order.
func fastestCurves(curves []curve) []curve {
	return largest(curves, maxCurves, func(c curve) float64 {
		return slices.MaxFunc(c.rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) }).GFLOPS
	})
}

// largest returns the n elements with the largest values, in their order.
func largest[E any](all []E, n int, value func(E) float64) []E {
	if len(all) <= n {
		return all
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(value(all[j]), value(all[i])) })
	order = order[:n]
	slices.Sort(order)
	var kept []E
	for _, i := range order {
		kept = append(kept, all[i])
	}
	return kept
}

// nameIn returns the name of the curve of a row.
func (s *study) nameIn(curves []curve, r row) string {
	i := slices.IndexFunc(curves, func(c curve) bool { return slices.Contains(c.rows, r) })
	return s.label(curves[i].name, r.source)
}

// fastestOurs returns the row of our fastest kernel. Its Record is nil if there is none.
func fastestOurs(rows []row) row {
	var best row
	for _, r := range filter(rows, not(isPeer)) {
		if best.Record == nil || r.GFLOPS > best.GFLOPS {
			best = r
		}
	}
	return best
}

// addPeaks draws the peaks of the devices as lines. A peak far above all rates would flatten the
// curves and is stated in a note instead.
func (c *Chart) addPeaks(lines *Lines, rows []row, factor float64) {
	known := groupBy(filter(rows, func(r row) bool { return r.Peak > 0 }),
		func(r row) string { return "peak " + rate(r.Peak, r.unit()) })
	if len(known) == 0 {
		c.Notes = append(c.Notes, "The records do not contain the peak of this device, so there are no percentages.")
		return
	}
	all := bySize(rows)
	from, to := float64(all[0].N), float64(all[len(all)-1].N)
	of := peakOwner(known)
	for _, g := range known {
		y, name := g.rows[0].Peak*factor, g.name+of(g.rows[0])
		if y > 2.5*lines.Y.To {
			c.Notes = append(c.Notes, "The "+name+" is above the range of the chart.")
			continue
		}
		lines.Y.To = max(lines.Y.To, 1.08*y)
		text := name
		if device := g.rows[0].device(); !strings.Contains(text, device) {
			text += " of " + device
		}
		lines.limit(name, text, Point{X: from, Y: y}, Point{X: to, Y: y})
		lines.Series[len(lines.Series)-1].Name = g.name // the rest is in the legend
	}
	if rows[0].kind() == onCPU {
		c.Notes = append(c.Notes, "The peak of a CPU is the rate of one core with multiply-adds on registers only, times "+
			"the number of threads. It cannot be reached if threads share a core or the clock rate drops under load.")
	}
}

// peakOwner returns a function that names the owner of a row's peak, if there are several peaks: an
// arithmetic, a number of threads or a device. The function returns empty text if none of these
// tells the peaks apart.
func peakOwner(peaks []group) func(row) string {
	var rows []row
	for _, g := range peaks {
		rows = append(rows, g.rows...)
	}
	for _, text := range []func(row) string{func(r row) string { return r.Precision }, threadsOf, row.device} {
		differs := func(g group) bool { return len(groupBy(g.rows, text)) > 1 }
		if len(peaks) > 1 && len(groupBy(rows, text)) == len(peaks) && !slices.ContainsFunc(peaks, differs) {
			return func(r row) string { return " (" + text(r) + ")" }
		}
	}
	return func(row) string { return "" }
}

// shapes draws the rates of the products that are neither square nor compared with a library. No
// other section shows them.
func shapes(s *study) ([]*Chart, string) {
	var all []*Chart
	for _, g := range groupBy(filter(s.rows, not(isSquare), hasRate, not(several), not(s.compared)), row.kind) {
		all = append(all, s.rateBars(g, "other shapes"))
	}
	if all == nil {
		return nil, "Every product was square, or was timed beside a library."
	}
	return all, ""
}

// compared reports whether r is one of our kernels beside a library, or such a library.
func (s *study) compared(r row) bool {
	if !r.Peer {
		return len(r.Versus) > 0
	}
	return slices.ContainsFunc(s.rows, func(ours row) bool {
		return !ours.Peer && slices.ContainsFunc(ours.Versus, func(v bench.Ratio) bool { return v.Peer == r.Subject })
	})
}

// rateBars returns a chart with a bar for each row. The text which describes the products of the
// group in the title.
func (s *study) rateBars(g group, which string) *Chart {
	names, products := s.naming(g.rows, "kind", "source"), s.naming(g.rows, "subject", "kind", "source")
	unit, factor := rateUnit(g.rows)
	top := slices.MaxFunc(g.rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) })
	drawing := &Rows{X: Axis{Label: unit, Text: tick}}
	name := g.name + ", " + which
	c := &Chart{ID: "rate-" + word(name), Title: "Rate: " + name, Drawing: drawing}
	var sources []int
	drawing.Legend, sources = s.barKeys(s.curves(g.rows))
	libraries := len(drawing.Legend)
	if !s.compares() && slices.ContainsFunc(g.rows, isPeer) {
		drawing.Legend = append(drawing.Legend, Key{Name: "libraries", Mark: markBar, Color: peer})
	}
	c.Table.Columns = []Column{{"product", ""}, {"kernel", ""}, {"rate", unit}, {"of peak", "%"}, {"time", "s"},
		{"spread", "%"}}
	at := map[string]int{}
	for _, r := range g.rows {
		name := names.of(r, shape(r.Record))
		if len(names.parts) == 0 {
			name = r.Subject + ", " + shape(r.Record)
		}
		if _, known := at[name]; !known {
			at[name] = len(drawing.Rows)
			drawing.Rows = append(drawing.Rows, Row{Name: name})
		}
		row := &drawing.Rows[at[name]]
		key := slices.Index(sources, r.source)
		if r.Peer && libraries < len(drawing.Legend) {
			key = libraries
		}
		row.Values = append(row.Values, Value{Key: key, V: r.GFLOPS * factor, Low: r.slowRate() * factor,
			High: r.fastRate() * factor, Label: rateCell(r, factor).Text, Text: describe(name, r)})
		row.End = ratesOf(row.Values)
		c.Table.add(textCell(products.of(r, shape(r.Record))), textCell(s.label(r.Subject, r.source)),
			rateCell(r, factor), peakCell(r), timeCell(r),
			spreadCell(r))
	}
	if n := len(drawing.Rows); n > maxRows {
		slices.SortStableFunc(drawing.Rows, func(a, b Row) int { return cmp.Compare(b.Values[0].V, a.Values[0].V) })
		drawing.Rows = drawing.Rows[:maxRows]
		c.Notes = append(c.Notes, fmt.Sprintf("The chart has the %d fastest of %d rows. The table has all.", maxRows, n))
	}
	c.Answer = fmt.Sprintf("%s reaches %s%s at %s in %s.", top.Subject, top.rate(), ofPeak(top), shape(top.Record),
		top.Types())
	return c
}

// geometricMean returns the geometric mean of positive values.
func geometricMean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}
