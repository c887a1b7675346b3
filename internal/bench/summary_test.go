package bench

import (
	"math"
	"strings"
	"testing"

	"tilework/dtype"
)

func TestSummaries(t *testing.T) {
	var records []Record
	add := func(n int, subject string, peer bool, speeds map[string]float64) {
		c := shape(t, Cube(n), dtype.F32, dtype.F32)
		r := newRecord(&c)
		r.Subject, r.Peer = subject, peer
		r.Environment = *quick(nil).Environment
		for name, speed := range speeds {
			r.Versus = append(r.Versus, Ratio{Peer: name, Speed: speed, Low: 0.99 * speed, High: 1.01 * speed})
		}
		records = append(records, r)
	}
	add(8, "a", false, map[string]float64{"p": 2})
	add(8, "b", false, map[string]float64{"p": 1})
	add(8, "p", true, map[string]float64{"q": 1})
	add(9, "a", false, map[string]float64{"p": 0.5})
	add(9, "b", false, nil) // failed
	add(20, "a", false, map[string]float64{"p": 8})
	records[len(records)-1].Versus[0].High = 10
	got := Summarize(records)
	if len(got) != 2 || got[0].Subject != "a" || got[1].Subject != "b" {
		t.Fatalf("got summaries %+v, want those of a and b", got)
	}
	if s := got[0]; s.Cases != 3 || s.Uncertain != 1 || math.Abs(s.Mean-2) > 1e-12 || s.Few != 2 ||
		math.Abs(s.FewMean-1) > 1e-12 || s.Worst != 0.5 || s.WorstShape != Cube(9) {
		t.Errorf("got summary %+v", s)
	}
	if s := got[1]; s.Cases != 1 || s.Uncertain != 0 || s.Mean != 1 || s.Worst != 1 {
		t.Errorf("got summary %+v", s)
	}
	const want = "a × p on cpu, threads 2, float32: geometric mean 2.000 of 3, " +
		"1.000 of the 2 with up to 16 rows, 1 of them uncertain, " +
		"1 below 0.9 and 1 below 0.8, " +
		"worst 0.500 (9x9x9)\n" + RatioNote + "\n" + UncertainNote + "\n" +
		"R3000, 0 of 1 cores, cache 1 MiB; plan9/mips; 0001-01-01\n"
	if text := write(t, "table", records); !strings.HasSuffix(text, want) || strings.Contains(text, "b × p on") {
		t.Errorf("got table\n%s\nwant the end\n%s", text, want)
	}
}
