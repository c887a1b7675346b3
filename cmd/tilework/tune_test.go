package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/tune"
)

// TestTune checks that tune prints, keeps, lists and removes tuned choices, and that mul uses them.
func TestTune(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(tuned.Substitute(cache.At(dir)))
	stdout, stderr, code := run(t.Context(), "tune", "--shape", "3x5x4,9x9x200", "--dtypes", "float64", "--time", "50ms",
		"--format", "json", "--verbose")
	var outcomes []tune.Outcome
	if err := json.Unmarshal([]byte(stdout), &outcomes); err != nil || code != 0 || len(outcomes) != 2 {
		t.Fatalf("exit code %d, %v, %q, %q", code, err, stdout, stderr)
	}
	kept := 0
	for i, want := range []string{"3x5x4 float64", "9x9x200 float64"} {
		if outcomes[i].Form.String() != want || outcomes[i].Measured == 0 || outcomes[i].Before.Median <= 0 {
			t.Errorf("outcome %v", outcomes[i])
		}
		if outcomes[i].Kept {
			kept++
		}
	}
	if stdout, _, code := run(t.Context(), "tune", "--show", "--format", "csv"); code != 0 ||
		strings.Count(stdout, "\n") != min(1, kept)+kept { // without rows there are no names of fields
		t.Errorf("exit code %d, %d kept, %q", code, kept, stdout)
	}
	// tune may have kept no choice. Keep one.
	x := tuned.Tuned{Form: outcomes[0].Form, Choice: backend.Choice{Kernel: "portable"},
		Default: backend.Choice{Kernel: "usual"}, Gain: 1.25, P10: 1.2, P90: 1.3}
	if err := tuned.For(cpu.Backend{}.TuningKey()).Keep(x); err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder(t))
	for _, c := range []struct{ args, want string }{{"", "kernel portable: "}, {"--kernel loop", "requested by name"},
		{"--kernel default", "kernel "}} {
		_, stderr, code := run(t.Context(),
			strings.Fields("mul a.npy b.npy -o c.npy --force --device cpu --verbose "+c.args)...)
		if code != 0 || !strings.Contains(stderr, c.want) ||
			strings.Contains(stderr, "1.25 × as fast as the default, usual") != (c.args == "") {
			t.Errorf("mul %s: exit code %d, %q", c.args, code, stderr)
		}
	}
	x.M, x.Gain, x.P10, x.P90, x.Repeated = 4, 1.5, 0, 0, true
	if err := tuned.For(cpu.Backend{}.TuningKey()).Keep(x); err != nil {
		t.Fatal(err)
	}
	stdout, _, code = run(t.Context(), "tune", "--show")
	for _, want := range []string{`3x5x4 float64 +portable +1\.25 \(1\.20 to 1\.30\) +tune `,
		`4x5x4 float64 +portable +1\.50 +repetition `} {
		if code != 0 || !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("exit code %d, %q, want %s", code, stdout, want)
		}
	}
	// A damaged entry is not an error, and --verbose reports it.
	files, err := filepath.Glob(filepath.Join(dir, "v1", "tuned", "*.json"))
	if err != nil || len(files) == 0 || os.Truncate(files[0], 10) != nil {
		t.Fatal(files, err)
	}
	tuned.Substitute(cache.At(dir))
	if _, stderr, code := run(t.Context(), "mul", "a.npy", "b.npy", "-o", "c.npy", "--force", "--device", "cpu",
		"--verbose"); code != 0 || strings.Count(stderr, "damaged") != 1 {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	_, stderr, code = run(t.Context(), "mul", "a.npy", "b.npy", "-o", "c.npy", "--force", "--device", "cpu")
	if code != 0 || stderr != "" {
		t.Errorf("without --verbose: exit code %d, %q", code, stderr)
	}
	if _, stderr, code := run(t.Context(), "tune", "--clear"); code != 0 || !strings.Contains(stderr, "removed ") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "v1", "tuned", "*.json")); err != nil || len(files) != 0 {
		t.Errorf("remaining files: %v, %v", files, err)
	}
}

// TestTuneErrors checks that errors of tune are one line.
func TestTuneErrors(t *testing.T) {
	t.Cleanup(tuned.Substitute(nil))
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"", "no product: want --shape MxNxK", 2},
		{"--shape 8x8x8 --device emu", "an emulated GPU has no times", 2},
		{"--shape 8x8x8 --device auto", "want a certain device", 2},
		{"--shape 8x8x8 --device tpu", `unknown device "tpu"`, 2},
		{"--shape 8x8", `shape "8x8"`, 2},
		{"--shape 8x8x8 --dtypes float12", "--dtypes: ", 2},
		{"--shape 8x8x8 --time 0s", "--time 0s: want more than 0", 2},
		{"--shape 8x8x8 --threads -2", "--threads: not supported: -2 threads", 2},
		{"--suite nosuch", `--suite: unknown suite "nosuch": want one of ` + strings.Join(tunableSuites(), ", "), 2},
		{"--show --shape 8x8x8", "--show and --clear apply to all products", 2},
		{"--show --clear", "--show and --clear exclude each other", 2},
		{"8x8x8", `unexpected argument "8x8x8"`, 2},
	} {
		stdout, stderr, code := run(t.Context(), append([]string{"tune"}, strings.Fields(c.args)...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) ||
			strings.Count(strings.TrimSpace(strings.ReplaceAll(stderr,
				"results will not be kept: TILEWORK_CACHE is \"off\", or the user has no cache directory\n", "")), "\n") > 0 {
			t.Errorf("tune %s: exit code %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if stdout, stderr, code := run(ctx, "tune", "--sizes", "8"); code != exitInterrupted || stdout != "" {
		t.Errorf("interrupted: exit code %d, %q, %q", code, stdout, stderr)
	}
}

// TestVerboseReasons checks that --verbose prints the candidates for a GPU kernel, unless --kernel
// is given.
func TestVerboseReasons(t *testing.T) {
	t.Chdir(folder(t))
	_, stderr, code := run(t.Context(), "mul", "a32.npy", "b.npy", "-o", "c.npy", "--force", "--dtype", "float32",
		"--device", "emu", "--verbose")
	for _, want := range []string{" ways to compute it on emu\n", "+ naive:", "- mma ",
		"predicted to take more cycles than the chosen one"} {
		if code != 0 || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, no %q in %q", code, want, stderr)
		}
	}
	_, stderr, code = run(t.Context(), "mul", "a32.npy", "b.npy", "-o", "c.npy", "--force", "--dtype", "float32",
		"--device", "emu", "--kernel", "tiled", "--verbose")
	if code != 0 || strings.Contains(stderr, "ways to compute it") {
		t.Errorf("with a kernel: exit code %d, %q", code, stderr)
	}
}
