package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The format tsv is a table for version control, one row per record. It has neither the samples and
// the extremes of the times nor the load of the device, except its clock. Rows of one environment
// form a part:
//
//	# environment: {"date":"2026-11-22T13:37:49Z","os":"linux",…}
//	# device: gpu
//	# in: bfloat16
//	subject	m	n	k	µs	p10	p90	× cublaslt	p10	p90
//	tilework	64	64	64	2.883	2.874	2.895	1.765	1.749	1.777
//
// A line with # gives a value that all rows of the part have. An empty cell is the zero value.

// compactColumn is a column with a scalar field of a record, or with any other field as JSON.
type compactColumn struct {
	name  string
	field func(*Record) any // a pointer to the field
	row   bool              // each row has a cell, also if all are equal
}

var compactColumns = []compactColumn{
	{"subject", func(r *Record) any { return &r.Subject }, false},
	{"peer", func(r *Record) any { return &r.Peer }, false},
	{"detail", func(r *Record) any { return &r.Detail }, false},
	{"device", func(r *Record) any { return &r.Device }, false},
	{"precision", func(r *Record) any { return &r.Precision }, false},
	{"in", func(r *Record) any { return &r.In }, false},
	{"out", func(r *Record) any { return &r.Out }, false},
	{"m", func(r *Record) any { return &r.M }, true},
	{"n", func(r *Record) any { return &r.N }, true},
	{"k", func(r *Record) any { return &r.K }, true},
	{"products", func(r *Record) any { return &r.Products }, false},
	{"groups", func(r *Record) any { return &r.Groups }, true},
	{"trans_a", func(r *Record) any { return &r.TransA }, false},
	{"trans_b", func(r *Record) any { return &r.TransB }, false},
	{"lda", func(r *Record) any { return &r.LDA }, false}, // empty if all matrices are dense
	{"ldb", func(r *Record) any { return &r.LDB }, false},
	{"ldc", func(r *Record) any { return &r.LDC }, false},
	{"alpha", func(r *Record) any { return &r.Alpha }, false},
	{"beta", func(r *Record) any { return &r.Beta }, false},
	{"bias", func(r *Record) any { return &r.Bias }, false},
	{"activation", func(r *Record) any { return &r.Activation }, false},
	{"epilogue", func(r *Record) any { return &r.Epilogue }, false},
	{"block_scales", func(r *Record) any { return &r.BlockScales }, false},
	{"row_invariant", func(r *Record) any { return &r.RowInvariant }, false},
	{"threads", func(r *Record) any { return &r.Threads }, false},
	{"transfers", func(r *Record) any { return &r.Transfers }, false},
	{"cold", func(r *Record) any { return &r.Cold }, false},
	{"seed", func(r *Record) any { return &r.Seed }, false},
	{"µs", func(r *Record) any { return (*microseconds)(&r.Seconds.Median) }, true},
	{"p10", func(r *Record) any { return (*microseconds)(&r.Seconds.P10) }, true},
	{"p90", func(r *Record) any { return (*microseconds)(&r.Seconds.P90) }, true},
	{"reps", func(r *Record) any { return &r.Reps }, false},
	{"predicted_µs", func(r *Record) any { return (*microseconds)(&r.PredictedSeconds) }, false},
	{"peak_gflops", func(r *Record) any { return &r.Peak }, false},
	{"intensity", func(r *Record) any { return &r.Intensity }, false},
	{"burst_µs", func(r *Record) any { return (*microseconds)(&r.Burst) }, false},
	{"sustained_µs", func(r *Record) any { return (*microseconds)(&r.Sustained) }, false},
	{"joules", func(r *Record) any { return &r.Joules }, false},
	{"steps", func(r *Record) any { return &r.Steps }, true},
	{"counts", func(r *Record) any { return &r.Counts }, true},
	{"interrupted", func(r *Record) any { return &r.Interrupted }, false},
	{"verified", func(r *Record) any { return &r.Verified }, false},
	{"error", func(r *Record) any { return &r.Error }, false},
	{"unsupported", func(r *Record) any { return &r.Unsupported }, false},
	{"sm_mhz", func(r *Record) any {
		if r.Load == nil {
			r.Load = &Load{}
		}
		return &r.Load.SMClock.Median
	}, false},
}

// microseconds is a time in seconds whose text is in microseconds.
type microseconds float64

// environmentName is the name of the environment in the lines with #.
const environmentName = "environment"

// ratioMark begins the title of a ratio to a peer. The columns p10 and p90 of the ratio follow.
const ratioMark = "× "

// formatCell returns the text of a field, with four significant digits of a number that is not
// whole.
func formatCell(field any) (string, error) {
	if v := reflect.ValueOf(field).Elem(); v.IsZero() {
		return "", nil
	}
	switch v := field.(type) {
	case *string:
		return oneLine(*v), nil
	case *int:
		return strconv.Itoa(*v), nil
	case *uint64:
		return strconv.FormatUint(*v, 10), nil
	case *float64:
		if *v == math.Trunc(*v) && math.Abs(*v) < 1e7 {
			return strconv.FormatFloat(*v, 'f', 0, 64), nil
		}
		return strconv.FormatFloat(*v, 'g', 4, 64), nil
	case *microseconds:
		us := float64(*v) * 1e6
		return formatCell(&us)
	case *bool:
		return "yes", nil
	}
	text, err := json.Marshal(field)
	return string(text), err
}

// parseCell sets a field from its text.
func parseCell(field any, text string) (err error) {
	switch v := field.(type) {
	case *string:
		*v = text
	case *int:
		*v, err = strconv.Atoi(text)
	case *uint64:
		*v, err = strconv.ParseUint(text, 10, 64)
	case *float64:
		*v, err = strconv.ParseFloat(text, 64)
	case *microseconds:
		var us float64
		err = parseCell(&us, text)
		*v = microseconds(us / 1e6)
	case *bool:
		if *v = text == "yes"; !*v {
			return fmt.Errorf("found %q, want yes or nothing", text)
		}
	default:
		err = json.Unmarshal([]byte(text), field)
	}
	return err
}

// writeCompact writes the format tsv.
func writeCompact(w io.Writer, records []Record, _ int) error {
	out := bufio.NewWriter(w) // keeps the first error
	for len(records) > 0 {
		environment := &records[0].Environment
		end := slices.IndexFunc(records, func(r Record) bool { return !r.Environment.equal(environment) })
		if end < 0 {
			end = len(records)
		}
		if err := writePart(out, records[:end]); err != nil {
			return err
		}
		if records = records[end:]; len(records) > 0 {
			fmt.Fprintln(out)
		}
	}
	return out.Flush()
}

// writePart writes the records of one environment.
func writePart(out *bufio.Writer, records []Record) error {
	environment, err := json.Marshal(&records[0].Environment)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# %s: %s\n", environmentName, environment)
	rows := make([][]string, len(records))
	var titles []string
	for _, c := range compactColumns {
		cells := make([]string, len(records))
		for i, r := range records { // copies, which a field can change
			if r.Dense() {
				r.LDA, r.LDB, r.LDC = 0, 0, 0
			}
			if cells[i], err = formatCell(c.field(&r)); err != nil {
				return err
			}
		}
		switch same := !slices.ContainsFunc(cells, func(text string) bool { return text != cells[0] }); {
		case same && cells[0] == "":
		case same && !c.row:
			fmt.Fprintf(out, "# %s: %s\n", c.name, cells[0])
		default:
			titles = append(titles, c.name)
			for i, text := range cells {
				rows[i] = append(rows[i], text)
			}
		}
	}
	for _, peer := range peersOf(records) {
		titles = append(titles, ratioMark+peer, "p10", "p90")
		for i := range records {
			v, _ := records[i].RatioTo(peer)
			for _, figure := range []*float64{&v.Speed, &v.P10, &v.P90} {
				text, err := formatCell(figure)
				if err != nil {
					return err
				}
				rows[i] = append(rows[i], text)
			}
		}
	}
	for _, row := range append([][]string{titles}, rows...) {
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	return nil
}

// compactReader reads the format tsv.
type compactReader struct {
	records     []Record
	environment Environment
	common      []commonValue
	titles      []string
	columns     []*compactColumn // of the titles, nil for ratios; empty before the line of titles
}

// commonValue is a value that all rows of a part have.
type commonValue struct {
	column *compactColumn
	text   string
}

// readCompact reads records in the format tsv. An error states the number of the line, counted from
// 1.
func readCompact(in *bufio.Reader) ([]Record, error) {
	var c compactReader
	for line := 1; ; line++ {
		text, err := in.ReadString('\n')
		if text == "" && err == io.EOF {
			return c.records, nil
		}
		if err == nil || err == io.EOF {
			err = c.line(strings.TrimRight(text, "\r\n"))
		}
		if err != nil {
			return c.records, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func (c *compactReader) line(text string) error {
	switch rest, isCommon := strings.CutPrefix(text, "# "); {
	case text == "":
		*c = compactReader{records: c.records}
		return nil
	case len(c.columns) > 0:
		return c.row(strings.Split(text, "\t"))
	case isCommon:
		return c.commonLine(rest)
	}
	return c.titleLine(text)
}

func (c *compactReader) commonLine(text string) error {
	name, value, found := strings.Cut(text, ": ")
	if !found {
		return fmt.Errorf("found %q, want # NAME: VALUE", text)
	}
	if name == environmentName {
		return json.Unmarshal([]byte(value), &c.environment)
	}
	column := findCompact(name)
	if column == nil || column.row {
		return fmt.Errorf("%q is no value that all rows can have", name)
	}
	c.common = append(c.common, commonValue{column, value})
	return nil
}

func (c *compactReader) titleLine(text string) error {
	c.titles = strings.Split(text, "\t")
	c.columns = make([]*compactColumn, len(c.titles))
	for i := 0; i < len(c.titles); i++ {
		title := c.titles[i]
		if !strings.HasPrefix(title, ratioMark) {
			if c.columns[i] = findCompact(title); c.columns[i] == nil {
				return fmt.Errorf("%q is no column of records", title)
			}
			continue
		}
		if i += 2; i >= len(c.titles) || c.titles[i-1] != "p10" || c.titles[i] != "p90" {
			return fmt.Errorf("column %s: want the columns p10 and p90 after it", title)
		}
	}
	return nil
}

func findCompact(name string) *compactColumn {
	i := slices.IndexFunc(compactColumns, func(c compactColumn) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return &compactColumns[i]
}

func (c *compactReader) row(cells []string) error {
	if len(cells) != len(c.columns) {
		return fmt.Errorf("found %d cells, want %d", len(cells), len(c.columns))
	}
	r := Record{Schema: Schema, Environment: c.environment}
	for _, v := range c.common {
		if err := v.column.set(&r, v.text); err != nil {
			return err
		}
	}
	for i := 0; i < len(cells); i++ {
		if column := c.columns[i]; column != nil {
			if err := column.set(&r, cells[i]); err != nil {
				return err
			}
			continue
		}
		if cells[i] != "" {
			v := Ratio{Peer: strings.TrimPrefix(c.titles[i], ratioMark)}
			if err := errors.Join(parseCell(&v.Speed, cells[i]), parseCell(&v.P10, cells[i+1]),
				parseCell(&v.P90, cells[i+2])); err != nil {
				return fmt.Errorf("column %s: %w", c.titles[i], err)
			}
			r.Versus = append(r.Versus, v)
		}
		i += 2
	}
	r.complete()
	if err := r.check(); err != nil {
		return err
	}
	r.upgrade()
	c.records = append(c.records, r)
	return nil
}

// set sets the field of r. Empty text changes nothing.
func (c *compactColumn) set(r *Record, text string) error {
	if text == "" {
		return nil
	}
	if err := parseCell(c.field(r), text); err != nil {
		return fmt.Errorf("column %s: %w", c.name, err)
	}
	return nil
}

// complete computes the other fields. The median is the only sample, and the percentiles stand for
// the extremes.
func (r *Record) complete() {
	if r.LDA == 0 && r.LDB == 0 && r.LDC == 0 {
		r.LDA, r.LDB, r.LDC = r.denseLDs()
	}
	if !r.Timed() {
		return
	}
	s := &r.Seconds
	r.Batch, r.Buffers, r.Samples = 1, 1, []float64{s.Median}
	s.Min, s.Max, s.Spread = s.P10, s.P90, (s.P90-s.P10)/s.Median
	if !r.onlyReads() {
		r.GFLOPS = r.Flops() / s.Median / 1e9
	}
}
