package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ladders compares our kernels at one size with the same settings, including the number of threads.
// Libraries are lines.
func ladders(s *study) ([]*Chart, string) {
	var all []*Chart
	for _, f := range s.byFacet(filter(s.rows, isSquare, hasRate, not(copies), not(several))) {
		settings := s.naming(f.rows, "subject", "kind", "type", "source")
		settings.add("threads", f.rows)
		for _, g := range groupBy(f.rows, func(r row) string { return settings.of(r, f.name) }) {
			if c := s.ladder(g); c != nil {
				all = append(all, c)
			}
		}
	}
	if all == nil {
		return nil, "No two kernels of tilework were timed on the same square product, with the same element type and " +
			"number of threads (bench --kernels all)."
	}
	return all, ""
}

// ladder returns the chart of a group, or nil if it has fewer than two rungs.
func (s *study) ladder(g group) *Chart {
	n := commonSize(filter(g.rows, not(isPeer)))
	curves := s.curves(filter(g.rows, func(r row) bool { return r.N == n }))
	rungs := slices.DeleteFunc(slices.Clone(curves), func(c curve) bool { return c.peer })
	slices.SortStableFunc(rungs, func(a, b curve) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.rows[0].GFLOPS, b.rows[0].GFLOPS))
	})
	if len(rungs) < 2 || rungs[0].name == rungs[len(rungs)-1].name {
		return nil
	}
	unit, factor := rateUnit(g.rows)
	drawing := &Rows{X: Axis{Label: fmt.Sprintf("%s at %d³", unit, n), Text: tick}}
	c := &Chart{ID: "ladder-" + word(g.name), Title: "The ladder: " + g.name, Drawing: drawing}
	c.Table.Columns = []Column{{"kernel", ""}, {"rate", unit}, {"of peak", "%"}, {"time", "s"},
		{"gain over the previous", "×"}, {"gain over the first", "×"}}
	var sources []int
	drawing.Legend, sources = s.barKeys(rungs)
	var names []string
	first := map[int]row{}
	last := map[int]row{}
	for _, rung := range rungs {
		r := rung.rows[0]
		at := slices.Index(names, rung.name)
		if at < 0 {
			at = len(names)
			names = append(names, rung.name)
			drawing.Rows = append(drawing.Rows, Row{Name: rung.name})
		}
		gain, total := textCell(""), textCell("")
		if before, ok := last[rung.source]; ok {
			gain, total = gainCell(before, r), gainCell(first[rung.source], r)
		} else {
			first[rung.source] = r
		}
		last[rung.source] = r
		row := &drawing.Rows[at]
		row.Values = append(row.Values, Value{
			Key: slices.Index(sources, rung.source), V: r.GFLOPS * factor, Low: r.slowRate() * factor,
			High: r.fastRate() * factor, Label: rateCell(r, factor).Text, Text: describe(s.label(rung.name, rung.source), r),
		})
		row.End = strings.TrimSuffix(ratesOf(row.Values)+" · "+gain.Text, " · ")
		c.Table.add(textCell(s.label(rung.name, rung.source)), rateCell(r, factor), peakCell(r), timeCell(r), gain, total)
	}
	for _, p := range curves {
		if !p.peer {
			continue
		}
		r := p.rows[0]
		name := s.label(p.name, p.source)
		drawing.Legend = append(drawing.Legend, Key{Name: name, Mark: markLineOnly, Color: peer, Dash: refDash})
		drawing.Refs = append(drawing.Refs, Ref{r.GFLOPS * factor, name + " " + rateCell(r, factor).Text,
			[]int{len(drawing.Legend) - 1}})
		c.Table.add(textCell(name), rateCell(r, factor), peakCell(r), timeCell(r), textCell(""), textCell(""))
	}
	c.Answer = s.ladderAnswer(n, first, last)
	if len(drawing.Refs) > 0 {
		c.Notes = append(c.Notes, "A dashed line is a library in the same arithmetic. After a bar: its rate, and the gain "+
			"over the bar above.")
	}
	return c
}

// refDash is the dash pattern of the lines for comparison.
var refDash = []float64{5, 3}

// barKeys returns the legend of the bars of curves, with one entry per source, and the sources.
func (s *study) barKeys(curves []curve) (keys []Key, sources []int) {
	for _, c := range curves {
		if slices.Contains(sources, c.source) {
			continue
		}
		sources = append(sources, c.source)
		name := "kernels of tilework"
		if s.compares() {
			name = s.sources[c.source]
		}
		keys = append(keys, Key{Name: name, Mark: markBar, Color: sourceColor(c.source)})
	}
	return keys, sources
}

// commonSize returns the most frequent N of rows, and the largest one in case of a tie.
func commonSize(rows []row) int {
	at, best := map[int]int{}, 0
	for _, r := range rows {
		at[r.N]++
	}
	for n, rows := range at {
		if rows > at[best] || rows == at[best] && n > best {
			best = n
		}
	}
	return best
}

// gainCell returns the speed of r relative to that of before.
func gainCell(before, r row) Cell {
	return numberCell(gain(before, r), before.Seconds.Median/r.Seconds.Median)
}

// ladderAnswer returns, for each source, the gain of the last rung over the first, and its ratio to
// a library.
func (s *study) ladderAnswer(n int, first, last map[int]row) string {
	var parts []string
	for source := range s.sources {
		a, b := first[source], last[source]
		if a.Record == nil {
			continue
		}
		text := fmt.Sprintf("%s is %s as fast as %s", b.Subject, gain(a, b), a.Subject)
		if d, ok := s.nearest(b); ok {
			text += fmt.Sprintf(" and runs at %s the speed of %s", d.text(), d.Peer)
		}
		parts = append(parts, s.label(text, source))
	}
	return fmt.Sprintf("At %d³, %s.", n, strings.Join(parts, "; "))
}

// ratesOf joins the rates of a row's values.
func ratesOf(values []Value) string {
	var all []string
	for _, v := range values {
		all = append(all, v.Label)
	}
	return strings.Join(all, " → ")
}
