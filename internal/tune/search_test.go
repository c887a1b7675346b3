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
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
)

// fakeLab is a lab with given times.
type fakeLab struct {
	standardTime float64                 // time of the default
	times        map[string]float64      // times of the other choices by the name of the kernel
	noise        func(round int) float64 // relative noise of these times; nil is none
	variantNames []string
	errs         map[string]string
	took         time.Duration
	fail         error
	failAt       int // number of the call of measure that returns fail, from 1

	calls   [][]string // kernels in each call of measure
	efforts []effort
}

func named(names []string) []backend.Choice {
	var list []backend.Choice
	for _, n := range names {
		list = append(list, backend.Choice{Kernel: n})
	}
	return list
}

func (l *fakeLab) about() (string, int) { return "fake", 2 }

func (l *fakeLab) defaultChoice(context.Context, tuned.Form) (backend.Choice, time.Duration, error) {
	return backend.Choice{Kernel: "usual"}, l.took, nil
}

func (l *fakeLab) candidates(context.Context, tuned.Form) ([]backend.Choice, int, error) {
	var names []string
	for n := range l.times {
		if !slices.Contains(l.variantNames, n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return named(names), len(names) + 3, nil
}

func (l *fakeLab) variants(tuned.Form, backend.Choice) []backend.Choice {
	return named(l.variantNames)
}

func (l *fakeLab) measure(_ context.Context, _ tuned.Form, choices []backend.Choice, _ backend.Choice,
	e effort) ([]bench.Record, error) {
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
	l.calls = append(l.calls, names)
	if l.fail != nil && len(l.calls) == l.failAt {
		return all, l.fail
	}
	return append(all, record(l.standardTime)), nil
}

var square = tuned.Form{M: 64, N: 64, K: 64, In: dtype.F32, Out: dtype.F32}

// TestSearch checks that search finds the fastest choice, and keeps it only if the speedup is
// significant and large enough.
func TestSearch(t *testing.T) {
	alternating := func(i int) float64 { return []float64{-0.3, 0.3}[i%2] }
	for _, c := range []struct {
		name     string
		lab      fakeLab
		best     string
		kept     bool
		why      string
		measured int
	}{
		{name: "faster", lab: fakeLab{times: map[string]float64{"a": 0.9, "b": 0.5, "c": 2}}, best: "b", kept: true,
			why: "faster in 20 of 20 timings (p = 1e-06)", measured: 3},
		{name: "slower", lab: fakeLab{times: map[string]float64{"a": 1.1}}, best: "a",
			why: "faster in 0 of 20 timings, which may be chance (p = 1)", measured: 1},
		{name: "equal", lab: fakeLab{times: map[string]float64{"a": 1}}, best: "a", why: "which may be chance", measured: 1},
		{name: "slightly faster", lab: fakeLab{times: map[string]float64{"a": 0.99}}, best: "a", why: "but by less than 2 %",
			measured: 1},
		{name: "noise", lab: fakeLab{times: map[string]float64{"a": 0.8}, noise: alternating}, best: "a",
			why: "faster in 10 of 20 timings, which may be chance (p = 0.59)", measured: 1},
		{name: "faster variant", lab: fakeLab{times: map[string]float64{"a": 0.9, "b": 0.8}, variantNames: []string{"b"}},
			best: "b", kept: true, measured: 2},
		{name: "slower variant", lab: fakeLab{times: map[string]float64{"a": 0.8, "b": 0.9}, variantNames: []string{"b"}},
			best: "a", kept: true, measured: 2},
		{name: "one fails",
			lab:  fakeLab{times: map[string]float64{"a": 0.1, "b": 0.5}, errs: map[string]string{"a": "burnt"}},
			best: "b", kept: true, measured: 2},
		{name: "all fail", lab: fakeLab{times: map[string]float64{"a": 0.1}, errs: map[string]string{"a": "burnt"}},
			best: "usual", why: "no other candidate could be measured", measured: 1},
		{name: "no candidates", lab: fakeLab{}, best: "usual", why: "no other candidate could be measured"},
		{name: "only the default", lab: fakeLab{times: map[string]float64{"usual": 0.1}}, best: "usual",
			why: "no other candidate could be measured"},
	} {
		c.lab.standardTime = 1
		x, err := search(t.Context(), &c.lab, square, Options{Time: time.Minute, Warn: func(string) {}})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if x.Best.Kernel != c.best || x.Kept != c.kept || !strings.Contains(x.Why, c.why) || x.Measured != c.measured ||
			x.Default.Kernel != "usual" {
			t.Errorf("%s: %+v; want %s, kept %v, %d measured, %q", c.name, x, c.best, c.kept, c.measured, c.why)
		}
		timed := maps.Clone(c.lab.times)
		maps.DeleteFunc(timed, func(name string, _ float64) bool { return c.lab.errs[name] != "" || name == "usual" })
		for i, w := range x.Candidates {
			if w.Seconds <= 0 || math.Abs(w.Speed*w.Seconds-1) > 1e-9 || i > 0 && w.Speed > x.Candidates[i-1].Speed ||
				timed[w.Kernel] == 0 {
				t.Errorf("%s: candidate %d of %v is %+v", c.name, i, x.Candidates, w)
			}
		}
		if len(x.Candidates) != len(timed) {
			t.Errorf("%s: %d candidates, want %d: %v", c.name, len(x.Candidates), len(timed), x.Candidates)
		}
		if n := len(c.lab.calls); n > 0 && c.best != "usual" {
			last := c.lab.calls[n-1]
			if len(last) != 1 || last[0] != c.best || c.lab.efforts[n-1].minReps != 20 {
				t.Errorf("%s: the last measurement was of %v with %+v, want %s with 20 repetitions",
					c.name, last, c.lab.efforts[n-1], c.best)
			}
		}
	}
}

// TestSearchTime checks that search skips candidates that there is no time for, with a warning, but
// measures a minimum.
func TestSearchTime(t *testing.T) {
	l := fakeLab{standardTime: 1, took: time.Second, times: map[string]float64{}}
	for i := range 40 {
		l.times[fmt.Sprintf("%02d", i)] = 0.5
	}
	var notes []string
	x, err := search(t.Context(), &l, square,
		Options{Time: time.Minute, Warn: func(s string) { notes = append(notes, s) }})
	if err != nil || x.Measured != 4 || x.Considered != 43 {
		t.Errorf("20 s for candidates of 5 s: %+v, %v", x, err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "no time for 36 candidates") {
		t.Errorf("notes: %q", notes)
	}
	for _, e := range l.efforts {
		if e.minReps < 3 || e.minTime < time.Millisecond || e.maxTime < 5*time.Second {
			t.Errorf("effort %+v", e)
		}
	}
}

// TestSearchFails checks that a wrong candidate leads to an error and an outcome, and a lost device
// to an error only.
func TestSearchFails(t *testing.T) {
	for at := 1; at <= 2; at++ {
		l := fakeLab{standardTime: 1, times: map[string]float64{"a": 0.5}, fail: gemm.ErrVerify, failAt: at}
		x, err := search(t.Context(), &l, square, Options{Time: time.Second, Warn: func(string) {}})
		if !errors.Is(err, gemm.ErrVerify) || x == nil {
			t.Errorf("wrong result in measurement %d: %+v, %v", at, x, err)
		}
		l = fakeLab{standardTime: 1, times: map[string]float64{"a": 0.5}, fail: sentinel.ErrNoDevice, failAt: at}
		if x, err := search(t.Context(), &l, square, Options{Time: time.Second, Warn: func(string) {}}); !errors.Is(err,
			sentinel.ErrNoDevice) || x != nil {
			t.Errorf("device lost in measurement %d: %+v, %v", at, x, err)
		}
	}
}

// TestSignTest compares signTest with values of the binomial distribution.
func TestSignTest(t *testing.T) {
	for _, c := range []struct {
		won, of int
		want    float64
	}{{0, 0, 1}, {0, 20, 1}, {20, 20, 9.5367e-7}, {7, 7, 0.0078125}, {6, 7, 0.0625}, {15, 20, 0.0206947}, {10, 20,
		0.588099}} {
		if got := signTest(c.won, c.of); math.Abs(got-c.want) > 1e-4*c.want {
			t.Errorf("%d of %d: %g, want %g", c.won, c.of, got, c.want)
		}
	}
}
