package main

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"tilework/internal/bench"
	"tilework/internal/explain"
	"tilework/internal/gpu/choose"
)

// TestExplain runs explain with each kernel, and checks the JSON output.
func TestExplain(t *testing.T) {
	for _, k := range choose.Kernels() {
		in := k.Types()[len(k.Types())-1].String()
		on := "a10"
		if k.SM > 86 {
			on = "h200"
		}
		args := []string{"explain", k.Name, "--shape", "100x200x300", "--gpu", on, "--transpose-b", "--dtype", in}
		stdout, stderr, code := run(t.Context(), args...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Do at least two blocks fit?") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, stderr, stdout)
		}
		stdout, _, _ = run(t.Context(), append(args, "--format", "json")...)
		var x explain.Explanation
		if err := json.Unmarshal([]byte(stdout), &x); err != nil {
			t.Errorf("%v: %v in %q", args, err, stdout)
		}
		p := x.Product
		if x.Kernel != k.Name || x.GPU != on || p.M != 100 || p.N != 200 || p.K != 300 || p.In != in || p.TransA ||
			!p.TransB {
			t.Errorf("%v: %+v", args, x)
		}
	}
}

func TestExplainText(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"tiled --tile 16", "2 × 16² = 512 elements from global memory"},
		{"tiled --tile 16", "16 × 16 × 16 = 4,096 FMAs, counted 2 each: 8,192 operations"},
		{"tiled --tile 32", "65,536 operations / 2,048 loads = 32"},
		{"tiled --tile 32", "= 8 FLOP/byte"},
		{"naive", "= 0.25 FLOP/byte"},
		{"tiled --tile 16 --gpu t4 --regs 40", "4 blocks per SM, bound by threads"},
		{"tiled --dtype int8", "No roofline"},
		{"tiled --gpu sm_90", "No roofline: sm_90 is an architecture"},
		{"tiled --tile 16 --shape 100x100x100", "Together 30.5 kB more, 25.4 %"},
		{"tiled --trace", "C[3][3] += A[3][2]·B[2][3] + A[3][3]·B[3][3]"},
		{"naive --trace --shape 2x3x1", "thread (2,1)  C[1][2] += A[1][0]·B[0][2] = 2·7 = 14, now 14"},
		{"tiled --tile 4 --ptx", "// compute phase: a row of one tile times a column of the other"},
		{"tiled --tile 4 --ptx", ".b32 As[4][4];"},
	} {
		stdout, stderr, code := run(t.Context(), append([]string{"explain"}, strings.Fields(c.args)...)...)
		if code != 0 || !strings.Contains(stdout, c.want) {
			t.Errorf("explain %s: exit code %d, %s, want %q in:\n%s", c.args, code, stderr, c.want, stdout)
		}
	}
}

// TestExplainCountsAsBench compares the counters of explain with those of bench on the emulator:
// both run the kernel that the GPU runs.
func TestExplainCountsAsBench(t *testing.T) {
	for _, kernel := range []string{"naive", "tiled:16", "blocked:32x32x16/4x4/4"} {
		name, tile, _ := strings.Cut(kernel, ":")
		stdout, stderr, code := run(t.Context(), "explain", name, "--tile", cmp.Or(tile, "16"), "--shape", "33x33x33",
			"--format", "json")
		var x explain.Explanation
		if err := json.Unmarshal([]byte(stdout), &x); err != nil {
			t.Fatalf("%s: exit code %d, %s: %v", kernel, code, stderr, err)
		}
		stdout, stderr, code = run(t.Context(), "bench", "--device", "emu", "--kernels", kernel, "--sizes", "33",
			"--format", "json")
		var records []bench.Record
		if err := json.Unmarshal([]byte(stdout), &records); err != nil || len(records) != 1 {
			t.Fatalf("%s: exit code %d, %s, %d records: %v", kernel, code, stderr, len(records), err)
		}
		m, c := x.Measured, records[0].Counts
		var sectors, wavefronts int64
		for _, a := range m.Global {
			sectors += a.Sectors
		}
		for _, a := range m.Shared {
			wavefronts += a.Wavefronts
		}
		if int64(m.Instructions) != c.Instructions || sectors != c.Sectors || wavefronts != c.Wavefronts {
			t.Errorf("%s: explain counts %d instructions, %d sectors and %d wavefronts, bench %d, %d and %d", kernel,
				m.Instructions, sectors, wavefronts, c.Instructions, c.Sectors, c.Wavefronts)
		}
	}
}

func TestExplainErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "one of naive, tiled"},
		{"naive tiled", "explain takes one kernel, found 2 arguments (naive, tiled): want one of"},
		{"fastest", `unknown kernel "fastest": want one of naive,`},
		{"tield", `unknown kernel "tield" (did you mean "tiled"?)`},
		{"tiled --gpu h300", `--gpu: unknown GPU "h300"`},
		{"tiled --tile 33", "size 33×33 with one thread per element: want at most 1024 threads"},
		{"tiled --tile big", `--tile: not supported: "big" is not a tile`},
		{"tiled --shape 4x4", `--shape: shape "4x4": want MxNxK, such as 64x128x256`},
		{"tiled --shape 0", `--shape: shape "0": size 0: want at least 1`},
		{"tiled --shape 1,2", "--shape 1,2: found 2 shapes, want one, such as 1024x512x256"},
		{"tiled --dtype float128", "--dtype"},
		{"tiled --dtype int32", "matrices of int32 cannot be multiplied"},
		{"tiled --regs -1", "--regs -1"},
		{"tiled --regs 300", "want at most 255"},
		{"tiled --trace --shape 64x64x64", "a trace of 64×64×64: want at most 16"},
		{"tiled --trace --ptx", "--trace and --ptx exclude each other"},
		{"tiled --ptx --format json", "PTX has only one format"},
		{"tiled --format csv", `--format: unknown format "csv"`},
	} {
		stdout, stderr, code := run(t.Context(), append([]string{"explain"}, strings.Fields(c.args)...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "\n") {
			t.Errorf("explain %s: exit code %d, %q, %q, want 2 and %q in one line", c.args, code, stdout, stderr, c.want)
		}
	}
}
