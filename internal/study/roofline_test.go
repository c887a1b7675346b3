package study

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/internal/bench"
	"tilework/internal/model"
)

// recorded returns the measurements of the study's record at 4096³ in float32, by subject.
func recorded(t *testing.T) map[string]bench.Record {
	t.Helper()
	f, err := os.Open("../../docs/results/study-h200.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := bench.ReadRecords(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bench.Record{}
	for _, r := range records {
		if r.N == 4096 && !r.Transfers && r.In == "float32" && r.Device != "cpu" {
			all[r.Subject] = r
		}
	}
	return all
}

// countedBytes returns the bytes that a kernel reads from memory, of the hardware counters, or 0.
func countedBytes(t *testing.T, kernel string) float64 {
	t.Helper()
	text, err := os.ReadFile("../../docs/results/ncu-h200.tsv")
	if err != nil {
		t.Fatal(err)
	}
	titles, rows, _ := strings.Cut(string(text), "\n")
	column := slices.Index(strings.Split(titles, "\t"), "MB from memory")
	for line := range strings.Lines(rows) {
		cells := strings.Split(line, "\t")
		if cells[0] != kernel || cells[1] != "float32, 4096³" {
			continue
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(cells[column], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		return 1e6 * n
	}
	return 0
}

// TestMeasured compares the measured rates of the rungs with the records, and the text of a rung
// with them.
func TestMeasured(t *testing.T) {
	records := recorded(t)
	for _, r := range Rungs() {
		subject := strings.Replace(r.Name, "tiled ", "tiled:", 1)
		if r.Arithmetic == tensorArithmetic {
			subject += "-tf32"
		}
		record, ok := records[subject]
		if (r.Measured != nil) != ok || (r.Figures != "") != ok {
			t.Errorf("%s: got the measurement %+v and %q, want those of %s, %v", r.ID, r.Measured, r.Figures, subject, ok)
		}
		if !ok {
			continue
		}
		want := 1e9 * record.GFLOPS
		read, tile := countedBytes(t, subject), " tile "+r.Measured.Tile+","
		if m := r.Measured; !strings.Contains(record.Detail+",", tile) || math.Abs(m.Rate/want-1) > 1e-3 ||
			m.Read != read {
			t.Errorf("%s: got %+v, want %+v and %v bytes", r.ID, m, record, read)
		}
		peak, err := model.Lookup(r.Measured.GPU)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]model.Rate{plainArithmetic: model.FP32, tensorArithmetic: model.TF32}[r.Arithmetic]
		round := func(flops float64) string { return fmt.Sprintf("%.1f", flops/1e12) }
		if want > 1e14 {
			round = func(flops float64) string { return fmt.Sprintf("%.0f", flops/1e12) }
		}
		if text := round(want) + " of " + round(peak.Peak[of]) + " TFLOP/s"; !strings.Contains(r.Figures, text) {
			t.Errorf("%s: %q lacks %q", r.ID, r.Figures, text)
		}
	}
}

// TestBounds checks that no text states a bound for the measured point below the measured rate, and
// which bound holds without caches.
func TestBounds(t *testing.T) {
	for _, r := range Rungs() {
		x := run(t, Request{Rung: r.ID, Sizes: Sizes{32, 32, 32}})
		b, roof := x.Bounds, x.Explanation.Roof
		if b.Requested != x.Explanation.Phase.Intensity || (b.Rate > 0) != (r.Measured != nil) {
			t.Errorf("%s: got %+v", r.ID, b)
		}
		if m := r.Measured; m != nil && (min(roof.Peak, b.Memory*roof.Bandwidth) < m.Rate || b.Memory < b.Requested ||
			!strings.Contains(b.Text, " Measured at 4096³")) {
			t.Errorf("%s: got %+v for a rate of %v", r.ID, b, m.Rate)
		}
	}
	for _, c := range []struct {
		q    Request
		want string
	}{
		{Request{Rung: "naive"}, "naive does 0.25 operations per byte that its threads load. Without caches, with every " +
			"load served by memory, that allows 1.2 TFLOP/s. Measured at 4096³: 5.41 TFLOP/s. Caches serve most loads " +
			"there: a byte of memory serves 17.1 operations, which allow 66.9 TFLOP/s."},
		{Request{Rung: "mma"}, "mma does 32 operations per byte that its threads load. Without caches, with every load " +
			"served by memory, that allows 154 TFLOP/s. Measured at 4096³, with tile 128x256x16/8x16/4: 160 TFLOP/s. " +
			"Caches serve repeated loads there: if memory moves each matrix once, 683 operations per byte allow 495 " +
			"TFLOP/s."},
		{Request{Rung: "blocked", Tile: "32x32x16/4x4/4"}, "blocked does 8 operations per byte that its threads load. " +
			"Without caches, with every load served by memory, that allows 38.4 TFLOP/s. With caches, memory moves " +
			"each matrix at least once: this product has at most 10.7 operations per byte, which allow 51.2 TFLOP/s."},
		{Request{Rung: "blocked", GPU: "t4"}, "blocked does 32 operations per byte that its threads load. Even without " +
			"caches its loads allow the peak, 8.1 TFLOP/s. With caches, memory moves each matrix at least once: this " +
			"product has at most 10.7 operations per byte, which allow 3.41 TFLOP/s."},
	} {
		c.q.Sizes = Sizes{64, 64, 64}
		if got := run(t, c.q).Bounds.Text; got != c.want {
			t.Errorf("%+v: got\n%s\nwant\n%s", c.q, got, c.want)
		}
	}
}

// TestLimitsOf checks that the texts for every GPU name none, and those of a GPU no other.
func TestLimitsOf(t *testing.T) {
	for _, r := range Rungs() {
		for _, text := range append(r.Idea, r.Title, r.Limit) {
			if strings.Contains(text, "H200") || strings.Contains(text, "TFLOP/s") {
				t.Errorf("%s: %q has figures of one GPU", r.ID, text)
			}
		}
	}
	x, err := contents()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range x.GPUs {
		for arithmetic, text := range g.Limits {
			if !strings.HasPrefix(text, g.Device) || !strings.Contains(text, arithmetic) {
				t.Errorf("%s, %s: got %q", g.Name, arithmetic, text)
			}
		}
		if len(g.Limits) != 2 {
			t.Errorf("%s: got %v, want a sentence for each arithmetic", g.Name, g.Limits)
		}
	}
	t4, want := x.GPUs[0].Limits, map[string]string{
		plainArithmetic: "Tesla T4: at most 8.1 TFLOP/s in float32 and 320 GB/s of memory, so 25.3 operations per byte " +
			"of memory keep its arithmetic busy.",
		tensorArithmetic: "Tesla T4 has no TF32 on tensor cores.",
	}
	if !maps.Equal(t4, want) {
		t.Errorf("got %q, want %q", t4, want)
	}
}
