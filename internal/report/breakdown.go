package report

import (
	"cmp"
	"fmt"
	"slices"

	"tilework/internal/device/timeline"
	"tilework/internal/host"
)

// breakdownParts are the parts of a product's time on a GPU.
var breakdownParts = []struct {
	name    string
	seconds func(*timeline.Breakdown) float64
}{
	{"computing", func(s *timeline.Breakdown) float64 { return s.Compute - s.Overlapped }},
	{"computing and copying", func(s *timeline.Breakdown) float64 { return s.Overlapped }},
	{"only copying", func(s *timeline.Breakdown) float64 { return s.Copies }},
	{"waiting", func(s *timeline.Breakdown) float64 { return s.Waiting }},
}

// breakdowns shows how the GPUs of a product spend its time.
func breakdowns(s *study) ([]*Chart, string) {
	rows := filter(s.rows, of(onGPU), not(isPeer), func(r row) bool { return len(r.Breakdown) > 0 })
	if len(rows) == 0 {
		return nil, "No record has the time that GPUs compute, copy and wait (bench --device gpu:0,1, or --transfers)."
	}
	var all []*Chart
	for _, g := range byPlace(s, rows) {
		all = append(all, s.breakdownChart(g))
	}
	return all, ""
}

// byPlace groups rows by their types, their device and whether they include copies.
func byPlace(s *study, rows []row) []group {
	return groupBy(rows, func(r row) string {
		name := r.Types() + " on " + r.device()
		if r.Transfers {
			name += ", with copies"
		}
		return s.label(name, r.source)
	})
}

// breakdownChart draws the GPUs of the fastest subject of each product on the most GPUs. The table
// has all subjects.
func (s *study) breakdownChart(g group) *Chart {
	bars := &Rows{X: Axis{Label: "share of the product's time (%)", Text: tick}, Stacked: true}
	c := &Chart{ID: "breakdown-" + word(g.name), Title: "What each GPU does: " + g.name, Drawing: bars}
	c.Table.Columns = []Column{{"product", ""}, {"kernel", ""}, {"GPU", ""}, {"time", "s"}}
	for i, p := range breakdownParts {
		bars.Legend = append(bars.Legend, Key{Name: p.name, Mark: markBar, Color: palette[i]})
		c.Table.Columns = append(c.Table.Columns, Column{p.name, "s"})
	}
	c.Table.Columns = append(c.Table.Columns, Column{"from host", ""}, Column{"to host", ""}, Column{"from GPUs", ""})
	var all []row // that can be drawn, one for each product
	gpusDrawn := 1
	name := s.productName(g.rows)
	for _, product := range groupBy(g.rows, name) {
		for _, r := range product.rows {
			c.addBreakdown(product.name, r)
		}
		most := byGPUs(product.rows)
		last := most[len(most)-1]
		all, gpusDrawn = append(all, last), max(gpusDrawn, len(last.Breakdown))
	}
	drawn := largest(all, max(maxRows/gpusDrawn, 1), func(r row) float64 { return r.Flops() })
	for _, r := range drawn {
		for i := range r.Breakdown {
			x := &r.Breakdown[i]
			bars.addParts(name(r)+", "+x.Device, r.Subject+", "+name(r)+" on "+x.Device, breakdownSeconds(x))
		}
	}
	top := slices.MaxFunc(drawn, func(a, b row) int { return cmp.Compare(a.Flops(), b.Flops()) })
	x := &top.Breakdown[len(top.Breakdown)-1]
	c.Answer = fmt.Sprintf("At %s, %s computes for %s of the time, only copies for %s, and waits for %s.", name(top),
		x.Device, percent(x.Compute/x.Seconds), percent(x.Copies/x.Seconds), percent(x.Waiting/x.Seconds))
	c.Notes = append(c.Notes, "Measured with events around each copy and kernel, in products that are not among the "+
		"timed ones. Waiting includes the host's time to start and end the product.")
	if len(drawn) < len(all) {
		c.Notes = append(c.Notes, fmt.Sprintf("The chart has the %d largest of %d products. The table has all.", len(drawn),
			len(all)))
	}
	return c
}

// breakdownSeconds returns the times of the breakdownParts.
func breakdownSeconds(x *timeline.Breakdown) (parts []float64) {
	for _, p := range breakdownParts {
		parts = append(parts, p.seconds(x))
	}
	return parts
}

// addBreakdown adds the GPUs of a row of a product to the table.
func (c *Chart) addBreakdown(product string, r row) {
	bytes := func(n int) Cell { return numberCell(host.Bytes(uint64(n)), float64(n)) }
	for i := range r.Breakdown {
		x := &r.Breakdown[i]
		cells := []Cell{textCell(product), textCell(r.Subject), textCell(x.Device), seconds(x.Seconds)}
		for _, t := range breakdownSeconds(x) {
			cells = append(cells, seconds(t))
		}
		c.Table.add(append(cells, bytes(x.FromHost), bytes(x.ToHost), bytes(x.FromGPUs))...)
	}
}
