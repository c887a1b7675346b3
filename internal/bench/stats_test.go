package bench

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		times []float64
		want  Timing
	}{
		{[]float64{3}, Timing{Median: 3, Min: 3, Max: 3, P10: 3, P90: 3}},
		{[]float64{2, 1}, Timing{Median: 1.5, Min: 1, Max: 2, P10: 1.1, P90: 1.9, Spread: 0.8 / 1.5}},
		{[]float64{11, 1, 3, 2, 5, 4, 7, 6, 9, 8, 10}, Timing{Median: 6, Min: 1, Max: 11, P10: 2, P90: 10, Spread: 8. / 6}},
		{[]float64{5, 5, 5, 5, 500}, Timing{Median: 5, Min: 5, Max: 500, P10: 5, P90: 302, Spread: 297. / 5}},
	} {
		before := slices.Clone(c.times)
		got := summarize(c.times)
		for _, f := range [][2]float64{{got.Median, c.want.Median}, {got.Min, c.want.Min}, {got.Max, c.want.Max},
			{got.P10, c.want.P10}, {got.P90, c.want.P90}, {got.Spread, c.want.Spread}} {
			if !near(f[0], f[1]) {
				t.Errorf("%v: got %+v, want %+v", c.times, got, c.want)
			}
		}
		if !slices.Equal(c.times, before) {
			t.Errorf("the times were reordered to %v", c.times)
		}
	}
}

func TestSamples(t *testing.T) {
	for _, n := range []int{1, 2, 19, 20, 21, 39, 40, 1000} {
		times := make([]float64, n)
		for i := range times {
			times[i] = float64(i)
		}
		got := samples(times)
		if len(got) != min(n, maxSamples) || !slices.IsSorted(got) || slices.Min(got) < 0 || slices.Max(got) >= float64(n) {
			t.Errorf("%d times: got samples %v", n, got)
		}
		if n <= maxSamples && !slices.Equal(got, times) {
			t.Errorf("%d times: got samples %v, want all times", n, got)
		}
	}
	if got := samples([]float64{1, 9, 1, 2, 2, 2, 3, 0, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9, 9, 1, 1, 1,
		2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9, 9, 1, 1, 1, 2, 2, 2}); !slices.Equal(got,
		[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2}) {
		t.Errorf("60 times: got samples %v, want the medians of three", got)
	}
}

func TestHost(t *testing.T) {
	e := Host()
	if e.OS != runtime.GOOS || e.Arch != runtime.GOARCH || e.Cores < 1 || e.GOMAXPROCS < 1 || e.Go == "" ||
		e.Date.IsZero() {
		t.Errorf("got incomplete environment %+v", e)
	}
	if runtime.GOOS == "linux" && (e.Memory < 1<<20 || e.Cache < 0) {
		t.Errorf("got %d bytes of memory and %d bytes of cache", e.Memory, e.Cache)
	}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" && (e.CPU == "" || !slices.Contains(e.Features, "avx") &&
		len(e.Features) > 0) {
		t.Errorf("got CPU %q with features %v", e.CPU, e.Features)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	if name, err := os.Hostname(); err == nil && len(name) > 4 && strings.Contains(string(text), name) {
		t.Errorf("found the host's name %s in %s", name, text)
	}
}
