package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tilework/internal/bench"
	"tilework/internal/phrase"
)

// peerRatio is a row with its ratio to one of its peers.
type peerRatio struct {
	row
	bench.Ratio
}

// Uncertain reports whether the ratio, not the row's time, is uncertain.
func (d peerRatio) Uncertain() bool { return d.Ratio.Uncertain() }

func (d peerRatio) text() string { return ratioOf(d.Ratio) }

// ratioOf formats a ratio, marked if it is uncertain.
func ratioOf(v bench.Ratio) string { return bench.Marked(times(v.Speed), v.Uncertain()) }

// comparison holds the ratios of our fastest kernel of each case to one peer, in one facet and
// source.
type comparison struct {
	facet  string
	peer   string
	source int
	cases  []string
	ratios []peerRatio // one per case
}

// precision returns the type to which a peer rounds the operands of r, or "".
func (s *study) precision(r row, peer string) string {
	for _, p := range s.rows {
		if p.Peer && p.Subject == peer && p.kind() == r.kind() && p.Types() == r.Types() {
			return p.Precision
		}
	}
	return ""
}

// distance returns how different a peer's arithmetic is from that of r: 0 if they are the same, 1
// if the peer does not round its operands, and 2 if it rounds them differently.
func (s *study) distance(r row, peer string) int {
	switch s.precision(r, peer) {
	case r.Precision:
		return 0
	case "":
		return 1
	}
	return 2
}

// comparisons returns the ratios by facet, peer and source. It omits peers if the arithmetic of
// another peer is closer to ours, and peers on more GPUs than ours. Rows with B on each GPU copy
// nothing, unlike the peers.
func (s *study) comparisons(rows []row) []comparison {
	type key struct {
		facet, peer string
		source      int
	}
	at := map[key]int{}
	nearest := map[string]int{}
	var all []comparison
	names := s.naming(rows, "subject", "kind", "type", "source")
	for _, r := range bySize(rows) {
		f, name := r.kind()+", "+arithmetic(r), names.of(r, shape(r.Record))
		if _, division, n := onGPUs(r); n < gpusOfDevice(r) || division == "each" {
			continue
		}
		for _, v := range r.Versus {
			k := key{f, v.Peer, r.source}
			if _, known := at[k]; !known {
				at[k] = len(all)
				all = append(all, comparison{facet: f, peer: v.Peer, source: r.source})
			}
			x := &all[at[k]]
			i := slices.Index(x.cases, name)
			switch {
			case i < 0:
				x.cases, x.ratios = append(x.cases, name), append(x.ratios, peerRatio{r, v})
			case v.Speed > x.ratios[i].Speed:
				x.ratios[i] = peerRatio{r, v}
			}
			if d, known := nearest[f]; !known || s.distance(r, v.Peer) < d {
				nearest[f] = s.distance(r, v.Peer)
			}
		}
	}
	return slices.DeleteFunc(all, func(x comparison) bool {
		return s.distance(x.ratios[0].row, x.peer) > nearest[x.facet]
	})
}

// peerName returns the name of the peer, and its rounding if ours is different.
func (s *study) peerName(x *comparison) string {
	name := s.label(x.peer, x.source)
	if r := x.ratios[0].row; s.distance(r, x.peer) == 2 {
		name += ", which, unlike ours, rounds A and B to " + s.precision(r, x.peer) + ","
	}
	return name
}

// mean returns the geometric mean of the ratios.
func (x *comparison) mean() float64 {
	var speeds []float64
	for _, d := range x.ratios {
		speeds = append(speeds, d.Speed)
	}
	return geometricMean(speeds)
}

// meanText formats the mean, marked if all ratios are uncertain.
func (x *comparison) meanText() string {
	certain := slices.ContainsFunc(x.ratios, func(d peerRatio) bool { return !d.Uncertain() })
	return bench.Marked(times(x.mean()), !certain)
}

func (x *comparison) worst() peerRatio { return slices.MinFunc(x.ratios, bySpeed) }
func (x *comparison) best() peerRatio  { return slices.MaxFunc(x.ratios, bySpeed) }

// slower states in how many cases the library is faster.
func (x *comparison) slower() string {
	n := 0
	for _, d := range x.ratios {
		if d.Speed < 1 {
			n++
		}
	}
	if n == 0 {
		return fmt.Sprintf("slower in none of %d", len(x.ratios))
	}
	return fmt.Sprintf("slower in %d of %d", n, len(x.ratios))
}

func bySpeed(a, b peerRatio) int { return cmp.Compare(a.Speed, b.Speed) }

// scope describes the cases of the mean.
func (x *comparison) scope() string {
	if len(x.ratios) == 1 {
		return "at " + shape(x.worst().Record)
	}
	worst, best := x.worst(), x.best()
	low, high := "at "+shape(worst.Record), "at "+shape(best.Record)
	if low == high { // the names of the cases tell them apart
		low = "(" + x.cases[slices.Index(x.ratios, worst)] + ")"
		high = "(" + x.cases[slices.Index(x.ratios, best)] + ")"
	}
	return fmt.Sprintf("in the geometric mean of %s, from %s %s to %s %s", phrase.Count(len(x.ratios), "case"),
		worst.text(), low, best.text(), high)
}

// nearest returns the ratio of a row to the fastest peer in the nearest arithmetic.
func (s *study) nearest(r row) (peerRatio, bool) {
	var best peerRatio
	for _, v := range r.Versus {
		if v.Peer == bench.Reading {
			continue
		}
		a, b := s.distance(r, v.Peer), 0
		if best.Record != nil {
			b = s.distance(r, best.Peer)
		}
		if best.Record == nil || a < b || a == b && v.Speed < best.Speed {
			best = peerRatio{r, v}
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
		if chosen := filter(g.rows, isChosen); len(chosen) > 0 { // the others are candidates of bench --choice
			g.rows = chosen
		}
		comparisons := s.comparisons(g.rows)
		if len(comparisons) == 0 {
			continue // the libraries ran on more GPUs than our kernels
		}
		if s.onlySizes(comparisons) {
			all = append(all, s.ratioLines(g.name, comparisons))
			continue
		}
		for _, facet := range facets(comparisons) {
			of := slices.DeleteFunc(slices.Clone(comparisons), func(x comparison) bool { return x.facet != facet })
			if scatter := s.ratioScatter(facet, of); scatter != nil {
				all = append(all, scatter)
			}
			all = append(all, s.ratioDots(facet, of))
		}
	}
	if all == nil {
		return nil, "The libraries were timed on more GPUs than the kernels beside them."
	}
	return all, ""
}

func isChosen(r row) bool { return r.Subject == bench.Chosen }

func facets(comparisons []comparison) []string {
	var all []string
	for _, x := range comparisons {
		if !slices.Contains(all, x.facet) {
			all = append(all, x.facet)
		}
	}
	return all
}

// onlySizes reports whether all cases are square products of several sizes, which lines can show.
func (s *study) onlySizes(comparisons []comparison) bool {
	for _, x := range comparisons {
		for i, d := range x.ratios {
			if !d.square() || x.cases[i] != shape(d.Record) {
				return false
			}
		}
		if len(x.ratios) < 3 {
			return false
		}
	}
	return true
}

// ratioAxis is the axis of ratios.
func ratioAxis() Axis {
	return Axis{Label: "speed relative to the library (1× = equal)", Log: true, Text: timesTick}
}

func (s *study) ratioLines(kind string, comparisons []comparison) *Chart {
	// Libraries that round differently are in the table only.
	like := slices.DeleteFunc(slices.Clone(comparisons),
		func(x comparison) bool { return s.distance(x.ratios[0].row, x.peer) == 2 })
	if len(like) == 0 {
		like = comparisons
	}
	var curves []curve
	ratio := map[*bench.Record]map[string]peerRatio{}
	for _, x := range like {
		c := curve{name: strings.TrimPrefix(x.facet, kind+", ") + " vs " + x.peer, source: x.source}
		for _, d := range x.ratios {
			c.rows = append(c.rows, d.row)
			if ratio[d.Record] == nil {
				ratio[d.Record] = map[string]peerRatio{}
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
	lines.equalSpeed()
	return s.ratioChart("Against the libraries: "+kind, lines, like, comparisons)
}

// ratioDots returns a chart with a row for each case, sorted by the ratio to the strongest peer.
func (s *study) ratioDots(facet string, comparisons []comparison) *Chart {
	drawing := &Rows{X: ratioAxis(), Refs: []Ref{{X: 1}}, Dots: true}
	at := map[string]int{}
	strongest := strongest(comparisons)
	for i := range comparisons {
		x := &comparisons[i]
		key := Key{Name: s.label(x.peer, x.source), Mark: markPoint, Color: palette[i%len(palette)], Marker: i}
		if s.compares() {
			key.Color = sourceColor(x.source)
		}
		drawing.Legend = append(drawing.Legend, key)
		for j, d := range x.ratios {
			name := x.cases[j]
			if _, known := at[name]; !known {
				at[name] = len(drawing.Rows)
				drawing.Rows = append(drawing.Rows, Row{Name: name})
			}
			row := &drawing.Rows[at[name]]
			row.Values = append(row.Values, Value{Key: i, V: d.Speed, Low: d.P10, High: d.P90,
				Hollow: d.Uncertain(), Text: describe(name+": "+d.Subject, d.row)})
		}
	}
	place := func(r Row) float64 { // the ratio to the strongest peer, or else to the first one
		for _, v := range r.Values {
			if v.Key == strongest {
				return v.V
			}
		}
		return r.Values[0].V
	}
	slices.SortStableFunc(drawing.Rows, func(a, b Row) int { return cmp.Compare(place(a), place(b)) })
	c := s.ratioChart("Against the libraries: "+facet, drawing, comparisons, comparisons)
	if n := len(drawing.Rows); n > maxRows {
		drawing.Rows = slices.Delete(drawing.Rows, maxRows/2, n-maxRows/2)
		c.Notes = append(c.Notes, fmt.Sprintf("The chart has the %d lowest and the %d highest ratios. The table has all %d "+
			"cases.", maxRows/2, maxRows/2, n))
	}
	return c
}

// strongest returns the index of the library with the lowest mean ratio.
func strongest(comparisons []comparison) int {
	best := 0
	for i := range comparisons {
		reads, bestReads := comparisons[i].peer == bench.Reading, comparisons[best].peer == bench.Reading
		if bestReads && !reads || bestReads == reads && comparisons[i].mean() < comparisons[best].mean() {
			best = i
		}
	}
	return best
}

// ratioChart returns a chart of a drawing, with the answer about the comparisons in drawn and the
// table of all comparisons.
func (s *study) ratioChart(title string, drawing Drawing, drawn, comparisons []comparison) *Chart {
	c := &Chart{ID: "ratio-" + word(strings.TrimPrefix(title, "Against the libraries: ")), Title: title, Drawing: drawing}
	c.Table.Columns = []Column{{"case", ""}, {"type", ""}, {"library", ""}, {"kernel", ""}, {"speed", "×"},
		{"10th percentile", "×"}, {"90th percentile", "×"}, {"time", "s"}}
	uncertain := 0
	for _, x := range comparisons {
		for i, d := range x.ratios {
			c.Table.add(textCell(x.cases[i]), textCell(x.facet), textCell(s.label(x.peer, x.source)), textCell(d.Subject),
				numberCell(d.text(), d.Speed),
				numberCell(times(d.P10), d.P10), numberCell(times(d.P90), d.P90), timeCell(d.row))
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
		parts = append(parts, fmt.Sprintf("%s%s the speed of %s (%s)", name, x.meanText(), s.peerName(x), x.slower()))
	}
	c.Answer = "Geometric means of our fastest kernel: " + strings.Join(parts, "; ") + "."
	if x := &drawn[0]; len(drawn) == 1 {
		c.Answer = fmt.Sprintf("Our fastest kernel runs at %s the speed of %s %s, and is %s.", x.meanText(),
			s.peerName(x), x.scope(), x.slower())
	}
	c.Notes = append(c.Notes, bench.RatioNote)
	if uncertain > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%s This applies to %d of %d ratios.", bench.UncertainNote, uncertain,
			len(c.Table.Rows)))
	}
	for _, x := range comparisons {
		if x.peer == bench.Reading {
			c.Notes = append(c.Notes, "The peer reading reads B once and does not multiply: 1× is the speed of memory.")
			break
		}
	}
	c.Notes = append(c.Notes, s.rounding(comparisons)...)
	return c
}

// rounding returns a note for each peer that rounds its operands, with the time that rounding saves
// at the largest product that another peer also computed.
func (s *study) rounding(comparisons []comparison) []string {
	var notes, done []string
	for _, x := range comparisons {
		like := x.ratios[0].row
		peers := bySize(filter(s.rows, isPeer, hasRate,
			func(r row) bool { return r.kind() == like.kind() && r.Types() == like.Types() }))
		for _, r := range slices.Backward(peers) {
			if r.Precision == "" || slices.Contains(done, r.Subject) {
				continue
			}
			done = append(done, r.Subject)
			text := fmt.Sprintf("%s rounds A and B to %s for the tensor cores", r.Subject, r.Precision)
			for _, e := range peers {
				if e.Precision == "" && e.source == r.source && shape(e.Record) == shape(r.Record) {
					text += fmt.Sprintf(": %s at %s; %s, which does not round, takes %s", r.time(),
						shape(r.Record), e.Subject, e.time())
					break
				}
			}
			notes = append(notes, text+".")
		}
	}
	return notes
}
