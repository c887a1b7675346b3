package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tilework/internal/bench"
)

// ladder shows each kernel's time beside the others': the rungs from the textbook to
// the libraries.
func ladder(s *study) []*Chart {
	const title, question = "The ladder", "What does each kernel gain over the one before it?"
	var all []*Chart
	for _, g := range groupBy(filter(s.rows, isSquare, not(copies)), func(r row) string { return r.kind() + ", " + r.Types() }) {
		curves := s.curves(g.rows, "kind", "type")
		if len(curves) < 2 {
			continue // the chart of rates shows as much
		}
		all = append(all, &Chart{
			ID: "ladder-" + word(g.name), Title: title + ": " + g.name, Question: question,
			Headline: s.rungs(curves),
			Drawing: &Lines{
				X:      Axis{Label: "N, of N×N matrices", Log: true, Binary: true, Text: tick},
				Y:      Axis{Label: "time of a product", Log: true, Text: bench.Duration},
				Series: s.againstSize(curves, func(r row) float64 { return r.Seconds.Median }),
			},
			Table: sizeTable(curves, func(r row) string { return bench.Duration(r.Seconds.Median) }),
		})
	}
	if len(all) == 0 {
		all = []*Chart{{ID: "ladder", Title: title, Question: question, Notes: []string{"No two kernels were timed on square products of one type (bench --kernels all)."}}}
	}
	return all
}

// rungs says of each source what each curve gains over the next slower one, at the size
// that most of them were timed on, the largest of these.
func (s *study) rungs(curves []curve) string {
	var answers []string
	for source, name := range s.sources {
		at := map[int][]curve{}
		for _, c := range curves {
			for _, r := range c.rows {
				if r.source == source {
					at[r.N] = append(at[r.N], curve{name: c.setting, rows: []row{r}})
				}
			}
		}
		n := 0
		for size, there := range at {
			if len(there) > len(at[n]) || len(there) == len(at[n]) && size > n {
				n = size
			}
		}
		if n == 0 {
			continue
		}
		seconds := func(c curve) float64 { return c.rows[0].Seconds.Median }
		there := slices.SortedStableFunc(slices.Values(at[n]), func(a, b curve) int { return cmp.Compare(seconds(b), seconds(a)) })
		steps := []string{there[0].name + " " + bench.Duration(seconds(there[0]))}
		for i := 1; i < len(there); i++ {
			steps = append(steps, there[i].name+" "+times(seconds(there[i-1])/seconds(there[i])))
		}
		where := fmt.Sprintf("At %d³", n)
		if len(s.sources) > 1 {
			where += " (" + name + ")"
		}
		answers = append(answers, where+", each against the one before it: "+strings.Join(steps, " → ")+".")
	}
	return strings.Join(answers, "\n")
}
