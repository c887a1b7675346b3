package report

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"tilework/internal/bench"
)

// TestTextbook checks that a record of the ladder has the textbook's three charts of three lines
// each, and that other records and comparisons have none.
func TestTextbook(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	without := m.sweep()
	records := slices.Clone(without)
	for n := 64; n <= 8192; n *= 2 {
		records = append(records, m.record(gpuModels[0], "gpu:0", bench.Cube(n), true))
	}
	r := newReport(t, Source{"r", records})
	for id, c := range map[string]struct {
		want         string
		least, sizes int
	}{
		"textbook-small-float32": {`^At 128³, textbook loop, CPU takes 3\.\d+ ms; naive, GPU with copies takes ` +
			`10\d(\.\d+)? µs, 3\d\.\d× as fast; naive, GPU takes 4\.\d+ µs, [678]\d\d× as fast\.$`, 64, 2},
		"textbook-large-float32": {`^At 1024³, textbook loop, CPU takes 1\.\d+ s; naive, GPU with copies takes ` +
			`1\.\d+ ms, \d+× as fast; naive, GPU takes 37\d(\.\d)? µs, 4\d\d\d× as fast\.$`, 128, 7},
		"textbook-kernels-float32": {`^At 8192³, naive, GPU takes 1\d\d(\.\d)? ms; tiled, GPU takes 1\d\d(\.\d)? ms, ` +
			`1\.6\d× as fast; cublaslt, GPU takes 21\.\d+ ms, 8\.\d+× as fast\.$`, 64, 8},
	} {
		chart := r.chart(t, id)
		if !regexp.MustCompile(c.want).MatchString(chart.Answer) {
			t.Errorf("%s: got answer\n%s\nwant\n%s", id, chart.Answer, c.want)
		}
		if rows := chart.Table.Rows; len(chart.Drawing.(*Lines).Series) != 3 || len(rows) != c.sizes ||
			rows[0][0].Number != float64(c.least) {
			t.Errorf("%s: got %d lines and %d sizes from %v, want 3 and %d from %d", id,
				len(chart.Drawing.(*Lines).Series), len(rows), rows[0][0], c.sizes, c.least)
		}
	}
	for what, c := range map[string]struct {
		sources []Source
		charts  int
	}{
		"no copies":  {[]Source{{"r", without}}, 1},
		"comparison": {[]Source{{"a", records}, {"b", records}}, 0},
	} {
		n := 0
		for _, chart := range newReport(t, c.sources...).Charts() {
			if strings.HasPrefix(chart.ID, "textbook") {
				n++
			}
		}
		if n != c.charts {
			t.Errorf("%s: got %d of the textbook's charts, want %d", what, n, c.charts)
		}
	}
}
