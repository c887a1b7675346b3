package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tilework/internal/model"
)

// rooflines shows rates against operations per byte, with the limits of the device.
func rooflines(s *study) ([]*Chart, string) {
	var all []*Chart
	rows := filter(s.rows, hasRate, not(copies), not(several), func(r row) bool { return r.Peak > 0 && bandwidth(r) > 0 })
	for _, g := range groupBy(rows, row.device) {
		all = append(all, s.roofline(g))
	}
	if all == nil {
		return nil, "No record has both the peak of its device and the bandwidth of its memory, so there is no roofline."
	}
	return all, ""
}

// bandwidth returns the memory bandwidth of a row's device in GB/s, or 0 if it is not known.
func bandwidth(r row) float64 {
	if m, err := model.Lookup(r.device()); err == nil && !m.Generic() {
		return m.MemBandwidth / 1e9
	}
	return 0
}

// intensity returns the operations per byte of compulsory traffic: A and B are read once, C is
// written once and, if beta is not 0, read once.
func intensity(r row) float64 {
	a, b, c := r.Bytes()
	if r.Beta != 0 {
		c *= 2
	}
	return r.Flops() / (a + b + c)
}

// rung is a row of a roofline with its position on the X axis.
type rung struct {
	row
	name string
	x    float64
}

// rungs returns the points of a roofline and the label of their X axis. If several kernels were
// timed on squares only, each one is shown at the operations per byte that its threads load, at its
// largest size. Otherwise the fastest kernel of each shape is shown at the intensity of the
// product. Each arithmetic has points of its own.
func (s *study) rungs(rows []row) (all []rung, label string) {
	loads := filter(rows, not(isPeer), func(r row) bool { return r.Intensity > 0 })
	names := s.naming(loads, "kind", "type")
	kernel := func(r row) string { return names.of(r) }
	if !slices.ContainsFunc(rows, not(isSquare)) && len(groupBy(loads, kernel)) > 1 {
		for _, g := range groupBy(loads, func(r row) string { return kernel(r) + "\x00" + arithmetic(r) }) {
			sorted := bySize(g.rows)
			r := sorted[len(sorted)-1]
			all = append(all, rung{r, kernel(r), r.Intensity})
		}
		return all, "operations per byte that the threads load"
	}
	if ours := filter(rows, not(isPeer)); len(ours) > 0 {
		rows = ours
	}
	names = s.naming(rows, "subject", "kind", "type")
	product := func(r row) string { return names.of(r, shape(r.Record)) }
	for _, g := range groupBy(bySize(rows), func(r row) string { return product(r) + "\x00" + arithmetic(r) }) {
		r := slices.MaxFunc(g.rows, func(a, b row) int { return cmp.Compare(a.GFLOPS, b.GFLOPS) })
		all = append(all, rung{r, product(r), intensity(r)})
	}
	return all, "operations per byte of A, B and C"
}

func (s *study) roofline(g group) *Chart {
	rungs, label := s.rungs(g.rows)
	device, memory := g.name, bandwidth(g.rows[0])
	lines := &Lines{X: Axis{Label: label, Log: true, Text: tick}, Y: Axis{Label: "rate (log scale)", Log: true,
		Text: rateTick(rungs[0].unit())}}
	c := &Chart{ID: "roofline-" + word(device), Title: "Roofline: " + device, Drawing: lines}
	c.Table.Columns = []Column{{"kernel", ""}, {"shape", ""}, {"type", ""}, {"operations per byte", ""},
		{"rate", "G" + rungs[0].unit()}, {"roof", "G" + rungs[0].unit()}, {"of the roof", "%"}}
	var peaks []float64
	var types []string
	low, high := math.Inf(1), 0.0
	for _, r := range rungs {
		if !slices.Contains(peaks, r.Peak) {
			peaks = append(peaks, r.Peak)
		}
		key := slices.Index(types, arithmetic(r.row))
		if key < 0 {
			key = len(types)
			types = append(types, arithmetic(r.row))
			lines.Legend = append(lines.Legend, Key{Name: types[key], Mark: markPoint, Color: palette[key%len(palette)],
				Marker: key})
		}
		limit := min(r.Peak, r.x*memory)
		series := Series{Keys: []int{key}, Color: lines.Legend[key].Color, Label: ink, Marker: key, PointsOnly: true}
		if len(rungs) <= 12 {
			series.Name = r.name
		}
		series.Points = []Point{{X: r.x, Y: r.GFLOPS, Low: r.GFLOPS, High: r.GFLOPS, Text: describe(r.name, r.row) +
			fmt.Sprintf("\n%s operations per byte", digits(r.x))}}
		lines.Series = append(lines.Series, series)
		low, high = min(low, r.x), max(high, r.x)
		c.Table.add(textCell(r.Subject), textCell(shape(r.Record)), textCell(r.Types()), numberCell(digits(r.x), r.x),
			rateCell(r.row, 1),
			numberCell(digits(limit), limit), numberCell(percent(r.GFLOPS/limit), 100*r.GFLOPS/limit))
	}
	slices.Sort(peaks)
	low, high = min(low, peaks[0]/memory/2), max(high, peaks[len(peaks)-1]/memory*2)
	for i, peak := range slices.Backward(peaks) {
		points := []Point{{X: peak / memory, Y: peak}, {X: high, Y: peak}}
		name := rate(peak, rungs[0].unit())
		if i == len(peaks)-1 { // the slope, which all share, is part of the highest limit
			points = append([]Point{{X: low, Y: low * memory}}, points...)
		}
		lines.limit("limit "+name, fmt.Sprintf("%s, and %s GB/s of memory", name, digits(memory)), points...)
	}
	c.Answer = roofAnswer(rungs, memory)
	c.Notes = append(c.Notes, fmt.Sprintf("The slope is the memory bandwidth of %s TB/s. A flat line is the peak of one "+
		"kind of arithmetic. The slope, left of the ridge, limits a kernel only if all bytes of the axis come from memory: "+
		"a point above it reads operands from caches.", digits(memory/1000)))
	return c
}

// roofAnswer returns a sentence on the kernel closest to its peak, and on the number of points left
// of the ridge. Caches serve a part of the bytes, so memory need not limit those points.
func roofAnswer(rungs []rung, memory float64) string {
	best := slices.MaxFunc(rungs, func(a, b rung) int { return cmp.Compare(a.GFLOPS/a.Peak, b.GFLOPS/b.Peak) })
	left := 0
	for _, r := range rungs {
		if r.x*memory < r.Peak {
			left++
		}
	}
	where := fmt.Sprintf("%d of the %d points are", left, len(rungs))
	switch left {
	case len(rungs):
		where = "all points are"
	case 0:
		where = "none of the points is"
	case 1:
		where = fmt.Sprintf("1 of the %d points is", len(rungs))
	}
	return fmt.Sprintf("%s reaches %s of its peak at %s, with %s operations per byte; %s left of the ridge.",
		best.Subject, percent(best.GFLOPS/best.Peak), shape(best.Record), digits(best.x), where)
}
