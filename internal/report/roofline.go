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
	rows := filter(s.rows, not(copies), func(r row) bool { return r.Peak > 0 })
	for _, g := range groupBy(rows, func(r row) string { return facet(r) + " on " + r.device() + threads(r) }) {
		if f := roofOf(g.rows); math.IsInf(f.bandwidth, 1) && oneSize(g.rows) {
			continue // a point under a flat line: the chart of rates says as much
		}
		all = append(all, s.roofChart(&Chart{ID: "roofline-" + word(facet(g.rows[0])+threads(g.rows[0])), Title: title + ": " + g.name, Question: question}, g.rows))
	}
	if len(all) == 0 {
		all = []*Chart{{ID: "roofline", Title: title, Question: question, Notes: []string{"No record of several shapes knows the peak of its device, or its memory's bandwidth: there is no roof."}}}
	}
	return all
}

// threads names what a CPU's peak is of.
func threads(r row) string {
	switch {
	case r.kind() == onGPU:
		return ""
	case r.Threads == 0:
		return ", all threads"
	}
	return ", " + count(r.Threads, "thread")
}

// roof is what bounds a device: 10⁹ operations and 10⁹ bytes a second, the latter
// infinite where nobody knows them.
type roof struct {
	peak, bandwidth float64
	unit            string // of the peak
}

func roofOf(rows []row) roof {
	top := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.Peak, b.Peak) })
	f := roof{top.Peak, math.Inf(1), top.unit()}
	if m, err := model.Lookup(top.device()); err == nil && !m.Generic() {
		f.bandwidth = m.MemBandwidth / 1e9
	}
	return f
}

// at is the rate that no product of that intensity exceeds, in operations for each byte
// of the device's memory.
func (f roof) at(intensity float64) float64 { return min(f.peak, intensity*f.bandwidth) }

// series is the roof from one intensity to another.
func (f roof) series(from, to float64) Series {
	corners := []float64{from, to}
	if ridge := f.peak / f.bandwidth; ridge > from && ridge < to {
		corners = []float64{from, ridge, to}
	}
	s := Series{Name: "roof", Dashed: true, Bare: true}
	for _, x := range corners {
		s.Points = append(s.Points, Point{X: x, Y: f.at(x), Text: fmt.Sprintf("roof: %s at %s operations a byte", rate(f.at(x), f.unit), digits(x))})
	}
	return s
}

// intensity is the operations for each byte that the product must move: A and B read
// once, C written once and, with a beta, read. No kernel of that product has more.
func intensity(r row) float64 {
	size := func(name string) float64 {
		t, err := dtype.Parse(name)
		if err != nil { // the types of a record that was read are known
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

func (s *study) roofChart(c *Chart, rows []row) *Chart {
	lines := &Lines{
		X: Axis{Label: "operations a byte", Log: true, Text: tick},
		Y: Axis{Label: "rate", Log: true, Text: rateTick(rows[0].unit())},
	}
	c.Drawing = lines
	c.Table.Columns = []string{"kernel", "shape", "intensity", "rate", "roof", "of the roof", "intensity of loads"}
	curves, f := s.curves(rows, "kind", "type"), roofOf(rows)
	low, high := math.Inf(1), 0.0
	asked := false
	for _, g := range curves {
		series, loads := s.series(g), s.series(g)
		series.Loose = true
		for _, r := range g.rows {
			x, loaded := intensity(r), ""
			low, high = min(low, x), max(high, x)
			series.Points = append(series.Points, Point{X: x, Y: r.GFLOPS, Text: telling(g.name, r) + fmt.Sprintf("\n%s operations a byte that must move", digits(x))})
			if r.Intensity > 0 {
				loaded = digits(r.Intensity)
				low, high = min(low, r.Intensity), max(high, r.Intensity)
				// One of each kernel is enough: the rate of the largest product.
				loads.Points = []Point{{X: r.Intensity, Y: r.GFLOPS, Text: telling(g.name, r) + fmt.Sprintf("\n%s operations a byte that its threads load", loaded)}}
			}
			c.Table.Rows = append(c.Table.Rows, []string{g.name, shape(r.Record), digits(x), r.rate(), rate(f.at(x), f.unit), percent(r.GFLOPS / f.at(x)), loaded})
		}
		lines.Series = append(lines.Series, series)
		if loads.Points != nil {
			asked = true
			loads.Name, loads.Loose, loads.Hollow = g.name+", loads", true, true
			lines.Series = append(lines.Series, loads)
		}
	}
	lines.Series = append(lines.Series, f.series(low, high))
	best := ours(rows)
	if best.Record == nil { // there are peers alone
		best = slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) })
	}
	x, bound := intensity(best), "arithmetic"
	if f.at(x) < f.peak {
		bound = "memory"
	}
	c.Headline = fmt.Sprintf("%s reaches %s of what %s allows at %s, where %s operations are done for each byte that must move.",
		nameIn(curves, best), percent(best.GFLOPS/f.at(x)), bound, shape(best.Record), digits(x))
	c.Notes = append(c.Notes, "A product must move each matrix once: a point stands where a kernel that does only that would be.")
	switch {
	case asked:
		c.Notes = append(c.Notes, "A ring is where a kernel stands, at its largest product, by what its threads load. One above the roof is fed by the caches, which the roof, that of the memory, leaves out.")
	case rows[0].kind() == onGPU:
		c.Notes = append(c.Notes, "The records do not tell what the kernels' threads load.")
	}
	if math.IsInf(f.bandwidth, 1) {
		c.Notes = append(c.Notes, fmt.Sprintf("The memory's bandwidth of %s is not known: the roof is the peak alone.", rows[0].device()))
	}
	return c
}

func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
