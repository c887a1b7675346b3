package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"tilework/internal/host"
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

// TestScalingPage compares the tables of docs/scaling.md with the predictions of the command.
func TestScalingPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), ",", "") // 13,312
	check := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); !strings.Contains(page, line+"\n") {
			t.Errorf("docs/scaling.md does not have this line (apart from commas): %s", line)
		}
	}
	for _, r := range predictedRows(t, "--dtypes bfloat16 --sizes 8192,16384,32768") {
		took := fmt.Sprintf("%.3g ms", 1e3*r.Seconds)
		if r.Seconds < 1e-3 {
			took = fmt.Sprintf("%.3g µs", 1e6*r.Seconds)
		}
		check("| %d³ | %s | %s | %.0f | %.0f %% |", r.M, r.Grid, took, r.Flops/1e12, 100*r.Efficiency)
	}
	hosts := "1,8,128"
	if testkit.Full() {
		hosts = "1..128x2"
	}
	smallest := predictedRows(t, "--dtypes bfloat16,float32,float64 --efficiency 85 --hosts "+hosts)
	for i := range len(smallest) / 3 {
		b, f, d := smallest[i], smallest[i+len(smallest)/3], smallest[i+2*len(smallest)/3]
		check("| %d | %d | %d³ %s | %d³ %s | %d³ %s |", b.Hosts, b.GPUs, b.M, b.Grid, f.M, f.Grid, d.M, d.Grid)
		if b.Hosts == 128 {
			check("bfloat16 on 128 hosts needs %s of each.", host.Bytes(uint64(b.MemoryBytes)))
		}
	}
	for _, r := range predictedRows(t, "--dtypes bfloat16 --hosts 1..128x2 --sizes 65536") {
		check("| %d | %d | %s | %.3g ms | %.0f %% |", r.Hosts, r.GPUs, r.Grid, 1e3*r.Seconds, 100*r.Efficiency)
	}
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
