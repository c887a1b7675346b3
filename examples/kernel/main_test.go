package main

import (
	"strings"
	"testing"
)

// TestRun: the kernel is right and has no finding; each of its two mistakes is found, at a
// line of this example.
func TestRun(t *testing.T) {
	for _, v := range []struct {
		name    string
		pad     int
		barrier bool
		finds   string
		wrong   bool
	}{
		{"as it is", 1, true, "findings: 0", false},
		{"without padding", 0, true, "bank", false},
		{"without a barrier", 1, false, "__syncthreads() missing", true},
	} {
		m, err := transpose(v.pad, v.barrier)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range [][2]int{{100, 70}, {32, 32}, {1, 65}} {
			var b strings.Builder
			err := run(t.Context(), m, size[0], size[1], &b)
			if (err != nil) != v.wrong {
				t.Errorf("%s, %v: %v", v.name, size, err)
			}
			if size[0] == 1 && !v.wrong {
				continue // one row has no columns to conflict
			}
			if !strings.Contains(b.String(), v.finds) || v.finds != "findings: 0" && !strings.Contains(b.String(), "main.go:") {
				t.Errorf("%s, %v: want %q in\n%s", v.name, size, v.finds, &b)
			}
		}
	}
}
