package report

import (
	"fmt"
	"strconv"

	"tilework/internal/bench"
)

// steps are the parts of a product from the host's memory to the host's memory.
var steps = []struct {
	name    string
	seconds func(*bench.Steps) float64
}{
	{"allocate", func(s *bench.Steps) float64 { return s.Allocate }},
	{"upload", func(s *bench.Steps) float64 { return s.Upload }},
	{"compute", func(s *bench.Steps) float64 { return s.Compute }},
	{"download", func(s *bench.Steps) float64 { return s.Download }},
}

// transfers shows what a product costs besides the product.
func transfers(s *study) []*Chart {
	const title, question = "Where the time goes", "What do the copies to the GPU and back cost?"
	rows := filter(s.rows, of(onGPU), not(isPeer), isSquare, func(r row) bool { return r.Steps != nil })
	if len(rows) == 0 {
		return []*Chart{{ID: "transfers", Title: title, Question: question, Notes: []string{"No record tells the steps of a product with its copies (bench --device gpu --transfers)."}}}
	}
	var all []*Chart
	for _, g := range groupBy(rows, func(r row) string {
		name := r.Types() + " on " + r.device()
		if len(s.sources) > 1 {
			name += " (" + s.sources[r.source] + ")"
		}
		return name
	}) {
		all = append(all, s.stepChart(&Chart{ID: "transfers-" + word(g.name), Title: title + ": " + g.name, Question: question}, fastest(g.rows)))
	}
	return all
}

// compiled is what it took to compile a row's kernel: only the first that needs it does, and
// it may have been timed without the copies.
func (s *study) compiled(r row) float64 {
	longest := 0.0
	for _, x := range s.rows {
		if x.source == r.source && x.device() == r.device() && x.Subject == r.Subject && x.Detail == r.Detail {
			longest = max(longest, x.Setup)
		}
	}
	return longest
}

func (s *study) stepChart(c *Chart, rows []row) *Chart {
	bars := &Bars{Label: "share of the steps' time"}
	c.Drawing = bars
	c.Table.Columns = []string{"N", "kernel"}
	for _, p := range steps {
		bars.Parts = append(bars.Parts, p.name)
		c.Table.Columns = append(c.Table.Columns, p.name)
	}
	c.Table.Columns = append(c.Table.Columns, "together", "as it runs", "once: compile")
	for _, r := range rows {
		sum := 0.0
		for _, p := range steps {
			sum += p.seconds(r.Steps)
		}
		cells := []string{strconv.Itoa(r.N), r.Subject}
		shares, texts := make([]float64, len(steps)), make([]string, len(steps))
		for i, p := range steps {
			t := p.seconds(r.Steps)
			cells = append(cells, bench.Duration(t))
			shares[i] = t / sum
			texts[i] = fmt.Sprintf("%s, %s\n%s: %s, %s", r.Subject, shape(r.Record), p.name, bench.Duration(t), percent(shares[i]))
			if p.name == "compute" && r == rows[len(rows)-1] {
				c.Headline = fmt.Sprintf("At %s the product itself is %s of the time from the host's memory and back to it.", shape(r.Record), percent(shares[i]))
			}
		}
		bars.Rows = append(bars.Rows, "N = "+strconv.Itoa(r.N))
		bars.Share, bars.Text = append(bars.Share, shares), append(bars.Text, texts)
		bars.Ends = append(bars.Ends, bench.Duration(sum))
		c.Table.Rows = append(c.Table.Rows, append(cells, bench.Duration(sum), bench.Duration(r.Seconds.Median), bench.Duration(s.compiled(r))))
	}
	c.Notes = append(c.Notes, "The steps were timed one after the other; as it runs, a product may overlap them. A kernel is compiled once in a process, which is in none of the bars.")
	return c
}
