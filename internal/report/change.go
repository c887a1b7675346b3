package report

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"tilework/internal/bench"
)

// change is a measurement of two sources.
type change struct {
	old, new row
	speed    float64 // the old time over the new one: above 1 it got faster
	p        float64 // the probability of such a difference by chance
	few      bool    // there are too few samples to be sure of any difference
}

// sure reports whether the difference is more than chance.
func (c change) sure() bool { return c.p < benchmath.DefaultThresholds.CompareAlpha }

// compareTimes tests, without assuming how times are distributed, whether they differ
// (Mann and Whitney's U test).
func compareTimes(old, new row) change {
	sample := func(r row) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(r.Samples), &benchmath.DefaultThresholds)
	}
	test := benchmath.AssumeNothing.Compare(sample(old), sample(new))
	return change{old, new, old.Seconds.Median / new.Seconds.Median, test.P, len(test.Warnings) > 0}
}

// changes compares each source with the first.
func changes(s *study) []*Chart {
	if len(s.sources) < 2 {
		return nil
	}
	base := map[string]row{}
	for _, r := range s.rows {
		if r.source == 0 {
			base[r.key()] = r
		}
	}
	const question = "What got faster, what slower, and is that more than chance?"
	var all []*Chart
	var others []string // that have nothing in common with the first
	for i := 1; i < len(s.sources); i++ {
		title := fmt.Sprintf("From %s to %s", s.sources[0], s.sources[i])
		id := "change-" + word(s.sources[i])
		both := filter(s.rows, func(r row) bool { return r.source == i && base[r.key()].Record != nil })
		if len(both) == 0 {
			others = append(others, s.sources[i])
		}
		for _, g := range groupBy(both, func(r row) string { return r.kind() + ", " + r.Types() }) {
			var changes []change
			for _, r := range bySize(g.rows) {
				changes = append(changes, compareTimes(base[r.key()], r))
			}
			all = append(all, s.changeChart(&Chart{ID: id + "-" + word(g.name), Title: title + ": " + g.name, Question: question}, changes))
		}
	}
	if len(others) > 0 {
		all = append(all, &Chart{ID: "change", Title: "From " + s.sources[0], Question: question, Notes: []string{"Nothing of " + list(others) + " was measured in " + s.sources[0] + ", too: nothing to compare."}})
	}
	return all
}

// changeChart has a row for each case and a column for each subject.
func (s *study) changeChart(c *Chart, changes []change) *Chart {
	var rows []row
	for _, x := range changes {
		rows = append(rows, x.new)
	}
	cases := s.naming(rows, "subject", "kind", "type")
	heat := &Heat{Low: "slower", High: "faster"}
	c.Drawing = heat
	for _, g := range groupBy(rows, func(r row) string { return r.Subject }) {
		heat.Columns = append(heat.Columns, g.name)
	}
	c.Table.Columns = []string{"kernel", "case", s.sources[0], s.sources[rows[0].source], "speed, ×", "p"}
	var faster, slower, little, few int
	sum := 0.0
	for _, x := range changes {
		name := cases.of(x.new, shape(x.new.Record))
		at := slices.Index(heat.Rows, name)
		if at < 0 {
			at = len(heat.Rows)
			heat.Rows = append(heat.Rows, name)
			heat.Cells = append(heat.Cells, make([]Cell, len(heat.Columns)))
		}
		heat.Cells[at][slices.Index(heat.Columns, x.new.Subject)] = x.cell(name)
		c.Table.Rows = append(c.Table.Rows, []string{x.new.Subject, name, median(x.old), median(x.new), fmt.Sprintf("%.3f", x.speed), fmt.Sprintf("%.3f", x.p)})
		sum += math.Log(x.speed)
		if x.sure() && math.Abs(math.Log(x.speed)) < notable {
			little++
		}
		switch {
		case x.sure() && x.speed > 1:
			faster++
		case x.sure() && x.speed < 1:
			slower++
		case x.few:
			few++
		}
	}
	slight := ""
	if little > 0 {
		slight = fmt.Sprintf(" (%d of these by less than 2 %%)", little)
	}
	c.Headline = fmt.Sprintf("Of %s in both, %d got faster, %d slower%s, and %d did not change by more than chance; the geometric mean of the speed is %s.",
		count(len(changes), "measurement"), faster, slower, slight, len(changes)-faster-slower, times(math.Exp(sum/float64(len(changes)))))
	if few > 0 {
		c.Notes = append(c.Notes, "Of "+count(few, "measurement")+" there are too few samples to tell any difference from chance: let bench run for longer (--min-time).")
	}
	c.Notes = append(c.Notes, "Chance is Mann and Whitney's U test on the samples of the two records, at p < 0.05 in each case by itself (~: no change). Samples of one run share its clocks and its placement in memory: a difference that matters shows in several runs.")
	return c
}

func median(r row) string {
	return fmt.Sprintf("%s ± %.1f %%", bench.Duration(r.Seconds.Median), 50*r.Seconds.Spread)
}

// cell has no colour where nothing changed.
func (x change) cell(name string) Cell {
	text := fmt.Sprintf("%s: %s\nfrom %s to %s\n%s the speed, p = %.3f", x.new.Subject, name, median(x.old), median(x.new), times(x.speed), x.p)
	if !x.sure() {
		return Cell{1, "~", text}
	}
	return Cell{x.speed, ratioText(x.speed), text}
}
