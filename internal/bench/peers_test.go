package bench_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/peers"
)

// TestPeers measures the installed libraries with the real clock.
func TestPeers(t *testing.T) {
	var subjects []bench.Subject
	threads := 0
	for _, l := range peers.Libraries() {
		if p, err := peers.Open(l.Name, peers.Options{}); err == nil {
			subjects, threads = append(subjects, p), p.Threads()
		} else {
			t.Logf("skipped: %v", err)
		}
	}
	if len(subjects) == 0 {
		t.Skip("no BLAS library is installed")
	}
	var all []bench.Record
	for _, c := range []struct {
		shape bench.Shape
		in    dtype.Type
		cold  bool
	}{
		{bench.Cube(8), dtype.F32, false},
		{bench.Cube(96), dtype.F32, true},
		{bench.Shape{M: 7, N: 65, K: 129}, dtype.F64, false},
	} {
		p, err := (&bench.Sample{Shape: c.shape, TransB: true}).Problem(c.in, c.in)
		if err != nil {
			t.Fatal(err)
		}
		records, err := bench.Measure(context.Background(), bench.Case{Problem: p, Device: "cpu", Threads: threads},
			subjects[1:], subjects[:1], bench.Options{MinReps: 3, MinTime: 5 * time.Millisecond, Warmup: time.Millisecond,
				Cold: c.cold})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			supported := r.Subject != "onednn" || c.in != dtype.F64
			if timing := r.Seconds.Max * float64(r.Batch); supported && timing < 5e-6 {
				t.Errorf("%s: timing of %v s, want at least 5 µs", r.Subject, timing)
			}
		}
		all = append(all, records...)
	}
	table, err := bench.FindFormat("table")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := table.Write(&text, all, 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &text)
	f8, err := (&bench.Sample{Shape: bench.Cube(8)}).Problem(dtype.F8E4M3, dtype.F32)
	if err != nil {
		t.Fatal(err)
	}
	records, err := bench.Measure(context.Background(), bench.Case{Problem: f8, Device: "cpu"}, subjects, nil,
		bench.Options{})
	if err != nil {
		t.Fatalf("an unsupported type is reported as a failure: %v", err)
	}
	for _, r := range records {
		if r.Error == "" {
			t.Errorf("%s: got no error for 8-bit floats", r.Subject)
		}
	}
}
