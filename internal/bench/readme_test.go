package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// results is the folder of the committed records.
const results = "../../docs/results"

// readResults returns the records of files in results.
func readResults(t *testing.T, files ...string) (all []Record) {
	t.Helper()
	for _, file := range files {
		f, err := os.Open(filepath.Join(results, file))
		if err != nil {
			t.Fatal(err)
		}
		records, err := ReadRecords(f)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		all = append(all, records...)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	return all
}

// TestReadmeSpeed checks that the tables of speeds in README.md follow from the committed records.
// TILEWORK_UPDATE=1 rewrites the tables.
func TestReadmeSpeed(t *testing.T) {
	const page = "../../README.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for _, table := range []struct{ name, text string }{{"gpu", gpuTable(t)}, {"cpu", cpuTable(t)}} {
		begin, end := "<!-- speed "+table.name+" -->\n", "<!-- end -->\n"
		before, rest, found := strings.Cut(got, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s: no lines %q and %q", page, begin, end)
		}
		got = before + begin + table.text + end + after
	}
	if got == string(text) {
		return
	}
	if os.Getenv("TILEWORK_UPDATE") == "" {
		t.Fatalf("the tables of %s differ from the records (TILEWORK_UPDATE=1 rewrites them): want\n%s\n%s", page,
			gpuTable(t), cpuTable(t))
	}
	if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readmeTypes are the columns of the table of GPUs: the title, and the types of A and B.
var readmeTypes = []struct{ title, in, precision string }{
	{"float32", "float32", ""}, {"float64", "float64", ""}, {"TF32", "float32", "tf32"}, {"bfloat16", "bfloat16", ""},
	{"float16", "float16", ""}, {"int8", "int8", ""}, {"e4m3", "float8_e4m3fn", ""},
}

// gpuTable returns the table of the classes and types on an H200.
func gpuTable(t *testing.T) string {
	records := readResults(t, "random-h200.tsv", "models-h200.tsv", "squares-h200.tsv")
	for i := range records {
		records[i].Device = "gpu" // a host can have several
		if !records[i].Peer {
			records[i].Subject = "tilework" // also where its kernel has another name
		}
	}
	b := new(strings.Builder)
	fmt.Fprint(b, "| products | |")
	for _, c := range readmeTypes {
		fmt.Fprintf(b, " %s |", c.title)
	}
	fmt.Fprintln(b, "\n"+strings.Repeat("| --- ", len(readmeTypes)+2)+"|")
	lines := []struct {
		title string
		cell  func(ClassSummary) string
	}{
		{"× cuBLASLt", func(s ClassSummary) string { return fmt.Sprintf("%.2f", s.Mean) }},
		{"slower in", func(s ClassSummary) string { return fmt.Sprintf("%d of %d", s.Slower, s.Cases) }},
		{"median TFLOP/s, of the peak", func(s ClassSummary) string {
			rate := fmt.Sprintf("%.3g", s.Rate/1e3)
			if s.Rate >= 1e5 {
				rate = fmt.Sprintf("%.0f", s.Rate/1e3)
			}
			return fmt.Sprintf("%s, %.2g %%", rate, s.Peak)
		}},
	}
	for c := range slices.Backward(classes) {
		for i, line := range lines {
			name := ""
			if i == 0 {
				name = classes[c].Name
			}
			fmt.Fprintf(b, "| %s | %s |", name, line.title)
			for _, column := range readmeTypes {
				cell := "–"
				if s := classOf(t, records, column.in, column.precision, &classes[c]); s.Cases > 0 {
					cell = line.cell(s)
				}
				fmt.Fprintf(b, " %s |", cell)
			}
			fmt.Fprintln(b)
		}
	}
	return b.String()
}

// classOf returns the summary of a class over the records of a type. It has no cases if cuBLASLt
// computes none.
func classOf(t *testing.T, records []Record, in, precision string, class *Class) ClassSummary {
	t.Helper()
	of := slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.In != in || r.Precision != precision })
	all := Summarize(of)
	if len(all) != 1 {
		t.Fatalf("%s %s: got %d summaries, want one", in, precision, len(all))
	}
	i := slices.IndexFunc(all[0].Classes, func(s ClassSummary) bool { return s.Class == class })
	if i < 0 {
		return ClassSummary{}
	}
	return all[0].Classes[i]
}

// cpuTable returns the table of the speeds over the fastest library for each shape.
func cpuTable(t *testing.T) string {
	b := new(strings.Builder)
	fmt.Fprintln(b, "| × the fastest library for each shape | float32 | float64 |\n| --- | --- | --- |")
	for _, row := range []struct {
		title string
		files []string
	}{
		{"one core of a Xeon; OpenBLAS, MKL and oneDNN",
			[]string{"cpu-xeon-amx-one-f32.tsv", "cpu-xeon-amx-one-f64.tsv"}},
		{"the same and BLIS, drawn at random, on another Xeon", []string{"cpu-xeon-random.tsv"}},
		{"one core of an EPYC; all four", []string{"cpu-zen4-one-f32.tsv", "cpu-zen4-one-f64.tsv"}},
		{"the same, drawn at random", []string{"cpu-zen4-random.tsv"}},
	} {
		records := readResults(t, row.files...)
		fmt.Fprintf(b, "| %s | %s | %s |\n", row.title, overBest(records, "float32"), overBest(records, "float64"))
	}
	return b.String()
}

// overBest returns the geometric mean of the speeds over the fastest peer of each case, and the
// number of cases in which that peer is faster.
func overBest(records []Record, in string) string {
	sum, slower, cases := 0.0, 0, 0
	for _, r := range records {
		if r.Peer || r.In != in || len(r.Versus) == 0 {
			continue
		}
		least := math.Inf(1)
		for _, v := range r.Versus {
			least = min(least, v.Speed)
		}
		if cases++; least < 1 {
			slower++
		}
		sum += math.Log(least)
	}
	return fmt.Sprintf("%.2f, slower in %d of %d", math.Exp(sum/float64(cases)), slower, cases)
}
