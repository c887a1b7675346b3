package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestRun checks that a request has one answer with row invariance, on the CPU and the emulator,
// and that it has several without on the emulator. A CPU without AVX2 has one kernel for all sizes.
func TestRun(t *testing.T) {
	for _, device := range []string{"cpu", "emu"} {
		var out bytes.Buffer
		if err := run(t.Context(), device, &out); err != nil {
			t.Fatal(err)
		}
		var first, second int
		const want = "answers to one request in 8 batches "
		if _, err := fmt.Sscanf(out.String(), want+"by default: %d\n"+want+"with row invariance: %d", &first,
			&second); err != nil {
			t.Fatalf("%v in %q", err, out.String())
		}
		if second != 1 || device == "emu" && first < 2 {
			t.Errorf("on %s: %s", device, strings.TrimSpace(out.String()))
		}
	}
}
