package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gpu"
)

func TestBenchFormats(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, format := range bench.Formats() {
		file := format.Name + ".jsonl"
		stdout, stderr, code := run(t.Context(), "bench", "--sizes", "8", "--shape", "2x3x4", "--kernels", "loop,portable",
			"--dtypes", "float32,int8", "--threads", "1", "--min-time", "1ms", "--warmup", "1ms", "--format", format.Name,
			"-o", file)
		if code != 0 || !strings.Contains(stdout, "portable") {
			t.Errorf("%s: exit code %d, %q, %q", format.Name, code, stdout, stderr)
		}
		records := readRecords(t, file)
		if len(records) != 8 {
			t.Errorf("%s: %d records in the file, want 8", format.Name, len(records))
		}
		for _, r := range records {
			if !r.Verified || r.GFLOPS <= 0 {
				t.Errorf("record without a verified time: %+v", r)
			}
		}
	}
}

func readRecords(t *testing.T, file string) []bench.Record {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := bench.ReadRecords(f)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// emulatedGPU makes the device "gpu" an emulated GPU until the end of the test.
func emulatedGPU(t *testing.T) {
	t.Helper()
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return emu.Open(emu.Options{}) })
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
}

// TestBenchOnGPU measures times of an emulated GPU, as if it were a real one.
func TestBenchOnGPU(t *testing.T) {
	t.Chdir(t.TempDir())
	emulatedGPU(t)
	for _, test := range []struct {
		args     string
		subjects string
		check    func(r bench.Record) bool
	}{
		{"--kernels naive,tiled,blocked --cold", "naive tiled blocked",
			func(r bench.Record) bool { return r.Cold && r.Buffers > 100 && !r.Transfers && r.Steps == nil }},
		{"--kernels tiled:2,naive --dtypes float16 --transpose-b", "tiled:2 naive",
			func(r bench.Record) bool { return !r.Cold && r.Buffers == 1 && r.TransB }},
		{"--kernels mma-tf32,auto-f32x3", "mma-tf32 wgmma-f32x3",
			func(r bench.Record) bool { return "-"+r.Precision == r.Subject[strings.Index(r.Subject, "-"):] }},
		{"--kernels mma-tf32 --transfers", "mma-tf32", func(r bench.Record) bool { return r.Precision == "tf32" }},
		{"--transfers --peers all", "tiled", func(r bench.Record) bool {
			return r.Peer || r.Transfers && r.Steps != nil && r.Steps.Compute > 0 && r.Setup > 0
		}},
		{"--shape 40x50x11 --transfers --gpu-memory 64KB,3KB --kernels naive", "naive naive@64KB naive@3KB",
			func(r bench.Record) bool {
				return r.Steps == nil && r.PredictedSeconds > 0 &&
					strings.Contains(r.Detail, "blocks of C") == (r.Subject == "naive@3KB")
			}},
		{"--device gpu:0,1 --transfers --kernels naive,mma-tf32", "naive@gpu:0,1 naive mma-tf32@gpu:0,1 mma-tf32",
			func(r bench.Record) bool {
				return r.Device == "gpu:0,1" && r.Steps == nil && r.Breakdown[0].Device == "gpu" && r.Breakdown[0].FromHost > 0
			}},
		{"--device gpu:0,1 --kernels naive,mma-tf32 --epilogue bias-col+residual",
			"naive@gpu:0,1 naive@gpu:0,1/columns naive@gpu:0,1/each naive " +
				"mma-tf32@gpu:0,1 mma-tf32@gpu:0,1/columns mma-tf32@gpu:0,1/each mma-tf32",
			func(r bench.Record) bool {
				several := strings.Contains(r.Subject, "@")
				return r.Device == "gpu:0,1" && !r.Transfers && several == (len(r.Breakdown) == 2) &&
					strings.Contains(r.Detail, "computes") == several
			}},
		{"--device gpu:0,1 --batch 3 --kernels naive --epilogue bias-col", "naive@gpu:0,1 naive@gpu:0,1/each naive",
			func(r bench.Record) bool {
				return r.Products == 3 && strings.Contains(r.Detail, "computes products") == strings.Contains(r.Subject, "@")
			}},
		{"--batch 3", "tiled", func(r bench.Record) bool { return r.Products == 3 && r.Groups == nil }},
		{"--groups 4,0,2 --peers dense", "tiled", func(r bench.Record) bool {
			return slices.Equal(r.Groups, []int{6, 0, 3}) && r.Products == 0
		}},
		{"--groups 2", "tiled", func(r bench.Record) bool { return slices.Equal(r.Groups, []int{4, 5}) }},
		{"--peers all", "tiled", func(r bench.Record) bool { return strings.HasPrefix(r.Detail, "tiled f32 NN") }},
	} {
		args := append([]string{"bench", "--device", "gpu", "--shape", "9x10x11", "--min-time", "1ms", "--warmup", "1ms",
			"-o", "r.jsonl"}, strings.Fields(test.args)...)
		stdout, stderr, code := run(t.Context(), args...)
		if code != 0 {
			t.Errorf("%s: exit code %d, %q, %q", test.args, code, stdout, stderr)
			continue
		}
		var subjects []string
		for _, r := range readRecords(t, "r.jsonl") {
			if !r.Peer {
				subjects = append(subjects, r.Subject)
			}
			if !r.Verified || r.Peak != 0 || r.Environment.GPU != "h200, emulated" || !test.check(r) {
				t.Errorf("%s: record %+v", test.args, r)
			}
		}
		if got := strings.Join(subjects, " "); got != test.subjects {
			t.Errorf("%s: subjects %q, want %q", test.args, got, test.subjects)
		}
		if err := os.Remove("r.jsonl"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBenchBatchErrors checks that wrong batches, and batches on the CPU, are usage errors.
func TestBenchBatchErrors(t *testing.T) {
	emulatedGPU(t)
	for _, test := range []struct{ args, want string }{
		{"--batch 2", "--device gpu"},
		{"--groups 2", "--device gpu"},
		{"--sustained 1s", "--device gpu"},
		{"--device emu --sustained 1s", "--device gpu"},
		{"--device gpu --transfers --sustained 1s", "without --transfers"},
		{"--sustained=-1s", "want 0 or more"},
		{"--device gpu --transfers --batch 2", "without --transfers"},
		{"--device gpu --batch 0", "want 1 or more"},
		{"--device gpu --batch 2 --groups 2", "batch"},
		{"--device gpu --groups 1,x", "share"},
		{"--device gpu:0,1 --groups 2", "want one GPU, not gpu:0,1"},
		{"--device gpu:0,1 --peers cublaslt", "want one of pytorch, pytorch-async, cublasmp"},
		{"--device gpu --peers cublaslt,pytorch", "want one of pytorch, pytorch-async, cublasmp"},
		{"--device gpu --peers pytorch-async", "want several GPUs"},
		{"--device gpu --peers cublasmp", "cublasmp is a peer on several GPUs"},
		{"--device gpu:0,1 --peers cublasmp", "the library contains machine code"},
		{"--device gpu --peers pytorch --peer-path pytorch=/no/python", "no /no/python on the PATH"},
		{"--device emu:h200,h200", "bench counts on one emulated GPU"},
		{"--device gpu --groups 0", "all shares are 0"},
		{"--device gpu --groups 2 --transpose-a", "stored by columns"},
	} {
		_, stderr, code := run(t.Context(), append([]string{"bench", "--sizes", "8"}, strings.Fields(test.args)...)...)
		if code != 2 || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit code %d, %q, want %q", test.args, code, stderr, test.want)
		}
	}
}

// TestBenchCounts checks the counters of an emulated GPU. As in textbooks, naive loads 2·K elements
// for each element of C, and tiled loads 2·K·T elements for each T×T tile of C.
func TestBenchCounts(t *testing.T) {
	t.Chdir(t.TempDir())
	stdout, stderr, code := run(t.Context(), "bench", "--device", "emu:t4", "--kernels", "naive,tiled:16,tiled:32",
		"--sizes", "64", "-o", "r.jsonl")
	if code != 0 || !strings.Contains(stdout, "FLOP/byte") || strings.Contains(stdout, "GFLOP/s") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	const n = 64
	for i, tile := range []int64{1, 16, 32} {
		r := readRecords(t, "r.jsonl")[i]
		c := r.Counts
		if c == nil || r.Timed() || !r.Verified || r.Environment.GPU != "t4, emulated" {
			t.Fatalf("record %+v", r)
		}
		if want := 2 * n * n * n * 4 / tile; c.LoadBytes != want || c.StoreBytes != n*n*4 || c.Conflicts() != 0 {
			t.Errorf("tile %d: %+v, want %d bytes loaded", tile, c, want)
		}
		// The 16 threads of a half-warp of naive load the same element of A. On the oldest GPUs
		// this took 16 transactions, since the threads had to access consecutive elements.
		halves := 2*n*n*n/16/tile + n*n/16
		transactions := halves
		if tile == 1 {
			transactions += 15 * n * n * n / 16
		}
		if c.Historic == nil || c.Historic.HalfWarps != halves || c.Historic.Transactions != transactions ||
			c.Historic.Wavefronts != c.Historic.IdealWavefronts {
			t.Errorf("tile %d: historic counts %+v, want %d half-warps and %d transactions",
				tile, c.Historic, halves, transactions)
		}
		if c.Flops < 2*n*n*n || c.Flops > 2*n*n*n+4*n*n || c.DistinctSectors != 3*n*n*4/32 {
			t.Errorf("tile %d: %+v", tile, c)
		}
	}
}

// TestBenchEpilogues checks that bench measures each product with each epilogue, and that the peer
// "then", which launches the epilogue separately, stores C twice.
func TestBenchEpilogues(t *testing.T) {
	t.Chdir(t.TempDir())
	const n = 32
	stdout, stderr, code := run(t.Context(), "bench", "--device", "emu:t4", "--kernels", "tiled:16", "--sizes", "32",
		"--peers", "then",
		"--epilogue", "none,row-scale+col-scale+bias-col+relu+residual+out-scale", "-o", "r.jsonl")
	if code != 0 {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	records := readRecords(t, "r.jsonl")
	if len(records) != 4 || !records[1].Unsupported {
		t.Fatalf("records %+v", records)
	}
	for i, stored := range map[int]int64{0: n * n * 4, 2: n * n * 4, 3: 2 * n * n * 4} {
		r := records[i]
		if r.Counts == nil || !r.Verified || r.Counts.StoreBytes != stored {
			t.Errorf("record %+v, want %d bytes stored", r, stored)
		}
	}
	if r := records[2]; r.Bias != "column" || r.Activation != "relu" ||
		r.Epilogue != "row-scale+col-scale+residual+out-scale" {
		t.Errorf("the record has bias %q, activation %q and epilogue %q", r.Bias, r.Activation, r.Epilogue)
	}
	_, stderr, code = run(t.Context(), "bench", "--device", "emu:t4", "--sizes", "32", "--epilogue", "softmax")
	if code == 0 || !strings.Contains(stderr, `unknown operation "softmax"`) {
		t.Errorf("unknown epilogue: exit code %d, %q", code, stderr)
	}
}

// TestBenchScales checks that bench measures each product with each choice of block scales, with
// --out-dtype, and refuses wrong choices.
func TestBenchScales(t *testing.T) {
	t.Chdir(t.TempDir())
	stdout, stderr, code := run(t.Context(), "bench", "--device", "emu:h200", "--sizes", "130", "--dtypes", "e4m3",
		"--transpose-b",
		"--block-scales", "none,1x128+128x128,128x128+1x128", "--out-dtype", "e4m3", "-o", "r.jsonl")
	if code != 0 {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	records := readRecords(t, "r.jsonl")
	if len(records) != 3 {
		t.Fatalf("records %+v", records)
	}
	for i, scales := range []string{"", "1x128+128x128", "128x128+1x128"} {
		if r := records[i]; r.BlockScales != scales || !r.Verified || r.Out != "float8_e4m3fn" {
			t.Errorf("record %+v, want block scales %q", r, scales)
		}
	}
	for _, args := range [][]string{
		{"--block-scales", "1x128"}, {"--block-scales", "1x128+128x128", "--dtypes", "bfloat16"},
		{"--block-scales", "1x128+128x128", "--batch", "2"}, {"--out-dtype", "float64"}, {"--out-dtype", "float7"},
	} {
		args = append([]string{"bench", "--device", "emu:h200", "--sizes", "32", "--dtypes", "e4m3"}, args...)
		if _, stderr, code := run(t.Context(), args...); code != 2 {
			t.Errorf("%q: exit code %d, %q", args, code, stderr)
		}
	}
}

// TestBenchBesideCUDA measures the kernels of docs/results/reference/ladder.cu and those of
// tilework on the emulator. The results of both are verified.
func TestBenchBesideCUDA(t *testing.T) {
	nvcc := os.Getenv("TILEWORK_NVCC")
	if nvcc == "" {
		t.Skip("set TILEWORK_NVCC to the path of nvcc to compile docs/results/reference")
	}
	ladder := filepath.Join(t.TempDir(), "ladder.ptx")
	if out, err := exec.Command(nvcc, "-ptx", "-O3", "-arch=sm_90", "-o", ladder,
		"../../docs/results/reference/ladder.cu").CombinedOutput(); err != nil {
		t.Fatalf("nvcc: %v\n%s", err, out)
	}
	stdout, stderr, code := run(t.Context(), "bench", "--device", "emu", "--shape", "36x44x20,132x136x24", "--min-time",
		"1ms", "--format", "csv",
		"--kernels", "naive,tiled:16,tiled:32,blocked", "--peer-path", "cuda="+ladder,
		"--peers", "cuda:naive:16x16/16x16,cuda:tiled16:16x16/16x16,cuda:tiled32:32x32/32x32,"+
			"cuda:blocked128x128:128x128/256x1")
	if code != 0 || strings.Count(stdout, ",true,") < 16 || !strings.Contains(stdout, "cuda:tiled16") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func TestBenchInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, device := range []string{"cpu", "emu"} {
		if _, stderr, code := run(ctx, "bench", "--device", device, "--sizes", "64"); code != exitInterrupted {
			t.Errorf("%s: exit code %d, %q", device, code, stderr)
		}
	}
}

// TestBenchPacked checks that --packed also measures kernels with a prepacked B, beside the peer
// "reading" that computes nothing, and that it is refused on a GPU.
func TestBenchPacked(t *testing.T) {
	t.Chdir(t.TempDir())
	stdout, stderr, code := run(t.Context(), "bench", "--packed", "--peers", "reading", "--shape", "3x192x96",
		"--kernels", "portable",
		"--dtypes", "float32,bfloat16,int8", "--cold", "--threads", "1", "--min-time", "1ms", "--max-time", "20ms",
		"--warmup", "1ms", "-o", "r.jsonl")
	if code != 0 || !strings.Contains(stdout, "GB/s") || !strings.Contains(stdout, "× reading") {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	records := readRecords(t, "r.jsonl")
	if len(records) != 9 {
		t.Fatalf("%d records, want 9", len(records))
	}
	for i, r := range records {
		want := []string{"portable", "portable-packed", "reading"}[i%3]
		if r.Subject != want || r.Verified != (i%3 < 2) || strings.Contains(r.Detail, "prepacked") != (i%3 == 1) {
			t.Errorf("record %d is %s, %q, verified: %v", i, r.Subject, r.Detail, r.Verified)
		}
	}
	for _, args := range [][]string{{"--packed", "--device", "emu"}, {"--peers", "writing"}} {
		if _, stderr, code := run(t.Context(), append([]string{"bench", "--sizes", "8"}, args...)...); code != 2 {
			t.Errorf("%q: exit code %d, %q", args, code, stderr)
		}
	}
}

// TestBenchChoice compares the automatic choice with its candidates.
func TestBenchChoice(t *testing.T) {
	t.Chdir(t.TempDir())
	emulatedGPU(t)
	args := []string{"bench", "--device", "gpu", "--choice", "--shape", "40x9x70", "--min-time", "1us", "--max-time",
		"1us",
		"--warmup", "1us"}
	stdout, stderr, code := run(t.Context(), append(args, "-o", "r.jsonl")...)
	if code != 0 || !strings.Contains(stdout, "in the mean of 1") || !strings.Contains(stdout, "chosen") {
		t.Fatalf("exit code %d, %q, %q", code, stderr, stdout)
	}
	records := readRecords(t, "r.jsonl")
	seen := map[string]bool{}
	for i, r := range records {
		if (r.Subject == bench.Chosen) != (i == 0) || r.Predicted < records[0].Predicted ||
			r.Predicted > choiceRatio*records[0].Predicted || seen[r.Detail] {
			t.Errorf("record %d: %s, %s, %v cycles", i, r.Subject, r.Detail, r.Predicted)
		}
		seen[r.Detail] = true
	}
	if len(records) < 3 {
		t.Errorf("got %d records, want the choice and several candidates", len(records))
	}
	if _, stderr, code := run(t.Context(), append(args, "--resume", "r.jsonl")...); code != 0 {
		t.Errorf("resume: exit code %d, %q", code, stderr)
	}
	if again := readRecords(t, "r.jsonl"); len(again) != len(records) {
		t.Errorf("resume measured %d records again", len(again)-len(records))
	}
	stdout, stderr, code = run(t.Context(), append(args, "--device", "cpu", "--threads", "2", "-o", "cpu.jsonl")...)
	if code != 0 || !strings.Contains(stdout, "in the mean of 1") {
		t.Errorf("on the CPU: exit code %d, %q, %q", code, stderr, stdout)
	}
	for _, r := range readRecords(t, "cpu.jsonl")[1:] {
		if r.Subject == bench.Chosen || r.Detail == "" || !r.Verified {
			t.Errorf("on the CPU: record %+v", r)
		}
	}
	for _, flags := range []string{"--device emu", "--transfers", "--kernels naive", "--device cpu --packed"} {
		_, stderr, code := run(t.Context(), append(args, strings.Fields(flags)...)...)
		if code != 2 || !strings.Contains(stderr, "--choice") {
			t.Errorf("%s: exit code %d, %q", flags, code, stderr)
		}
	}
}

// TestBenchRandomSuite checks that --count and --seed select the products, also those of --suite
// models, that given transpositions replace those of the suite, and that wrong counts are errors.
func TestBenchRandomSuite(t *testing.T) {
	t.Chdir(t.TempDir())
	bench := func(flags string) (records []bench.Record) {
		args := append(strings.Fields("bench --suite random --kernels none --peers reading --min-time 1us --max-time 1us "+
			"--warmup 1us --force -o r.jsonl"), strings.Fields(flags)...)
		if _, stderr, code := run(t.Context(), args...); code != 0 {
			t.Fatalf("%s: exit code %d, %q", flags, code, stderr)
		}
		return readRecords(t, "r.jsonl")
	}
	three, five := bench("--count 3 --seed 20"), bench("--count 5 --seed 20")
	if len(three) != 3 || len(five) != 5 || three[2].M != five[2].M || three[2].K != five[2].K {
		t.Errorf("got %d and %d records", len(three), len(five))
	}
	if other := bench("--count 1 --seed 42"); other[0].M == three[0].M && other[0].N == three[0].N {
		t.Error("--seed does not change the products")
	}
	for _, r := range bench("--count 8 --seed 60 --transpose-a --transpose-b=false") {
		if !r.TransA || r.TransB {
			t.Errorf("%d×%d×%d: transpositions %v, %v, want those of the flags", r.M, r.N, r.K, r.TransA, r.TransB)
		}
	}
	models := bench("--suite models --count 4 --seed 36 --dtypes bfloat16,int8")
	again := bench("--suite models --count 2 --seed 36 --dtypes bfloat16")
	if len(models) != 8 || len(again) != 2 || models[1].N != again[1].N || !models[4].TransB {
		t.Errorf("--suite models: got %d and %d records, want 8 and 2, and those of int8 with a transposed B", len(models),
			len(again))
	}
	for _, flags := range []string{"--suite random --count 0", "--suite models --seed 2 --count 0",
		"--suite random --count -1", "--suite random --count 99999999999", "--suite models --count 5",
		"--sizes 8 --count 5"} {
		_, stderr, code := run(t.Context(), append([]string{"bench"}, strings.Fields(flags)...)...)
		if code != 2 || !strings.Contains(stderr, "--count") {
			t.Errorf("%s: exit code %d, %q", flags, code, stderr)
		}
	}
	if _, stderr, code := run(t.Context(), "tune", "--suite", "random"); code != 2 || !strings.Contains(stderr, "fp32") {
		t.Errorf("tune --suite random: exit code %d, %q", code, stderr)
	}
}

// TestBenchRowInvariant checks that --row-invariant makes the kernels row-invariant and not the
// peer default, on the CPU and on an emulated GPU, and that the peer needs the flag.
func TestBenchRowInvariant(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, device := range []string{"cpu", "emu"} {
		file := device + ".jsonl"
		args := []string{"bench", "--device", device, "--shape", "1x40x3000", "--threads", "1",
			"--min-time", "1ms", "--peers", "default", "-o", file}
		_, stderr, code := run(t.Context(), append(args, "--row-invariant")...)
		records := readRecords(t, file)
		if code != 0 || len(records) != 2 || !records[0].RowInvariant || records[1].Subject != "default" ||
			records[0].Detail == records[1].Detail {
			t.Errorf("on %s: exit code %d, %q, records %+v", device, code, stderr, records)
		}
		if device == "emu" && strings.Contains(records[0].Detail, "row-invariant") ==
			strings.Contains(records[1].Detail, "row-invariant") {
			t.Errorf("the kernel has %q and the peer %q: want one of them row-invariant", records[0].Detail, records[1].Detail)
		}
		run(t.Context(), append(args, "--force")...)
		if r := readRecords(t, file)[1]; !strings.HasSuffix(r.Error, "peer default without --row-invariant") {
			t.Errorf("on %s without --row-invariant: error %q", device, r.Error)
		}
	}
}

// TestMulRowInvariant checks that --row-invariant is in the plan, and that a kernel with another
// order of summation is refused.
func TestMulRowInvariant(t *testing.T) {
	args := []string{"mul", "../../examples/data/a.npy", "../../examples/data/b.npy", "-o", t.TempDir() + "/c.npy",
		"--force", "--row-invariant", "--verbose", "--device"}
	if _, stderr, code := run(t.Context(), append(args, "emu")...); code != 0 ||
		!strings.Contains(stderr, "with the row-invariant order of one product after the other") {
		t.Errorf("exit code %d, %q: want the order", code, stderr)
	}
	if _, stderr, code := run(t.Context(), append(args, "cpu", "--kernel", "loop")...); code != 2 ||
		!strings.Contains(stderr, "it sums in another order") {
		t.Errorf("exit code %d, %q: want 2 and the reason", code, stderr)
	}
}
