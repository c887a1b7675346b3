package report

import (
	"cmp"
	"fmt"
	"slices"

	"tilework/internal/bench"
)

// facet is the name of what can share a chart of rates: one kind of device and one
// arithmetic.
func facet(r row) string {
	name := r.kind() + ", " + r.Types()
	if r.Precision != "" {
		name += " in " + r.Precision
	}
	return name
}

// rates shows rates, and the device's peak.
func rates(s *study) []*Chart {
	const title, question = "Rate", "How much of the device is used?"
	var all []*Chart
	var single []row // of what was timed at one size alone
	for _, g := range groupBy(filter(s.rows, isSquare, not(copies)), facet) {
		if oneSize(g.rows) {
			single = append(single, g.rows...)
			continue
		}
		all = append(all, s.rateChart(&Chart{ID: "rate-" + word(g.name), Title: title + ": " + g.name, Question: question}, g.rows))
	}
	for _, g := range groupBy(single, row.kind) {
		name := g.name + " at one size"
		all = append(all, s.rateBars(&Chart{ID: "rate-" + word(name), Title: title + ": " + name, Question: question}, g.rows))
	}
	if len(all) == 0 {
		all = []*Chart{{ID: "rate", Title: title, Question: question, Notes: []string{"No square product was timed."}}}
	}
	return all
}

func (s *study) rateChart(c *Chart, rows []row) *Chart {
	curves := s.curves(rows, "kind", "type")
	top := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) })
	unit, scale := "G"+top.unit(), 1.0
	if top.GFLOPS >= 1000 {
		unit, scale = "T"+top.unit(), 1e-3
	}
	lines := &Lines{
		X:      Axis{Label: "N, of N×N matrices", Log: true, Binary: true, Text: tick},
		Y:      Axis{Label: unit, To: 1.05 * top.GFLOPS * scale, Text: tick},
		Series: s.againstSize(curves, func(r row) float64 { return r.GFLOPS * scale }),
	}
	c.Drawing = lines
	c.Table = sizeTable(curves, func(r row) string { return r.rate() + ofPeak(r) })
	reaches := func(r row) string {
		return fmt.Sprintf("%s reaches %s%s at %s.", nameIn(curves, r), r.rate(), ofPeak(r), shape(r.Record))
	}
	c.Headline = reaches(top)
	if best := ours(rows); best.Record != nil && best != top {
		c.Headline += " Of ours, " + reaches(best)
	}
	c.addPeaks(lines, rows, scale)
	return c
}

// rateBars has a bar for each row, as a part of the peak or, where that is not known for
// all, of the highest rate.
func (s *study) rateBars(c *Chart, rows []row) *Chart {
	names := s.naming(rows, "kind")
	top := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) })
	bars := &Bars{Label: "part of the peak", Parts: []string{"rate"}}
	whole := func(r row) float64 { return r.Peak }
	if slices.ContainsFunc(rows, func(r row) bool { return !(r.Peak > 0) }) {
		bars.Label = "part of the highest rate"
		whole = func(row) float64 { return top.GFLOPS }
		c.Notes = append(c.Notes, "The records do not know all peaks.")
	}
	c.Drawing = bars
	c.Table.Columns = []string{"kernel", "rate", "of peak", "median", "spread"}
	for _, r := range rows {
		name := names.of(r, shape(r.Record))
		percent := ""
		if p, known := r.PercentOfPeak(); known {
			percent = fmt.Sprintf("%.1f %%", p)
		}
		bars.Rows = append(bars.Rows, name)
		bars.Share = append(bars.Share, []float64{min(1, r.GFLOPS/whole(r))})
		bars.Text = append(bars.Text, []string{telling(name, r)})
		bars.Ends = append(bars.Ends, r.rate())
		c.Table.Rows = append(c.Table.Rows, []string{name, r.rate(), percent, bench.Duration(r.Seconds.Median), fmt.Sprintf("%.1f %%", 100*r.Seconds.Spread)})
	}
	c.Headline = fmt.Sprintf("%s reaches %s%s at %s on %s.", top.Subject, top.rate(), ofPeak(top), shape(top.Record), top.Types())
	return c
}

// nameIn is the name of the curve that a row is on.
func nameIn(curves []curve, r row) string {
	for _, c := range curves {
		if slices.Contains(c.rows, r) {
			return c.name
		}
	}
	return r.Subject
}

// ours is the row of our fastest kernel, its Record nil if there is none.
func ours(rows []row) row {
	var best row
	for _, r := range filter(rows, not(isPeer)) {
		if best.Record == nil || r.GFLOPS > best.GFLOPS {
			best = r
		}
	}
	return best
}

// addPeaks draws the peaks of the devices as lines.
func (c *Chart) addPeaks(lines *Lines, rows []row, scale float64) {
	known := groupBy(filter(rows, func(r row) bool { return r.Peak > 0 }), func(r row) string { return "peak, " + rate(r.Peak, r.unit()) })
	if len(known) == 0 {
		c.Notes = append(c.Notes, "The records know no peak of this device: no percentages.")
		return
	}
	all := bySize(rows)
	from, to := float64(all[0].N), float64(all[len(all)-1].N)
	for _, g := range known {
		y := g.rows[0].Peak * scale
		lines.Y.To = max(lines.Y.To, 1.05*y)
		text := g.name + ": " + g.rows[0].device()
		lines.Series = append(lines.Series, Series{Name: g.name, Dashed: true, Bare: true, Points: []Point{{X: from, Y: y, Text: text}, {X: to, Y: y, Text: text}}})
	}
	if rows[0].kind() == onCPU {
		c.Notes = append(c.Notes, "A CPU's peak is one core's, measured with multiply-adds that never leave the registers, times the threads; where threads share a core or its clock falls, less can be had.")
	}
}
