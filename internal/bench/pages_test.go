package bench

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/dtype"
)

const (
	root    = "../.."
	results = root + "/docs/results" // the committed records
)

// tableMark matches a generated table of a page: a comment with its query, the table, and the end.
// The query of [parseQuery] follows the word table.
var tableMark = regexp.MustCompile(`(?ms)^<!-- table\n(.*?)-->\n(.*?)^<!-- end -->\n`)

// computedMark matches a table with figures that are computed, not measured, or the comment above
// another text. The comment names the test that compares it, with [testkit.CheckPage].
var computedMark = regexp.MustCompile(`(?m)^<!-- (computed: \S.*, by (\S+)\.Test\w+) -->\n(\|.*\n)*`)

// TestPages checks that the tables of measurements in README.md and docs follow from the committed
// records, and that each has a query. TILEWORK_UPDATE=1 rewrites the tables.
func TestPages(t *testing.T) {
	files, tables := []string{root + "/README.md"}, 0
	err := filepath.WalkDir(root+"/docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimPrefix(filepath.ToSlash(file), root+"/")
		t.Run(name, func(t *testing.T) { tables += testPage(t, file) })
	}
	if tables < 30 {
		t.Errorf("found %d generated tables, want at least 30: do the marks match the expression?", tables)
	}
}

// testPage checks the tables of a page and returns the number of generated ones.
func testPage(t *testing.T, file string) (tables int) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := tableMark.ReplaceAllStringFunc(string(text), func(mark string) string {
		tables++
		query := tableMark.FindStringSubmatch(mark)[1]
		table, err := tableOf(query, filepath.Dir(file))
		if err != nil {
			t.Errorf("%v in the query\n%s", err, query)
			return mark
		}
		generated := fmt.Sprintf("<!-- table\n%s-->\n%s<!-- end -->\n", query, table)
		if generated != mark && os.Getenv("TILEWORK_UPDATE") == "" {
			t.Errorf("a table differs from the records (TILEWORK_UPDATE=1 rewrites it): want\n%s", generated)
		}
		return generated
	})
	for _, mark := range computedMark.FindAllStringSubmatch(want, -1) {
		if !compared(t, mark[2], mark[1]) {
			t.Errorf("no test in %s compares the text after %q", mark[2], mark[1])
		}
	}
	if line := unmarked(want); line != "" {
		t.Errorf("a table quotes measurements without a query: %s", line)
	}
	if want != string(text) && os.Getenv("TILEWORK_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Error(err)
		}
	}
	return tables
}

// compared reports whether a test in folder has the comment of a computed text.
func compared(t *testing.T, folder, comment string) bool {
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), strconv.Quote(comment))
	})
}

// tableOf returns the table of a query on a page in the folder dir.
func tableOf(query, dir string) (string, error) {
	q, err := parseQuery(query)
	if err != nil {
		return "", err
	}
	if q.links, err = filepath.Rel(dir, results); err != nil {
		return "", err
	}
	return q.table()
}

// figureText matches a ratio to a peer, a time, a rate, an energy, a percentage or cells with
// fractions in a table.
var figureText = regexp.MustCompile(`× (default|the |then|[a-z]*[A-Z]\w)|geometric mean|` +
	`[0-9 ] ?(ns|µs|ms|[GT]B/s|[GT]FLOP/s)\b|[0-9] ?[sJ]\b|\| [0-9.]+ %|\| [0-9]+\.[0-9]+ \| [0-9]+\.[0-9]+ \|`)

// unmarked returns a line of a table with measurements that has no mark, or the empty string.
func unmarked(text string) string {
	text = tableMark.ReplaceAllString(text, "")
	text = computedMark.ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") && figureText.MatchString(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// TestUnmarked checks which tables need a query.
func TestUnmarked(t *testing.T) {
	const query = "<!-- table\nrecords: a.tsv\n-->\n"
	for _, c := range []struct {
		text   string
		needed bool
	}{
		{"| N | × cuBLASLt |\n| --- | --- |\n| 64 | 1.74 |\n", true},
		{"| N | time |\n| --- | --- |\n| 64 | 2.9 µs |\n", true},
		{"| N | TFLOP/s |\n| --- | --- |\n| 64 | 0.1 |\n", true},
		{"| machine | read |\n| --- | --- |\n| a | 25 GB/s |\n", true},
		{"| n | 200 | 1000 |\n| --- | --- | --- |\n| GEMM | 4.9 | 7.7 |\n", true},
		{query + "| N | µs |\n<!-- end -->\n", false},
		{query + "| N | µs |\n<!-- end -->\n\n| N | µs |\n", true},
		{"<!-- computed: tilework explain, by internal/a.TestA -->\n| limit | 66.9 TFLOP/s |\n", false},
		{"<!-- computed: tilework explain, by internal/a.TestA -->\n| limit |\n\n| limit | 66.9 TFLOP/s |\n", true},
		{"<!-- computed: by hand -->\n| limit | 66.9 TFLOP/s |\n", true},
		{"| option | operation |\n| --- | --- |\n| `WithBias` | adds a row |\n", false},
		{"The product takes 2.9 µs.\n", false},
	} {
		if got := unmarked(c.text) != ""; got != c.needed {
			t.Errorf("%q needs a query: got %v, want %v", c.text, got, c.needed)
		}
	}
}

// TestQueryErrors checks that a query that selects nothing or names something unknown is refused.
func TestQueryErrors(t *testing.T) {
	const valid = "records: f32x3-h200.tsv\nwhere: type = f32x3\nrows: M×N×K\ncells: × cublaslt\n"
	for _, c := range []struct{ old, new, want string }{
		{"f32x3-h200", "f32x3-h300", "f32x3-h300.tsv"},
		{"= f32x3", "= f32x4", "the query selects no record"},
		{"where: type", "where: sort", `"sort" is no field`},
		{"rows: M×N×K", "rows: N", `"N" is no field`},
		{"× cublaslt", "TFLOP", `"TFLOP" is no figure`},
		{"cells", "figures", `found "figures", want records, where, rows, columns or cells`},
		{"cells: × cublaslt\n", "", "want records and cells"},
		{"rows: M×N×K\ncells: × cublaslt", "rows: type\ncells: µs", "µs of several products"},
		{"rows: M×N×K\n", "", `has no column "× cublaslt"`},
	} {
		if _, err := tableOf(strings.ReplaceAll(valid, c.old, c.new), root); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %s", c.new, err, c.want)
		}
	}
	if _, err := tableOf(valid, root); err != nil {
		t.Error(err)
	}
}

// TestFigures checks the figures of three products beside two peers.
func TestFigures(t *testing.T) {
	record := func(m int, a, b float64) *Record {
		c := shape(t, Shape{m, 10, 10}, dtype.F32, dtype.F32)
		r := newRecord(&c)
		r.GFLOPS, r.Peak, r.Seconds.Median = float64(m), 40, 1e-6*float64(m)
		r.Versus = []Ratio{{Peer: "mkl", Speed: a}, {Peer: "blis", Speed: b}}
		return &r
	}
	entries := []entry{{Record: record(10, 4, 2)}, {Record: record(20, 0.5, 4)}, {Record: record(30, 2, 0.85)}}
	for cell, want := range map[string]string{
		"× mkl": "1.59", "× best": "0.95", "× blis": "1.89", "× onednn": "–", "compared": "3",
		"slower in": "2 of 3", "below 0.90 + below 0.80": "2, 1", "slowest": "0.50, 20×10×10",
		"GFLOP/s": "20", "of the peak": "50 %", "GFLOP/s + × onednn": "20", "× onednn + GFLOP/s": "–, 20",
	} {
		for i := range entries {
			entries[i].cell = cell
		}
		if got, err := cellText(entries); got != want || err != nil {
			t.Errorf("%s: got %q, error %v, want %q", cell, got, err, want)
		}
	}
}
