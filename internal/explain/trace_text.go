package explain

import (
	"fmt"
	"strings"
)

// Text returns the trace as text with lines of at most 100 columns.
func (t *Trace) Text() string {
	var d document
	d.line("%s, %s: %d×%d · %d×%d, step by step", t.Kernel, t.Config, len(t.A), len(t.B), len(t.B), len(t.B[0]))
	d.line("Threads and blocks are written as (x,y). M[i][j] is row i, column j.")
	d.matrix("A", t.A)
	d.matrix("B", t.B)
	for _, b := range t.Blocks {
		d.heading("Block " + indexText(b.Index))
		for i, ph := range b.Phases {
			d.line("Phase %d", i)
			ph.text(&d)
		}
	}
	d.matrix("C", t.C)
	return d.String()
}

func (d *document) matrix(name string, rows [][]float64) {
	d.line("")
	for i, r := range rows {
		label := ""
		if i == 0 {
			label = name + " ="
		}
		d.row(label, "%s", strings.ReplaceAll(strings.Trim(fmt.Sprint(r), "[]"), " ", "\t"))
	}
	d.flush()
}

func (ph *TracePhase) text(d *document) {
	loadLines(d, "loads", ph.Loads)
	if ph.Before > 0 {
		d.line("  barrier: all loads are complete")
	}
	for _, s := range ph.Sums {
		var symbols, values []string
		for _, term := range s.Terms {
			symbols = append(symbols, fmt.Sprintf("A[%d][%d]·B[%d][%d]", s.Row, term.K, term.K, s.Col))
			values = append(values, fmt.Sprintf("%v·%v", term.A, term.B))
		}
		d.row("thread "+indexText(s.Thread), "C[%d][%d] += %s = %s = %v, now %v",
			s.Row, s.Col, strings.Join(symbols, " + "), strings.Join(values, " + "), s.Added, s.Sum)
	}
	d.flush()
	loadLines(d, "loads ahead", ph.Ahead)
	if ph.After > 0 {
		d.line("  barrier: all threads have finished with these tiles")
	}
}

// loadLines writes one row for the loads of each thread.
func loadLines(d *document, verb string, list []TraceLoad) {
	var order [][3]int
	loads := map[[3]int][]string{}
	for _, l := range list {
		if loads[l.Thread] == nil {
			order = append(order, l.Thread)
		}
		text := fmt.Sprintf("%s[%d][%d] = %v", l.Matrix, l.Row, l.Col, l.Value)
		if l.Shared != "" {
			text += " → " + l.Shared
		}
		loads[l.Thread] = append(loads[l.Thread], text)
	}
	for _, thread := range order {
		d.row("thread "+indexText(thread), "%s %s", verb, strings.Join(loads[thread], ", "))
	}
	d.flush()
}

// indexText formats an index as (x,y), or as (x,y,z) if z is not 0.
func indexText(at [3]int) string {
	if at[2] == 0 {
		return fmt.Sprintf("(%d,%d)", at[0], at[1])
	}
	return fmt.Sprintf("(%d,%d,%d)", at[0], at[1], at[2])
}
