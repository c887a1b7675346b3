package report

import (
	"slices"
)

// curve holds the rows of one subject with the same settings, from one source, sorted by size.
type curve struct {
	name   string // without the source
	source int
	peer   bool
	rows   []row
}

// curves groups rows by the attributes that differ among them, except those in without.
func (s *study) curves(rows []row, without ...string) []curve {
	naming := s.naming(rows, append(without, "source")...)
	var all []curve
	for source := range s.sources {
		of := filter(rows, inSource(source))
		for _, g := range groupBy(of, func(r row) string { return naming.of(r) }) {
			all = append(all, curve{g.name, source, g.rows[0].Peer, bySize(g.rows)})
		}
	}
	return all
}

// label returns the name of a curve with its source, if there are several.
func (s *study) label(name string, source int) string {
	if s.compares() {
		return name + " (" + s.sources[source] + ")"
	}
	return name
}

// peerDashes distinguishes the lines of libraries, which share a color.
var peerDashes = [][]float64{{6, 4}, {2, 3}, {9, 3, 2, 3}}

// lines returns a series for each curve, with the points of its rows, and the legend. In a
// comparison the color stands for the source and the marker for the curve's name. Otherwise each
// curve has a color, and libraries share one.
func (s *study) lines(curves []curve, place func(c curve, r row) Point) *Lines {
	l := &Lines{}
	var sources []int // sources with at least one curve
	for _, c := range curves {
		if s.compares() && !slices.Contains(sources, c.source) {
			sources = append(sources, c.source)
			l.Legend = append(l.Legend, Key{Name: s.sources[c.source], Mark: markLineOnly, Color: sourceColor(c.source)})
		}
	}
	ours := 0
	var names []string
	for _, c := range curves {
		series := Series{Name: c.name}
		at := slices.Index(names, c.name)
		if known := at >= 0; !known {
			at = len(names)
			names = append(names, c.name)
			key := Key{Name: c.name, Marker: at, Color: ink, Mark: markPoint}
			if c.peer {
				key.Dash = peerDashes[(at-ours)%len(peerDashes)]
			}
			if !s.compares() {
				key.Mark, key.Color = markLine, peer
				if !c.peer {
					key.Color = palette[ours%len(palette)]
				}
			}
			if !c.peer {
				ours++
			}
			l.Legend = append(l.Legend, key)
		}
		index := len(sources) + at
		key := l.Legend[index]
		series.Keys, series.Color, series.Label, series.Marker, series.Dash = []int{index}, key.Color, key.Color, key.Marker,
			key.Dash
		if s.compares() {
			series.Keys, series.Color = []int{slices.Index(sources, c.source), index}, sourceColor(c.source)
		}
		for _, r := range c.rows {
			p := place(c, r)
			p.Skipped = besideRound(c.rows, r.N)
			series.Points = append(series.Points, p)
		}
		l.Series = append(l.Series, series)
	}
	return l
}

func sourceColor(i int) *paint { return palette[i%len(palette)] }

// limitDashes distinguishes limits, which share a color.
var limitDashes = [][]float64{{1, 3}, {1, 6}, {1, 3, 1, 8}, {4, 5}}

// limit adds a line without points, with an entry in the legend, over the range of the X axis.
func (l *Lines) limit(name, text string, points ...Point) {
	limits := 0
	for _, s := range l.Series {
		if s.LineOnly {
			limits++
		}
	}
	dash := limitDashes[limits%len(limitDashes)]
	l.Legend = append(l.Legend, Key{Name: name, Mark: markLineOnly, Color: peer, Dash: dash})
	for i := range points {
		points[i].Low, points[i].High, points[i].Text = points[i].Y, points[i].Y, text
	}
	l.Series = append(l.Series, Series{Name: name, Keys: []int{len(l.Legend) - 1}, Color: peer, Label: peer, Dash: dash,
		LineOnly: true, Points: points})
}

// sizeAxis is the axis of square products.
func sizeAxis() Axis { return Axis{Label: "N (N×N matrices)", Log: true, Binary: true, Text: tick} }

// sizeTable returns a table with a row for each N and a column for each curve.
func (s *study) sizeTable(curves []curve, unit string, cell func(row) Cell) Table {
	t := Table{Columns: []Column{{"N", ""}}}
	cells := map[int][]Cell{}
	var sizes []int
	for i, c := range curves {
		t.Columns = append(t.Columns, Column{s.label(c.name, c.source), unit})
		for _, r := range c.rows {
			if cells[r.N] == nil {
				cells[r.N] = slices.Repeat([]Cell{textCell("")}, len(curves))
				sizes = append(sizes, r.N)
			}
			cells[r.N][i] = cell(r)
		}
	}
	slices.Sort(sizes)
	for _, n := range sizes {
		t.add(append([]Cell{sizeCell(n)}, cells[n]...)...)
	}
	return t
}

// besideRound reports whether a size was measured to show the cost of one element more or less than
// a round size, such as 63 and 65 next to 64. A line shows the growth with the size and skips such
// points.
func besideRound(rows []row, n int) bool {
	measured := func(n int) bool { return slices.ContainsFunc(rows, func(r row) bool { return r.N == n }) }
	const round = 8
	return n > round && (measured(n-1) && (n-1)%round == 0 && !measured(n+1) || measured(n+1) && (n+1)%round == 0 &&
		!measured(n-1))
}
