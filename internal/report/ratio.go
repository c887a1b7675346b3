package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tilework/internal/bench"
)

// duel is a row's ratio to one of its peers.
type duel struct {
	row
	bench.Ratio
}

// Uncertain reports whether the ratio is, not the row's time.
func (d duel) Uncertain() bool { return d.Ratio.Uncertain() }

func (d duel) text() string { return bench.Marked(times(d.Speed), d.Uncertain()) }

// rival is the ratios of our fastest kernel of each case to one peer, in one facet and source.
type rival struct {
	facet  string
	peer   string
	source int
	cases  []string
	duels  []duel // one for each case
}

// precision returns the precision that a peer rounds the operands of r to, or "".
func (s *study) precision(r row, peer string) string {
	for _, p := range s.rows {
		if p.Peer && p.Subject == peer && p.kind() == r.kind() && p.Types() == r.Types() {
			return p.Precision
		}
	}
	return ""
}

// distance returns how far a peer's arithmetic is from a kernel's: 0 if they are the same, 1 if
// the peer is more exact, and 2 if it rounds its operands differently.
func (s *study) distance(r row, peer string) int {
	switch s.precision(r, peer) {
	case r.Precision:
		return 0
	case "":
		return 1
	}
	return 2
}

// rivals returns the ratios by facet, peer and source. Peers whose arithmetic is farther from
// ours than another's are left out.
func (s *study) rivals(rows []row) []rival {
	type key struct {
		facet, peer string
		source      int
	}
	at := map[key]int{}
	nearest := map[string]int{}
	var all []rival
	names := s.naming(rows, "subject", "kind", "type", "source")
	for _, r := range bySize(rows) {
		f, name := r.kind()+", "+arithmetic(r), names.of(r, shape(r.Record))
		for _, v := range r.Versus {
			k := key{f, v.Peer, r.source}
			if _, known := at[k]; !known {
				at[k] = len(all)
				all = append(all, rival{facet: f, peer: v.Peer, source: r.source})
			}
			x := &all[at[k]]
			i := slices.Index(x.cases, name)
			switch {
			case i < 0:
				x.cases, x.duels = append(x.cases, name), append(x.duels, duel{r, v})
			case v.Speed > x.duels[i].Speed:
				x.duels[i] = duel{r, v}
			}
			if d, known := nearest[f]; !known || s.distance(r, v.Peer) < d {
				nearest[f] = s.distance(r, v.Peer)
			}
		}
	}
	return slices.DeleteFunc(all, func(x rival) bool { return s.distance(x.duels[0].row, x.peer) > nearest[x.facet] })
}

// opponent names the peer, and its rounding where ours does not round like that.
func (s *study) opponent(x *rival) string {
	name := s.label(x.peer, x.source)
	if r := x.duels[0].row; s.distance(r, x.peer) == 2 {
		name += ", which rounds A and B to " + s.precision(r, x.peer) + " where ours does not,"
	}
	return name
}

// mean returns the geometric mean of the ratios.
func (x *rival) mean() float64 {
	var speeds []float64
	for _, d := range x.duels {
		speeds = append(speeds, d.Speed)
	}
	return geometricMean(speeds)
}

func (x *rival) worst() duel { return slices.MinFunc(x.duels, bySpeed) }
func (x *rival) best() duel  { return slices.MaxFunc(x.duels, bySpeed) }

// slower returns the number of cases in which the library is faster.
func (x *rival) slower() int {
	n := 0
	for _, d := range x.duels {
		if d.Speed < 1 {
			n++
		}
	}
	return n
}

func bySpeed(a, b duel) int { return cmp.Compare(a.Speed, b.Speed) }

// scope describes the cases of a mean.
func (x *rival) scope() string {
	if len(x.duels) == 1 {
		return "at " + shape(x.worst().Record)
	}
	worst, best := x.worst(), x.best()
	return fmt.Sprintf("in the geometric mean of %s, from %s at %s to %s at %s", count(len(x.duels), "case"), worst.text(), shape(worst.Record), best.text(), shape(best.Record))
}

// nearest returns the ratio of a row to the fastest peer in the nearest arithmetic.
func (s *study) nearest(r row) (duel, bool) {
	var best duel
	for _, v := range r.Versus {
		if v.Peer == bench.Reading {
			continue
		}
		a, b := s.distance(r, v.Peer), 0
		if best.Record != nil {
			b = s.distance(r, best.Peer)
		}
		if best.Record == nil || a < b || a == b && v.Speed < best.Speed {
			best = duel{r, v}
		}
	}
	return best, best.Record != nil
}

// ratios compares our fastest kernel of each case with the libraries.
func ratios(s *study) ([]*Chart, string) {
	rows := filter(s.rows, not(isPeer), func(r row) bool { return len(r.Versus) > 0 })
	if len(rows) == 0 {
		return nil, "No kernel was timed beside a library (bench --peers)."
	}
	var all []*Chart
	for _, g := range groupBy(rows, row.kind) {
		rivals := s.rivals(g.rows)
		if s.onlySizes(rivals) {
			all = append(all, s.ratioLines(g.name, rivals))
			continue
		}
		for _, facet := range facets(rivals) {
			all = append(all, s.ratioDots(facet, slices.DeleteFunc(slices.Clone(rivals), func(x rival) bool { return x.facet != facet })))
		}
	}
	return all, ""
}

func facets(rivals []rival) []string {
	var all []string
	for _, x := range rivals {
		if !slices.Contains(all, x.facet) {
			all = append(all, x.facet)
		}
	}
	return all
}

// onlySizes reports whether the cases are square products of several sizes and nothing else, so
// that lines can show them.
func (s *study) onlySizes(rivals []rival) bool {
	for _, x := range rivals {
		for i, d := range x.duels {
			if !d.square() || x.cases[i] != shape(d.Record) {
				return false
			}
		}
		if len(x.duels) < 3 {
			return false
		}
	}
	return true
}

// ratioAxis is the axis of ratios.
func ratioAxis() Axis {
	return Axis{Label: "speed relative to the library (1× = equal)", Log: true, Text: timesTick}
}

func (s *study) ratioLines(kind string, rivals []rival) *Chart {
	// Libraries with rounded operands do not answer which exact product is faster.
	like := slices.DeleteFunc(slices.Clone(rivals), func(x rival) bool { return s.distance(x.duels[0].row, x.peer) == 2 })
	if len(like) == 0 {
		like = rivals
	}
	var curves []curve
	ratio := map[*bench.Record]map[string]duel{}
	for _, x := range like {
		c := curve{name: strings.TrimPrefix(x.facet, kind+", ") + " vs " + x.peer, source: x.source}
		for _, d := range x.duels {
			c.rows = append(c.rows, d.row)
			if ratio[d.Record] == nil {
				ratio[d.Record] = map[string]duel{}
			}
			ratio[d.Record][c.name] = d
		}
		curves = append(curves, c)
	}
	lines := s.lines(curves, func(c curve, r row) Point {
		d := ratio[r.Record][c.name]
		return Point{X: float64(r.N), Y: d.Speed, Low: d.P10, High: d.P90, Text: describe(c.name+": "+r.Subject, r)}
	})
	lines.X, lines.Y = sizeAxis(), ratioAxis()
	var all []row
	for _, c := range curves {
		all = append(all, c.rows...)
	}
	all = bySize(all)
	lines.limit("equal speed", "equal speed", Point{X: float64(all[0].N), Y: 1}, Point{X: float64(all[len(all)-1].N), Y: 1})
	return s.ratioChart("Against the libraries: "+kind, lines, like, rivals)
}

// ratioDots has a row for each case, sorted by the ratio to the strongest peer.
func (s *study) ratioDots(facet string, rivals []rival) *Chart {
	drawing := &Rows{X: ratioAxis(), Refs: []Ref{{X: 1}}, Dots: true}
	at := map[string]int{}
	strongest := strongest(rivals)
	for i := range rivals {
		x := &rivals[i]
		key := Key{Name: s.label(x.peer, x.source), Mark: markPoint, Color: palette[i%len(palette)], Marker: i}
		if s.compares() {
			key.Color = sourceColor(x.source)
		}
		drawing.Legend = append(drawing.Legend, key)
		for j, d := range x.duels {
			name := x.cases[j]
			if _, known := at[name]; !known {
				at[name] = len(drawing.Rows)
				drawing.Rows = append(drawing.Rows, Row{Name: name})
			}
			row := &drawing.Rows[at[name]]
			row.Values = append(row.Values, Value{Key: i, V: d.Speed, Low: min(d.P10, d.Speed), High: max(d.P90, d.Speed), Hollow: d.Uncertain(), Text: describe(name+": "+d.Subject, d.row)})
		}
	}
	place := func(r Row) float64 { // the ratio to the strongest peer, or to the first there is
		for _, v := range r.Values {
			if v.Key == strongest {
				return v.V
			}
		}
		return r.Values[0].V
	}
	slices.SortStableFunc(drawing.Rows, func(a, b Row) int { return cmp.Compare(place(a), place(b)) })
	c := s.ratioChart("Against the libraries: "+facet, drawing, rivals, rivals)
	if n := len(drawing.Rows); n > mostRows {
		drawing.Rows = slices.Delete(drawing.Rows, mostRows/2, n-mostRows/2)
		c.Notes = append(c.Notes, fmt.Sprintf("The chart has the %d lowest and the %d highest ratios. The table has all %d cases.", mostRows/2, mostRows/2, n))
	}
	return c
}

// strongest returns the index of the library with the lowest mean.
func strongest(rivals []rival) int {
	best := 0
	for i := range rivals {
		reads, bestReads := rivals[i].peer == bench.Reading, rivals[best].peer == bench.Reading
		if bestReads && !reads || bestReads == reads && rivals[i].mean() < rivals[best].mean() {
			best = i
		}
	}
	return best
}

// ratioChart adds the answer and the table of rivals to a drawing of those that are drawn.
func (s *study) ratioChart(title string, drawing Drawing, drawn, rivals []rival) *Chart {
	c := &Chart{ID: "ratio-" + word(strings.TrimPrefix(title, "Against the libraries: ")), Title: title, Drawing: drawing}
	c.Table.Columns = []Column{{"case", ""}, {"type", ""}, {"library", ""}, {"kernel", ""}, {"speed", "×"}, {"10th percentile", "×"}, {"90th percentile", "×"}, {"time", "s"}}
	uncertain := 0
	for _, x := range rivals {
		for i, d := range x.duels {
			c.Table.add(words(x.cases[i]), words(x.facet), words(s.label(x.peer, x.source)), words(d.Subject), figure(d.text(), d.Speed),
				figure(times(d.P10), d.P10), figure(times(d.P90), d.P90), timeCell(d.row))
			if d.Uncertain() {
				uncertain++
			}
		}
	}
	var parts []string
	for i := range drawn {
		x := &drawn[i]
		name := ""
		if len(facets(drawn)) > 1 {
			name = x.facet[strings.Index(x.facet, ", ")+2:] + " "
		}
		parts = append(parts, fmt.Sprintf("%s%s the speed of %s (slower in %d of %d)", name, times(x.mean()), s.opponent(x), x.slower(), len(x.duels)))
	}
	c.Answer = "Geometric means of our fastest kernel: " + strings.Join(parts, "; ") + "."
	switch x := &drawn[0]; {
	case len(drawn) == 1:
		c.Answer = fmt.Sprintf("Our fastest kernel runs at %s the speed of %s %s, and is slower in %d of %d.", times(x.mean()), s.opponent(x), x.scope(), x.slower(), len(x.duels))
	}
	c.Notes = append(c.Notes, bench.RatioNote)
	if uncertain > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%s of %d ratios: %s", number(int64(uncertain)), len(c.Table.Rows), bench.UncertainNote))
	}
	for _, x := range rivals {
		if x.peer == bench.Reading {
			c.Notes = append(c.Notes, "The peer reading reads B once and multiplies nothing: 1× is the speed of memory.")
			break
		}
	}
	c.Notes = append(c.Notes, s.rounding(rivals)...)
	return c
}

// rounding returns a note for each peer of the cases that rounds its operands: the time that this
// saves at the largest product that another peer was timed on too.
func (s *study) rounding(rivals []rival) []string {
	var notes, done []string
	for _, x := range rivals {
		like := x.duels[0].row
		peers := bySize(filter(s.rows, isPeer, hasRate, func(r row) bool { return r.kind() == like.kind() && r.Types() == like.Types() }))
		for _, r := range slices.Backward(peers) {
			if r.Precision == "" || slices.Contains(done, r.Subject) {
				continue
			}
			done = append(done, r.Subject)
			text := fmt.Sprintf("%s rounds A and B to %s for the tensor cores", r.Subject, r.Precision)
			for _, e := range peers {
				if e.Precision == "" && e.source == r.source && shape(e.Record) == shape(r.Record) {
					text += fmt.Sprintf(": %s at %s; %s, which does not round, takes %s", bench.Duration(r.Seconds.Median), shape(r.Record), e.Subject, bench.Duration(e.Seconds.Median))
					break
				}
			}
			notes = append(notes, text+".")
		}
	}
	return notes
}
