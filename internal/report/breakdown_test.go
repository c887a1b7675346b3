package report

import (
	"math"
	"testing"

	"tilework/internal/bench"
	"tilework/internal/device/timeline"
)

// TestBreakdown checks the bars and the table of the time of a product on each GPU, and that the
// answer describes the largest product although it is not the last.
func TestBreakdown(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	var records []bench.Record
	for _, n := range []int{8192, 4096} {
		for _, subject := range []string{"wgmma@gpu:0,1", "wgmma@gpu:0,1/each", "wgmma"} {
			r := m.record(pace{subject: subject, rate: 50_000}, "gpu:0,1", bench.Cube(n), false)
			gpus := []string{"gpu:0", "gpu:1"}
			if subject == "wgmma" {
				r = m.record(pace{subject: subject, rate: 25_000}, "gpu:0,1", bench.Cube(n), false)
				gpus = gpus[:1]
			}
			for i, gpu := range gpus {
				t := r.Seconds.Median
				r.Breakdown = append(r.Breakdown, timeline.Breakdown{Device: gpu, Seconds: t, Compute: 0.8 * t, Overlapped: 0.5 * t,
					Copies: 0.15 * t, Waiting: 0.05 * t, FromGPUs: 1000 * (i + 1)})
			}
			records = append(records, r)
		}
	}
	r := newReport(t, Source{"r", records})
	c := r.chart(t, "breakdown-float32-on-nvidia-h200")
	const want = "At 8192³, gpu:1 computes for 80.0 % of the time, only copies for 15.0 %, and waits for 5.0 %."
	if c.Answer != want {
		t.Errorf("got answer\n%s\nwant\n%s", c.Answer, want)
	}
	bars := c.Drawing.(*Rows).Rows
	if len(c.Table.Rows) != 10 || len(bars) != 4 || bars[0].Name != "8192³, gpu:0" || bars[3].Name != "4096³, gpu:1" {
		t.Fatalf("got %d rows and bars %+v, want 10 rows, and a bar for each GPU and product", len(c.Table.Rows), bars)
	}
	for i, v := range []float64{30, 50, 15, 5} {
		if got := bars[0].Values[i].V; math.Abs(got-v) > 1e-9 {
			t.Errorf("part %d is %v %%, want %v", i, got, v)
		}
	}
	if got := c.Table.Rows[1][10].Number; got != 2000 {
		t.Errorf("gpu:1 copies %v bytes from GPUs, want 2000", got)
	}
}
