package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/fit"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/internal/tune"
	"tilework/ptx"
)

// TestFitFlags checks the errors of wrong flags.
func TestFitFlags(t *testing.T) {
	existing := filepath.Join(t.TempDir(), "h.json")
	if err := os.WriteFile(existing, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--device cpu":     "--device cpu: want gpu, gpu:N or gpu:UUID",
		"--device tpu":     `--device: `,
		"--device emu":     "an emulated GPU has no times",
		"--time 0s":        "--time 0s: want more than 0",
		"--from h20":       `unknown model "h20" (did you mean "h200"?): want one of h100, `,
		"--show --clear":   "--show and --clear exclude each other",
		"--show -o x.json": "--show and --out exclude each other",
		"-o " + existing:   "h.json",
		"extra":            "extra",
	} {
		_, stderr, code := run(t.Context(), append([]string{"fit"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("fit %s: exit code %d, %q, want %s", args, code, stderr, want)
		}
	}
}

// TestFitFinish checks the output of fit: it prints and writes fitted coefficients, and stores them
// if they predict other products better.
func TestFitFinish(t *testing.T) {
	gpu := &device.Info{Name: "NVIDIA H200", SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10,
		Target: ptx.Target{SM: 90, Suffix: "a"}}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "fitted.json")
	to := cache.At(dir)
	for _, slower := range []float64{1.5, 1} { // than predicted
		var all []choose.Timed
		for n := 256; n <= 4096; n += 256 {
			p := choose.Timed{Problem: *testkit.Product(t, dtype.F32, dtype.F32, n, n, n), Cycles: map[string]float64{}}
			for _, c := range choose.Near(choose.Candidates(&p.Problem, kernel.Align{}, gpu), 2) {
				p.Cycles[c.Spec()] = slower * c.Cycles
			}
			all = append(all, p)
		}
		fitted, err := choose.Fit(t.Context(), gpu, "h200", all, fit.Options{Penalty: choose.Penalty})
		if err != nil {
			t.Fatal(err)
		}
		f := fitFlags{file: file, output: listFlags{format: "json"}}
		var stdout, stderr bytes.Buffer
		x := &tune.Fitting{Fitted: fitted, GPU: gpu, Source: []string{"a test"}}
		if err := f.finish(x, to, &stdout, &stderr); err != nil {
			t.Fatal(err)
		}
		var changes []choose.Change
		if err := json.Unmarshal(stdout.Bytes(), &changes); err != nil {
			t.Fatal(err, stdout.String())
		}
		kept, want := choose.AllKept(to), "stored in "+to.Dir()+" for all products on GPUs of the name NVIDIA H200\n"
		if slower == 1 {
			want = "not stored: the coefficients of h200 predict these products about as well\n"
		}
		if !strings.HasPrefix(stderr.String(), "of 5 other products, the choice takes ") ||
			!strings.HasSuffix(stderr.String(), want) || len(kept) != 1 || (len(changes) > 0) != (slower > 1) {
			t.Errorf("%v × slower: %d changes, %d kept, %s", slower, len(changes), len(kept), &stderr)
		}
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte(`"a test"`)) {
			t.Errorf("%v, file %s", err, text)
		}
		f.force = true
		if err := f.finish(x, nil, &stdout, &stderr); err != nil || slower > 1 &&
			!strings.HasSuffix(stderr.String(), "not stored: TILEWORK_CACHE is \"off\", or the user has no cache directory\n") {
			t.Errorf("%v, %s", err, &stderr)
		}
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
	f := fitFlags{output: listFlags{format: "json"}}
	if err := f.finish(&tune.Fitting{Fitted: &choose.Fitted{}}, to, failing{}, failing{}); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
}

var errFull = errors.New("full")

// failing is a full device.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }
