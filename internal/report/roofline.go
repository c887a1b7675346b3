package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/model"
)

// roofline shows each kernel's rate at its arithmetic intensity, under what the device
// could do at that.
func roofline(s *study) []*Chart {
	const title, question = "Roofline", "Does memory or arithmetic bound the product, and how near is each kernel?"
	var all []*Chart
	rows := filter(s.rows, not(copies))
	for _, g := range groupBy(rows, func(r row) string { return facet(r) + " on " + r.device() }) {
		c := &Chart{ID: "roofline-" + word(facet(g.rows[0])), Title: title + ": " + g.name, Question: question}
		if s.roofChart(c, g.rows) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		all = []*Chart{{ID: "roofline", Title: title, Question: question, Notes: []string{"No record knows the peak of its device: there is no roof."}}}
	}
	return all
}

// intensity is the operations for each byte that the product must move: A and B read
// once, C written once and, with a beta, read. No kernel of that product has more.
func intensity(r row) float64 {
	size := func(name string) float64 {
		t, err := dtype.Parse(name)
		if err != nil { // a record that was read has types that are known
			return math.NaN()
		}
		return float64(t.Size())
	}
	m, n, k := float64(r.M), float64(r.N), float64(r.K)
	c := m * n * size(r.Out)
	if r.Beta != 0 {
		c *= 2
	}
	return 2 * m * n * k / ((m*k+k*n)*size(r.In) + c)
}

func (s *study) roofChart(c *Chart, rows []row) bool {
	peak := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.Peak, b.Peak) }).Peak
	if peak == 0 {
		return false
	}
	lines := &Lines{
		X: Axis{Label: "operations for each byte that must move", Log: true, Text: tick},
		Y: Axis{Label: "rate", Log: true, Text: rateTick},
	}
	curves := s.curves(rows, "kind", "type")
	low, high := math.Inf(1), 0.0
	c.Table.Columns = []string{"kernel", "shape", "operations a byte", "rate", "roof", "of the roof"}
	bandwidth := bandwidthOf(rows[0])
	roof := func(x float64) float64 { return roofAt(x, peak, bandwidth) }
	for _, g := range curves {
		series := s.series(g)
		series.Loose = true
		for _, r := range g.rows {
			x := intensity(r)
			low, high = min(low, x), max(high, x)
			series.Points = append(series.Points, Point{x, r.GFLOPS, telling(g.name, r) + fmt.Sprintf("\n%s operations a byte", digits(x))})
			c.Table.Rows = append(c.Table.Rows, []string{g.name, shape(r.Record), digits(x), rate(r.GFLOPS), rate(roof(x)), percent(r.GFLOPS / roof(x))})
		}
		lines.Series = append(lines.Series, series)
	}
	line := Series{Name: "roof", Dashed: true, Bare: true}
	corners := []float64{low, high}
	if ridge := peak / bandwidth; ridge > low && ridge < high {
		corners = []float64{low, ridge, high}
	}
	for _, x := range corners {
		line.Points = append(line.Points, Point{x, roof(x), fmt.Sprintf("roof: %s at %s operations a byte", rate(roof(x)), digits(x))})
	}
	lines.Series = append(lines.Series, line)
	c.Drawing = lines
	c.Notes = append(c.Notes, "The intensity counts each matrix once: the most that a kernel of that product can have. One that loads elements again from memory has less; tilework explain tells what its threads ask for.")
	if math.IsInf(bandwidth, 1) {
		c.Notes = append(c.Notes, fmt.Sprintf("The memory's bandwidth of %s is not known: the roof is the peak alone.", rows[0].device()))
	}
	if best := ours(rows); best.Record != nil {
		x := intensity(best)
		bound := "arithmetic"
		if peak > bandwidth*x {
			bound = "memory"
		}
		c.Headline = fmt.Sprintf("%s reaches %s of what %s allows at %s, where %s operations are done for each byte that must move.",
			nameIn(curves, best), percent(best.GFLOPS/roof(x)), bound, shape(best.Record), digits(x))
	}
	return true
}

func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }

// bandwidthOf is that of the GPU's memory in 10⁹ bytes a second, infinite where nobody
// knows it.
func bandwidthOf(r row) float64 {
	if m, err := model.Lookup(r.device()); err == nil && !m.Generic() {
		return m.MemBandwidth / 1e9
	}
	return math.Inf(1)
}

// roofAt is the rate that no kernel of that intensity exceeds.
func roofAt(intensity, peak, bandwidth float64) float64 { return min(peak, intensity*bandwidth) }
