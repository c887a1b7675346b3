package main

import (
	"strings"
	"testing"

	"tilework/internal/bench"
)

// TestMeaning checks the sentence about a machine with and without a GPU.
func TestMeaning(t *testing.T) {
	record := func(subject, device string, n, threads int, gflops, peak float64) bench.Record {
		return bench.Record{Subject: subject, Device: device, In: "float32", Out: "float32", M: n, N: n, K: n,
			Threads: threads, GFLOPS: gflops, Peak: peak, Reps: 9,
			Seconds: bench.Timing{Median: 1, P10: 1, P90: 1}}
	}
	cpu := []bench.Record{
		record("loop", "cpu", 64, 1, 2, 0), record("loop", "cpu", 512, 1, 1, 0), record("avx2", "cpu", 512, 1, 80, 0),
		record("avx2", "cpu", 2048, 0, 150, 200), record("mkl", "cpu", 2048, 0, 170, 200),
	}
	cpu[3].Versus = []bench.Ratio{{Peer: "openblas", Speed: 1.1, Low: 1.1, High: 1.1},
		{Peer: "mkl", Speed: 0.9, Low: 0.9, High: 0.9}}
	cpu[4].Peer = true
	rounded := record("wgmma-tf32", "gpu", 4096, 0, 400_000, 0)
	rounded.Precision = "tf32"
	gpu := []bench.Record{record("blocked", "gpu", 4096, 0, 45_000, 60_000), rounded}
	counted := record("naive", "emu", 64, 0, 0, 0)
	counted.Counts = &bench.Counts{}
	const onCPU = "the CPU multiplies float32 matrices at up to 150 GFLOP/s (avx2, 2048x2048x2048, 75 % of its peak), " +
		"0.90 times the speed of mkl, and is 80 times as fast as the textbook loop at 512x512x512"
	for _, c := range []struct {
		records []bench.Record
		want    string
	}{
		{nil, ""},
		{[]bench.Record{counted}, ""},
		{cpu, "On this machine, " + onCPU + "; no GPU was timed, so kernels of GPUs can be studied on the emulator, and " +
			"products run on the CPU."},
		{append(cpu[:5:5], gpu...), "On this machine, " + onCPU + "; the GPU multiplies float32 matrices at up to 45 " +
			"TFLOP/s (blocked, 4096x4096x4096, 75 % of its peak), 300 times the rate of the CPU, for matrices in its memory."},
	} {
		if got := meaning(c.records); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}

// TestPresetMeaning checks that only the table of a preset ends with the sentence.
func TestPresetMeaning(t *testing.T) {
	const quick = "bench --preset quick --device cpu --sizes 8 --min-time 1ms --warmup 1ms"
	for args, want := range map[string]bool{
		quick: true, quick + " --format csv": false, "bench --sizes 8 --min-time 1ms --warmup 1ms": false,
	} {
		stdout, stderr, code := run(t.Context(), strings.Fields(args)...)
		last := stdout[strings.LastIndex(strings.TrimRight(stdout, "\n"), "\n\n")+1:]
		if got := strings.Contains(last, "On this machine, the CPU multiplies"); got != want || code != 0 {
			t.Errorf("%s: sentence %v, exit code %d, %s, want %v in\n%s", args, got, code, stderr, want, last)
		}
	}
}

// TestShapeSpellings checks that every command with shapes accepts --shape and --shapes.
func TestShapeSpellings(t *testing.T) {
	found := 0
	for _, c := range newCommand().Commands() {
		singular, plural := c.Flags().Lookup("shape"), c.Flags().Lookup("shapes")
		if singular != plural {
			t.Errorf("%s: --shape and --shapes are two flags", c.Name())
		}
		if singular != nil {
			found++
		}
	}
	if found < 4 {
		t.Errorf("%d commands have --shape, want at least 4", found)
	}
	one, _, _ := run(t.Context(), "explain", "naive", "--shape", "8", "--format", "json")
	other, stderr, code := run(t.Context(), "explain", "naive", "--shapes", "8x8x8", "--format", "json")
	if code != 0 || one != other {
		t.Errorf("exit code %d, %s: the spellings differ", code, stderr)
	}
}
