package bench

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/perf/benchfmt"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// examples returns the records of a kernel, a peer and a failed subject on one case, of the same
// kernel on another case, and of an emulated kernel.
func examples(t *testing.T) []Record {
	t.Helper()
	env := Environment{Date: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), OS: "linux", Arch: "amd64",
		CPU: "R3000, 33 MHz", Cores: 2, GOMAXPROCS: 2, Go: "go1.26"}
	record := func(c Case, name string, seconds ...float64) Record {
		r := newRecord(&c)
		r.Subject, r.Environment, r.Buffers = name, env, 1
		r.Reps, r.Batch, r.Verified, r.ErrorRatio = len(seconds), 2, true, 0.125
		r.Seconds, r.Samples = summarize(seconds), samples(seconds)
		r.GFLOPS = r.Flops() / r.Seconds.Median / 1e9
		return r
	}
	c := shape(t, Shape{10, 20, 50}, dtype.F32, dtype.F32)
	a := record(c, "tile 8/x", 1e-6, 2e-6, 4e-6)
	a.Peak = 20
	a.Versus = []Ratio{{Peer: "openblas", Speed: 2.5, P10: 2.45, P90: 2.55}}
	a.Versus[0].setInterval(a.Reps)
	p := record(c, "openblas", 5e-6)
	p.Peer = true
	bad := newRecord(&c)
	bad.Subject, bad.Environment, bad.Error = "naive", env, "verification failed: off by \"much\""

	q, _, err := gemm.New(1, gemm.Dense(dtype.BF16, 5, 4).T(), gemm.Dense(dtype.BF16, 5, 6), 1,
		gemm.Dense(dtype.F32, 4, 6), gemm.Epilogue{Bias: gemm.BiasCol, Activation: gemm.ActReLU})
	if err != nil {
		t.Fatal(err)
	}
	last := record(Case{Problem: q, Device: "gpu:0", Transfers: true}, "tile 8/x", 0.25)
	last.Cold = true
	emulated := newRecord(&Case{Problem: c.Problem, Device: "emu"})
	emulated.Subject, emulated.Environment, emulated.Buffers = "naive", env, 1
	emulated.Verified, emulated.ErrorRatio = true, 0.25
	emulated.Counts = &Counts{
		Instructions: 700, Flops: 20_000, Issued: 20_200, LoadBytes: 80_000, StoreBytes: 800, Sectors: 3000,
		IdealSectors:    2600,
		DistinctSectors: 90, SharedRequests: 10, Wavefronts: 12, IdealWavefronts: 10,
		Historic: &HistoricCounts{HalfWarps: 20, Transactions: 170, Wavefronts: 40, IdealWavefronts: 40},
	}
	return []Record{a, p, bad, last, emulated}
}

func write(t *testing.T, format string, records []Record) string {
	t.Helper()
	f, err := FindFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.Write(&b, records, 0); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTable(t *testing.T) {
	want := strings.TrimPrefix(`
subject   device  type              M×N×K     trans  bias    activation  threads  transfers  cache  reps  median   spread  GFLOP/s   of peak  error/bound  × openblas  note
tile 8/x  cpu     float32           10×20×50                             2                   warm   3     2 µs?    120.0%  10?       50.0%    0.12         2.50
openblas  cpu     float32           10×20×50                             2                   warm   1     5 µs?            4?                 0.12
naive     cpu     float32           10×20×50                             2                                                                                             verification failed: off by "much"
tile 8/x  gpu:0   bfloat16→float32  4×6×5     TN     column  relu                 yes        cold   1     250 ms?          9.6e-07?           0.12
subject  device  type     M×N×K     instructions  FLOP   issued  loaded    FLOP/byte  stored     sectors (ideal)  distinct  wavefronts  conflicts  error/bound
naive    emu     float32  10×20×50  700           20000  20200   78.1 KiB  0.25       800 bytes  3000 (2600)      90        12          2          0.25
`, "\n")
	want += RatioNote + "\n" + UncertainNote + "\nR3000, 33 MHz, 2 of 2 cores; linux/amd64; go1.26; 2026-11-21\n"
	if got := trimLines(write(t, "table", examples(t))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func trimLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// TestNarrowTable checks that a table fits its width and keeps the essential columns.
func TestNarrowTable(t *testing.T) {
	f, err := FindFormat("table")
	if err != nil {
		t.Fatal(err)
	}
	records := append(examples(t)[:2], examples(t)[:2]...)
	for _, width := range []int{80, 100} {
		var b strings.Builder
		if err := f.Write(&b, records, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > width {
				t.Errorf("width %d: got a line of %d characters: %q", width, n, line)
			}
		}
		for _, title := range []string{"subject", "M×N×K", "median", "GFLOP/s", "× openblas"} {
			if head, _, _ := strings.Cut(b.String(), "\n"); !strings.Contains(head, title) {
				t.Errorf("width %d: column %s is missing in %q", width, title, head)
			}
		}
		if !strings.Contains(b.String(), "cache warm") {
			t.Errorf("width %d: the cache, equal in all rows, is not stated:\n%s", width, &b)
		}
	}
}

// TestDropped checks that every title in dropped is a column.
func TestDropped(t *testing.T) {
	for _, title := range dropped {
		if !slices.ContainsFunc(columns, func(c column) bool { return c.text != nil && c.title == title }) {
			t.Errorf("dropped title %q is not a column", title)
		}
	}
}

func TestCSV(t *testing.T) {
	records := examples(t)
	rows, err := csv.NewReader(strings.NewReader(write(t, "csv", records))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(records)+1 {
		t.Fatalf("got %d rows, want %d", len(rows), len(records)+1)
	}
	cell := func(row int, name string) string {
		at := slices.Index(rows[0], name)
		if at < 0 {
			t.Fatalf("column %q is missing in %q", name, rows[0])
		}
		return rows[row+1][at]
	}
	for _, c := range []struct {
		row        int
		name, want string
	}{
		{0, "subject", "tile 8/x"}, {0, "m", "10"}, {0, "seconds", "2e-06"}, {0, "gflops", "10"},
		{0, "speed_over_openblas", "2.5"},
		{1, "peer", "true"}, {1, "speed_over_openblas", ""}, {1, "cpu", "R3000, 33 MHz"},
		{2, "error", `verification failed: off by "much"`},
		{3, "trans", "TN"}, {3, "beta", "1"}, {3, "bias", "column"}, {3, "device", "gpu:0"},
		{3, "date", "2026-11-21T01:02:03Z"},
		{3, "cores", "2"}, {3, "instructions", "0"}, {4, "instructions", "700"}, {4, "bank_conflicts", "2"},
		{4, "flops_per_byte", "0.25"},
	} {
		if got := cell(c.row, c.name); got != c.want {
			t.Errorf("row %d, %s: got %q, want %q", c.row, c.name, got, c.want)
		}
	}
	names := map[string]bool{}
	for _, name := range rows[0] {
		if names[name] {
			t.Errorf("duplicate column %q", name)
		}
		names[name] = true
	}
}

// TestBench parses the output with golang.org/x/perf/benchfmt.
func TestBench(t *testing.T) {
	records := examples(t)
	text := write(t, "bench", records)
	in := benchfmt.NewReader(strings.NewReader(text), "out")
	var results []*benchfmt.Result
	for in.Scan() {
		switch r := in.Result().(type) {
		case *benchfmt.Result:
			results = append(results, r.Clone())
		case *benchfmt.UnitMetadata:
			if r.Key != "better" || (r.OrigUnit == "GFLOP/s") != (r.Value == "higher") {
				t.Errorf("got unit %+v", r)
			}
		default:
			t.Errorf("got unexpected line %v", r)
		}
	}
	if in.Err() != nil {
		t.Fatal(in.Err())
	}
	want := 0
	for i := range records {
		r := &records[i]
		if c := r.Counts; c != nil {
			res := results[want]
			want++
			if n, ok := res.Value("warp-instructions"); !ok || n != float64(c.Instructions) {
				t.Errorf("%s: got %v instructions, want %d", res.Name, n, c.Instructions)
			}
			if n, ok := res.Value("conflicts"); !ok || n != float64(c.Conflicts()) {
				t.Errorf("%s: got %v conflicts, want %d", res.Name, n, c.Conflicts())
			}
		}
		for _, s := range r.Samples {
			if want >= len(results) {
				t.Fatalf("got only %d results from\n%s", len(results), text)
			}
			res := results[want]
			want++
			_, parts := res.Name.Parts()
			if got := string(parts[0]); got != "/subject="+benchWord(r.Subject) {
				t.Errorf("got part %q, want subject %q", got, r.Subject)
			}
			if !slices.ContainsFunc(parts, func(p []byte) bool { return string(p) == fmt.Sprintf("/N=%d", r.N) }) {
				t.Errorf("/N=%d is missing in %s", r.N, res.Name)
			}
			// The reader turns ns/op into sec/op.
			if sec, ok := res.Value("sec/op"); !ok || !near(sec, s) {
				t.Errorf("%s: got %v s, want %v", res.Name, sec, s)
			}
			if rate, ok := res.Value("GFLOP/s"); !ok || !near(rate, r.Flops()/s/1e9) {
				t.Errorf("%s: got %v GFLOP/s, want %v", res.Name, rate, r.Flops()/s/1e9)
			}
			if res.Iters != r.Batch*r.Reps/len(r.Samples) {
				t.Errorf("%s: got %d iterations, want %d", res.Name, res.Iters, r.Batch*r.Reps/len(r.Samples))
			}
			if got := res.GetConfig("cpu"); got != r.Environment.CPU {
				t.Errorf("got cpu %q, want %q", got, r.Environment.CPU)
			}
			if got := res.GetConfig("device"); got != r.Device {
				t.Errorf("got device %q, want %q", got, r.Device)
			}
		}
	}
	if len(results) != want {
		t.Errorf("got %d results, want %d", len(results), want)
	}
	if !strings.Contains(text, `# BenchmarkGemm/subject=naive`) {
		t.Error("the failed subject is missing")
	}
}

// TestBenchNames checks that records of different products have different benchmark names.
func TestBenchNames(t *testing.T) {
	first := examples(t)[0]
	if got, want := benchName(&first),
		"BenchmarkGemm/subject=tile_8_x/in=float32/out=float32/M=10/N=20/K=50/trans=NN/threads=2"; got != want {
		t.Errorf("got name %s, want %s", got, want)
	}
	for want, change := range map[string]func(*Record){
		"/ld=50,21,20": func(r *Record) { r.LDB = 21 }, "/products=8": func(r *Record) { r.Products = 8 },
		"/groups=4_6": func(r *Record) { r.Groups = []int{4, 6} }, "/alpha=0.5": func(r *Record) { r.Alpha = 0.5 },
		"/beta=1": func(r *Record) { r.Beta = 1 }, "/bias=row": func(r *Record) { r.Bias = "row" },
		"/activation=relu":      func(r *Record) { r.Activation = "relu" },
		"/epilogue=swiglu":      func(r *Record) { r.Epilogue = "swiglu" },
		"/scales=1x128+128x128": func(r *Record) { r.BlockScales = "1x128+128x128" },
		"/rows=invariant":       func(r *Record) { r.RowInvariant = true },
		"/cache=cold":           func(r *Record) { r.Cold = true },
		"/transfers=yes":        func(r *Record) { r.Transfers = true },
	} {
		r := first
		change(&r)
		if got := benchName(&r); got != benchName(&first)+want {
			t.Errorf("got name %s, want it to end in %s", got, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, format := range []string{"json", "jsonl"} {
		for n := range 6 {
			want := examples(t)[:n]
			got, err := ReadRecords(strings.NewReader(write(t, format, want)))
			if err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			if len(got) != n || n > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %d records\n%+v\nwant\n%+v", format, len(got), got, want)
			}
		}
	}
}

func TestReadRecordsErrors(t *testing.T) {
	good := strings.TrimSpace(write(t, "jsonl", examples(t)[:1]))
	swap := func(old, new string) string {
		t.Helper()
		if strings.Count(good, old) != 1 {
			t.Fatalf("want %q exactly once in %s", old, good)
		}
		return good + "\n" + strings.Replace(good, old, new, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"another schema", swap(`"schema":2`, `"schema":3`), "record 2: schema 3, want 2"},
		{"unknown field", swap(`"peak_gflops"`, `"peek"`), `record 2: json: unknown field "peek"`},
		{"no subject", swap(`"subject":"tile 8/x"`, `"subject":""`), "record 2: no subject"},
		{"unknown type", swap(`"in":"float32"`, `"in":"float31"`), `record 2: in: unknown element type "float31"`},
		{"no size", swap(`"n":20`, `"n":0`), "record 2: shape 10×0×50: want"},
		{"size overflow", swap(`"n":20`, `"n":99999999999999999999`),
			"record 2: field n is a JSON number 99999999999999999999, want the Go type int"},
		{"no reps", swap(`"reps":3`, `"reps":0`), "record 2: reps 0, "},
		{"times out of order", swap(`"min":0.000001`, `"min":1`), "record 2: seconds "},
		{"negative time", swap(`"min":0.000001`, `"min":-1`), "record 2: seconds "},
		{"wrong rate", swap(`"gflops":10,`, `"gflops":11,`), "record 2: gflops 11: want 10 for 10×20×50 in 2e-06 s"},
		{"no samples", swap(`"samples":[0.000001,0.000002,0.000004]`, `"samples":null`),
			"record 2: 0 samples: want 1 to 3, the number of reps"},
		{"sample of zero", swap(`"samples":[0.000001,`, `"samples":[0,`), "record 2: sample of 0 s"},
		{"ratio of zero", swap(`"speed":2.5`, `"speed":0`), "record 2: versus "},
		{"no percentiles of a ratio", swap(`"p10":2.45,"p90":2.55,`, ``), "record 2: versus "},
		{"negative ratio", swap(`"p10":2.45`, `"p10":-1`), "record 2: versus "},
		{"negative peak", swap(`"peak_gflops":20`, `"peak_gflops":-20`), "record 2: peak_gflops -20: want at least 0"},
		{"negative products", swap(`"n":20`, `"n":20,"products":-3`), "record 2: products -3: want at least 0"},
		{"groups of other rows", swap(`"n":20`, `"n":20,"groups":[4,5]`),
			"record 2: groups of 9 rows: want 10, the rows of C"},
		{"negative group", swap(`"n":20`, `"n":20,"groups":[-1,11]`), "record 2: a group of -1 rows"},
		{"groups whose sum overflows", swap(`"n":20`, `"n":20,"groups":[9223372036854775807,9223372036854775807,12]`),
			"record 2: a group of 9223372036854775807 rows: want 0 to 10, the other rows of C"},
		{"steps without a time", swap(`"reps":3`, `"steps":{},"reps":3`), "record 2: steps "},
		{"breakdown without a time", swap(`"reps":3`, `"breakdown":[{"device":"gpu:0"}],"reps":3`),
			"record 2: times of gpu:0"},
		{"more overlapped than computed",
			swap(`"reps":3`, `"breakdown":[{"device":"gpu:0","seconds":1,"compute":1,"overlapped":2}],"reps":3`),
			"record 2: times of gpu:0"},
		{"string instead of a number", swap(`"m":10`, `"m":"10"`),
			"record 2: field m is a JSON string, want the Go type int"},
		{"no instructions", countsLine(t, func(c *Counts) { c.Instructions = 0 }), "record 2: instructions 0"},
		{"negative count", countsLine(t, func(c *Counts) { c.StoreBytes = -1 }), "record 2: store_bytes -1"},
		{"fewer sectors than the ideal", countsLine(t, func(c *Counts) { c.Sectors = 1 }), "record 2: counts "},
		{"wrong number of operations", countsLine(t, func(c *Counts) { c.Flops = 20_200 }),
			"record 2: flops 20200: want 20000"},
		{"more distinct sectors than sectors", countsLine(t, func(c *Counts) { c.DistinctSectors = 3001 }),
			"record 2: distinct_sectors 3001: want at most sectors, 3000"},
		{"truncated record", good + good[:100], "record 2: unexpected EOF"},
		{"truncated array", "[" + good, "after record 1: unexpected EOF"},
		{"truncated record in an array", "[" + good + "," + good[:100], "record 2: unexpected EOF"},
		{"data after an array", "[" + good + "]" + good, "after record 1: found more data"},
		{"not JSON", "subject,m,n,k\n", "record 1: invalid character 's'"},
		{"null", "null", "record 1: schema 0"},
		{"number", "1", "record 1: found a JSON number, want an object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			records, err := ReadRecords(strings.NewReader(c.text))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with prefix %q", err, c.want)
			}
			if strings.Contains(c.want, "record 2") && len(records) != 1 {
				t.Errorf("got %d records before the invalid one, want 1", len(records))
			}
		})
	}
	if records, err := ReadRecords(strings.NewReader(" \n\t")); err != nil || len(records) != 0 {
		t.Errorf("empty file: got %d records, error %v", len(records), err)
	}
}

// countsLine returns a valid record and a record with modified counts as jsonl.
func countsLine(t *testing.T, change func(*Counts)) string {
	t.Helper()
	all := examples(t)
	change(all[4].Counts)
	return strings.TrimSpace(write(t, "jsonl", []Record{all[0], all[4]}))
}

func FuzzReadRecords(f *testing.F) {
	f.Add([]byte(`{"schema":1,"subject":"a","in":"float32","out":"float32","m":1,"n":1,"k":1,"error":"no"}`))
	for _, file := range []string{"cpu-zen4-peak-1thread.tsv", "f32x3-h200.tsv", "ladder-h200.tsv"} {
		text, err := os.ReadFile("../../docs/results/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Join(bytes.SplitAfter(text, []byte("\n"))[:14], nil)) // a part with its first rows
		records, err := ReadRecords(bytes.NewReader(text))
		if err != nil {
			f.Fatal(err)
		}
		var lines bytes.Buffer
		if err := writeJSONL(&lines, records[:2], 0); err != nil {
			f.Fatal(err)
		}
		f.Add(lines.Bytes())
	}
	f.Add([]byte(`[{"schema":1}]`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var records []Record
		var err error
		most := uint64(64) // a record with the fewest fields has about a hundred bytes of text,
		if first := bytes.TrimSpace(text); len(first) > 0 && first[0] == '#' {
			most = 512 // and about ten in a table
		}
		testkit.CheckCost(t, len(text), most, func() { records, err = ReadRecords(bytes.NewReader(text)) })
		if err != nil {
			return
		}
		for _, format := range Formats() {
			if err := format.Write(new(bytes.Buffer), records, 0); err != nil {
				t.Errorf("writing the records that were read, as %s: %v", format.Name, err)
			}
		}
	})
}

// TestReadRecordsIsLinear checks for each kind of token that the allocated bytes grow with the
// length of the input. They would grow with its square if the reader copied its input at each
// token.
func TestReadRecordsIsLinear(t *testing.T) {
	const record = `{"schema":1,"subject":"a","in":"float32","out":"float32","m":1,"n":1,"k":1,"error":"no"}`
	for _, c := range []struct{ start, token, end string }{
		{"", record, ""}, {"", record + "\n", ""}, {"[", record + ",", record + "]"},
		{"", " ", record}, {"", "\n", record}, {"[", " ", "]"}, {"", "[", ""}, {"", "{", ""}, {"", `"`, ""}, {"", "1", ""},
		{`{"subject":"`, "x", `"}`}, {`{"subject":"`, `\u0041`, `"}`}, {`{"samples":[`, "1,", "1]}"},
		{`{"samples":`, "[", ""}, {`{"environment":`, `{"a":`, ""}, {"{", `"m":1,`, `"m":1}`}, {"{", `"x":1,`, `"x":1}`},
	} {
		input := func(n int) string { return c.start + strings.Repeat(c.token, n/len(c.token)) + c.end }
		testkit.CheckLinear(t, c.start+c.token+"…", testkit.Lengths(), 100, input, func(text string) uint64 {
			return testkit.Allocated(func() { ReadRecords(strings.NewReader(text)) }) // with or without an error
		})
	}
}

// full is a writer that fails after n bytes.
type full struct{ n int }

var errFull = errors.New("no space left")

func (f *full) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestWriteErrors checks that every format reports a write error at any offset.
func TestWriteErrors(t *testing.T) {
	records := examples(t)
	for _, f := range Formats() {
		size := len(write(t, f.Name, records))
		for n := 0; n < size; n += 7 {
			if err := f.Write(&full{n}, records, 0); !errors.Is(err, errFull) {
				t.Fatalf("%s: %d bytes with space for %d: got error %v", f.Name, size, n, err)
			}
		}
		if err := f.Write(&full{size}, records, 0); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if _, err := FindFormat("xml"); err == nil ||
		err.Error() != `unknown format "xml": want one of table, json, jsonl, tsv, csv, csv-times, bench` {
		t.Errorf("unknown format: got error %v", err)
	}
}

// TestGatedRecord checks that the record of a gated product names its epilogue and counts the
// operations of both products.
func TestGatedRecord(t *testing.T) {
	l := gemm.Dense(dtype.BF16, 8, 8)
	p, _, err := gemm.New(1, l, l, 0, l, gemm.Epilogue{Gated: true, Activation: gemm.ActSiLU, Residual: true})
	if err != nil {
		t.Fatal(err)
	}
	if r := newRecord(&Case{Problem: p}); r.Epilogue != "swiglu+residual" || r.Activation != "" ||
		r.Flops() != p.Flops() || p.Flops() != 2*2*8*8*8 {
		t.Errorf("got epilogue %q, activation %q and %v operations, want swiglu+residual, none and %v", r.Epilogue,
			r.Activation, r.Flops(), p.Flops())
	}
}
