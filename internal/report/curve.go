package report

import (
	"slices"
	"strconv"
)

// curve is rows of one subject in one setting, from one source.
type curve struct {
	name    string
	setting string // the name without the source
	colour  int    // the same for the same setting of several sources
	rows    []row
}

// curves tells rows apart by whatever differs among them, but for the attributes that
// are named already.
func (s *study) curves(rows []row, named ...string) []curve {
	full, short := s.naming(rows, named...), s.naming(rows, append(named, "source")...)
	var all []curve
	var settings []string
	for _, g := range groupBy(rows, func(r row) string { return full.of(r) }) {
		setting := short.of(g.rows[0])
		if !slices.Contains(settings, setting) {
			settings = append(settings, setting)
		}
		all = append(all, curve{g.name, setting, slices.Index(settings, setting), bySize(g.rows)})
	}
	return all
}

// series is a curve without its points.
func (s *study) series(c curve) Series {
	return Series{Name: c.name, Colour: c.colour, Glyph: s.glyph(c.colour, c.rows[0].source), Dashed: c.rows[0].Peer}
}

// againstSize draws each curve against N, with some value of each row.
func (s *study) againstSize(curves []curve, value func(row) float64) []Series {
	var all []Series
	for _, c := range curves {
		series := s.series(c)
		for _, r := range c.rows {
			series.Points = append(series.Points, Point{X: float64(r.N), Y: value(r), Text: telling(c.name, r), Aside: aside(c.rows, r.N)})
		}
		all = append(all, series)
	}
	return all
}

// sizeTable has a row for each N and a column for each curve.
func sizeTable(curves []curve, text func(row) string) Table {
	t := Table{Columns: []string{"N"}}
	cells := map[int][]string{}
	var sizes []int
	for i, c := range curves {
		t.Columns = append(t.Columns, c.name)
		for _, r := range c.rows {
			if cells[r.N] == nil {
				cells[r.N] = make([]string, len(curves))
				sizes = append(sizes, r.N)
			}
			cells[r.N][i] = text(r)
		}
	}
	slices.Sort(sizes)
	for _, n := range sizes {
		t.Rows = append(t.Rows, append([]string{strconv.Itoa(n)}, cells[n]...))
	}
	return t
}

// aside reports whether a size was measured for what one more or less than a round size
// costs, as 63 and 65 are beside 64. What a line shows is how a kernel grows with the size,
// and not this.
func aside(rows []row, n int) bool {
	measured := func(n int) bool { return slices.ContainsFunc(rows, func(r row) bool { return r.N == n }) }
	const round = 8
	return n > round && (measured(n-1) && (n-1)%round == 0 && !measured(n+1) || measured(n+1) && (n+1)%round == 0 && !measured(n-1))
}
