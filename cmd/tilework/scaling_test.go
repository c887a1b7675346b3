package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"tilework/internal/host"
	"tilework/internal/phrase"
	"tilework/internal/testkit"
)

// predictedRows returns the rows that scaling prints.
func predictedRows(t *testing.T, args string) (rows []scalingRow) {
	t.Helper()
	stdout, stderr, code := run(t.Context(), strings.Fields("scaling --format json "+args)...)
	if code != 0 {
		t.Fatalf("%s: exit code %d, %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestScalingPage compares docs/scaling.md with the predictions of the command.
func TestScalingPage(t *testing.T) {
	const page = "../../docs/scaling.md"
	took := func(r scalingRow) string {
		if r.Seconds < 1e-3 {
			return fmt.Sprintf("%.3g µs", 1e6*r.Seconds)
		}
		return fmt.Sprintf("%.3g ms", 1e3*r.Seconds)
	}
	percent := func(r scalingRow) string { return fmt.Sprintf("%.0f %%", 100*r.Efficiency) }
	cube := func(r scalingRow) string { return phrase.Commas(r.M) + "³" }

	table := [][]string{{"bfloat16", "grid", "time", "TFLOP/s", "efficiency"}}
	for _, r := range predictedRows(t, "--dtypes bfloat16 --sizes 8192,16384,32768") {
		table = append(table, []string{cube(r), r.Grid, took(r), phrase.Commas(int(math.Round(r.Flops / 1e12))), percent(r)})
	}
	testkit.CheckPage(t, page, "computed: squares on eight GPUs, by cmd/tilework.TestScalingPage", testkit.Table(table...))

	table = [][]string{{"hosts", "GPUs", "bfloat16", "float32", "float64"}}
	smallest := predictedRows(t, "--dtypes bfloat16,float32,float64 --efficiency 85 --hosts 1..128x2")
	n := len(smallest) / 3
	for i, r := range smallest[:n] {
		row := []string{fmt.Sprint(r.Hosts), fmt.Sprint(r.GPUs)}
		for _, of := range []scalingRow{r, smallest[n+i], smallest[2*n+i]} {
			row = append(row, cube(of)+", "+of.Grid)
		}
		table = append(table, row)
	}
	testkit.CheckPage(t, page, "computed: squares for 85 %, by cmd/tilework.TestScalingPage", testkit.Table(table...))
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	most := fmt.Sprintf("bfloat16 on 128 hosts needs %s of each.\n", host.Bytes(uint64(smallest[n-1].MemoryBytes)))
	if !strings.Contains(string(text), most) {
		t.Errorf("%s lacks %q", page, most)
	}

	table = [][]string{{"hosts", "GPUs", "grid", "time", "efficiency"}}
	for _, r := range predictedRows(t, "--dtypes bfloat16 --hosts 1..128x2 --sizes 65536") {
		table = append(table, []string{fmt.Sprint(r.Hosts), fmt.Sprint(r.GPUs), r.Grid, took(r), percent(r)})
	}
	testkit.CheckPage(t, page, "computed: strong scaling, by cmd/tilework.TestScalingPage", testkit.Table(table...))
}

// TestScalingGPUs checks that the error of an unknown GPU lists only names that --gpu accepts.
func TestScalingGPUs(t *testing.T) {
	_, stderr, _ := run(t.Context(), "scaling", "--gpu", "none")
	_, list, _ := strings.Cut(strings.TrimSpace(stderr), "want one of ")
	known := strings.Split(list, ", ")
	if len(known) < 2 {
		t.Fatalf("no list of GPUs in %q", stderr)
	}
	for _, gpu := range known {
		if _, stderr, code := run(t.Context(), "scaling", "--gpu", gpu, "--peer", "20"); code != 0 {
			t.Errorf("--gpu %s: exit code %d: %s", gpu, code, stderr)
		}
	}
}

// TestScalingMemory checks the note about products that do not fit the GPUs.
func TestScalingMemory(t *testing.T) {
	_, stderr, code := run(t.Context(), strings.Fields("scaling --sizes 1000000 --hosts 2,128")...)
	// 4 TB of A in 4 rows of the grid, 4 TB of B in 4 columns, and a sixteenth of C are 2.25 TB.
	const want = "note: float32 1000000×1000000×1000000 on 16 GPUs needs 2.05 TiB of memory per GPU, and h200 has 141 GiB"
	if first, _, _ := strings.Cut(stderr, "\n"); code != 0 || first != want {
		t.Errorf("exit code %d, message %q, want %q", code, stderr, want)
	}
}
