package bench

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"tilework/internal/names"
	"tilework/internal/table"
)

// Format is an output format for records.
type Format struct {
	Name  string
	About string // in a few words
	// Write writes records and returns w's error. A table is fitted to width characters, or not
	// limited if width is 0; other formats ignore width. In the formats jsonl, tsv and bench, two
	// lists that are written one after the other are read as one.
	Write func(w io.Writer, records []Record, width int) error
}

var formats = []Format{
	{"table", "aligned columns for reading", writeTable},
	{"json", "an array of records", writeJSON},
	{"jsonl", "one record per line", writeJSONL},
	{"tsv", "a compact table of the records, for version control", writeCompact},
	{"csv", "all columns, for spreadsheets and plots", writeCSV},
	{"csv-times", "CSV with the size and the seconds of each kernel", writeCSVTimes},
	{"bench", "Go's benchmark format, for benchstat", writeBench},
}

// Formats returns the output formats.
func Formats() []Format { return slices.Clone(formats) }

// FindFormat returns the format with the given name.
func FindFormat(name string) (Format, error) {
	i, err := names.Find("format", name, formats, func(f *Format) string { return f.Name })
	if err != nil {
		return Format{}, err
	}
	return formats[i], nil
}

func writeJSONL(w io.Writer, records []Record, _ int) error {
	return NewWriter(w, nil).Write(records)
}

// Writer writes records in the format jsonl, and each environment once.
type Writer struct {
	w    io.Writer
	last Environment // of the last record
}

// NewWriter returns a Writer that continues the given records, which w has already.
func NewWriter(w io.Writer, before []Record) *Writer {
	out := &Writer{w: w}
	if n := len(before); n > 0 {
		out.last = before[n-1].Environment
	}
	return out
}

// Write writes records. After an error, the next record that is written has its environment.
func (w *Writer) Write(records []Record) error {
	last := w.last
	w.last = Environment{}
	e := json.NewEncoder(w.w)
	for _, r := range withoutRepeats(records, last) {
		if err := e.Encode(&r); err != nil {
			return err
		}
	}
	w.last = last
	if n := len(records); n > 0 {
		w.last = records[n-1].Environment
	}
	return nil
}

// withoutRepeats returns the records, each without its environment if that of the record before is
// the same. last is the environment before the first.
func withoutRepeats(records []Record, last Environment) []Record {
	out := slices.Clone(records)
	for i := range out {
		if out[i].Environment.equal(&last) {
			out[i].Environment = Environment{}
		} else {
			last = out[i].Environment
		}
	}
	return out
}

func writeJSON(w io.Writer, records []Record, _ int) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(append([]Record{}, withoutRepeats(records, Environment{})...)) // [] if there are none, not null
}

func writeCSV(w io.Writer, records []Record, _ int) error {
	out := csv.NewWriter(w)
	peers := peersOf(records)
	var row []string
	for _, c := range columns {
		row = append(row, c.name)
	}
	for _, p := range peers {
		name := "speed_over_" + p
		row = append(row, name, name+"_low", name+"_high")
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
			cells := [3]string{}
			if v, ok := r.RatioTo(p); ok {
				cells[0] = plain(v.Speed)
				if v.High > 0 {
					cells[1], cells[2] = plain(v.Low), plain(v.High)
				}
			}
			row = append(row, cells[:]...)
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// writeTable writes tables of the times, the counts and the breakdowns of the times, the summaries,
// the footnotes and the environments.
func writeTable(w io.Writer, records []Record, width int) error {
	var times, counts []Record
	for _, r := range records {
		if r.Counts != nil {
			counts = append(counts, r)
		} else {
			times = append(times, r)
		}
	}
	for _, part := range [][]Record{times, counts} {
		if len(part) == 0 {
			continue
		}
		if err := writeRows(w, part, width); err != nil {
			return err
		}
	}
	if columns, rows := breakdownTable(records); len(rows) > 0 {
		if err := table.Write(w, width, columns, rows); err != nil {
			return err
		}
	}
	var lines []string
	lines = append(lines, summaryLines(records)...)
	lines = append(lines, Footnotes(records)...)
	lines = append(lines, environmentLines(records)...)
	return writeLines(w, width, lines)
}

// writeLines writes lines that are folded to a width.
func writeLines(w io.Writer, width int, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, table.Fold(line, width)); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes a table of records of times or of counts.
func writeRows(w io.Writer, records []Record, width int) error {
	var all []textColumn[Record]
	for _, c := range columns {
		if c.text != nil {
			all = append(all, textColumn[Record]{table.Column{Title: c.title, Drop: dropRank(c.title)}, c.text})
		}
	}
	for _, p := range peersOf(records) {
		all = append(all, textColumn[Record]{table.Column{Title: "× " + p}, func(r *Record) string { return r.ratioText(p) }})
	}
	all = append(all, textColumn[Record]{table.Column{Title: "note", Wrap: true}, func(r *Record) string {
		return oneLine(r.Error)
	}})
	return writeColumns(w, width, records, all)
}

// textColumn is a column of a table with a row for each T.
type textColumn[T any] struct {
	table.Column
	text func(*T) string
}

// writeColumns writes a table without the columns that are empty in every row.
func writeColumns[T any](w io.Writer, width int, all []T, columns []textColumn[T]) error {
	var shown []table.Column
	rows := make([][]string, len(all))
	for _, c := range columns {
		cells := make([]string, len(all))
		for i := range all {
			cells[i] = c.text(&all[i])
		}
		if !slices.ContainsFunc(cells, func(cell string) bool { return cell != "" }) {
			continue
		}
		shown = append(shown, c.Column)
		for i, cell := range cells {
			rows[i] = append(rows[i], cell)
		}
	}
	return table.Write(w, width, shown, rows)
}

// environmentLines describes each environment of the records once.
func environmentLines(records []Record) (lines []string) {
	var seen []string
	for i := range records {
		e := records[i].Environment
		line := e.String()
		if e.CPUClock = 0; slices.Contains(seen, e.String()) {
			continue // ignores differences of the clock rate alone
		}
		seen = append(seen, e.String())
		lines = append(lines, line)
	}
	return lines
}

// minCasesForClasses is the smallest number of cases of a summary whose classes are described.
const minCasesForClasses = 20

// summaryLines describes the summaries of at least two cases, and their classes if there are
// several.
func summaryLines(records []Record) (lines []string) {
	for _, s := range Summarize(records) {
		if s.Cases < 2 {
			continue
		}
		threads := ""
		if s.Threads > 0 {
			threads = fmt.Sprintf(", threads %d", s.Threads)
		}
		doubt := ""
		if s.Uncertain > 0 {
			doubt = fmt.Sprintf(", %d of them uncertain", s.Uncertain)
		}
		below := ""
		if s.Below90 > 0 {
			below = fmt.Sprintf(", %d below 0.9 and %d below 0.8", s.Below90, s.Below80)
		}
		few := ""
		if s.Few > 0 && s.Few < s.Cases {
			few = fmt.Sprintf(", %.3f of the %d with up to %d rows", s.FewMean, s.Few, FewRows)
		}
		lines = append(lines, fmt.Sprintf("%s × %s on %s%s, %s: geometric mean %.3f of %d%s%s%s, worst %.3f (%v)",
			s.Subject, s.Peer, s.Device, threads, typeNames(s.In, s.Out), s.Mean, s.Cases, few, doubt, below, s.Worst,
			s.WorstShape))
		if s.Cases >= minCasesForClasses && len(s.Classes) > 1 {
			for _, c := range s.Classes {
				lines = append(lines, "- "+c.String())
			}
		}
	}
	return lines
}

// peersOf returns the peers that records are compared with, in the order of first appearance.
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

// units lists the direction of improvement for the units that benchstat does not know.
var units = []struct{ name, better string }{
	{"GFLOP/s", "higher"}, {"warp-instructions", "lower"}, {"FLOP", "lower"}, {"B-loaded", "lower"}, {"B-stored", "lower"},
	{"sectors", "lower"}, {"wavefronts", "lower"}, {"conflicts", "lower"},
}

// writeBench writes one line per sample, named after its case
// (golang.org/design/14313-benchmark-format). Records without times or counts become comments. So
// do the versions and the date, because benchstat only compares results with equal configuration
// lines.
func writeBench(w io.Writer, records []Record, _ int) error {
	out := bufio.NewWriter(w) // keeps the first error
	for _, u := range units {
		fmt.Fprintf(out, "Unit %s better=%s\n", u.name, u.better)
	}
	var last string
	for i := range records {
		r := &records[i]
		e := &r.Environment
		head := fmt.Sprintf("# %v\ngoos: %s\ngoarch: %s\npkg: tilework\ncpu: %s\ngpu: %s\ndevice: %s\n", oneLine(e.String()),
			oneLine(e.OS), oneLine(e.Arch), oneLine(e.CPU), oneLine(e.GPU), oneLine(r.Device))
		if head != last {
			fmt.Fprint(out, head)
			last = head
		}
		name := benchName(r)
		switch c := r.Counts; {
		case r.Error != "":
			fmt.Fprintf(out, "# %s: %s\n", name, oneLine(r.Error))
		case c != nil:
			fmt.Fprintf(out, "%s 1 %d warp-instructions %d FLOP %d B-loaded %d B-stored %d sectors %d wavefronts %d conflicts\n",
				name, c.Instructions, c.Flops, c.LoadBytes, c.StoreBytes, c.Sectors, c.Wavefronts, c.Conflicts())
		default:
			n := max(1, r.Reps*max(r.MedianOf, 1)*r.Batch/len(r.Samples))
			for _, s := range r.Samples {
				fmt.Fprintf(out, "%s %d %v ns/op", name, n, s*1e9)
				if _, rated := r.Rate(); rated {
					fmt.Fprintf(out, " %v GFLOP/s", r.Flops()/s/1e9)
				}
				fmt.Fprintln(out)
			}
		}
	}
	return out.Flush()
}

// benchName returns a benchmark name whose parts, such as /subject and /in, benchstat can filter
// by. Records of different products have different names, because benchstat takes lines of equal
// names for repetitions.
func benchName(r *Record) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "BenchmarkGemm/subject=%s/in=%s/out=%s/M=%d/N=%d/K=%d/trans=%s/threads=%d", benchWord(r.Subject), r.In,
		r.Out, r.M, r.N, r.K, r.Transposes(), r.Threads)
	for _, p := range benchParts {
		if value := p.value(r); value != p.usual {
			fmt.Fprintf(b, "/%s=%s", p.name, benchWord(value))
		}
	}
	return b.String()
}

// benchPart is a setting in a benchmark name.
type benchPart struct {
	name, usual string
	value       func(*Record) string
}

// benchParts lists the parts of a benchmark name that are left out if they have their usual value.
var benchParts = []benchPart{
	{"ld", "dense", func(r *Record) string {
		if r.Dense() {
			return "dense"
		}
		return fmt.Sprintf("%d,%d,%d", r.LDA, r.LDB, r.LDC)
	}},
	{"products", "1", func(r *Record) string { return strconv.Itoa(max(r.Products, 1)) }},
	{"groups", "", groupsText},
	{"alpha", "1", func(r *Record) string { return plain(r.Alpha) }},
	{"beta", "0", func(r *Record) string { return plain(r.Beta) }},
	{"bias", "", func(r *Record) string { return r.Bias }},
	{"activation", "", func(r *Record) string { return r.Activation }},
	{"epilogue", "", func(r *Record) string { return r.Epilogue }},
	{"scales", "", func(r *Record) string { return r.BlockScales }},
	// Peers have it too, so that benchstat -col /subject puts them beside the kernels.
	{"rows", "", func(r *Record) string {
		if r.RowInvariant {
			return "invariant"
		}
		return ""
	}},
	{"cache", "warm", cacheText},
	{"transfers", "", yes(func(r *Record) bool { return r.Transfers })},
}

// oneLine replaces each run of white space, including line ends, by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// benchWord replaces the characters that would end a benchmark name or a part of it.
func benchWord(s string) string {
	return strings.Map(func(c rune) rune {
		if c <= ' ' || c == '/' || c == '=' || c == 0x7f {
			return '_'
		}
		return c
	}, s)
}
