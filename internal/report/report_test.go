package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tilework/internal/bench"
)

func newReport(t *testing.T, sources ...Source) *Report {
	t.Helper()
	r, err := New(sources)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// chart is the one of that ID.
func (r *Report) chart(t *testing.T, id string) *Chart {
	t.Helper()
	var ids []string
	for _, c := range r.Charts {
		if c.ID == id {
			return c
		}
		ids = append(ids, c.ID)
	}
	t.Fatalf("there is no chart %s; there are %v", id, ids)
	return nil
}

// TestAnswers holds the sentences against what the machine was made to do.
func TestAnswers(t *testing.T) {
	r := newReport(t, Source{"h200", newMachine(1, "NVIDIA H200", 1).sweep()})
	if r.Title != "Matrix multiplication on Example CPU and NVIDIA H200" {
		t.Errorf("the title is %q", r.Title)
	}
	for id, want := range map[string]string{
		// 2·N³/110e9 s on the CPU meet some 90 µs of copies and starts.
		"time-float32":                     `^The GPU, its copies included, overtakes the fastest CPU kernel at N ≈ (19\d|20\d); at N = 1024 it is 1\d\.\d× as fast\.$`,
		"time-large-float32":               `^The GPU, its copies included, is ahead of the fastest CPU kernel at every size; at N = 4096 it is 6\d\.\d× as fast\.$`,
		"ladder-cpu-float32":               `^At 1024³, each against the one before it: loop 1\.\d+ s → portable 2\.\d\d× → avx512 31\.\d× → openblas 1\.0\d×\.$`,
		"ladder-gpu-float32":               `^At 8192³, each against the one before it: naive 1\d\d(\.\d)? ms → tiled 1\.6\d× → blocked 5\.\d\d× → cublaslt 1\.0\d×\.$`,
		"rate-gpu-float32":                 `^cublaslt reaches 51\.\d TFLOP/s \(77 % of peak\) at 8192³\. Of ours, blocked reaches 50\.\d TFLOP/s \(76 % of peak\) at 8192³\.$`,
		"rate-cpu-float32":                 `^openblas reaches 11\d GFLOP/s \(7\d % of peak\) at \d+³\. Of ours, avx512 reaches 1[01]\d GFLOP/s \(7\d % of peak\) at \d+³\.$`,
		"ratio-gpu-float32":                `^Our fastest kernel runs at 0\.9\d× the speed of cublaslt in the geometric mean of 12 cases, from 0\.8\d× at [0-9×³]+ to 1\.2\d× at 64³\.$`,
		"roofline-gpu-float32":             `^blocked reaches 7\d\.\d % of what arithmetic allows at 8192³, where 1365 operations are done for each byte that must move\.$`,
		"transfers-float32-on-nvidia-h200": `^At 8192³ the product itself is 2\d\.\d % of the time from the host's memory and back to it\.$`,
	} {
		if c := r.chart(t, id); !regexp.MustCompile(want).MatchString(c.Headline) {
			t.Errorf("%s says\n%s\nwant\n%s", id, c.Headline, want)
		}
	}
	if marks := r.chart(t, "time-float32").Drawing.(*Lines).Marks; len(marks) != 1 || marks[0].X < 190 || marks[0].X > 210 {
		t.Errorf("the crossover's marks are %v", marks)
	}
}

// TestMissing wants what is missing to be said.
func TestMissing(t *testing.T) {
	cpu := newMachine(1, "", 1).sweep()
	gpu := slices.DeleteFunc(newMachine(1, "NVIDIA H200", 1).sweep(), func(r bench.Record) bool { return r.Device == "cpu" })
	bare := slices.DeleteFunc(slices.Clone(gpu), func(r bench.Record) bool { return r.Transfers })
	emulated, failed := slices.Clone(cpu), slices.Clone(cpu)
	for i := range cpu {
		emulated[i].Device = "emu"
		failed[i] = bench.Record{Subject: "avx512", Device: "cpu", In: "float32", Out: "float32", M: 1, N: 1, K: 1, Error: "it broke"}
	}
	both := append(slices.Clone(cpu), bare...)
	for _, test := range []struct {
		records  []bench.Record
		id, want string
	}{
		{cpu, "time-float32", "No GPU records: no crossover."},
		{cpu, "transfers", "No record tells the steps"},
		{gpu, "time-float32", "No CPU records: no crossover."},
		{both, "time-float32", "the crossover leaves them out"},
		{cpu[:4], "time-large", "No kernel was timed"},
		{emulated, "rate", "No square product was timed."},
		{cpu, "counts", "Nothing was counted"},
		{failed, "ratio", "no ratios"},
		{failed, "roofline", "there is no roof"},
		{failed, "ladder", "No two kernels"},
	} {
		c := newReport(t, Source{"r", test.records}).chart(t, test.id)
		if notes := strings.Join(c.Notes, " "); !strings.Contains(notes, test.want) {
			t.Errorf("%s notes %q, want %q", test.id, notes, test.want)
		}
	}
	for question, records := range map[string][]bench.Record{"How long does a product take?": cpu, "From which size on does the GPU pay?": both} {
		if c := newReport(t, Source{"r", records}).chart(t, "time-float32"); c.Question != question {
			t.Errorf("it asks %q, want %q", c.Question, question)
		}
	}
	for want, records := range map[string][]bench.Record{"of an emulated GPU": emulated, "without a time": failed, "that a later record": append(slices.Clone(cpu), cpu...)} {
		if notes := strings.Join(newReport(t, Source{"r", records}).Notes, " "); !strings.Contains(notes, want) {
			t.Errorf("the report notes %q, want %q", notes, want)
		}
	}
	if _, err := New([]Source{{"nothing", nil}}); err == nil {
		t.Error("a report of no records is no error")
	}
}

// TestCounts: what was counted is a chart of its own, and no time.
func TestCounts(t *testing.T) {
	cpu := newMachine(1, "", 1).sweep()
	count := func(subject string, n int, loaded, sectors, ideal, conflicts int64) bench.Record {
		return bench.Record{
			Schema: bench.Schema, Subject: subject, Device: "emu:t4", In: "float32", Out: "float32", M: n, N: n, K: n, LDA: n, LDB: n, LDC: n, Alpha: 1,
			Environment: bench.Environment{GPU: "t4, emulated"},
			Counts: &bench.Counts{
				Instructions: 1000, Flops: 2 * int64(n*n*n), LoadBytes: loaded, Sectors: sectors, IdealSectors: ideal, Wavefronts: 100 + conflicts, IdealWavefronts: 100,
			},
		}
	}
	counted := []bench.Record{
		count("naive", 64, 1<<21, 4000, 3000, 0), count("tiled:16", 64, 1<<17, 400, 400, 0),
		count("naive", 32, 1<<18, 500, 400, 0), count("padless", 64, 1<<17, 400, 400, 25),
	}
	counted[0].Counts.Then = &bench.ThenCounts{HalfWarps: 100, Transactions: 850}
	counted[3].Counts.Then = &bench.ThenCounts{HalfWarps: 50, Transactions: 50, Wavefronts: 30, IdealWavefronts: 20}
	r := newReport(t, Source{"r", append(cpu, counted...)})
	if r.Title != "Matrix multiplication on Example CPU" {
		t.Errorf("the title is %q", r.Title)
	}
	c := r.chart(t, "counts-float32-for-t4")
	const want = "At 64³, operations for each byte that threads load: naive 0.250 → tiled:16 4.00 → padless 4.00. Bank conflicts: padless (25.0 % more wavefronts)."
	if c.Headline != want {
		t.Errorf("it says\n%s\nwant\n%s", c.Headline, want)
	}
	bars := c.Drawing.(*Bars)
	if len(bars.Rows) != 3 || bars.Share[0][0] != 0.75 || bars.Share[0][1] != 0.25 || bars.Share[1][0] != 0.1 || bars.Share[1][1] != 0 {
		t.Errorf("the bars of %v are %v", bars.Rows, bars.Share)
	}
	if notes := strings.Join(c.Notes, " "); !strings.Contains(notes, "they would have taken: naive 8.50 and padless 1.00.") {
		t.Errorf("it notes %q", notes)
	}
	if row := strings.Join(c.Table.Rows[3], " "); !strings.HasSuffix(row, " 1.00 10") {
		t.Errorf("the last row is %s", row)
	}
	if len(c.Table.Rows) != 4 || c.Table.Rows[1][3] != "524,288" {
		t.Errorf("the table is %v", c.Table.Rows)
	}
	if r := newReport(t, Source{"r", counted}); r.Title != "Matrix multiplication, counted for t4" || len(r.Notes) != 0 {
		t.Errorf("of counts alone the title is %q, the notes %q", r.Title, r.Notes)
	}
}

// TestRounding: a peer that rounds its operands is not who we are measured against first,
// and what the rounding gains it is said.
func TestRounding(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	tensor := pace{"cublaslt-tf32", true, 410_000, 5e-6, 0}
	var all []bench.Record
	for n := 1024; n <= 4096; n *= 2 {
		records := m.compete(append(slices.Clone(gpuModels[2:]), tensor), "gpu:0", bench.Cube(n))
		for i := range records {
			if records[i].Subject == tensor.subject {
				records[i].Precision = "tf32"
			}
		}
		all = append(all, records...)
	}
	c := newReport(t, Source{"h200", all}).chart(t, "ratio-gpu-float32")
	if want := regexp.MustCompile(`^Our fastest kernel runs at 0\.9\d× the speed of cublaslt in .* Against the others: 0\.1\d× cublaslt-tf32\.$`); !want.MatchString(c.Headline) {
		t.Errorf("it says %q", c.Headline)
	}
	alone := m.compete([]pace{gpuModels[2], tensor}, "gpu:0", bench.Cube(1024))
	alone[1].Precision = "tf32"
	alone = append(alone, m.compete([]pace{gpuModels[2], tensor}, "gpu:0", bench.Cube(2048))...)
	alone[3].Precision = "tf32"
	beside := newReport(t, Source{"h200", alone}).chart(t, "ratio-gpu-float32")
	if want := "the speed of cublaslt-tf32, which rounds A and B to tf32 where ours does not, in the geometric mean of 2 cases"; !strings.Contains(beside.Headline, want) {
		t.Errorf("of a peer that rounds, alone, it says %q, want %q", beside.Headline, want)
	}
	want := regexp.MustCompile(`^cublaslt-tf32 rounds A and B to tf32 for the tensor cores: 3\d\d(\.\d)? µs at 4096³, where cublaslt, which rounds nothing and so cannot use them, takes 2\.6\d+ ms\.$`)
	if len(c.Notes) != 1 || !want.MatchString(c.Notes[0]) {
		t.Errorf("it notes %q", c.Notes)
	}
}

// TestInexact: a kernel of ours that rounds its operands is on the ladder, but wins no race
// of times, and is measured against the peer that rounds as it does first.
func TestInexact(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	models := append(slices.Clone(gpuModels[2:]), pace{"wgmma-tf32", false, 380_000, 5e-6, 0}, pace{"cublaslt-tf32", true, 400_000, 5e-6, 0})
	var all []bench.Record
	for n := 64; n <= 4096; n *= 2 {
		records := append(m.compete(models, "gpu:0", bench.Cube(n)), m.compete(cpuModels[2:3], "cpu", bench.Cube(n))...)
		for i := range records {
			if strings.HasSuffix(records[i].Subject, "-tf32") {
				records[i].Precision = "tf32"
			}
		}
		all = append(all, records...)
		alone := m.record(pace{"wgmma", false, 700_000, 5e-6, 0}, "gpu:0", bench.Cube(n), false)
		alone.In, alone.Out = "bfloat16", "bfloat16"
		all = append(all, alone)
	}
	r := newReport(t, Source{"h200", all})
	for id, want := range map[string]string{
		"ladder-gpu-float32":        `blocked .* → cublaslt 1\.0\d× → wgmma-tf32 7\.\d+× → cublaslt-tf32 1\.0\d×\.$`,
		"ratio-gpu-float32":         `^Our fastest kernel runs at 0\.9\d× the speed of cublaslt in .* Against the others: 0\.\d+× cublaslt-tf32\.$`,
		"ratio-gpu-float32-in-tf32": `^Our fastest kernel runs at (0\.9\d|1\.0\d)× the speed of cublaslt-tf32 in .* Against the others: [23]\.\d+× cublaslt\.$`,
	} {
		if c := r.chart(t, id); !regexp.MustCompile(want).MatchString(c.Headline) {
			t.Errorf("%s says\n%s\nwant\n%s", id, c.Headline, want)
		}
	}
	for _, row := range r.chart(t, "time-large-float32").Table.Rows {
		if strings.HasSuffix(row[2], "-tf32") {
			t.Errorf("%v ran in the race of float32", row)
		}
	}
	for _, c := range r.Charts {
		if strings.HasPrefix(c.ID, "time") && strings.HasSuffix(c.ID, "bfloat16") {
			t.Errorf("%s is a race of one", c.ID)
		}
	}
}

// TestLaterRecord wants the last of two records of one measurement, and both of two
// that differ.
func TestLaterRecord(t *testing.T) {
	m := newMachine(1, "", 1)
	first, last := m.record(cpuModels[2], "cpu", bench.Cube(64), false), m.record(cpuModels[2], "cpu", bench.Cube(64), false)
	s := newStudy([]Source{{"r", []bench.Record{first, last}}})
	if len(s.rows) != 1 || s.rows[0].Seconds != last.Seconds {
		t.Errorf("of two records there are %d, not the last alone", len(s.rows))
	}
	for name, change := range map[string]func(*bench.Record){
		"threads": func(r *bench.Record) { r.Threads = 1 }, "trans": func(r *bench.Record) { r.TransA = true },
		"cold": func(r *bench.Record) { r.Cold = true }, "copies": func(r *bench.Record) { r.Transfers = true },
		"scalars": func(r *bench.Record) { r.Beta = 1 }, "strides": func(r *bench.Record) { r.LDB = 100 },
		"epilogue": func(r *bench.Record) { r.Activation = "relu" }, "type": func(r *bench.Record) { r.In = "bfloat16" },
	} {
		other := last
		change(&other)
		s := newStudy([]Source{{"r", []bench.Record{first, other}}})
		if len(s.rows) != 2 {
			t.Errorf("two records that differ in %s are one", name)
			continue
		}
		n := s.naming(s.rows)
		if a, b := n.of(s.rows[0]), n.of(s.rows[1]); a == b || strings.Contains(a, "avx512") {
			t.Errorf("two records that differ in %s are called %q and %q", name, a, b)
		}
	}
}

func TestOvertakes(t *testing.T) {
	curve := func(time func(n float64) float64, sizes ...int) []row {
		var rows []row
		for _, n := range sizes {
			rows = append(rows, row{Record: &bench.Record{N: n, Seconds: bench.Timing{Median: time(float64(n))}}})
		}
		return rows
	}
	cubic := func(n float64) float64 { return n * n * n }
	square := func(n float64) float64 { return 300 * n * n } // they meet at 300
	twice := func(n float64) float64 {
		if n < 100 || n > 200 {
			return 0.5 * cubic(n)
		}
		return 2 * cubic(n)
	}
	for _, test := range []struct {
		a, b []row
		at   float64
		last int
	}{
		{curve(cubic, 64, 256, 512, 4096), curve(square, 64, 256, 512, 1024), 300, 512},
		{curve(cubic, 64, 128), curve(square, 64, 128), 0, 128},
		{curve(cubic, 512, 1024), curve(square, 512, 1024), math.Inf(-1), 1024},
		{curve(cubic, 64), curve(square, 65), 0, 0},
		{curve(cubic, 64, 280, 290, 310, 999, 1024, 2048), curve(square, 32, 64, 1024), 300, 1024},
		{curve(cubic, 64, 1024), curve(square, 64, 280, 320, 1024), 300, 1024},
		{nil, curve(square, 65), 0, 0},
		{curve(cubic, 300), curve(square, 300), 0, 300},
		{curve(cubic, 50, 150, 400), curve(twice, 50, 150, 400), 150 * math.Sqrt(400./150), 400}, // the last time, not the first
	} {
		at, last := overtakes(test.a, test.b)
		if last != test.last || !(at == test.at || math.Abs(at-test.at) < 1e-6*test.at) {
			t.Errorf("overtakes at %v, last %d; want %v, %d", at, last, test.at, test.last)
		}
	}
}

// TestCrossings: both of the CPU's curves are overtaken, the loop first.
func TestCrossings(t *testing.T) {
	curve := func(rate, start float64) []row {
		var rows []row
		m := newMachine(1, "", 1)
		for n := 32; n <= 1024; n *= 2 {
			r := m.record(pace{"x", false, rate, start, 0}, "cpu", bench.Cube(n), false)
			rows = append(rows, row{&r, 0})
		}
		return rows
	}
	slow, fast, gpu := curve(1, 0), curve(100, 0), curve(10_000, 200e-6)
	for _, v := range []struct {
		race race
		want string
		loop float64
	}{
		{race{loop: slow, cpu: fast, copied: gpu}, `^The GPU, its copies included, overtakes the textbook loop at N ≈ 4\d and the fastest CPU kernel at N ≈ 2\d\d; at N = 1024 it is 5\d\.\d× as fast$`, 46},
		{race{loop: slow, copied: gpu}, `^The GPU, its copies included, overtakes the textbook loop at N ≈ 4\d; at N = 1024 it is \d+× as fast$`, 0},
		{race{loop: slow, cpu: curve(1e5, 0), copied: gpu}, `^The GPU, its copies included, overtakes the textbook loop at N ≈ 4\d and is behind the fastest CPU kernel at N = 1024, with 0\.0\d+× its speed$`, 46},
	} {
		say, missing := v.race.answer()
		if !regexp.MustCompile(v.want).MatchString(say) || missing != nil {
			t.Errorf("%q, %q, want %q", say, missing, v.want)
		}
		if at := v.race.crossingLoop(); math.Abs(at-v.loop) > 2 {
			t.Errorf("the loop is overtaken at %v, want %v", at, v.loop)
		}
	}
}

// TestOneSize: of one size there are bars, and no lines; a series that nothing tells apart
// from others has its subject's name.
func TestOneSize(t *testing.T) {
	m := newMachine(1, "", 1)
	one := m.record(cpuModels[2], "cpu", bench.Cube(512), false)
	other := one
	other.In, other.Out, other.Peak = "int8", "int32", 0
	r := newReport(t, Source{"r", []bench.Record{one, other}})
	c := r.chart(t, "rate-cpu-at-one-size")
	if b := c.Drawing.(*Bars); len(b.Rows) != 2 || b.Label != "part of the highest rate" || !strings.Contains(c.Headline, "avx512 reaches") || len(c.Table.Rows) != 2 ||
		!strings.HasSuffix(b.Ends[0], " GFLOP/s") || !strings.HasSuffix(b.Ends[1], " GOP/s") {
		t.Errorf("bars %+v under %q", b, c.Headline)
	}
	for _, id := range []string{"time", "roofline", "ladder"} {
		if c := r.chart(t, id); c.Drawing != nil {
			t.Errorf("%s has a drawing of one size", id)
		}
	}
	r = newReport(t, Source{"a", []bench.Record{one, m.record(cpuModels[2], "cpu", bench.Cube(64), false)}}, Source{"b", []bench.Record{one}})
	if c := r.chart(t, "rate-cpu-float32"); !strings.HasPrefix(c.Drawing.(*Lines).Series[0].Name, "avx512 (") {
		t.Errorf("a series has the name %q", c.Drawing.(*Lines).Series[0].Name)
	}
}

// TestAside: a line passes by what was measured beside round sizes, whose points are there
// all the same, and by nothing of a run of sizes.
func TestAside(t *testing.T) {
	m := newMachine(1, "", 1)
	for _, test := range []struct{ sizes, line []int }{
		{[]int{4, 63, 64, 65, 100, 511, 512, 513}, []int{4, 64, 100, 512}},
		{[]int{7, 8, 9, 31, 33, 48}, []int{7, 8, 31, 33, 48}},
		{[]int{14, 15, 16, 17, 18}, []int{14, 15, 16, 17, 18}},
	} {
		var all []bench.Record
		for _, n := range test.sizes {
			all = append(all, m.record(cpuModels[2], "cpu", bench.Cube(n), false))
		}
		r := newReport(t, Source{"r", all})
		for _, id := range []string{"time-float32", "rate-cpu-float32"} {
			series := r.chart(t, id).Drawing.(*Lines).Series[0]
			line, points := series.plotters()
			var along []int
			for _, p := range line.XYs {
				along = append(along, int(p.X))
			}
			if !slices.Equal(along, test.line) || points.Len() != len(test.sizes) {
				t.Errorf("%s: of %v the line goes through %v, and there are the points %v", id, test.sizes, along, points.XYs)
			}
		}
	}
}

// TestChanges compares a machine with itself, with a faster one and with a slower one.
func TestChanges(t *testing.T) {
	for _, test := range []struct {
		speed float64
		want  string
	}{
		{1.1, `^Of 24 measurements in both, 24 got faster, 0 slower, and 0 did not change by more than chance; the geometric mean of the speed is 1\.10×\.$`},
		{0.9, `^Of 24 measurements in both, 0 got faster, 24 slower, and 0 did not change by more than chance; the geometric mean of the speed is 0\.90×\.$`},
		{1.012, `^Of 24 measurements in both, \d+ got faster, 0 slower \(\d+ of these by less than 2 %\), and \d+ did not change by more than chance; the geometric mean of the speed is 1\.01×\.$`},
		{1, `^Of 24 measurements in both, [0-4] got faster, [0-4] slower( \(\d of these by less than 2 %\))?, and (1[6-9]|2\d) did not change by more than chance; the geometric mean of the speed is (1\.00|0\.99|1\.01)×\.$`},
	} {
		old, new := newMachine(1, "", 1).sweep(), newMachine(2, "", test.speed).sweep()
		c := newReport(t, Source{"old", old}, Source{"new", new}).chart(t, "change-new-cpu-float32")
		if !regexp.MustCompile(test.want).MatchString(c.Headline) {
			t.Errorf("at the speed %v: %s", test.speed, c.Headline)
		}
	}
	old, new := newMachine(1, "", 1).sweep(), newMachine(2, "", 2).sweep()
	before := slices.Clone(old[0].Samples)
	for i := range new {
		new[i].Samples = new[i].Samples[:1]
	}
	newReport(t, Source{"old", old[:1]}, Source{"new", new[:1]})
	if !slices.Equal(before, old[0].Samples) {
		t.Error("comparing changed the samples of a record")
	}
	few := old[0]
	few.Samples = few.Samples[:1]
	r := newReport(t, Source{"old", []bench.Record{few}}, Source{"new", new[:1]})
	if c := r.chart(t, "change-new-cpu-float32"); !strings.Contains(strings.Join(c.Notes, " "), "too few samples") || !strings.Contains(c.Headline, "0 got faster") {
		t.Errorf("of one sample each: %q, %q", c.Headline, c.Notes)
	}
	third := newReport(t, Source{"old", old[:1]}, Source{"new", new[:1]}, Source{"else", old[1:]})
	if c := third.chart(t, "change"); c.Drawing != nil || !strings.Contains(c.Notes[0], "Nothing of else was measured in old, too") {
		t.Errorf("of nothing in common: %+v", c)
	}
}

// TestParts wants sources that have nothing in common to be one study, whose crossover
// lies between them.
func TestParts(t *testing.T) {
	all := newMachine(1, "NVIDIA H200", 1).sweep()
	onCPU := func(r bench.Record) bool { return r.Device == "cpu" }
	cpu := slices.DeleteFunc(slices.Clone(all), func(r bench.Record) bool { return !onCPU(r) })
	gpu := slices.DeleteFunc(slices.Clone(all), onCPU)
	whole, parts := newReport(t, Source{"all", all}), newReport(t, Source{"cpu", cpu}, Source{"gpu", gpu})
	if len(parts.Origins) != 2 || len(parts.Charts) != len(whole.Charts) {
		t.Fatalf("%d origins and %d charts, want 2 and %d", len(parts.Origins), len(parts.Charts), len(whole.Charts))
	}
	for i, c := range whole.Charts {
		if parts.Charts[i].Headline != c.Headline {
			t.Errorf("%s says %q, and of parts %q", c.ID, c.Headline, parts.Charts[i].Headline)
		}
	}
}

// write is the page.
func write(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPageStandsAlone wants a page that asks for nothing and believes no record.
func TestPageStandsAlone(t *testing.T) {
	records := newMachine(1, "<b>GPU</b> & co", 1).sweep()
	const evil = `"><script>alert(1)</script>`
	for i := range records {
		records[i].Subject += evil
		records[i].Environment.Command = "tilework " + evil
		for j := range records[i].Versus {
			records[i].Versus[j].Peer += evil
		}
	}
	records = append(records, bench.Record{Schema: 1, Subject: evil, Device: "cpu", In: "float32", Out: "float32", M: 1, N: 1, K: 1, Error: evil})
	page := write(t, newReport(t, Source{evil, records}))
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>GPU") {
		t.Error("what a record says is read as HTML")
	}
	for _, address := range regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]+[^\s"'<]*`).FindAllString(page, -1) {
		if !strings.HasPrefix(address, "http://www.w3.org/") { // the name of a namespace
			t.Errorf("the page has the address %s", address)
		}
	}
	for _, reference := range []string{"src=", "url(", "@import", "<link", "fetch(", "import("} {
		if strings.Contains(page, reference) {
			t.Errorf("the page has %s", reference)
		}
	}
	if open, closed := strings.Count(page, "<svg"), strings.Count(page, "</svg>"); open != closed || open == 0 {
		t.Errorf("%d drawings begin and %d end", open, closed)
	}
	for _, s := range shades() {
		if strings.Contains(page, fmt.Sprintf("#%06X", s.light)) {
			t.Errorf("a drawing has the colour #%06X in place of the variable %s: it would not follow the dark mode", s.light, s.name)
		}
	}
}

// TestShades wants each colour to have one meaning, so that a drawing's can be told, and
// a ratio's colour to get stronger as it goes away from 1.
func TestShades(t *testing.T) {
	seen := map[uint32]string{}
	for _, s := range shades() {
		if other, known := seen[s.light]; known {
			t.Errorf("%s and %s are both #%06X", s.name, other, s.light)
		}
		seen[s.light] = s.name
	}
	last := -1
	for ratio := 0.01; ratio < 100; ratio *= 1.01 {
		i := heatIndex(ratio)
		if i < last || i < 0 || i >= len(heatShades) || ratio < 0.98 && i > 3 || ratio > 1.02 && i < 5 {
			t.Fatalf("the ratio %v has shade %d after %d", ratio, i, last)
		}
		last = i
	}
	if heatIndex(1) != 4 || last != len(heatShades)-1 {
		t.Errorf("the ratio 1 has shade %d, and the largest %d", heatIndex(1), last)
	}
}

// check wants each drawing as a picture that a program can read and that shows
// something, and nothing drawn outside of it.
func check(t *testing.T, r *Report, pictures bool) {
	t.Helper()
	ids := map[string]bool{}
	for _, c := range r.Charts {
		if ids[c.ID] || c.ID == "" || c.ID != word(c.ID) {
			t.Errorf("the ID %q is not good for a file, or there twice", c.ID)
		}
		ids[c.ID] = true
		for _, row := range c.Table.Rows {
			if len(row) != len(c.Table.Columns) {
				t.Errorf("%s: a row of %d cells under %d headings: %q", c.ID, len(row), len(c.Table.Columns), row)
			}
		}
		if c.Drawing == nil {
			if len(c.Notes) == 0 || c.Headline != "" {
				t.Errorf("%s has no drawing, the headline %q and no reason", c.ID, c.Headline)
			}
			continue
		}
		if c.Headline == "" || len(c.Table.Rows) == 0 {
			t.Errorf("%s has a drawing without an answer or without figures", c.ID)
		}
		var svg bytes.Buffer
		if err := c.WriteSVG(&svg); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(svg.String(), "NaN") || strings.Contains(svg.String(), "Inf") {
			t.Errorf("%s: the drawing has places that are no numbers", c.ID)
		}
		for d := xml.NewDecoder(&svg); ; {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: the SVG is no XML: %v", c.ID, err)
			}
		}
		if !pictures {
			continue
		}
		var b bytes.Buffer
		if err := c.WritePNG(&b); err != nil {
			t.Fatal(err)
		}
		im, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		colours := map[[3]uint32]bool{}
		for y := 0; y < im.Bounds().Dy(); y += 3 { // a third of the lines is enough to see something
			for x := range im.Bounds().Dx() {
				r, g, b, a := im.At(x, y).RGBA()
				if a != 0xFFFF {
					t.Fatalf("%s: the picture is transparent", c.ID)
				}
				colours[[3]uint32{r, g, b}] = true
			}
		}
		if im.Bounds().Dx() < 1500 || len(colours) < 10 {
			t.Errorf("%s: a picture of %v with %d colours", c.ID, im.Bounds(), len(colours))
		}
	}
}

func TestPictures(t *testing.T) {
	check(t, newReport(t, Source{"a", newMachine(1, "NVIDIA H200", 1).sweep()}), true)
}

// TestAnyRecords tries records that nobody thought of.
func TestAnyRecords(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		m := &machine{random, pick("", "NVIDIA H200", "sm_90", "no such GPU"), math.Exp(10 * random.NormFloat64())}
		var sources []Source
		for i := range 1 + random.IntN(3) {
			var records []bench.Record
			for range random.IntN(40) + 1 {
				shape := bench.Shape{M: 1 << random.IntN(20), N: 1 + random.IntN(5000), K: 1 + random.IntN(3)}
				if random.IntN(2) == 0 {
					shape = bench.Cube(1 + random.IntN(4)*511)
				}
				on := pace{pick("loop", "tiled", strings.Repeat("long name ", 12), "ü", "<&>"), random.IntN(3) == 0, math.Exp(5 * random.NormFloat64()), 1e-6, random.Float64()}
				r := m.record(on, pick("cpu", "gpu:0", "gpu:1", "emu"), shape, random.IntN(2) == 0)
				r.In = pick("float32", "int8", "float64")
				r.Precision = pick("", "tf32")
				if random.IntN(3) == 0 {
					r.Peak, r.Samples, r.Steps = 0, r.Samples[:1], nil
				}
				if random.IntN(9) == 0 {
					r.Error = "it broke"
				}
				r.Versus = []bench.Ratio{{Peer: pick("openblas", "cublaslt", "x y"), Speed: math.Exp(5 * random.NormFloat64()), P10: 1, P90: 1}}
				records = append(records, r)
			}
			sources = append(sources, Source{fmt.Sprintf("%c.b", 'a'+i), records})
		}
		r := newReport(t, sources...)
		check(t, r, false)
		write(t, r)
	}
}

func TestTick(t *testing.T) {
	for v, want := range map[float64]string{16384: "16384", 0.25: "0.25", 65536: "65536", 1e9: "1e+09", 33.333333: "33.33", 0: "0"} {
		if got := tick(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
