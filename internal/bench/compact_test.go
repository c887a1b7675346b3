package bench

import (
	"math"
	"strings"
	"testing"
)

// compactExamples returns records of two environments, with all kinds of columns.
func compactExamples(t *testing.T) []Record {
	t.Helper()
	all := examples(t)
	all[0].LDB, all[0].Detail, all[0].Load = 24, "tile 8,\ta text", &Load{SMClock: Span{1000, 1980, 1980}}
	all[0].Groups = []int{4, 6}
	all[3].Steps = &Steps{Allocate: 0.5, Upload: 1, Compute: 2.25, Download: 3}
	all[3].Environment.GPU, all[4].Environment.GPU = "R4000", "R4000"
	return all
}

func TestCompactText(t *testing.T) {
	want := strings.Join([]string{
		`# environment: {"date":"2026-11-21T01:02:03Z","os":"linux","arch":"amd64","cpu":"R3000, 33 MHz","cores":2,` +
			`"gomaxprocs":2,"go":"go1.26"}`,
		"# device: cpu", "# in: float32", "# out: float32", "# alpha: 1", "# threads: 2",
		"subject\tpeer\tdetail\tm\tn\tk\tgroups\tlda\tldb\tldc\tµs\tp10\tp90\treps\tpeak_gflops\tverified\terror\tsm_mhz\t" +
			"× openblas\tp10\tp90",
		"tile 8/x\t\ttile 8, a text\t10\t20\t50\t[4,6]\t50\t24\t20\t2\t1.2\t3.6\t3\t20\tyes\t\t1980\t2.5\t2.45\t2.55",
		"openblas\tyes\t\t10\t20\t50\t\t\t\t\t5\t5\t5\t1\t\tyes\t\t\t\t\t",
		"naive\t\t\t10\t20\t50\t\t\t\t\t\t\t\t\t\t\tverification failed: off by \"much\"\t\t\t\t", "",
	}, "\n")
	text := write(t, "tsv", compactExamples(t))
	first, second, _ := strings.Cut(text, "\n\n")
	if first+"\n" != want {
		t.Errorf("got\n%s\nwant\n%s", first, want)
	}
	if !strings.Contains(second, `"gpu":"R4000"`) || !strings.Contains(second, `{"allocate":0.5,`) {
		t.Errorf("the second part lacks its environment or steps:\n%s", second)
	}
}

// TestCompactRoundTrip reads a table and writes it again, and checks that the records differ by the
// digits and the fields that a table leaves out. Two tables, one after the other, are read as one.
func TestCompactRoundTrip(t *testing.T) {
	want := compactExamples(t)
	want[0].Seconds.Median *= 1.00001
	text := write(t, "tsv", want)
	got, err := ReadRecords(strings.NewReader(text + "\n" + text))
	if err != nil || len(got) != 2*len(want) {
		t.Fatalf("got %d records, error %v", len(got), err)
	}
	if again := write(t, "tsv", got[:len(want)]); again != text {
		t.Errorf("written again:\n%s\nwant\n%s", again, text)
	}
	for i, r := range got {
		w := want[i%len(want)]
		if r.Subject != w.Subject || r.LDB != w.LDB || r.Error != w.Error || !r.Environment.equal(&w.Environment) ||
			len(r.Groups) != len(w.Groups) || r.Verified != w.Verified {
			t.Errorf("record %d: got %+v, want %+v", i, r, w)
		}
		if r.Timed() && math.Abs(r.Seconds.Median/w.Seconds.Median-1) > 1e-3 || r.Uncertain() != w.Uncertain() {
			t.Errorf("record %d: got the times %+v of %d, want %+v of %d", i, r.Seconds, r.Reps, w.Seconds, w.Reps)
		}
		if v, ok := w.RatioTo("openblas"); ok {
			if g, _ := r.RatioTo("openblas"); math.Abs(g.Low-v.Low) > 1e-3 || math.Abs(g.High-v.High) > 1e-3 {
				t.Errorf("record %d: got the ratio %+v, want %+v", i, g, v)
			}
		}
	}
	for _, f := range Formats() { // also without samples
		write(t, f.Name, got)
	}
}

func TestCompactErrors(t *testing.T) {
	const titles, row = "subject\tin\tout\tm\tn\tk\tµs\tp10\tp90\treps\t× x\tp10\tp90\n",
		"a\tfloat32\tfloat32\t1\t2\t3\t5\t4\t6\t7\t1\t1\t1\n"
	const good = "# device: cpu\n" + titles + row
	if records, err := ReadRecords(strings.NewReader(good)); err != nil || len(records) != 1 || records[0].LDB != 2 {
		t.Fatalf("got %+v, error %v", records, err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"# device: cpu", "# device cpu", `line 1: found "device cpu", want # NAME: VALUE`},
		{"# device", "# speed", `line 1: "speed" is no value that all rows can have`},
		{"# device", "# counts", `line 1: "counts" is no value that all rows can have`},
		{"# device: cpu", "# environment: {", "line 1: unexpected end of JSON input"},
		{"\treps", "\tspeed", `line 2: "speed" is no column of records`},
		{"× x\tp10\tp90", "× x\tp90\tp10", "line 2: column × x: want the columns p10 and p90 after it"},
		{"\tp10\tp90\na", "\na", "line 2: column × x: want the columns p10 and p90 after it"},
		{"a\tfloat32", "float32", "line 3: found 12 cells, want 13"},
		{"\t1\t2", "\tone\t2", "line 3: column m: "},
		{"\t1\t2", "\t\t2", "line 3: shape 0×2×3: want sizes of at least 1"},
		{"\t5\t4", "\t5\t6", "line 3: seconds "},
		{"\t1\t1\t1\n", "\t1\tx\t1\n", "line 3: column × x: "},
		{"\t1\t1\t1\n", "\t-1\t1\t1\n", "line 3: versus "},
		{"a\tfloat32", "\tfloat32", "line 3: no subject"},
	} {
		records, err := ReadRecords(strings.NewReader(strings.Replace(good, c.old, c.new, 1)))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || len(records) != 0 {
			t.Errorf("%q for %q: got %d records, error %v, want %s", c.new, c.old, len(records), err, c.want)
		}
	}
}

// TestEnvironmentOnce checks that a file has each environment once, and that records read back have
// theirs.
func TestEnvironmentOnce(t *testing.T) {
	want := append(compactExamples(t), compactExamples(t)[0])
	for _, format := range []string{"json", "jsonl"} {
		text := write(t, format, want)
		if n := strings.Count(text, `"environment"`); n != 3 { // the second begins at record 4, and ends at 6
			t.Errorf("%s: %d environments, want 3", format, n)
		}
		got, err := ReadRecords(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if !got[i].Environment.equal(&want[i].Environment) {
				t.Errorf("%s: record %d has the environment %+v, want %+v", format, i+1, got[i].Environment, want[i].Environment)
			}
		}
	}
	// A writer that continues records compares the environment with the last of them.
	var b strings.Builder
	if err := NewWriter(&b, want[:2]).Write(want[2:4]); err != nil || strings.Count(b.String(), `"environment"`) != 1 {
		t.Errorf("continued with %s, error %v", b.String(), err)
	}
	// Records of the first version had an environment each, or none.
	old := strings.ReplaceAll(write(t, "jsonl", want[:2]), `"schema":2`, `"schema":1`)
	got, err := ReadRecords(strings.NewReader(old))
	if err != nil || !got[1].Environment.isZero() || got[1].Schema != Schema {
		t.Errorf("got %+v, error %v", got, err)
	}
}
