package report

import (
	"fmt"

	"tilework/internal/bench"
)

// steps are the parts of a product from host memory to host memory.
var steps = []struct {
	name    string
	seconds func(*bench.Steps) float64
}{
	{"allocate", func(s *bench.Steps) float64 { return s.Allocate }},
	{"upload", func(s *bench.Steps) float64 { return s.Upload }},
	{"compute", func(s *bench.Steps) float64 { return s.Compute }},
	{"download", func(s *bench.Steps) float64 { return s.Download }},
}

// transfers shows the cost of the copies relative to the multiplication.
func transfers(s *study) ([]*Chart, string) {
	rows := filter(s.rows, of(onGPU), not(isPeer), isSquare, func(r row) bool { return r.Steps != nil })
	if len(rows) == 0 {
		return nil, "No square product was timed with its copies (bench --device gpu --transfers)."
	}
	var all []*Chart
	for _, g := range groupBy(rows, func(r row) string { return s.label(r.Types()+" on "+r.device(), r.source) }) {
		all = append(all, s.stepChart(&Chart{ID: "transfers-" + word(g.name), Title: "Where the time goes: " + g.name},
			fastest(g.rows)))
	}
	return all, ""
}

// compileTime returns the time to compile a row's kernel. Only the first record with a kernel has
// it, which may be a record without copies.
func (s *study) compileTime(r row) float64 {
	longest := 0.0
	for _, x := range s.rows {
		if x.source == r.source && x.device() == r.device() && x.Subject == r.Subject && x.Detail == r.Detail {
			longest = max(longest, x.Setup)
		}
	}
	return longest
}

// addParts adds a bar of the parts of a time, in percent of their sum, which it returns.
func (r *Rows) addParts(name, what string, seconds []float64) (sum float64) {
	for _, t := range seconds {
		sum += t
	}
	bar := Row{Name: name, End: bench.Duration(sum)}
	for i, t := range seconds {
		v := 100 * t / sum
		bar.Values = append(bar.Values, Value{Key: i, V: v, Low: v, High: v,
			Text: fmt.Sprintf("%s\n%s: %s, %s", what, r.Legend[i].Name, bench.Duration(t), percent(t/sum))})
	}
	r.Rows = append(r.Rows, bar)
	return sum
}

// seconds returns the cell of a time.
func seconds(t float64) Cell { return numberCell(bench.Duration(t), t) }

func (s *study) stepChart(c *Chart, rows []row) *Chart {
	bars := &Rows{X: Axis{Label: "share of the time of all steps (%)", Text: tick}, Stacked: true}
	c.Drawing = bars
	c.Table.Columns = []Column{{"N", ""}, {"kernel", ""}}
	for i, p := range steps {
		bars.Legend = append(bars.Legend, Key{Name: p.name, Mark: markBar, Color: palette[i]})
		c.Table.Columns = append(c.Table.Columns, Column{p.name, "s"})
	}
	c.Table.Columns = append(c.Table.Columns, Column{"all steps", "s"}, Column{"overlapped", "s"},
		Column{"compile, once", "s"})
	for _, r := range rows {
		cells := []Cell{sizeCell(r.N), textCell(r.Subject)}
		var parts []float64
		for _, p := range steps {
			t := p.seconds(r.Steps)
			cells, parts = append(cells, seconds(t)), append(parts, t)
		}
		sum := bars.addParts("N = "+tick(float64(r.N)), r.Subject+", "+shape(r.Record), parts)
		c.Table.add(append(cells, seconds(sum), seconds(r.Seconds.Median), seconds(s.compileTime(r)))...)
		c.Answer = fmt.Sprintf("At %s, the multiplication takes %s of the time from host memory to host memory.",
			shape(r.Record), percent(r.Steps.Compute/sum))
	}
	c.Notes = append(c.Notes, "The steps were timed one after the other. A product from host to host overlaps them "+
		"(column overlapped). Kernels are compiled once per process, which the bars do not include.")
	return c
}
