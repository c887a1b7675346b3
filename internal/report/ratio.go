package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tilework/internal/bench"
)

// ratios shows our fastest kernel against each peer, shape by shape.
func ratios(s *study) []*Chart {
	const title, question = "Against the peers", "On which shapes is a library faster?"
	rows := filter(s.rows, not(isPeer), func(r row) bool { return len(r.Versus) > 0 })
	if len(rows) == 0 {
		return []*Chart{{ID: "ratio", Title: title, Question: question, Notes: []string{"No kernel was timed beside a peer (bench --peers): no ratios."}}}
	}
	var all []*Chart
	for _, g := range groupBy(rows, facet) {
		all = append(all, s.ratioChart(&Chart{ID: "ratio-" + word(g.name), Title: title + ": " + g.name, Question: question}, g.rows))
	}
	return all
}

// duel is a row's ratio to one of its peers.
type duel struct {
	row
	bench.Ratio
}

func (s *study) ratioChart(c *Chart, rows []row) *Chart {
	cases := s.naming(rows, "subject", "kind", "type", "source")
	heat := &Heat{Low: "slower than the peer", High: "faster"}
	c.Drawing = heat
	c.Table.Columns = []string{"shape", "peer", "kernel", "speed, ×", "10th to 90th percentile", "median", "rate"}
	type place struct{ row, column string }
	best := map[place]duel{}
	several := slices.ContainsFunc(rows, func(r row) bool { return r.source != rows[0].source })
	for _, r := range bySize(rows) {
		name := cases.of(r, shape(r.Record))
		if !slices.Contains(heat.Rows, name) {
			heat.Rows = append(heat.Rows, name)
		}
		for _, v := range r.Versus {
			column := v.Peer
			if several {
				column += " (" + s.sources[r.source] + ")"
			}
			if !slices.Contains(heat.Columns, column) {
				heat.Columns = append(heat.Columns, column)
			}
			if old, known := best[place{name, column}]; !known || v.Speed > old.Speed {
				best[place{name, column}] = duel{r, v}
			}
		}
	}
	rounding := s.rounding(rows[0])
	columns := map[string][]duel{}
	for _, name := range heat.Rows {
		cells := make([]Cell, len(heat.Columns))
		for i, column := range heat.Columns {
			d, known := best[place{name, column}]
			if !known {
				continue
			}
			columns[column] = append(columns[column], d)
			cells[i] = Cell{d.Speed, ratioText(d.Speed), telling(name+": "+d.Subject, d.row)}
			c.Table.Rows = append(c.Table.Rows, []string{name, column, d.Subject, fmt.Sprintf("%.3f", d.Speed), fmt.Sprintf("%.3f to %.3f", d.P10, d.P90), bench.Duration(d.Seconds.Median), d.rate()})
		}
		heat.Cells = append(heat.Cells, cells)
	}
	c.Headline = ratioAnswer(heat.Columns, columns, func(peer string) (distance int, does string) {
		rounder := slices.IndexFunc(rounding, func(x rounder) bool { return x.Subject == columns[peer][0].Peer })
		switch {
		case rounder < 0:
			return 1, ""
		case rounding[rounder].Precision == rows[0].Precision:
			return 0, ""
		}
		return 2, fmt.Sprintf(", which rounds A and B to %s where ours does not,", rounding[rounder].Precision)
	})
	for _, r := range rounding {
		c.Notes = append(c.Notes, r.note())
	}
	return c
}

// rounder is a peer that rounds A and B before it multiplies, as tensor cores want it,
// and the fastest one that does not on the same product, if there is one.
type rounder struct {
	row
	exact row
}

// rounding lists those on the device and of the type of like, each on its largest
// product.
func (s *study) rounding(like row) []rounder {
	peers := bySize(filter(s.rows, isPeer, func(r row) bool { return r.kind() == like.kind() && r.Types() == like.Types() }))
	var all []rounder
	for _, r := range slices.Backward(peers) {
		if r.Precision == "" || slices.ContainsFunc(all, func(x rounder) bool { return x.Subject == r.Subject }) {
			continue
		}
		x := rounder{row: r}
		for _, e := range peers {
			if e.Precision == "" && e.source == r.source && shape(e.Record) == shape(r.Record) && (x.exact.Record == nil || e.Seconds.Median < x.exact.Seconds.Median) {
				x.exact = e
			}
		}
		all = append(all, x)
	}
	return all
}

func (x rounder) note() string {
	text := fmt.Sprintf("%s rounds A and B to %s for the tensor cores", x.Subject, x.Precision)
	if x.exact.Record == nil {
		return text + "."
	}
	return fmt.Sprintf("%s: %s at %s, where %s, which rounds nothing and so cannot use them, takes %s.", text, bench.Duration(x.Seconds.Median), shape(x.Record), x.exact.Subject, bench.Duration(x.exact.Seconds.Median))
}

// ratioAnswer tells of the strongest of the peers whose arithmetic is the nearest to ours,
// which is where its distance is least, with what it does otherwise, and in short of the others.
func ratioAnswer(peers []string, duels map[string][]duel, arithmetic func(peer string) (distance int, does string)) string {
	mean := func(peer string) float64 {
		sum := 0.0
		for _, d := range duels[peer] {
			sum += math.Log(d.Speed)
		}
		return math.Exp(sum / float64(len(duels[peer])))
	}
	peers = slices.SortedStableFunc(slices.Values(peers), func(a, b string) int {
		farA, _ := arithmetic(a)
		farB, _ := arithmetic(b)
		return cmp.Or(cmp.Compare(farA, farB), cmp.Compare(mean(a), mean(b)))
	})
	strongest := duels[peers[0]]
	_, does := arithmetic(peers[0])
	bySpeed := func(a, b duel) int { return cmp.Compare(a.Speed, b.Speed) }
	worst, best := slices.MinFunc(strongest, bySpeed), slices.MaxFunc(strongest, bySpeed)
	text := fmt.Sprintf("Our fastest kernel runs at %s the speed of %s%s in the geometric mean of %s, from %s at %s to %s at %s.",
		times(mean(peers[0])), peers[0], does, count(len(strongest), "case"), times(worst.Speed), shape(worst.Record), times(best.Speed), shape(best.Record))
	if len(strongest) == 1 {
		text = fmt.Sprintf("%s runs at %s the speed of %s%s at %s.", worst.Subject, times(worst.Speed), peers[0], does, shape(worst.Record))
	}
	var others []string
	for _, peer := range peers[1:] {
		others = append(others, times(mean(peer))+" "+peer)
	}
	if others != nil {
		text += " Against the others: " + list(others) + "."
	}
	return text
}
