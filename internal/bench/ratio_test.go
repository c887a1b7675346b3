package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
)

// TestInterval measures how often the interval contains the true median.
func TestInterval(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	distributions := map[string]func() float64{
		"normal":     func() float64 { return 10 + random.NormFloat64() },
		"log-normal": func() float64 { return 10 * math.Exp(0.1*random.NormFloat64()) },
	}
	for name, draw := range distributions {
		for _, n := range []int{3, 4, 7, 12, 20} {
			const trials = 4000
			covered := 0
			for range trials {
				values := make([]float64, n)
				for i := range values {
					values[i] = draw()
				}
				slices.Sort(values)
				low, high := interval(quantile(values, 0.1), quantile(values, 0.5), quantile(values, 0.9), n)
				if low <= 10 && 10 <= high {
					covered++
				}
			}
			if part := float64(covered) / trials; part < 0.93 || part > 0.97 {
				t.Errorf("%s, %d values: the interval covers the median in %.3f of the trials, want 0.95 ± 0.02", name, n, part)
			}
		}
	}
	if low, high := interval(1, 1, 1, 2); low != 0 || high != 0 {
		t.Errorf("two values: got interval %v to %v, want none", low, high)
	}
	if low, high := interval(1, 2, 3, 20); low >= 2 || high <= 2 {
		t.Errorf("got interval %v to %v, want it around 2", low, high)
	} else if l, h := interval(1, 2, 3, 1000); l != low || h != high {
		t.Errorf("1000 timings: got interval %v to %v, want %v to %v as for 20", l, h, low, high)
	}
}

func TestVersus(t *testing.T) {
	// The peer ran in three rounds only, and the machine was ten times slower in the second one.
	got := versus("p", []float64{1, 10, 1, 7, 7}, []float64{2, 20, 3})
	if got.Peer != "p" || got.Speed != 2 || got.P10 != 2 || !near(got.P90, 2.8) {
		t.Errorf("got %+v, want speed 2", got)
	}
}

// TestRatioCancelsDrift simulates a machine with a fast and a slow state. The medians of the two
// subjects fall into different states.
func TestRatioCancelsDrift(t *testing.T) {
	const kernel, peer, slow = 1.0, 1.05, 1.5
	var times, peerTimes []float64
	for i := range 20 {
		state := 1.0
		if i >= 10 {
			state = slow
		}
		times, peerTimes = append(times, kernel*state), append(peerTimes, peer*state)
	}
	times[10] = kernel // the state changed between the two turns of a round
	quotient := summarize(peerTimes).Median / summarize(times).Median
	if quotient < 1.2 {
		t.Fatalf("the quotient of the medians is %v, want a misleading example", quotient)
	}
	v := versus("p", times, peerTimes)
	if !near(v.Speed, peer/kernel) || v.Uncertain() {
		t.Errorf("got ratio %+v, uncertain %v; want %v, certain", v, v.Uncertain(), peer/kernel)
	}
	c := shape(t, Cube(64), dtype.F32, dtype.F32)
	r := newRecord(&c)
	r.Reps, r.Seconds = len(times), summarize(times)
	if !r.Uncertain() {
		t.Errorf("the median %v of times from %v to %v is not marked as uncertain", r.Seconds.Median, r.Seconds.P10,
			r.Seconds.P90)
	}
}

func TestUncertain(t *testing.T) {
	for _, c := range []struct {
		v    Ratio
		want string
	}{
		{Ratio{Speed: 2, Low: 1.81, High: 2.19}, "2.00"},
		{Ratio{Speed: 2, Low: 1.79, High: 2.21}, "2.00?"},
		{Ratio{Speed: 2}, "2.00?"}, // no interval
		{Ratio{Speed: 0.00123, Low: 0.0012, High: 0.0013}, "0.0012"},
		{versus("p", []float64{1, 1}, []float64{1, 1}), "1.00?"},
		{versus("p", []float64{1, 1, 1}, []float64{1, 1, 1}), "1.00"},
		{versus("p", []float64{1, 1, 1, 1, 1}, []float64{0.5, 2, 1, 0.6, 1.8}), "1.00?"},
	} {
		if got := c.v.Text(); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.v, got, c.want)
		}
	}
}

// TestOldRatios reads a record without a confidence interval, as earlier versions wrote it.
func TestOldRatios(t *testing.T) {
	records := examples(t)[:2]
	want := records[0].Versus[0]
	records[0].Versus[0].Low, records[0].Versus[0].High = 0, 0
	text := write(t, "jsonl", records)
	if strings.Contains(text, `"low"`) {
		t.Fatal("the example has an interval:", text)
	}
	got, err := ReadRecords(strings.NewReader(text))
	if err != nil || got[0].Versus[0] != want || want.High == 0 {
		t.Errorf("got %+v, error %v; want %+v", got[0].Versus, err, want)
	}
}

// TestReadingHasNoRate checks that the peer Reading has a bandwidth, and no rate in any format.
func TestReadingHasNoRate(t *testing.T) {
	clock := new(clock)
	o := quick(clock)
	o.Peak = func(dtype.Type, string, int) float64 { return 100 }
	peer := &idle{fake{name: Reading, clock: clock}}
	kernel := &fake{name: "k", clock: clock, cost: every(time.Millisecond)}
	records, err := Measure(t.Context(), shape(t, Shape{1, 64, 100}, dtype.F32, dtype.F32), []Subject{kernel},
		[]Subject{peer}, o)
	if err != nil {
		t.Fatal(err)
	}
	r := &records[1]
	if err := r.check(); err != nil {
		t.Error(err)
	}
	if rate, ok := r.Rate(); ok || rate != 0 || r.Peak != 0 {
		t.Errorf("got a rate of %v GFLOP/s and a peak of %v, want none", rate, r.Peak)
	}
	if got, want := r.Bandwidth(), 64*100*4/r.Seconds.Median; !near(got, want) {
		t.Errorf("got %v B/s, want %v", got, want)
	}
	if _, ok := records[0].Rate(); !ok {
		t.Error("the kernel has no rate")
	}
	table := strings.Split(write(t, "table", records), "\n")
	column := strings.Index(table[0], "GFLOP/s")
	if column < 0 || !strings.HasPrefix(table[2], Reading) ||
		strings.TrimSpace(table[2][column:column+len("GFLOP/s")]) != "" {
		t.Errorf("the table has a rate for Reading:\n%s", strings.Join(table, "\n"))
	}
	for line := range strings.Lines(write(t, "bench", records)) {
		if strings.Contains(line, "subject="+Reading) && strings.Contains(line, "GFLOP/s") {
			t.Errorf("the bench format has a rate for Reading: %s", line)
		}
	}

	// Earlier versions recorded a rate and a peak.
	r.GFLOPS, r.Peak = 123, 100
	old, err := ReadRecords(strings.NewReader(write(t, "jsonl", records)))
	if err != nil || old[1].GFLOPS != 0 || old[1].Peak != 0 {
		t.Errorf("got %v GFLOP/s and a peak of %v, error %v; want 0", old[1].GFLOPS, old[1].Peak, err)
	}
}
