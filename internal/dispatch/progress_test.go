package dispatch

import (
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestProgress checks on the CPU and on emulated GPUs, with a clock that advances by a step each
// time it is read, that the progress increases, is reported at most ten times in any second, and at
// last, once, when all is done. The plan runs twice.
func TestProgress(t *testing.T) {
	defer func() { now = time.Now }()
	for _, step := range []time.Duration{0, time.Microsecond, 10 * time.Millisecond, time.Second} {
		var clock time.Time
		read := 0
		now = func() time.Time { read++; clock = clock.Add(step); return clock }
		for _, on := range []struct {
			device        string
			threads, size int
		}{{"cpu", 1, 500}, {"cpu", 3, 500}, {"emu", 0, 40}, {"emu:h200,h200", 0, 40}} {
			p, b := product(t, dtype.F32, dtype.F32, on.size, on.size, 50, gemm.Epilogue{})
			var done, total int64
			var times []time.Time
			report := func(d, of int64) {
				if d <= done || d > of {
					t.Errorf("%d of %d after %d of %d", d, of, done, total)
				}
				done, total = d, of
				if times = append(times, clock); len(times) > 10 && clock.Sub(times[len(times)-11]) < time.Second {
					t.Errorf("step %v: eleven reports within %v", step, clock.Sub(times[len(times)-11]))
				}
			}
			pl, err := New(t.Context(), Request{Problem: p, Device: name(t, on.device), Threads: on.threads, Progress: report})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				done, times, read = 0, nil, 0
				if err := pl.Run(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
				few, all := step < time.Millisecond, step >= time.Second
				if done == 0 || done != total || few && len(times) != 1 || all && len(times) != read-1 {
					t.Errorf("%s, step %v: %d reports for %d readings of the clock, the last of %d of %d", on.device, step,
						len(times), read, done, total)
				}
			}
		}
	}
}
