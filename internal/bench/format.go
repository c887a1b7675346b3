package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Format is a form in which records are written.
type Format struct {
	Name  string
	About string // in a few words
	// Write writes records and returns w's error. What jsonl and bench write of two
	// lists, one after the other, is what they write of both in one.
	Write func(w io.Writer, records []Record) error
}

// formats holds one row for each.
var formats = []Format{
	{"table", "columns to look at", writeTable},
	{"json", "an array of records", writeJSON},
	{"jsonl", "one record a line", writeJSONL},
	{"csv", "all columns, for spreadsheets and plots", writeCSV},
	{"bench", "Go's benchmark format, for benchstat", writeBench},
}

// Formats lists the formats.
func Formats() []Format { return slices.Clone(formats) }

// FindFormat returns the format of that name.
func FindFormat(name string) (Format, error) {
	var known []string
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
		known = append(known, f.Name)
	}
	return Format{}, fmt.Errorf("unknown format %q (want one of %s)", name, strings.Join(known, ", "))
}

func writeJSONL(w io.Writer, records []Record) error {
	e := json.NewEncoder(w)
	for i := range records {
		if err := e.Encode(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(w io.Writer, records []Record) error {
	if records == nil {
		records = []Record{} // an array, not null
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(records)
}

func writeCSV(w io.Writer, records []Record) error {
	out := csv.NewWriter(w)
	peers := peersOf(records)
	var row []string
	for _, c := range columns {
		row = append(row, c.name)
	}
	for _, p := range peers {
		row = append(row, "speed_over_"+p)
	}
	if err := out.Write(row); err != nil {
		return err
	}
	for i := range records {
		r := &records[i]
		row = row[:0]
		for _, c := range columns {
			row = append(row, plain(c.value(r)))
		}
		for _, p := range peers {
			cell := ""
			if speed, ok := r.SpeedOver(p); ok {
				cell = plain(speed)
			}
			row = append(row, cell)
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// writeTable leaves out the columns that are empty in every row.
func writeTable(w io.Writer, records []Record) error {
	type line func(r *Record) string
	var titles []string
	var lines []line
	add := func(title string, f line) {
		for i := range records {
			if f(&records[i]) != "" {
				titles, lines = append(titles, title), append(lines, f)
				return
			}
		}
	}
	for _, c := range columns {
		if c.text != nil {
			add(c.title, c.text)
		}
	}
	for _, p := range peersOf(records) {
		add("× "+p, func(r *Record) string {
			if speed, ok := r.SpeedOver(p); ok {
				return fmt.Sprintf("%.2f", speed)
			}
			return ""
		})
	}
	add("note", func(r *Record) string { return oneLine(r.Error) })

	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, strings.Join(titles, "\t"))
	for i := range records {
		cells := make([]string, len(lines))
		for j, f := range lines {
			cells[j] = f(&records[i])
		}
		fmt.Fprintln(out, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return writeSummaries(w, records)
}

// writeSummaries writes what a table of several cases comes to.
func writeSummaries(w io.Writer, records []Record) error {
	for _, s := range Summarize(records) {
		if s.Cases < 2 {
			continue
		}
		_, err := fmt.Fprintf(w, "%s × %s on %s, %s: geometric mean %.3f of %d, worst %.3f (%v)\n",
			s.Subject, s.Peer, s.Device, typeNames(s.In, s.Out), s.Mean, s.Cases, s.Worst, s.WorstShape)
		if err != nil {
			return err
		}
	}
	return nil
}

// peersOf lists the peers that records are compared with, as they first appear.
func peersOf(records []Record) []string {
	var peers []string
	for i := range records {
		for _, v := range records[i].Versus {
			if !slices.Contains(peers, v.Peer) {
				peers = append(peers, v.Peer)
			}
		}
	}
	return peers
}

// writeBench writes a line for each sample, named by its case
// (golang.org/design/14313-benchmark-format). Records without times are comments.
func writeBench(w io.Writer, records []Record) error {
	var last string
	for i := range records {
		r := &records[i]
		e := &r.Environment
		head := fmt.Sprintf("goos: %s\ngoarch: %s\npkg: tilework\ncpu: %s\ndevice: %s\nUnit GFLOP/s better=higher\n", oneLine(e.OS), oneLine(e.Arch), oneLine(e.CPU), oneLine(r.Device))
		if head != last {
			if _, err := io.WriteString(w, head); err != nil {
				return err
			}
			last = head
		}
		name := benchName(r)
		if r.Error != "" {
			if _, err := fmt.Fprintf(w, "# %s: %s\n", name, oneLine(r.Error)); err != nil {
				return err
			}
			continue
		}
		n := max(1, r.Reps*r.Batch/len(r.Samples))
		for _, s := range r.Samples {
			if _, err := fmt.Fprintf(w, "%s %d %v ns/op %v GFLOP/s\n", name, n, s*1e9, r.flops()/s/1e9); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchName has the parts that benchstat can group and filter by: /subject, /in …
func benchName(r *Record) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "BenchmarkGemm/subject=%s/in=%s/out=%s/M=%d/N=%d/K=%d/trans=%s/threads=%d", benchWord(r.Subject), r.In, r.Out, r.M, r.N, r.K, transposes(r), r.Threads)
	if r.Cold {
		b.WriteString("/cache=cold")
	}
	if r.Transfers {
		b.WriteString("/transfers=yes")
	}
	return b.String()
}

// oneLine is s with each run of white space, ends of lines among it, as one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// benchWord replaces what would end a name or a part of it.
func benchWord(s string) string {
	return strings.Map(func(c rune) rune {
		if c <= ' ' || c == '/' || c == '=' || c == 0x7f {
			return '_'
		}
		return c
	}, s)
}
