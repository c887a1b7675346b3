package report

import (
	"regexp"
	"strings"
	"testing"

	"tilework/internal/bench"
)

// once returns records with a single timing, whose figures are all uncertain.
func once(records []bench.Record) []bench.Record {
	for i := range records {
		r := &records[i]
		s := r.Seconds.Median
		r.Reps, r.Samples, r.Seconds = 1, []float64{s}, bench.Timing{Median: s, Min: s, Max: s, P10: s, P90: s}
		for j, v := range r.Versus {
			r.Versus[j] = bench.Ratio{Peer: v.Peer, Speed: v.Speed, P10: v.Speed, P90: v.Speed}
		}
	}
	return records
}

// figure matches a time, a rate, a ratio or a crossing with its mark.
var figure = regexp.MustCompile(`(?:[0-9.]+ ?(?:×|[µmn]?s|[GT]FLOP/s)|N ≈ [0-9]+)(\?| |\.|,|;|:|$)`)

// TestSingleTimings checks that each figure from a single timing is marked as uncertain, and has no
// spread: in the tiles, the answers, the tables and the tooltips.
func TestSingleTimings(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	records := m.sweep()
	two := pace{subject: "blocked@gpu:0,1", rate: 95_000}
	records = append(records, m.record(two, "gpu:0,1", bench.Cube(8192), false))
	r := newReport(t, Source{"r", once(records)})
	var texts []string
	for _, tile := range r.Tiles {
		texts = append(texts, strings.TrimSpace(tile.Value+" "+tile.Unit))
	}
	for _, c := range r.Charts() {
		if strings.HasPrefix(c.ID, "transfers") { // its steps are timed once in any record
			continue
		}
		texts = append(texts, c.Answer)
		for _, row := range c.Table.Rows {
			for i, cell := range row {
				if c.Table.Columns[i].Name == "spread" && cell.Text != "" {
					t.Errorf("%s: a single timing has a spread of %s", c.ID, cell.Text)
				}
				if unit := c.Table.Columns[i].Unit; unit == "s" || unit == "×" &&
					!strings.Contains(c.Table.Columns[i].Name, "percentile") {
					texts = append(texts, cell.Text)
				}
			}
		}
		switch d := c.Drawing.(type) {
		case *Lines:
			for _, m := range d.Marks {
				texts = append(texts, m.Text)
			}
			for _, s := range d.Series {
				for _, p := range s.Points {
					if !s.LineOnly {
						texts = append(texts, p.Text)
					}
				}
			}
		case *Rows:
			for _, row := range d.Rows {
				for _, v := range row.Values {
					texts = append(texts, v.Text)
					if v.Label != "" && !strings.HasSuffix(v.Label, bench.UncertainMark) {
						t.Errorf("%s: the rate %s of %s is not marked", c.ID, v.Label, row.Name)
					}
				}
			}
		}
	}
	found := 0
	for _, text := range texts {
		if strings.Contains(text, "±") {
			t.Errorf("a single timing has a spread: %q", text)
		}
		for _, figure := range figure.FindAllStringSubmatch(text, -1) {
			if found++; figure[1] != bench.UncertainMark {
				t.Errorf("%q is not marked in %q", figure[0], text)
			}
		}
	}
	if found < 100 {
		t.Errorf("found %d figures, want at least 100", found)
	}
}

// TestSizeAnswer checks that the time of a size is compared with that of another curve, at a size
// that several have.
func TestSizeAnswer(t *testing.T) {
	m := newMachine(1, "", 1)
	var records []bench.Record
	for n := 64; n <= 1024; n *= 2 {
		for _, on := range cpuModels[:3] {
			records = append(records, m.record(on, "cpu", bench.Cube(n), false))
		}
	}
	last := m.record(cpuModels[2], "cpu", bench.Cube(2048), false)
	check := func(want string, more ...bench.Record) {
		t.Helper()
		r := newReport(t, Source{"r", append(records[:len(records):len(records)], more...)})
		if c := r.chart(t, "sizes-cpu-float32"); !regexp.MustCompile(want).MatchString(c.Answer) {
			t.Errorf("got answer\n%s\nwant\n%s", c.Answer, want)
		}
	}
	check(`^At 1024³, loop takes 1\.\d+ s and avx512 takes \d\d(\.\d+)? ms\.$`, last)
	one := m.record(pace{subject: "avx512", rate: 55}, "cpu", bench.Cube(2048), false)
	one.Threads = 1
	check(`^At 2048³, avx512, 1 thread takes `+
		`3\d\d(\.\d+)? ms and avx512, all threads takes 1\d\d(\.\d+)? ms\.$`, last, one)
}
