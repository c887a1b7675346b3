package report

import (
	"cmp"
	"fmt"
	"slices"
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
	for _, g := range groupBy(filter(s.rows, isSquare, not(copies)), facet) {
		all = append(all, s.rateChart(&Chart{ID: "rate-" + word(g.name), Title: title + ": " + g.name, Question: question}, g.rows))
	}
	if len(all) == 0 {
		all = []*Chart{{ID: "rate", Title: title, Question: question, Notes: []string{"No square product was timed."}}}
	}
	return all
}

func (s *study) rateChart(c *Chart, rows []row) *Chart {
	curves := s.curves(rows, "kind", "type")
	top := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) })
	unit, scale := "GFLOP/s", 1.0
	if top.GFLOPS >= 1000 {
		unit, scale = "TFLOP/s", 1e-3
	}
	lines := &Lines{
		X:      Axis{Label: "N, of N×N matrices", Log: true, Binary: true, Text: tick},
		Y:      Axis{Label: unit, To: 1.05 * top.GFLOPS * scale, Text: tick},
		Series: s.againstSize(curves, func(r row) float64 { return r.GFLOPS * scale }),
	}
	c.Drawing = lines
	c.Table = sizeTable(curves, func(r row) string { return rate(r.GFLOPS) + ofPeak(r) })
	reaches := func(r row) string {
		return fmt.Sprintf("%s reaches %s%s at %s.", nameIn(curves, r), rate(r.GFLOPS), ofPeak(r), shape(r.Record))
	}
	c.Headline = reaches(top)
	if best := ours(rows); best.Record != nil && best != top {
		c.Headline += " Of ours, " + reaches(best)
	}
	c.addPeaks(lines, rows, scale)
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
	known := groupBy(filter(rows, func(r row) bool { return r.Peak > 0 }), func(r row) string { return "peak, " + rate(r.Peak) })
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
		lines.Series = append(lines.Series, Series{Name: g.name, Dashed: true, Bare: true, Points: []Point{{from, y, text}, {to, y, text}}})
	}
	if rows[0].kind() == onCPU {
		c.Notes = append(c.Notes, "A CPU's peak is one core's, measured with multiply-adds that never leave the registers, times the threads; where threads share a core or its clock falls, less can be had.")
	}
}
