package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// record is a line in a file of records.
const record = `{"schema":1,"subject":"avx512","device":"cpu","in":"float32","out":"float32","m":64,"n":64,"k":64,` +
	`"trans_a":false,"trans_b":false,"lda":64,"ldb":64,"ldc":64,"alpha":1,"beta":0,"threads":1,` +
	`"transfers":false,"cold":false,"buffers":1,"seed":1,"reps":1,"batch":1,"seconds":{"median":0.000524288,` +
	`"min":0.000524288,"max":0.000524288,"p10":0.000524288,"p90":0.000524288,"spread":0},` +
	`"samples":[0.000524288],"gflops":1,"verified":true,"error_ratio":0.1,` +
	`"environment":{"date":"2026-11-21T04:11:31Z","os":"linux","arch":"amd64","cores":2,"gomaxprocs":2,` +
	`"go":"go1.26"}}` + "\n"

// reportFolder changes to a temporary folder with valid and invalid files of records.
func reportFolder(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"a.jsonl": record, "b.json": "[" + record + "," + record + "]", "empty.jsonl": "",
		"cut.jsonl": record + record + record[:100], "cut.json": "[" + record + ",",
		"page.html": "<!DOCTYPE html>", "table.csv": "1,2\n", "there.html": "mine",
		"old.jsonl": strings.Replace(record, `"schema":1`, `"schema":0`, 1),
		"lie.jsonl": strings.Replace(record, `"gflops":1`, `"gflops":9`, 1),
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReportWrites(t *testing.T) {
	reportFolder(t)
	stdout, stderr, code := run(t.Context(), "report", "a.jsonl", "b.json", "-o", "r.html", "--svg", "pictures/svg")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for name, start := range map[string]string{
		"r.html": "<!DOCTYPE html>", "pictures/svg/rate-cpu-few-sizes.svg": "<?xml",
		"pictures/svg/change-b-cpu-float32.svg": "<?xml",
	} {
		content, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(content), start) {
			t.Errorf("%s: %v, %.20q", name, err, content)
		}
		if !strings.Contains(stdout, filepath.FromSlash(name)+"\n") {
			t.Errorf("the output lacks %s: %q", name, stdout)
		}
	}
	if _, stderr, code = run(t.Context(), "report", "a.jsonl", "-o", "there.html", "--force"); code != 0 {
		t.Errorf("--force: exit code %d, %s", code, stderr)
	}
	if content, _ := os.ReadFile("there.html"); string(content) == "mine" {
		t.Error("--force replaced nothing")
	}
}

// TestReportTable writes tables of records, makes pages of them, and resumes one.
func TestReportTable(t *testing.T) {
	reportFolder(t)
	library := strings.NewReplacer(`"avx512"`, `"openblas","peer":true`).Replace(record)
	compared := strings.NewReplacer(`"device"`, `"detail":"tile 8","device"`, `"error_ratio"`,
		`"versus":[{"peer":"openblas","speed":1,"p10":1,"p90":1}],"error_ratio"`).Replace(record)
	if err := os.WriteFile("both.jsonl", []byte(compared+library), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, holds, lacks string
	}{
		{"both.jsonl -o full.tsv", "openblas\tyes\t\t64", "samples"},
		{"both.jsonl -o brief.tsv --brief", "# subject: avx512", "tile 8"},
	} {
		if _, stderr, code := run(t.Context(), append([]string{"report"}, strings.Fields(c.args)...)...); code != 0 {
			t.Fatalf("%s: exit code %d, %s", c.args, code, stderr)
		}
		name := strings.Fields(c.args)[2]
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), c.holds) || strings.Contains(string(text), c.lacks) ||
			!strings.Contains(string(text), "× openblas") {
			t.Errorf("%s: %v, %s", name, err, text)
		}
		if _, stderr, code := run(t.Context(), "report", name, "-o", name+".html"); code != 0 {
			t.Errorf("report %s: exit code %d, %s", name, code, stderr)
		}
	}
	if _, stderr, code := run(t.Context(), "bench", "--resume", "full.tsv", "--sizes", "8"); code == 0 ||
		!strings.Contains(stderr, "full.tsv is a table: want one record per line") {
		t.Errorf("--resume full.tsv: exit code %d, %s", code, stderr)
	}
}

// TestReportReadsStdin reads the records from standard input.
func TestReportReadsStdin(t *testing.T) {
	reportFolder(t)
	c := newCommand()
	c.SetIn(strings.NewReader(record))
	c.SetOut(io.Discard)
	if err := execute(t.Context(), c, []string{"report", "-", "-o", "r.html"}); err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile("r.html"); err != nil || !strings.Contains(string(page), "standard input, 1 record") {
		t.Errorf("error %v, the page does not name standard input", err)
	}
}

// TestReportWithoutCharts checks the warning that no picture is written.
func TestReportWithoutCharts(t *testing.T) {
	reportFolder(t)
	failed := strings.Replace(record, `"seconds":`, `"error":"it broke","seconds":`, 1)
	if err := os.WriteFile("failed.jsonl", []byte(failed), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := run(t.Context(), "report", "failed.jsonl", "-o", "r.html", "--svg", "pictures")
	if code != 0 || stderr != "warning: the records have no chart, so --svg writes no file\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestReportNamesSources(t *testing.T) {
	for _, test := range []struct{ paths, want string }{
		{"a.jsonl", "a"},
		{"x/a.jsonl y/b.json", "a b"},
		{"x/r.jsonl y/r.jsonl", "x y"},
		{"/d/x/out/r.jsonl /d/y/out/r.jsonl", "x y"},
		{"r.jsonl y/r.jsonl", "r.jsonl y/r.jsonl"},
		{"x/r.jsonl y/r.jsonl z/s.jsonl", "x/r.jsonl y/r.jsonl z/s.jsonl"},
		{"r.jsonl r.json", "r.jsonl r.json"},
	} {
		if got := strings.Join(distinct(strings.Fields(test.paths)), " "); got != test.want {
			t.Errorf("names of %s: %s, want %s", test.paths, got, test.want)
		}
	}
}

func TestReportErrors(t *testing.T) {
	for args, want := range map[string]string{
		"":                                        "no file: want files of records",
		"a.jsonl":                                 "nothing to write",
		"none.jsonl -o r.html":                    "none.jsonl: no such file",
		". -o r.html":                             "directory",
		"empty.jsonl -o r.html":                   "empty.jsonl has no records",
		"cut.jsonl -o r.html":                     "cut.jsonl: record 3 is incomplete",
		"cut.json -o r.html":                      "cut.json: record 2 is incomplete",
		"page.html -o r.html":                     "page.html: not a file of records",
		"old.jsonl -o r.html":                     "schema 0, want 2",
		"lie.jsonl -o r.html":                     "record 1: gflops 9",
		"a.jsonl a.jsonl -o r.html":               "named twice",
		"table.csv -o r.html":                     "table.csv: not a file of records: record 1: found a JSON number",
		"a.jsonl -o there.html":                   "there.html: file already exists",
		"a.jsonl -o -":                            "-o -: want a file that ends in .html for a page, or in .tsv",
		"a.jsonl -o r.pdf":                        "-o r.pdf: want a file that ends in .html for a page, or in .tsv",
		"a.jsonl -o there.html --svg .":           "there.html: file already exists",
		"a.jsonl -o a.jsonl --force":              "a.jsonl is both an input and an output",
		"a.jsonl -o " + "./a.jsonl" + " --force":  "is both an input and an output",
		"a.jsonl -o no/folder/r.html":             "no/folder",
		"a.jsonl -o . --force":                    ". is a folder: name a file",
		"a.jsonl -o r.html --svg a.jsonl --force": "not a directory",
		"a.jsonl -o r.html --brief":               "--brief is for a table: want -o FILE.tsv",
		"a.jsonl -o r.html --svg":                 "--svg without a value: want --svg FOLDER",
	} {
		t.Run(args, func(t *testing.T) {
			reportFolder(t)
			before, err := os.ReadDir(".")
			if err != nil {
				t.Fatal(err)
			}
			_, stderr, code := run(t.Context(), append([]string{"report"}, strings.Fields(args)...)...)
			if code != 2 || !strings.Contains(stderr, want) || strings.Contains(stderr, "\n") {
				t.Errorf("exit code %d, %q; want 2 and one line with %q", code, stderr, want)
			}
			after, err := os.ReadDir(".")
			if err != nil {
				t.Fatal(err)
			}
			if len(after) != len(before) {
				t.Errorf("%d files became %d", len(before), len(after))
			}
			if content, _ := os.ReadFile("there.html"); string(content) != "mine" {
				t.Error("there.html was changed")
			}
		})
	}
}
