package main

import (
	"strings"
	"testing"
)

// TestRun checks that the kernel has no findings, and that the checkers find the missing padding
// and the missing barrier, with lines of main.go.
func TestRun(t *testing.T) {
	for _, v := range []struct {
		name    string
		pad     int
		barrier bool
		finds   string
		wrong   bool
	}{
		{"correct", 1, true, "findings: 0", false},
		{"without padding", 0, true, "bank", false},
		{"without a barrier", 1, false, "want a __syncthreads()", true},
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
				continue // a single row has no bank conflicts
			}
			if !strings.Contains(b.String(), v.finds) || v.finds != "findings: 0" && !strings.Contains(b.String(), "main.go:") {
				t.Errorf("%s, %v: want %q in\n%s", v.name, size, v.finds, &b)
			}
		}
	}
}
