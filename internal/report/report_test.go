package report

import (
	"math"
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

// chart returns the chart with the given ID.
func (r *Report) chart(t *testing.T, id string) *Chart {
	t.Helper()
	var ids []string
	for _, c := range r.Charts() {
		if c.ID == id {
			return c
		}
		ids = append(ids, c.ID)
	}
	t.Fatalf("got charts %v, want %s", ids, id)
	return nil
}

// TestAnswers compares the sentences with the speeds of the simulated machine.
func TestAnswers(t *testing.T) {
	r := newReport(t, Source{"h200", newMachine(1, "NVIDIA H200", 1).sweep()})
	if r.Title != "Matrix multiplication on Example CPU and NVIDIA H200" {
		t.Errorf("got title %q", r.Title)
	}
	for id, want := range map[string]string{
		// The crossover is at the N for which 2·N³/110e9 s equals about 90 µs of copies and launches.
		"time-float32": `^The GPU, copies included, overtakes the fastest CPU kernel at N ≈ ` +
			`(19\d|20\d); at N = 1024 it is 1\d\.\d× as fast\.$`,
		"time-large-float32": `^The GPU, copies included, is faster than the fastest CPU kernel at ` +
			`every common size; at N = 4096 it is 6\d\.\d× as fast\.$`,
		"ladder-cpu-float32-all-threads": `^At 1024³, avx512 is 9\d\.\d× as fast as loop and runs at 0\.9\d× the ` +
			`speed of openblas\.$`,
		"ladder-gpu-float32": `^At 8192³, blocked is 8\.\d\d× as fast as naive and runs at ` +
			`(0\.9\d|1\.00)× the speed of cublaslt\.$`,
		"sizes-gpu-float32": `^At 8192³, naive takes 19\d(\.\d)? ms and cublaslt takes 21\.\d+ ms\.$`,
		"rate-gpu-float32": `^Our fastest kernel, blocked, reaches 50\.\d TFLOP/s \(76 % of peak\) at ` +
			`8192³; cublaslt reaches 51\.\d TFLOP/s \(77 % of peak\) at 8192³\.$`,
		"rate-cpu-float32": `^Our fastest kernel, avx512, reaches 1[01]\d GFLOP/s \(7\d % of peak\) ` +
			`at \d+³; openblas reaches 11\d GFLOP/s \(7\d % of peak\) at \d+³\.$`,
		"ratio-gpu-float32": `^Our fastest kernel runs at 0\.9\d× the speed of cublaslt in the ` +
			`geometric mean of 12 cases, from 0\.8\d× at [0-9×³]+ to 1\.2\d× at 64³, and is slower in \d+ of 12\.$`,
		"ratio-cpu": `^Our fastest kernel runs at 0\.9\d× the speed of openblas in the ` +
			`geometric mean of 7 cases, .* and is slower in 7 of 7\.$`,
		"roofline-nvidia-h200": `^blocked reaches 7\d\.\d % of its peak at 8192³, with ` +
			`1365 operations per byte; 4 of the 12 points are left of the ridge\.$`,
		"transfers-float32-on-nvidia-h200": `^At 8192³, the multiplication takes 2\d\.\d % of the time from host ` +
			`memory to host memory\.$`,
	} {
		if c := r.chart(t, id); !regexp.MustCompile(want).MatchString(c.Answer) {
			t.Errorf("%s: got answer\n%s\nwant\n%s", id, c.Answer, want)
		}
	}
	if marks := r.chart(t, "time-float32").Drawing.(*Lines).Marks; len(marks) != 1 || marks[0].X < 190 ||
		marks[0].X > 210 {
		t.Errorf("got marks %v, want one at the crossover", marks)
	}
}

// TestScaling checks the speedups of several GPUs, and the rate of each for products that grow with
// their number.
func TestScaling(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	var records []bench.Record
	for _, gpus := range []int{1, 2, 4} {
		for _, factor := range []int{1, gpus} {
			on := pace{subject: "blocked", rate: 50_000 * float64(gpus) * (1 - 0.05*float64(gpus-1))}
			if gpus > 1 {
				on.subject += "@gpu:" + []string{2: "0,1", 4: "0,1,2,3"}[gpus] + "/columns"
			}
			records = append(records, m.record(on, "gpu:0,1,2,3", bench.Shape{M: factor * 8192, N: 8192, K: 8192}, false))
		}
	}
	r := newReport(t, Source{"r", records})
	for id, want := range map[string]string{
		"scaling-float32-on-nvidia-h200": `^8192³ takes 6\.\d+ ms on 4 GPUs, 3\.[34]\d?× as fast as on one: ` +
			`an efficiency of 8[3-7](\.\d)? %\.$`,
		"weak-scaling-float32-on-nvidia-h200": `^With 4 GPUs and 32768×8192×8192, each GPU has 8[3-7](\.\d)? % of the ` +
			`rate of 8192³\.$`,
	} {
		if c := r.chart(t, id); !regexp.MustCompile(want).MatchString(c.Answer) {
			t.Errorf("%s: got answer\n%s\nwant\n%s", id, c.Answer, want)
		}
	}
	if len(r.Tiles) < 2 || !strings.HasSuffix(r.Tiles[0].Label, "on 4 GPUs, 64 % of the peak") ||
		!strings.HasPrefix(r.Tiles[1].Label, "the speed of one GPU on 4") || r.Lead.ID != "scaling" {
		t.Errorf("got tiles %q and the lead %q, want the figures of 4 GPUs", r.Tiles, r.Lead.ID)
	}
	rows := r.chart(t, "scaling-float32-on-nvidia-h200").Table.Rows
	if len(rows) != 3 || rows[1][2].Text != "2" || math.Abs(rows[1][4].Number-1.9) > 0.05 {
		t.Errorf("got rows %v, want those of 1, 2 and 4 GPUs", rows)
	}
	for _, c := range r.Charts() {
		if strings.HasPrefix(c.ID, "ladder") || strings.HasPrefix(c.ID, "roofline") && len(c.Table.Rows) > 1 {
			t.Errorf("%s has records of several GPUs: %v", c.ID, c.Table.Rows)
		}
	}
	if r := newReport(t, Source{"r", records[:1]}); !strings.Contains(strings.Join(r.Missing, " "), "on several GPUs") {
		t.Errorf("one GPU: got missing answers %q", r.Missing)
	}
}

// TestPeersOfSeveral checks that a peer on several GPUs is compared with our kernels on as many,
// and is no curve beside the peak of one.
func TestPeersOfSeveral(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	const device = "gpu:0,1"
	ours := []bench.Record{}
	for subject, rate := range map[string]float64{"wgmma": 25_000, "wgmma@gpu:0,1": 48_000, "wgmma@gpu:0,1/each": 50_000} {
		r := m.record(pace{subject: subject, rate: rate}, device, bench.Cube(8192), false)
		r.Versus = []bench.Ratio{{Peer: "pytorch", Speed: rate / 40_000}}
		ours = append(ours, r)
	}
	peer := m.record(pace{subject: "pytorch", rate: 40_000}, device, bench.Cube(8192), false)
	peer.Peer = true
	r := newReport(t, Source{"r", append(ours, peer)})
	ratios := 0
	for _, s := range append(r.Sections, r.Lead) {
		for _, c := range s.Charts {
			switch text := c.Answer; {
			case strings.HasPrefix(c.ID, "rate-") && strings.Contains(text, "pytorch"):
				t.Errorf("%s: %s", c.ID, text)
			case strings.HasPrefix(c.ID, "ratio-"):
				if ratios++; !strings.Contains(text, "1.20×") {
					t.Errorf("%s: %s; want the ratio of B in rows, 1.20×", c.ID, text)
				}
			}
		}
	}
	if ratios == 0 {
		t.Error("no chart of ratios")
	}
}

// TestMissing checks that the report states the questions that it cannot answer, and has no section
// for them.
func TestMissing(t *testing.T) {
	cpu := newMachine(1, "", 1).sweep()
	gpu := slices.DeleteFunc(newMachine(1, "NVIDIA H200", 1).sweep(),
		func(r bench.Record) bool { return r.Device == "cpu" })
	bare := slices.DeleteFunc(slices.Clone(gpu), func(r bench.Record) bool { return r.Transfers })
	emulated, failed := slices.Clone(cpu), slices.Clone(cpu)
	for i := range cpu {
		emulated[i].Device = "emu"
		failed[i] = bench.Record{Subject: "avx512", Device: "cpu", In: "float32", Out: "float32", M: 1, N: 1, K: 1,
			Error: "it broke"}
	}
	both := append(slices.Clone(cpu), bare...)
	for _, test := range []struct {
		records  []bench.Record
		id, want string
	}{
		{cpu, "time-float32", "No GPU records: no crossover."},
		{gpu, "time-float32", "No CPU records: no crossover."},
		{both, "time-float32", "the crossover excludes copies"},
	} {
		c := newReport(t, Source{"r", test.records}).chart(t, test.id)
		if notes := strings.Join(c.Notes, " "); !strings.Contains(notes, test.want) {
			t.Errorf("%s: got notes %q, want %q", test.id, notes, test.want)
		}
	}
	for _, test := range []struct {
		records       []bench.Record
		section, want string
	}{
		{cpu, "transfers", "No square product was timed with its copies"},
		{cpu[2:3], "time", "so there is no crossover"},
		{emulated, "rate", "No square product was timed."},
		{cpu, "counts", "Nothing was counted"},
		{failed, "ratio", "No kernel was timed beside a library"},
		{failed, "roofline", "there is no roofline"},
		{failed, "ladder", "No two kernels"},
	} {
		r := newReport(t, Source{"r", test.records})
		if all := strings.Join(r.Missing, " "); !strings.Contains(all, test.want) {
			t.Errorf("got missing answers %q, want %q", all, test.want)
		}
		if slices.ContainsFunc(r.Sections, func(s *Section) bool { return s.ID == test.section }) {
			t.Errorf("got section %s, want none", test.section)
		}
	}
	for question, records := range map[string][]bench.Record{"How long does a product take?": cpu,
		"From which size is the GPU faster?": both} {
		r := newReport(t, Source{"r", records})
		if !slices.ContainsFunc(r.Sections, func(s *Section) bool { return s.Question == question }) {
			t.Errorf("no section has the question %q", question)
		}
	}
	for want, records := range map[string][]bench.Record{"of an emulated GPU": emulated, "without a time": failed,
		"replaced by a later record": append(slices.Clone(cpu), cpu...)} {
		if notes := strings.Join(newReport(t, Source{"r", records}).Notes, " "); !strings.Contains(notes, want) {
			t.Errorf("got notes %q, want %q", notes, want)
		}
	}
	if _, err := New([]Source{{"nothing", nil}}); err == nil {
		t.Error("no records: got no error")
	}
}

// TestCounts checks that counts have a chart of their own and are not treated as times.
func TestCounts(t *testing.T) {
	cpu := newMachine(1, "", 1).sweep()
	count := func(subject string, n int, loaded, sectors, ideal, conflicts int64) bench.Record {
		return bench.Record{
			Schema: bench.Schema, Subject: subject, Device: "emu:t4", In: "float32", Out: "float32", M: n, N: n, K: n, LDA: n,
			LDB: n, LDC: n, Alpha: 1,
			Environment: bench.Environment{GPU: "t4, emulated"},
			Counts: &bench.Counts{
				Instructions: 1000, Flops: 2 * int64(n*n*n), LoadBytes: loaded, Sectors: sectors, IdealSectors: ideal,
				Wavefronts: 100 + conflicts, IdealWavefronts: 100,
			},
		}
	}
	counted := []bench.Record{
		count("naive", 64, 1<<21, 4000, 3000, 0), count("tiled:16", 64, 1<<17, 400, 400, 0),
		count("naive", 32, 1<<18, 500, 400, 0), count("padless", 64, 1<<17, 400, 400, 25),
	}
	counted[0].Counts.Historic = &bench.HistoricCounts{HalfWarps: 100, Transactions: 850}
	counted[3].Counts.Historic = &bench.HistoricCounts{HalfWarps: 50, Transactions: 50, Wavefronts: 30,
		IdealWavefronts: 20}
	r := newReport(t, Source{"r", append(cpu, counted...)})
	if r.Title != "Matrix multiplication on Example CPU" {
		t.Errorf("got title %q", r.Title)
	}
	c := r.chart(t, "counts-float32-for-t4")
	const want = "At 64³, naive does 0.250 FLOP per byte loaded, and tiled:16 does 4.00; bank conflicts: padless (25.0 " +
		"% more wavefronts)."
	if c.Answer != want {
		t.Errorf("got answer\n%s\nwant\n%s", c.Answer, want)
	}
	bars := c.Drawing.(*Rows).Rows
	if len(bars) != 3 || bars[0].Values[0].V != 3000 || bars[0].Values[1].V != 1000 || bars[1].Values[0].V != 400 ||
		bars[1].Values[1].V != 0 {
		t.Errorf("got bars %+v", bars)
	}
	if notes := strings.Join(c.Notes, " "); !strings.Contains(notes,
		"Transactions per half-warp by this rule: naive 8.50 and padless 1.00.") {
		t.Errorf("got notes %q", notes)
	}
	if row := c.Table.Rows[3]; row[12].Text != "1.00" || row[13].Number != 10 {
		t.Errorf("got last row %v", row)
	}
	if len(c.Table.Rows) != 4 || c.Table.Rows[1][3] != (Cell{"524,288", 524288}) {
		t.Errorf("got table %v", c.Table.Rows)
	}
	if r := newReport(t, Source{"r", counted}); r.Title != "Matrix multiplication, counted for t4" || len(r.Notes) != 0 {
		t.Errorf("counts alone: got title %q, notes %q", r.Title, r.Notes)
	}
}

// TestRounding checks that ratios refer to a peer that does not round its operands, if there is
// one, and that a note states the time that rounding saves.
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
	c := newReport(t, Source{"h200", all}).chart(t, "ratio-gpu")
	mean := regexp.MustCompile(`^Our fastest kernel runs at 0\.9\d× the speed of cublaslt in `)
	if !mean.MatchString(c.Answer) {
		t.Errorf("got answer %q", c.Answer)
	}
	alone := m.compete([]pace{gpuModels[2], tensor}, "gpu:0", bench.Cube(1024))
	alone[1].Precision = "tf32"
	alone = append(alone, m.compete([]pace{gpuModels[2], tensor}, "gpu:0", bench.Cube(2048))...)
	alone[3].Precision = "tf32"
	beside := newReport(t, Source{"h200", alone}).chart(t, "ratio-gpu-float32")
	rounds := "the speed of cublaslt-tf32, which, unlike ours, rounds A and B to tf32, in the geometric mean of 2 cases"
	if !strings.Contains(beside.Answer, rounds) {
		t.Errorf("with a peer that rounds: got answer %q, want %q", beside.Answer, rounds)
	}
	want := regexp.MustCompile(`^cublaslt-tf32 rounds A and B to tf32 for the tensor cores: 3\d\d(\.\d)? µs at ` +
		`4096³; cublaslt, which does not round, takes 2\.6\d+ ms\.$`)
	if !slices.ContainsFunc(c.Notes, want.MatchString) {
		t.Errorf("got notes %q", c.Notes)
	}
}

// TestInexact checks that a kernel that rounds its operands has a ladder of its own, is not in the
// charts of exact products, and is compared with a peer that rounds in the same way.
func TestInexact(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	models := append(slices.Clone(gpuModels), pace{"mma-tf32", false, 150_000, 5e-6, 0},
		pace{"wgmma-tf32", false, 380_000, 5e-6, 0}, pace{"cublaslt-tf32", true, 400_000, 5e-6, 0})
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
		"ladder-gpu-float32": `^At 4096³, blocked is 8\.\d+× as fast as naive and runs at 0\.9\d× the speed ` +
			`of cublaslt\.$`,
		"ladder-gpu-float32-in-tf32": `^At 4096³, wgmma-tf32 is 2\.\d+× as fast as mma-tf32 and runs at ` +
			`(0\.9\d|1\.0\d)× the speed of cublaslt-tf32\.$`,
		"ratio-gpu": `^Geometric means of our fastest kernel: float32 (0\.9\d|1\.00)× the speed of ` +
			`cublaslt \(slower in \d of 7\); float32 in tf32 (0\.9\d|1\.0\d)× the speed of cublaslt-tf32 \(slower in \d ` +
			`of 7\)\.$`,
	} {
		if c := r.chart(t, id); !regexp.MustCompile(want).MatchString(c.Answer) {
			t.Errorf("%s: got answer\n%s\nwant\n%s", id, c.Answer, want)
		}
	}
	for _, row := range r.chart(t, "time-large-float32").Table.Rows {
		if strings.HasSuffix(row[2].Text, "-tf32") {
			t.Errorf("the times of float32 contain %v", row)
		}
	}
	for _, c := range r.Charts() {
		if strings.HasPrefix(c.ID, "time") && strings.HasSuffix(c.ID, "bfloat16") {
			t.Errorf("%s has one curve only", c.ID)
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
	square := func(n float64) float64 { return 300 * n * n } // intersects cubic at 300
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
		{curve(cubic, 50, 150, 400), curve(twice, 50, 150, 400), 150 * math.Sqrt(400./150),
			400}, // the last crossing, not the first
	} {
		x := overtakes(test.a, test.b)
		if x.last != test.last || !(x.at == test.at || math.Abs(x.at-test.at) < 1e-6*test.at) {
			t.Errorf("got crossing at %v, last %d; want %v, %d", x.at, x.last, test.at, test.last)
		}
	}
}

// TestCrossings checks that the GPU overtakes both curves of the CPU, the loop first.
func TestCrossings(t *testing.T) {
	curve := func(rate, start float64) []row {
		var rows []row
		m := newMachine(1, "", 1)
		for n := 32; n <= 1024; n *= 2 {
			r := m.record(pace{"x", false, rate, start, 0}, "cpu", bench.Cube(n), false)
			rows = append(rows, row{Record: &r})
		}
		return rows
	}
	slow, fast, gpu := curve(1, 0), curve(100, 0), curve(10_000, 200e-6)
	for _, v := range []struct {
		curves timeCurves
		want   string
		loop   float64
	}{
		{timeCurves{loop: slow, cpu: fast, copied: gpu},
			`^The GPU, copies included, overtakes the textbook loop at N ≈ 4\d and the fastest CPU kernel at N ≈ 2\d\d; ` +
				`at N = 1024 it is 5\d\.\d× as fast$`, 46},
		{timeCurves{loop: slow, copied: gpu}, `^The GPU, copies included, overtakes the textbook loop at N ≈ 4\d; at ` +
			`N = 1024 it is \d+× as fast$`, 0},
		{timeCurves{loop: slow, cpu: curve(1e5, 0), copied: gpu},
			`^The GPU, copies included, overtakes the textbook loop at N ≈ 4\d and is slower than the fastest CPU kernel ` +
				`at N = 1024, at 0\.0\d+× its speed$`, 46},
	} {
		sentence, missing := v.curves.answer()
		if !regexp.MustCompile(v.want).MatchString(sentence) || missing != nil {
			t.Errorf("got %q, missing %q, want %q", sentence, missing, v.want)
		}
		if x := v.curves.crossingLoop(); math.Abs(x.at-v.loop) > 2 {
			t.Errorf("got crossing with the loop at %v, want %v", x.at, v.loop)
		}
	}
}

// TestOneSize checks that a single size has bars and no lines.
func TestOneSize(t *testing.T) {
	m := newMachine(1, "", 1)
	one := m.record(cpuModels[2], "cpu", bench.Cube(512), false)
	other := one
	other.In, other.Out, other.Peak = "int8", "int32", 0
	r := newReport(t, Source{"r", []bench.Record{one, other}})
	c := r.chart(t, "rate-cpu-few-sizes")
	if b := c.Drawing.(*Rows); len(b.Rows) != 2 || !strings.Contains(c.Answer, "avx512 reaches") ||
		len(c.Table.Rows) != 2 {
		t.Errorf("got bars %+v with the answer %q", b, c.Answer)
	}
	if all := r.Charts(); len(all) != 1 {
		t.Errorf("got %d charts, want 1", len(all))
	}
}

// TestOtherShapes checks that products that are neither square nor beside a library have a chart,
// and that the others do not appear in it.
func TestOtherShapes(t *testing.T) {
	m := newMachine(1, "", 1)
	other := m.record(cpuModels[2], "cpu", bench.Shape{M: 30, N: 500, K: 70}, false)
	another := m.record(cpuModels[2], "cpu", bench.Shape{M: 9, N: 5, K: 700}, false)
	library := m.record(cpuModels[3], "cpu", bench.Shape{M: 9, N: 5, K: 700}, false)
	square := m.record(cpuModels[2], "cpu", bench.Cube(512), false)
	compared := m.compete(cpuModels, "cpu", bench.Shape{M: 7, N: 8, K: 9})
	for _, records := range [][]bench.Record{
		{other, another, square}, {library, another, square}, append(compared, other, another, square),
	} {
		c := newReport(t, Source{"r", records}).chart(t, "rate-cpu-other-shapes")
		if rows := c.Drawing.(*Rows).Rows; len(rows) != 2 || len(c.Table.Rows) != 2 ||
			!strings.Contains(rows[1].Name, "9×5×700") {
			t.Errorf("got rows %+v and %d rows in the table, want two", rows, len(c.Table.Rows))
		}
	}
	r := newReport(t, Source{"r", append(compared, square)})
	if !slices.Contains(r.Missing, "Every product was square, or was timed beside a library.") {
		t.Errorf("missing: %q", r.Missing)
	}
}

// TestSkipsPointsNearRoundSizes checks that a line skips the points measured next to round sizes,
// and no others.
func TestSkipsPointsNearRoundSizes(t *testing.T) {
	m := newMachine(1, "", 1)
	for _, test := range []struct{ sizes, line []float64 }{
		{[]float64{4, 63, 64, 65, 100, 511, 512, 513}, []float64{4, 64, 100, 512}},
		{[]float64{7, 8, 9, 31, 33, 48}, []float64{7, 8, 31, 33, 48}},
		{[]float64{14, 15, 16, 17, 18}, []float64{14, 15, 16, 17, 18}},
	} {
		var all []bench.Record
		for _, n := range test.sizes {
			all = append(all, m.record(cpuModels[2], "cpu", bench.Cube(int(n)), false))
		}
		lines := newReport(t, Source{"r", all}).chart(t, "rate-cpu-float32").Drawing.(*Lines)
		series := &lines.Series[0]
		unit := scale{Axis: &Axis{}, high: 1, to: 1}
		var along []float64
		for _, p := range series.line(unit, unit) {
			along = append(along, math.Round(p.x))
		}
		if !slices.Equal(along, test.line) || len(series.Points) != len(test.sizes) {
			t.Errorf("sizes %v: the line passes through %v of %d points", test.sizes, along, len(series.Points))
		}
	}
}

// TestChanges compares a machine with itself, with a faster one and with a slower one.
func TestChanges(t *testing.T) {
	for _, test := range []struct {
		speed float64
		want  string
	}{
		{1.1, `^Of 24 common measurements, 24 became faster, 0 slower, and 0 did not change by more than chance; the ` +
			`geometric mean of the speed is 1\.10×\.$`},
		{0.9, `^Of 24 common measurements, 0 became faster, 24 slower, and 0 did not change by more than chance; the ` +
			`geometric mean of the speed is 0\.90×\.$`},
		{1.012, `^Of 24 common measurements, \d+ became faster, 0 slower \(\d+ of these by less than 2 %\), and \d+ ` +
			`did not change by more than chance; the geometric mean of the speed is 1\.01×\.$`},
		{1, `^Of 24 common measurements, [0-4] became faster, [0-4] slower( \(\d of these by less than 2 %\))?, and ` +
			`(1[6-9]|2\d) did not change by more than chance; the geometric mean of the speed is (1\.00|0\.99|1\.01)×\.$`},
	} {
		old, new := newMachine(1, "", 1).sweep(), newMachine(2, "", test.speed).sweep()
		c := newReport(t, Source{"old", old}, Source{"new", new}).chart(t, "change-new-cpu-float32")
		if !regexp.MustCompile(test.want).MatchString(c.Answer) {
			t.Errorf("speed %v: got answer %s", test.speed, c.Answer)
		}
	}
	old, new := newMachine(1, "", 1).sweep(), newMachine(2, "", 2).sweep()
	before := slices.Clone(old[0].Samples)
	for i := range new {
		new[i].Samples = new[i].Samples[:1]
	}
	newReport(t, Source{"old", old[:1]}, Source{"new", new[:1]})
	if !slices.Equal(before, old[0].Samples) {
		t.Error("the comparison modified the samples of a record")
	}
	few := old[0]
	few.Samples = few.Samples[:1]
	r := newReport(t, Source{"old", []bench.Record{few}}, Source{"new", new[:1]})
	if c := r.chart(t, "change-new-cpu-float32"); !strings.Contains(strings.Join(c.Notes, " "), "too few samples") ||
		!strings.Contains(c.Answer, "0 became faster") {
		t.Errorf("one sample each: got answer %q, notes %q", c.Answer, c.Notes)
	}
	third := newReport(t, Source{"old", old[:1]}, Source{"new", new[:1]}, Source{"else", old[1:]})
	if missing := strings.Join(third.Missing, " "); !strings.Contains(missing, "No measurement of else is also in old.") {
		t.Errorf("no common measurement: got missing answers %q", missing)
	}
}

// TestParts checks that sources without a common measurement become one study with a crossover
// between them.
func TestParts(t *testing.T) {
	all := newMachine(1, "NVIDIA H200", 1).sweep()
	onCPU := func(r bench.Record) bool { return r.Device == "cpu" }
	cpu := slices.DeleteFunc(slices.Clone(all), func(r bench.Record) bool { return !onCPU(r) })
	gpu := slices.DeleteFunc(slices.Clone(all), onCPU)
	whole, parts := newReport(t, Source{"all", all}), newReport(t, Source{"cpu", cpu}, Source{"gpu", gpu})
	if len(parts.Origins) != 2 || len(parts.Charts()) != len(whole.Charts()) {
		t.Fatalf("got %d origins and %d charts, want 2 and %d", len(parts.Origins), len(parts.Charts()), len(whole.Charts()))
	}
	for i, c := range whole.Charts() {
		if parts.Charts()[i].Answer != c.Answer {
			t.Errorf("%s: got answer %q from the parts, want %q", c.ID, parts.Charts()[i].Answer, c.Answer)
		}
	}
}

func TestTick(t *testing.T) {
	for v, want := range map[float64]string{16384: "16384", 0.25: "0.25", 65536: "65536", 1e9: "1e+09", 33.333333: "33.33",
		0: "0"} {
		if got := tick(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}

// TestScatter checks that many shapes get a chart of the ratio against size, with the fastest
// library of each, and that of the candidates of bench --choice only the chosen one counts.
func TestScatter(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	paces := []pace{{bench.Chosen, false, 50_000, 4e-6, 0}, {"blocked", false, 60_000, 1e-6, 0},
		{"cublaslt", true, 50_000, 5e-6, 0}, {"slow", true, 100, 5e-6, 0}}
	var all []bench.Record
	for i := range 40 {
		all = append(all, m.compete(paces, "gpu", bench.Shape{M: 10 + i, N: 100 * (1 + i%7), K: 32 << (i % 5)})...)
	}
	r := newReport(t, Source{"r", all})
	c := r.chart(t, "scatter-gpu-float32")
	want := regexp.MustCompile(`^Our fastest kernel runs at 1\.[12]\d× the speed of the fastest library in the ` +
		`geometric mean of 40 cases; 0 are below 0\.9×, 0 below 0\.8×, and the worst is 1\.\d\d× at `)
	if !want.MatchString(c.Answer) {
		t.Errorf("got answer %q", c.Answer)
	}
	notes := strings.Join(c.Notes, " ")
	if x := c.Drawing.(*Lines).X.Label; x != "operations" || !strings.Contains(notes, "or 4·M·N·K if it is gated") {
		t.Errorf("got X axis %q, notes %q; want the operations of a gated product in a note", x, c.Notes)
	}
	points := 0
	for _, s := range c.Drawing.(*Lines).Series {
		if !s.LineOnly {
			points += len(s.Points)
		}
	}
	if points != 40 || len(c.Table.Rows) != 40 {
		t.Errorf("got %d points and %d rows in the table, want 40", points, len(c.Table.Rows))
	}
	for _, row := range c.Table.Rows {
		if row[1].Text != "cublaslt" || row[2].Text != bench.Chosen {
			t.Errorf("got row %v, want %s beside cublaslt", row, bench.Chosen)
		}
	}
	for _, c := range newReport(t, Source{"r", all[:40]}).Charts() {
		if strings.HasPrefix(c.ID, "scatter") {
			t.Errorf("10 shapes got chart %s", c.ID)
		}
	}
}
