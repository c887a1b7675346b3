package report

import (
	"fmt"
	"slices"
	"strings"

	"tilework/internal/bench"
	"tilework/internal/phrase"
)

// scattered is the number of cases above which a scatter chart shows the ratios by size.
const scattered = maxRows

// shapeClass is a class of products that are limited alike.
type shapeClass struct {
	name string
	has  func(r *bench.Record) bool
}

// shapeClasses lists the classes; a product belongs to the first that has it.
var shapeClasses = []shapeClass{
	{"up to 16 rows or columns of C", func(r *bench.Record) bool { return min(r.M, r.N) <= 16 }},
	{"K up to 64", func(r *bench.Record) bool { return r.K <= 64 }},
	{"other shapes", func(*bench.Record) bool { return true }},
}

// fastestPeers returns the comparison with the fastest library of each case, of one source.
func fastestPeers(comparisons []comparison, source int) comparison {
	x := comparison{source: source}
	for _, c := range comparisons {
		if c.source != source || c.peer == bench.Reading {
			continue
		}
		x.facet = c.facet
		for i, d := range c.ratios {
			at := slices.Index(x.cases, c.cases[i])
			switch {
			case at < 0:
				x.cases, x.ratios = append(x.cases, c.cases[i]), append(x.ratios, d)
			case d.Speed < x.ratios[at].Speed:
				x.ratios[at] = d
			}
		}
	}
	return x
}

// ratioScatter returns a chart of the ratio to the fastest library of each case against the number
// of operations, or nil if the cases are few. In a comparison of sources the color stands for the
// source, otherwise for the class of the shape.
func (s *study) ratioScatter(facet string, comparisons []comparison) *Chart {
	lines := &Lines{X: Axis{Label: "operations", Log: true, Text: operationsTick},
		Y: Axis{Label: "speed relative to the fastest library (1× = equal)", Log: true, Text: timesTick}}
	c := &Chart{ID: "scatter-" + word(facet), Title: "Against the libraries, by size: " + facet, Drawing: lines}
	c.Table.Columns = []Column{{"case", ""}, {"library", ""}, {"kernel", ""}, {"operations", "10⁶"}, {"speed", "×"}}
	var answers []string
	most := 0
	for source := range s.sources {
		x := fastestPeers(comparisons, source)
		if len(x.ratios) == 0 {
			continue
		}
		most = max(most, len(x.ratios))
		s.scatterPoints(lines, &x)
		for i, d := range x.ratios {
			c.Table.add(textCell(s.label(x.cases[i], source)), textCell(d.Peer), textCell(d.Subject),
				numberCell(digits(d.Flops()/1e6), d.Flops()/1e6), numberCell(d.text(), d.Speed))
		}
		answers = append(answers, s.scatterAnswer(&x))
	}
	if most <= scattered {
		return nil
	}
	lines.equalSpeed()
	c.Answer = strings.Join(answers, " ")
	c.Notes = []string{"Each point is a product. Its ratio is that of our fastest kernel to the fastest library.",
		"A product has 2·M·N·K operations, or 4·M·N·K if it is gated. The operations of a batch are the sum over its " +
			"products."}
	return c
}

// scatterPoints adds the points of a source, a series for each class of shapes.
func (s *study) scatterPoints(lines *Lines, x *comparison) {
	for i, class := range shapeClasses {
		key := Key{Name: class.name, Mark: markPoint, Color: palette[i%len(palette)], Marker: i}
		if s.compares() {
			key.Name, key.Color = s.label(class.name, x.source), sourceColor(x.source)
		}
		series := Series{Keys: []int{len(lines.Legend)}, Color: key.Color, Label: ink, Marker: i, PointsOnly: true}
		for j, d := range x.ratios {
			first := slices.IndexFunc(shapeClasses, func(c shapeClass) bool { return c.has(d.Record) })
			if first == i {
				series.Points = append(series.Points, Point{X: d.Flops(), Y: d.Speed, Low: d.Speed, High: d.Speed,
					Text: describe(x.cases[j]+": "+d.Subject, d.row)})
			}
		}
		if len(series.Points) > 0 {
			lines.Legend, lines.Series = append(lines.Legend, key), append(lines.Series, series)
		}
	}
}

// equalSpeed adds the line of equal speed.
func (l *Lines) equalSpeed() {
	var xs []float64
	for _, s := range l.Series {
		for _, p := range s.Points {
			xs = append(xs, p.X)
		}
	}
	l.limit("equal speed", "equal speed", Point{X: slices.Min(xs), Y: 1}, Point{X: slices.Max(xs), Y: 1})
}

// scatterAnswer states the mean, the number of slow cases and the worst.
func (s *study) scatterAnswer(x *comparison) string {
	below := func(limit float64) int {
		return len(slices.DeleteFunc(slices.Clone(x.ratios), func(d peerRatio) bool { return d.Speed >= limit }))
	}
	worst := x.worst()
	text := fmt.Sprintf("our fastest kernel runs at %s the speed of the fastest library in the geometric mean of %s; "+
		"%d are below 0.9×, %d below 0.8×, and the worst is %s at %s.", x.meanText(), phrase.Count(len(x.ratios), "case"),
		below(0.9), below(0.8), worst.text(), shape(worst.Record))
	if s.compares() {
		return s.sources[x.source] + ": " + text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// operationsTick formats a number of operations for an axis: "10 G".
func operationsTick(v float64) string {
	for _, unit := range []struct {
		factor float64
		name   string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= unit.factor {
			return tick(v/unit.factor) + unit.name
		}
	}
	return tick(v)
}
