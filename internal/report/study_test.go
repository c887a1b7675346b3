package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tilework/internal/bench"
	"tilework/internal/device/timeline"
)

// TestSizesWithOtherThreads checks the tiles of records whose first size was measured with another
// number of threads than the most frequent size.
func TestSizesWithOtherThreads(t *testing.T) {
	m := newMachine(1, "", 1)
	records := []bench.Record{
		m.record(cpuModels[0], "cpu", bench.Cube(64), false),
		m.record(cpuModels[0], "cpu", bench.Cube(128), false),
		m.record(cpuModels[2], "cpu", bench.Cube(128), false),
	}
	records[0].Threads, records[1].Threads, records[2].Threads = 1, 2, 2
	for _, tile := range newReport(t, Source{"r", records}).Tiles {
		if tile.Label == "avx512 relative to loop at 128³" {
			return
		}
	}
	t.Error("no tile with the gain at 128³")
}

// TestPeerOnMoreGPUs checks a report in which the only library ran on more GPUs than our kernel.
func TestPeerOnMoreGPUs(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	r := m.record(gpuModels[2], "gpu:0,1", bench.Cube(512), false)
	r.Versus = []bench.Ratio{{Peer: "pytorch", Speed: 0.5, P10: 0.5, P90: 0.5}}
	missing := strings.Join(newReport(t, Source{"r", []bench.Record{r}}).Missing, " ")
	if !strings.Contains(missing, "on more GPUs than the kernels") {
		t.Errorf("got missing answers %q", missing)
	}
}

// TestNoSectors checks the chart of a product whose kernel requests nothing from memory.
func TestNoSectors(t *testing.T) {
	m := newMachine(1, "", 1)
	r := m.record(gpuModels[0], "emu", bench.Cube(16), false)
	r.Counts = &bench.Counts{Instructions: 1, Flops: 8192}
	check(t, newReport(t, Source{"r", []bench.Record{r}}))
}

// TestLaterRecord checks that the last of two records of one measurement is kept, and both of two
// that differ.
func TestLaterRecord(t *testing.T) {
	m := newMachine(1, "", 1)
	first, last := m.record(cpuModels[2], "cpu", bench.Cube(64), false), m.record(cpuModels[2], "cpu", bench.Cube(64),
		false)
	s := newStudy([]Source{{"r", []bench.Record{first, last}}})
	if len(s.rows) != 1 || s.rows[0].Seconds != last.Seconds {
		t.Errorf("got %d records, want the last one", len(s.rows))
	}
	for name, change := range map[string]func(*bench.Record){
		"threads": func(r *bench.Record) { r.Threads = 1 }, "trans": func(r *bench.Record) { r.TransA = true },
		"cold": func(r *bench.Record) { r.Cold = true }, "copies": func(r *bench.Record) { r.Transfers = true },
		"scalars": func(r *bench.Record) { r.Beta = 1 }, "strides": func(r *bench.Record) { r.LDB = 100 },
		"epilogue": func(r *bench.Record) { r.Activation = "relu" }, "type": func(r *bench.Record) { r.In = "bfloat16" },
		"device":   func(r *bench.Record) { r.Environment.CPU = "Other CPU" },
		"products": func(r *bench.Record) { r.Products = 8 }, "groups": func(r *bench.Record) { r.Groups = []int{32, 32} },
		"rows": func(r *bench.Record) { r.RowInvariant = true },
	} {
		other := last
		change(&other)
		s := newStudy([]Source{{"r", []bench.Record{first, other}}})
		if len(s.rows) != 2 {
			t.Errorf("%s: got one of two different records", name)
			continue
		}
		n := s.naming(s.rows)
		of := func(r row) string { return n.of(r, shape(r.Record)) }
		if a, b := of(s.rows[0]), of(s.rows[1]); a == b || strings.Contains(a, "avx512") {
			t.Errorf("%s: got names %q and %q for different records", name, a, b)
		}
	}
}

// TestPeersOnMoreGPUs checks that a library on two GPUs and on four has two measurements, and that
// the chart of ratios has both.
func TestPeersOnMoreGPUs(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	var records []bench.Record
	for gpus, device := range map[int]string{2: "gpu:0,1", 4: "gpu:0,1,2,3"} {
		ours := m.record(pace{subject: "wgmma@" + device, rate: 40_000 * float64(gpus)}, device, bench.Cube(8192), false)
		ours.Versus = []bench.Ratio{{Peer: "pytorch", Speed: float64(gpus), P10: 1, P90: 5}}
		peer := m.record(pace{subject: "pytorch", peer: true, rate: 20_000}, device, bench.Cube(8192), false)
		records = append(records, ours, peer)
	}
	r := newReport(t, Source{"r", records})
	if len(r.Notes) != 0 {
		t.Errorf("got notes %q", r.Notes)
	}
	c := r.chart(t, "ratio-gpu-float32")
	if want := "from 2.00×? (8192³, 2 GPUs) to 4.00×? (8192³, 4 GPUs), and is slower in none of 2."; !strings.HasSuffix(
		c.Answer, want) {
		t.Errorf("got answer %q, want it to end with %q", c.Answer, want)
	}
	rows := c.Drawing.(*Rows).Rows
	if len(rows) != 2 || rows[0].Name != "8192³, 2 GPUs" || rows[1].Name != "8192³, 4 GPUs" {
		t.Errorf("got rows %+v, want the ratios of 2 and of 4 GPUs", rows)
	}
}

// TestOtherDevices checks records of two GPUs: in one source they have curves of their own, in two
// sources they are compared, unless both sources have both.
func TestOtherDevices(t *testing.T) {
	old, new := newMachine(1, "NVIDIA H100", 1), newMachine(2, "NVIDIA H200", 2)
	sweep := func(m *machine) (records []bench.Record) {
		for n := 1024; n <= 4096; n *= 2 {
			records = append(records, m.record(gpuModels[2], "gpu:0", bench.Cube(n), false))
		}
		return records
	}
	both := append(sweep(old), sweep(new)...)
	c := newReport(t, Source{"r", both}).chart(t, "rate-gpu-float32")
	if keys := c.Legend(); len(keys) < 2 || keys[0].Name != "NVIDIA H100" || keys[1].Name != "NVIDIA H200" {
		t.Errorf("one source: got legend %+v", keys)
	}
	r := newReport(t, Source{"old", sweep(old)}, Source{"new", sweep(new)})
	if tile := r.Tiles[0]; tile.Value < "1.9" || tile.Value > "2.1" {
		t.Errorf("two sources: got tile %+v", tile)
	}
	if notes := strings.Join(r.chart(t, "change-new-gpu-float32").Notes, " "); !strings.Contains(notes,
		"old was measured on NVIDIA H100, and new on NVIDIA H200.") {
		t.Errorf("two sources: got notes %q", notes)
	}
	if keys := r.chart(t, "rate-gpu-float32").Legend(); keys[2].Name != "blocked" {
		t.Errorf("two sources: got legend %+v", keys)
	}
	r = newReport(t, Source{"old", both}, Source{"new", sweep(new)})
	if changes := r.chart(t, "change-new-gpu-float32"); len(changes.Table.Rows) != 3 || strings.Contains(
		strings.Join(changes.Notes, " "), "was measured on") {
		t.Errorf("sources with a common GPU: got %d rows, notes %q", len(changes.Table.Rows), changes.Notes)
	}
}

// TestUnlikeDevices checks that sources are not compared across devices if one of them has several
// devices of a kind, in any order of the records.
func TestUnlikeDevices(t *testing.T) {
	on := func(gpu string, n int) bench.Record {
		return newMachine(1, gpu, 1).record(gpuModels[2], "gpu:0", bench.Cube(n), false)
	}
	for _, old := range [][]bench.Record{
		{on("NVIDIA H100 NVL", 1024), on("NVIDIA B200", 1024)},
		{on("NVIDIA B200", 1024), on("NVIDIA H100 NVL", 1024)},
		{on("NVIDIA H100 NVL", 1024), on("NVIDIA B200", 2048)},
	} {
		r := newReport(t, Source{"old", old}, Source{"new", []bench.Record{on("NVIDIA H200", 1024),
			on("NVIDIA H200", 2048)}})
		for _, c := range r.Charts() {
			if strings.HasPrefix(c.ID, "change") {
				t.Errorf("got chart %s with notes %q", c.ID, c.Notes)
			}
		}
		const want = "No measurement of new is also in old. Measurements of different devices are compared only if each " +
			"source has one device of that kind."
		if !slices.Contains(r.Missing, want) {
			t.Errorf("got missing answers %q, want %q", r.Missing, want)
		}
	}
	both := []bench.Record{on("NVIDIA H100 NVL", 1024), on("NVIDIA H200", 2048)}
	r := newReport(t, Source{"old", both}, Source{"new", []bench.Record{on("NVIDIA H200", 1024)}})
	if tiles := r.Tiles; len(tiles) != 0 {
		t.Errorf("other cases of a common GPU: got tiles %+v, want no comparison", tiles)
	}
}

// TestCountsOfGPUs checks that counts for different GPUs become one study, and that those for the
// same GPU are of two sources that are compared.
func TestCountsOfGPUs(t *testing.T) {
	count := func(gpu string) []bench.Record {
		r := newMachine(1, "", 1).record(gpuModels[0], "emu:"+gpu, bench.Cube(16), false)
		r.Environment.GPU = gpu + ", emulated"
		r.Counts = &bench.Counts{Instructions: 1, Flops: 8192, Sectors: 10, IdealSectors: 5}
		return []bench.Record{r}
	}
	r := newReport(t, Source{"h", count("h200")}, Source{"t", count("t4")})
	if r.Title != "Matrix multiplication, counted for h200 and t4" {
		t.Errorf("got title %q", r.Title)
	}
	r.chart(t, "counts-float32-for-h200")
	r.chart(t, "counts-float32-for-t4")
	same := newReport(t, Source{"old", count("t4")}, Source{"new", count("t4")})
	same.chart(t, "counts-float32-for-t4-old")
	same.chart(t, "counts-float32-for-t4-new")
	for _, missing := range slices.Concat(r.Missing, same.Missing) {
		if strings.Contains(missing, "is also in") {
			t.Errorf("sources with the same or different GPUs: got missing answer %q", missing)
		}
	}
}

// TestGroups checks the names of products whose lists of groups differ in their order only.
func TestGroups(t *testing.T) {
	long := []int{1, 2, 3, 4, 5, 6, 7, 8, 28}
	for _, test := range []struct {
		groups []int
		want   []string
	}{
		{[]int{4, 2, 1, 1}, []string{"groups of 4, 2, 1 and 1 rows", "groups of 1, 1, 2 and 4 rows"}},
		{long, []string{"groups of 1 to 28 rows, list 1", "groups of 1 to 28 rows, list 2"}},
	} {
		r := newMachine(1, "NVIDIA H200", 1).record(gpuModels[2], "gpu:0", bench.Shape{M: 64, N: 64, K: 64}, false)
		other := r
		r.Groups, other.Groups = test.groups, slices.Clone(test.groups)
		slices.Reverse(other.Groups)
		s := newStudy([]Source{{"r", []bench.Record{r, other, r}}})
		names := s.naming(s.rows)
		var got []string
		for _, r := range s.rows {
			got = append(got, names.of(r))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("groups %v and reversed: got names %q, want %q", test.groups, got, test.want)
		}
	}
}

// TestEpilogueOnGPUs checks that the charts of several GPUs keep products with different epilogues
// apart.
func TestEpilogueOnGPUs(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	var records []bench.Record
	for gpus, subject := range []string{1: "wgmma", 2: "wgmma@gpu:0,1"} {
		if gpus == 0 {
			continue
		}
		for _, size := range []int{8192, 8192 * gpus} {
			for i, activation := range []string{"", "gelu"} {
				r := m.record(pace{subject: subject, rate: 40_000 * float64(gpus+i)}, "gpu:0,1", bench.Shape{M: size, N: 8192,
					K: 8192}, false)
				r.Activation = activation
				r.Breakdown = slices.Repeat([]timeline.Breakdown{{Device: "gpu:0", Seconds: 1, Compute: 1}}, gpus)
				records = append(records, r)
			}
		}
	}
	r := newReport(t, Source{"r", records})
	for _, c := range []struct {
		chart string
		want  []string
	}{
		{"scaling-float32-on-nvidia-h200", []string{"8192³, no epilogue, wgmma", "8192³, gelu, wgmma"}},
		{"weak-scaling-float32-on-nvidia-h200", []string{"wgmma, no epilogue, from 8192³", "wgmma, gelu, from 8192³"}},
	} {
		var names []string
		for _, s := range r.chart(t, c.chart).Drawing.(*Lines).Series {
			if !s.LineOnly {
				names = append(names, s.Name)
			}
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%s: got series %q, want %q", c.chart, names, c.want)
		}
	}
	if rows := r.chart(t, "scaling-float32-on-nvidia-h200").Table.Rows; len(rows) != 4 || rows[3][4].Number > 1.7 {
		t.Errorf("got rows %v, want speedups of 2 without an epilogue and of 1.5 with one", rows)
	}
	var names []string
	for _, b := range r.chart(t, "breakdown-float32-on-nvidia-h200").Drawing.(*Rows).Rows {
		names = append(names, b.Name)
	}
	for _, want := range []string{"8192³, no epilogue, gpu:0", "8192³, gelu, gpu:0"} {
		if !slices.Contains(names, want) {
			t.Errorf("got bars %q, want %q", names, want)
		}
	}
}

// TestRooflineOfTypes checks that a roofline has a point for each type, at the intensity of that
// type, and that groups read a B each.
func TestRooflineOfTypes(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	single := m.record(gpuModels[2], "gpu:0", bench.Shape{M: 64, N: 1024, K: 1024}, false)
	half := m.record(pace{subject: "wgmma", rate: 400_000}, "gpu:0", bench.Shape{M: 64, N: 1024, K: 1024}, false)
	half.In, half.Out = "bfloat16", "bfloat16"
	grouped := half
	grouped.Groups = []int{32, 32}
	rows := newReport(t, Source{"r", []bench.Record{single, half, grouped}}).chart(t, "roofline-nvidia-h200").Table.Rows
	if len(rows) != 3 {
		t.Fatalf("got %d points, want 3", len(rows))
	}
	const flops, ac, b = 2 * 64 * 1024 * 1024, 2 * 64 * 1024, 1024 * 1024 // elements
	for i, want := range []float64{flops / 4. / (ac + b), flops / 2. / (ac + b), flops / 2. / (ac + 2*b)} {
		if got := rows[i][3].Number; math.Abs(got-want) > 1e-9*want {
			t.Errorf("%v: got %v operations per byte, want %v", rows[i][2].Text, got, want)
		}
	}
}

// TestManyProducts checks that the charts of several GPUs show a readable number of products, the
// largest, and that the tables have all.
func TestManyProducts(t *testing.T) {
	const products = 40
	m := newMachine(1, "NVIDIA H200", 1)
	var records []bench.Record
	for i := range products {
		for gpus, subject := range map[float64]string{1: "wgmma", 2: "wgmma@gpu:0,1"} {
			r := m.record(pace{subject: subject, rate: 40_000 * gpus}, "gpu:0,1", bench.Shape{M: 256 * (i + 1), N: 512, K: 512},
				false)
			for range int(gpus) {
				r.Breakdown = append(r.Breakdown, timeline.Breakdown{Device: "gpu:0", Seconds: 1, Compute: 1})
			}
			records = append(records, r)
		}
	}
	r := newReport(t, Source{"r", records})
	speedups := r.chart(t, "scaling-float32-on-nvidia-h200")
	if got := len(speedups.Drawing.(*Lines).Series); got != maxCurves+1 { // and the ideal
		t.Errorf("got %d series of speedups, want %d", got, maxCurves+1)
	}
	if !strings.HasPrefix(speedups.Answer, "10240×512×512 takes") || len(speedups.Table.Rows) != 2*products {
		t.Errorf("got answer %q and %d rows", speedups.Answer, len(speedups.Table.Rows))
	}
	parts := r.chart(t, "breakdown-float32-on-nvidia-h200")
	bars := parts.Drawing.(*Rows).Rows
	if len(bars) != maxRows || !strings.HasPrefix(bars[len(bars)-1].Name, "10240×512×512") ||
		len(parts.Table.Rows) != 3*products {
		t.Errorf("got %d bars, the last of %s, and %d rows", len(bars), bars[len(bars)-1].Name, len(parts.Table.Rows))
	}
}

// TestPeaks checks that a chart with several peaks names the arithmetic of each, and that their
// lines differ.
func TestPeaks(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	var records []bench.Record
	for n := 512; n <= 2048; n *= 2 {
		for i, precision := range []string{"tf32", "f32x3"} {
			r := m.record(gpuModels[2], "gpu:0", bench.Cube(n), false)
			r.Subject, r.Precision, r.Peak = precision, precision, []float64{80_000, 60_000}[i]
			records = append(records, r)
		}
	}
	var names []string
	dashes := map[string]bool{}
	for _, k := range newReport(t, Source{"r", records}).chart(t, "rate-gpu-float32-in-tf32-and-f32x3").Legend() {
		if strings.HasPrefix(k.Name, "peak") {
			names, dashes[fmt.Sprint(k.Dash)] = append(names, k.Name), true
		}
	}
	slices.Sort(names)
	if want := []string{"peak 60.0 TFLOP/s (f32x3)", "peak 80.0 TFLOP/s (tf32)"}; !slices.Equal(names, want) ||
		len(dashes) != 2 {
		t.Errorf("got peaks %q with dashes %v, want %q with two", names, dashes, want)
	}
}

// TestPeaksOfDevices checks that the tooltip of a peak names its device once.
func TestPeaksOfDevices(t *testing.T) {
	var records []bench.Record
	for n := 512; n <= 2048; n *= 2 {
		for i, gpu := range []string{"NVIDIA H100", "NVIDIA H200"} {
			r := newMachine(1, gpu, 1).record(gpuModels[2], "gpu:0", bench.Cube(n), false)
			r.Peak = []float64{50_000, 60_000}[i]
			records = append(records, r)
		}
	}
	var texts []string
	for _, s := range newReport(t, Source{"r", records}).chart(t, "rate-gpu-float32").Drawing.(*Lines).Series {
		if s.LineOnly {
			texts = append(texts, s.Points[0].Text)
		}
	}
	want := []string{"peak 50.0 TFLOP/s (NVIDIA H100)", "peak 60.0 TFLOP/s (NVIDIA H200)"}
	if !slices.Equal(texts, want) {
		t.Errorf("got tooltips %q, want %q", texts, want)
	}
}

// TestNoEnvironment checks the origin of a record without an environment.
func TestNoEnvironment(t *testing.T) {
	r := newMachine(1, "", 1).record(cpuModels[0], "cpu", bench.Cube(64), false)
	r.Environment = bench.Environment{}
	o := originOf(Source{"r", []bench.Record{r}})
	if o.Summary != "1 record" || len(o.Facts) != 2 || o.Facts[0].Name != "caches" || o.Facts[1].Name != "results" {
		t.Errorf("got summary %q, facts %v", o.Summary, o.Facts)
	}
}

// TestLongTitle checks that the title and the legend of a picture fit its width.
func TestLongTitle(t *testing.T) {
	long := strings.Repeat("a long name ", 20)
	c := &Chart{Title: long, Drawing: &Rows{X: Axis{Text: tick}, Legend: []Key{{Name: long, Mark: markBar, Color: ink}},
		Rows: []Row{{Name: "x", Values: []Value{{V: 1, Low: 1, High: 1}}}}}}
	p := c.picture()
	for _, l := range p.layers {
		for _, e := range l.elements {
			if text, ok := e.(label); ok && text.area().x+text.area().w > p.width {
				t.Errorf("%q ends at %.0f, want at most %.0f", text.text, text.area().x+text.area().w, p.width)
			}
		}
	}
}

// TestUncrossed checks that no line crosses the names of rows above their values and the texts of
// marks: they cover the lines drawn before.
func TestUncrossed(t *testing.T) {
	name := strings.Repeat("a long name ", 2)
	rows := &Rows{X: ratioAxis(), Legend: []Key{{Name: "x", Color: ink}}, Refs: []Ref{{X: 1}}, Dots: true,
		Rows: []Row{{Name: name, Values: []Value{{V: 0.5, Low: 0.5, High: 0.5}}}, {Name: name, Values: []Value{{V: 9, Low: 9,
			High: 9}}}}}
	lines := &Lines{X: sizeAxis(), Y: ratioAxis(), Marks: []Mark{{64, name}, {512, name}},
		Series: []Series{{Color: ink, Points: []Point{{X: 16, Y: 1, Low: 1, High: 1}, {X: 1024, Y: 2, Low: 2, High: 2}}}}}
	for _, d := range []Drawing{rows, lines} {
		var before []element
		names := 0
		for _, l := range d.draw(narrow).layers {
			for _, e := range l.elements {
				if text, ok := e.(label); ok && text.text == name {
					names++
					if cover, ok := before[len(before)-1].(fill); !ok || cover.color != paper {
						t.Errorf("%T: a line can cross %q", d, text.text)
					}
				}
				before = append(before, e)
			}
		}
		if names != 2 {
			t.Errorf("%T: got %d names, want 2", d, names)
		}
	}
}

// TestRoofAnswer checks the sentence of a roofline: the part of the peak, and the number of points
// left of the ridge.
func TestRoofAnswer(t *testing.T) {
	at := func(x float64) rung {
		return rung{row: row{Record: &bench.Record{Subject: "naive", M: 8, N: 8, K: 8, GFLOPS: 50, Peak: 100}}, x: x}
	}
	for want, rungs := range map[string][]rung{
		"none of the points is left of the ridge.": {at(20), at(20)},
		"all points are left of the ridge.":        {at(1), at(1)},
		"1 of the 2 points is left of the ridge.":  {at(1), at(20)},
		"2 of the 3 points are left of the ridge.": {at(20), at(1), at(1)},
	} {
		want = fmt.Sprintf("naive reaches 50.0 %% of its peak at 8³, with %s operations per byte; %s",
			digits(rungs[0].x), want)
		if got := roofAnswer(rungs, 10); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
