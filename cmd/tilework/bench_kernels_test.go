package main

import (
	"os"
	"strings"
	"testing"
)

// TestBenchKernels checks the kernels that --kernels selects. A kernel that does not support an
// element type must be skipped with a message.
func TestBenchKernels(t *testing.T) {
	t.Chdir(t.TempDir())
	const noFloat32 = "skipped: kernel wgmma multiplies float32 only in precision tf32 or f32x3\n"
	for _, c := range []struct{ args, want, notes string }{
		{"--kernels naive,wgmma --dtypes float32,bfloat16", "naive float32, naive bfloat16, wgmma bfloat16", noFloat32},
		{"--kernels naive,wgmma --dtypes float32", "naive float32", noFloat32},
		{"--kernels wgmma,mma,naive --sizes 4,5", "naive float32, naive float32",
			noFloat32 + "skipped: kernel mma multiplies float32 only in precision tf32\n"},
		{"--kernels auto-tf32,naive --dtypes int8,float32", "naive int8, mma-tf32 float32, naive float32",
			"skipped: precision tf32 of int8 matrices (it is for float32)\n"},
		{"--kernels all,tiled:16,naive", "naive float32, tiled float32, blocked float32, skinny float32, tiled:16 float32",
			"skipped: kernel mma multiplies float32 only in precision tf32\n" + noFloat32},
		{"--kernels naive,naive,tiled:16,tiled:16", "naive float32, tiled:16 float32", ""},
	} {
		args := append([]string{"bench", "--device", "emu:h200", "--sizes", "8", "-o", "r.jsonl", "--force"},
			strings.Fields(c.args)...)
		_, stderr, code := run(t.Context(), args...)
		if code != 0 || stderr != c.notes {
			t.Errorf("%s: exit code %d, %q; want %q", c.args, code, stderr, c.notes)
			continue
		}
		var got []string
		for _, r := range readRecords(t, "r.jsonl") {
			if !r.Unsupported {
				got = append(got, r.Subject+" "+r.In)
			}
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: measured %s, want %s", c.args, s, c.want)
		}
	}
	_, stderr, code := run(t.Context(), "bench", "--device", "emu:t4", "--kernels", "wgmma,mma", "--dtypes", "bfloat16",
		"--sizes", "8")
	const nothing = "--kernels: not supported: kernel wgmma needs sm_90a, and t4 is sm_75; kernel mma needs sm_80, " +
		"and t4 is sm_75"
	if code != 2 || stderr != nothing {
		t.Errorf("no supported kernel: exit code %d, %q; want %q", code, stderr, nothing)
	}
}

// TestBenchToFullDevice checks that the error of a failed write is one line.
func TestBenchToFullDevice(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	_, stderr, code := run(t.Context(), "bench", "--device", "emu", "--kernels", "naive", "--sizes", "4", "-o",
		"/dev/full")
	if code != 2 || stderr != "write /dev/full: no space left on device" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
