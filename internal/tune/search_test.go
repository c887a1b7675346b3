package tune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
)

// paper is a lab whose times are known: those of the default, and of every other
// choice by the name of its kernel.
type paper struct {
	standardTime float64
	times        map[string]float64
	noise        func(round int) float64 // of the others, relative; nil is none
	variants_    []string
	errs         map[string]string
	took         time.Duration
	fail         error
	failAt       int // the measurement that fails

	asked   [][]string
	efforts []effort
}

func named(names []string) []tuned.Choice {
	var list []tuned.Choice
	for _, n := range names {
		list = append(list, tuned.Choice{Kernel: n})
	}
	return list
}

func (l *paper) about() (string, int) { return "paper", 2 }

func (l *paper) standard(context.Context, tuned.Form) (tuned.Choice, time.Duration, error) {
	return tuned.Choice{Kernel: "usual"}, l.took, nil
}

func (l *paper) candidates(context.Context, tuned.Form) ([]tuned.Choice, int, error) {
	var names []string
	for n := range l.times {
		if !slices.Contains(l.variants_, n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return named(names), len(names) + 3, nil
}

func (l *paper) variants(tuned.Form, tuned.Choice) []tuned.Choice { return named(l.variants_) }

func (l *paper) measure(_ context.Context, _ tuned.Form, choices []tuned.Choice, _ tuned.Choice, e effort) ([]bench.Record, error) {
	l.efforts = append(l.efforts, e)
	var names []string
	const rounds = 20
	record := func(time float64) bench.Record {
		var r bench.Record
		for i := range rounds {
			t := time
			if l.noise != nil && time != l.standardTime {
				t *= 1 + l.noise(i)
			}
			r.Samples = append(r.Samples, t)
		}
		sorted := slices.Sorted(slices.Values(r.Samples))
		r.Seconds.Median = sorted[rounds/2]
		return r
	}
	var all []bench.Record
	for _, c := range choices {
		names = append(names, c.Kernel)
		r := record(l.times[c.Kernel])
		r.Error = l.errs[c.Kernel]
		r.Versus = []bench.Ratio{{Peer: standardName, Speed: l.standardTime / r.Seconds.Median, P10: 0.9, P90: 1.1}}
		all = append(all, r)
	}
	l.asked = append(l.asked, names)
	if l.fail != nil && len(l.asked) == l.failAt {
		return all, l.fail
	}
	return append(all, record(l.standardTime)), nil
}

var square = tuned.Form{M: 64, N: 64, K: 64, In: dtype.F32, Out: dtype.F32}

// TestSearch: the fastest is found, and kept only where it is faster by more than chance
// and by something that matters.
func TestSearch(t *testing.T) {
	alternating := func(i int) float64 { return []float64{-0.3, 0.3}[i%2] }
	for _, c := range []struct {
		name     string
		lab      paper
		best     string
		kept     bool
		why      string
		measured int
	}{
		{name: "faster", lab: paper{times: map[string]float64{"a": 0.9, "b": 0.5, "c": 2}}, best: "b", kept: true, why: "faster in 20 of 20 timings (p = 1e-06)", measured: 3},
		{name: "slower", lab: paper{times: map[string]float64{"a": 1.1}}, best: "a", why: "faster in 0 of 20 timings, which may be chance (p = 1)", measured: 1},
		{name: "equal", lab: paper{times: map[string]float64{"a": 1}}, best: "a", why: "which may be chance", measured: 1},
		{name: "hardly faster", lab: paper{times: map[string]float64{"a": 0.99}}, best: "a", why: "but by less than 2 %", measured: 1},
		{name: "by chance", lab: paper{times: map[string]float64{"a": 0.8}, noise: alternating}, best: "a", why: "faster in 10 of 20 timings, which may be chance (p = 0.59)", measured: 1},
		{name: "a variant", lab: paper{times: map[string]float64{"a": 0.9, "b": 0.8}, variants_: []string{"b"}}, best: "b", kept: true, measured: 2},
		{name: "a variant that is slower", lab: paper{times: map[string]float64{"a": 0.8, "b": 0.9}, variants_: []string{"b"}}, best: "a", kept: true, measured: 2},
		{name: "one that fails", lab: paper{times: map[string]float64{"a": 0.1, "b": 0.5}, errs: map[string]string{"a": "burnt"}}, best: "b", kept: true, measured: 2},
		{name: "all fail", lab: paper{times: map[string]float64{"a": 0.1}, errs: map[string]string{"a": "burnt"}}, best: "usual", why: "nothing else to try", measured: 1},
		{name: "none", lab: paper{}, best: "usual", why: "nothing else to try"},
		{name: "the default itself", lab: paper{times: map[string]float64{"usual": 0.1}}, best: "usual", why: "nothing else to try"},
	} {
		c.lab.standardTime = 1
		x, err := search(t.Context(), &c.lab, square, Options{Time: time.Minute, Warn: func(string) {}})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if x.Best.Kernel != c.best || x.Kept != c.kept || !strings.Contains(x.Why, c.why) || x.Measured != c.measured || x.Default.Kernel != "usual" {
			t.Errorf("%s: %+v; want %s, kept %v, %d measured, %q", c.name, x, c.best, c.kept, c.measured, c.why)
		}
		timed := maps.Clone(c.lab.times)
		maps.DeleteFunc(timed, func(name string, _ float64) bool { return c.lab.errs[name] != "" || name == "usual" })
		for i, w := range x.Ways {
			if w.Seconds <= 0 || math.Abs(w.Speed*w.Seconds-1) > 1e-9 || i > 0 && w.Speed > x.Ways[i-1].Speed || timed[w.Kernel] == 0 {
				t.Errorf("%s: of %v way %d is %+v", c.name, x.Ways, i, w)
			}
		}
		if len(x.Ways) != len(timed) {
			t.Errorf("%s: %d ways: %v", c.name, len(x.Ways), x.Ways)
		}
		if n := len(c.lab.asked); n > 0 && c.best != "usual" {
			last := c.lab.asked[n-1]
			if len(last) != 1 || last[0] != c.best || c.lab.efforts[n-1].reps != 20 {
				t.Errorf("%s: what decided was a measurement of %v, %+v", c.name, last, c.lab.efforts[n-1])
			}
		}
	}
}

// TestSearchTime: what there is no time for is left out, and that is said; the effort is
// never nothing.
func TestSearchTime(t *testing.T) {
	l := paper{standardTime: 1, took: time.Second, times: map[string]float64{}}
	for i := range 40 {
		l.times[fmt.Sprintf("%02d", i)] = 0.5
	}
	var notes []string
	x, err := search(t.Context(), &l, square, Options{Time: time.Minute, Warn: func(s string) { notes = append(notes, s) }})
	if err != nil || x.Measured != 4 || x.Considered != 43 {
		t.Errorf("of 20 s, with 5 s for each: %+v, %v", x, err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "no time for 36 candidates") {
		t.Errorf("notes: %q", notes)
	}
	for _, e := range l.efforts {
		if e.reps < 3 || e.least < time.Millisecond || e.most < 5*time.Second {
			t.Errorf("effort %+v", e)
		}
	}
}

// TestSearchFails: a wrong candidate is the error and not the end; a lost device is both.
func TestSearchFails(t *testing.T) {
	for at := 1; at <= 2; at++ {
		l := paper{standardTime: 1, times: map[string]float64{"a": 0.5}, fail: gemm.ErrVerify, failAt: at}
		x, err := search(t.Context(), &l, square, Options{Time: time.Second, Warn: func(string) {}})
		if !errors.Is(err, gemm.ErrVerify) || x == nil {
			t.Errorf("measurement %d is wrong: %+v, %v", at, x, err)
		}
		l = paper{standardTime: 1, times: map[string]float64{"a": 0.5}, fail: gemm.ErrNoDevice, failAt: at}
		if x, err := search(t.Context(), &l, square, Options{Time: time.Second, Warn: func(string) {}}); !errors.Is(err, gemm.ErrNoDevice) || x != nil {
			t.Errorf("the device is lost in measurement %d: %+v, %v", at, x, err)
		}
	}
}

// TestByChance: against the binomial distribution's figures.
func TestByChance(t *testing.T) {
	for _, c := range []struct {
		won, of int
		want    float64
	}{{0, 0, 1}, {0, 20, 1}, {20, 20, 9.5367e-7}, {7, 7, 0.0078125}, {6, 7, 0.0625}, {15, 20, 0.0206947}, {10, 20, 0.588099}} {
		if got := byChance(c.won, c.of); math.Abs(got-c.want) > 1e-4*c.want {
			t.Errorf("%d of %d: %g, want %g", c.won, c.of, got, c.want)
		}
	}
}
