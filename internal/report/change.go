package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"tilework/internal/phrase"
)

// change compares one measurement in two sources.
type change struct {
	old, new row
	speed    float64 // old time divided by new time; above 1 means faster
	p        float64 // probability of such a difference by chance
	few      bool    // too few samples to detect any difference
}

// sure reports whether the difference is statistically significant.
func (c change) sure() bool { return c.p < benchmath.DefaultThresholds.CompareAlpha }

func (c change) faster() bool { return c.sure() && c.speed > 1 }
func (c change) slower() bool { return c.sure() && c.speed < 1 }

// slight is the relative change below which a significant change is reported as small.
const slight = 0.02

// compareTimes tests whether times differ, without assuming a distribution (Mann-Whitney U test).
func compareTimes(old, new row) change {
	sample := func(r row) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(r.Samples), &benchmath.DefaultThresholds)
	}
	test := benchmath.AssumeNothing.Compare(sample(old), sample(new))
	return change{old, new, old.Seconds.Median / new.Seconds.Median, test.P, len(test.Warnings) > 0}
}

// changesTo returns the measurements that a source has in common with the first source. They are
// measurements of the same device, or of any two devices of a kind if each source has only one.
func (s *study) changesTo(source int) []change {
	var all []change
	for _, kind := range []string{onCPU, onGPU} {
		rows, key := filter(s.rows, of(kind)), row.key
		if len(devices(filter(rows, inSource(0)))) == 1 && len(devices(filter(rows, inSource(source)))) == 1 {
			key = row.caseKey
		}
		all = append(all, pairs(rows, source, key)...)
	}
	return all
}

// pairs compares the rows of a source with those of the first source that have the same key.
func pairs(rows []row, source int, key func(row) string) []change {
	base := map[string]row{}
	for _, r := range rows {
		if r.source == 0 {
			base[key(r)] = r
		}
	}
	var all []change
	for _, r := range bySize(rows) {
		if old, ok := base[key(r)]; ok && r.source == source {
			all = append(all, compareTimes(old, r))
		}
	}
	return all
}

// changes compares each source with the first.
func changes(s *study) ([]*Chart, string) {
	if !s.compares() {
		return nil, ""
	}
	var all []*Chart
	var others []string // sources with times, but without a common measurement
	for source := 1; source < len(s.sources); source++ {
		found := s.changesTo(source)
		if len(found) == 0 && slices.ContainsFunc(s.rows, inSource(source)) {
			others = append(others, s.sources[source])
		}
		byKind := map[string][]change{}
		var kinds []string
		for _, x := range found {
			kind := x.new.kind() + ", " + x.new.Types()
			if byKind[kind] == nil {
				kinds = append(kinds, kind)
			}
			byKind[kind] = append(byKind[kind], x)
		}
		for _, kind := range kinds {
			all = append(all, s.changeChart(source, kind, byKind[kind]))
		}
	}
	if len(others) > 0 {
		return all, "No measurement of " + phrase.List(others) + " is also in " + s.sources[0] + ". Measurements of " +
			"different devices are compared only if each source has one device of that kind."
	}
	return all, ""
}

// maxRows is the largest number of rows in a chart of points.
const maxRows = 32

func (s *study) changeChart(source int, kind string, changes []change) *Chart {
	c := &Chart{ID: "change-" + word(s.sources[source]) + "-" + word(kind),
		Title: fmt.Sprintf("From %s to %s: %s", s.sources[0], s.sources[source], kind)}
	c.Answer, c.Notes = changeAnswer(changes)
	var rows []row
	for _, x := range changes {
		rows = append(rows, x.new)
	}
	if x := changes[0]; x.old.device() != x.new.device() {
		c.Notes = append(c.Notes, fmt.Sprintf("%s was measured on %s, and %s on %s.", s.sources[0], x.old.device(),
			s.sources[source], x.new.device()))
	}
	names := s.naming(rows, "kind", "type")
	drawing := &Rows{
		X:      Axis{Label: "speed relative to " + s.sources[0], Log: true, Text: timesTick},
		Legend: []Key{sourceKey(s, 0), sourceKey(s, source)},
		Refs:   []Ref{{X: 1}},
		Dots:   true,
	}
	c.Drawing = drawing
	c.Table.Columns = []Column{{"kernel", ""}, {"case", ""}, {s.sources[0], "s"}, {s.sources[source], "s"}, {"speed", "×"},
		{"p", ""}, {"verdict", ""}}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(b.speed, a.speed) })
	cases := s.naming(rows, "subject", "kind", "type")
	for i, x := range changes {
		c.Table.add(textCell(x.new.Subject), textCell(cases.of(x.new, shape(x.new.Record))), timeCell(x.old), timeCell(x.new),
			numberCell(times(x.speed), x.speed), numberCell(fmt.Sprintf("%.3f", x.p), x.p), textCell(x.verdict()))
		if n := len(changes); n > maxRows && i >= maxRows/2 && i < n-maxRows/2 {
			continue
		}
		drawing.Rows = append(drawing.Rows, x.row(names.of(x.new, shape(x.new.Record)), s.sources[0], s.sources[source]))
	}
	if n := len(changes); n > maxRows {
		c.Notes = append(c.Notes, fmt.Sprintf("The chart has the %d largest gains and the %d largest losses. The table has "+
			"all %d measurements.", maxRows/2, maxRows/2, n))
	}
	return c
}

func sourceKey(s *study, source int) Key {
	return Key{Name: s.sources[source], Mark: markPoint, Color: sourceColor(source), Marker: source}
}

func (c change) verdict() string {
	switch {
	case c.faster():
		return "faster"
	case c.slower():
		return "slower"
	}
	return "no change beyond chance"
}

// row returns a row with the noise of the old times around 1, and the new time and its noise
// relative to the old median.
func (c change) row(name, before, after string) Row {
	relative := func(key int, r row, source string, hollow bool) Value {
		m := c.old.Seconds.Median
		return Value{Key: key, V: m / r.Seconds.Median, Low: m / r.Seconds.P90, High: m / r.Seconds.P10, Hollow: hollow,
			Text: fmt.Sprintf("%s, %s\n%s\n%s the speed, p = %.3f: %s", name, source, spreadText(r), times(c.speed), c.p,
				c.verdict())}
	}
	end := "~"
	if c.sure() {
		end = times(c.speed)
	}
	return Row{Name: name, End: end, Values: []Value{relative(0, c.old, before, false),
		relative(1, c.new, after, !c.sure())}}
}

// changeAnswer returns the answer and the notes for changes.
func changeAnswer(changes []change) (answer string, notes []string) {
	var faster, slower, little, few int
	for _, x := range changes {
		switch {
		case x.faster():
			faster++
		case x.slower():
			slower++
		case x.few:
			few++
		}
		if x.sure() && math.Abs(math.Log(x.speed)) < slight {
			little++
		}
	}
	small := ""
	if little > 0 {
		small = fmt.Sprintf(" (%d of these by less than 2 %%)", little)
	}
	answer = fmt.Sprintf("Of %s, %d became faster, %d slower%s, and %d did not change by more than chance; the "+
		"geometric mean of the speed is %s.",
		phrase.Count(len(changes), "common measurement"), faster, slower, small, len(changes)-faster-slower,
		times(meanSpeed(changes)))
	if few > 0 {
		notes = append(notes, phrase.Count(few, "measurement")+
			" with too few samples to distinguish any difference from chance: let bench run longer (--min-time).")
	}
	return answer, append(notes, "A hollow point or ~ means no change beyond chance: Mann-Whitney U test on the samples "+
		"of both records, p < 0.05 for each measurement alone. A bar spans the 10th to the 90th percentile. Samples of one "+
		"run share its clock rates and memory placement, so confirm an important difference with several runs.")
}

func meanSpeed(changes []change) float64 {
	var speeds []float64
	for _, x := range changes {
		speeds = append(speeds, x.speed)
	}
	return geometricMean(speeds)
}

// spreadText formats the median time and half its spread.
func spreadText(r row) string {
	if r.Reps < 2 {
		return r.time()
	}
	return fmt.Sprintf("%s ± %.1f %%", r.time(), 50*r.Seconds.Spread)
}

// spreadCell states the spread of the times. A single timing has none.
func spreadCell(r row) Cell {
	if r.Reps < 2 {
		return textCell("")
	}
	return numberCell(percent(r.Seconds.Spread), 100*r.Seconds.Spread)
}

func timeCell(r row) Cell { return numberCell(spreadText(r), r.Seconds.Median) }
