package main

import (
	"io"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// TestFlagListsAreLinear checks for each list that a flag takes, and each kind of item, that the
// bytes that parsing it allocates grow with its length.
func TestFlagListsAreLinear(t *testing.T) {
	for flag, c := range map[string]struct {
		items []string
		parse func(text string) error
	}{
		"--dtypes": {[]string{"float32,", "x,", ","},
			func(text string) error { _, err := (&productFlags{dtypes: text}).types(); return err }},
		"--epilogue": {[]string{"bias-row,", "bias-row+gelu,", "gelu+", "none,", "x"},
			func(text string) error { _, err := (&benchFlags{epilogues: text}).parseEpilogues(); return err }},
		"--block-scales": {[]string{"1x128+128x128,", "none,", "1x128+"},
			func(text string) error { _, err := (&benchFlags{scales: text}).parseScales(); return err }},
		"--gpu-memory": {[]string{"1GiB,", "1,", "1", "K"},
			func(text string) error { _, err := (&benchFlags{gpuMemory: text}).gpuLimits(); return err }},
		"--groups": {[]string{"1,", "0,", "1"}, func(text string) error { _, err := groupRows(text, 1000); return err }},
		"--device": {[]string{"gpu:", ",1", "emu:h200,", "h200,"},
			func(text string) error { _, err := backend.ParseDevice("emu:" + text); return err }},
		"--checkers": {[]string{"race,", "x,", ","},
			func(text string) error { _, _, err := (&emulateFlags{checkers: text}).parseCheckers(); return err }},
		"--grid":  {[]string{"1x", "1,", "1"}, func(text string) error { _, err := parseDim3(text); return err }},
		"--alpha": {[]string{"1", "0", "1.", "e1"}, func(text string) error { return new(factor).Set(text) }},
		"report": {[]string{"a/b.json ", "../", "x ", "."},
			func(text string) error { distinct(strings.Fields(text)); return nil }},
	} {
		for _, item := range c.items {
			input := func(n int) string { return strings.Repeat(item, n/len(item)) + "1" }
			testkit.CheckLinear(t, flag+" "+item, testkit.Lengths(), 300, input, func(text string) uint64 {
				return testkit.Allocated(func() { c.parse(text) }) // with or without an error
			})
		}
	}
}

// TestRepeatedKernels counts the plans for a list of kernels that repeats its items. Each item must
// be planned once for each product.
func TestRepeatedKernels(t *testing.T) {
	problems := make([]gemm.Problem, 3)
	for i := range problems {
		l := gemm.Dense(dtype.F32, i+1, i+1)
		p, _, err := gemm.New(1, l, l, 0, l, gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		problems[i] = p
	}
	plans := 0
	plan := func(_ *gemm.Problem, kernel string) (string, error) { plans++; return kernel, nil }
	f := benchFlags{kernels: strings.Repeat("loop, auto,", 1000) + "loop"}
	picks, err := f.picks(backend.DeviceName{Kind: backend.CPU}, problems, plan, io.Discard)
	if err != nil || len(picks) != 2 || plans != 2*len(problems) {
		t.Errorf("%d picks after %d plans, %v, want 2 after %d", len(picks), plans, err, 2*len(problems))
	}
}
