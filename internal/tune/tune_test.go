package tune

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/dispatch/tuned"
)

var (
	cpuDevice = backend.DeviceName{Kind: backend.CPU}
	small     = []tuned.Form{
		{M: 40, N: 50, K: 300, In: dtype.F32, Out: dtype.F32},
		{M: 30, N: 30, K: 30, In: dtype.F64, Out: dtype.F64, TransA: true, TransB: true},
		{M: 20, N: 20, K: 20, In: dtype.I8, Out: dtype.I32},
	}
)

// TestCPU tunes on the CPU, and checks that the outcomes are complete and that a new process would
// use the kept choices.
func TestCPU(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(tuned.Substitute(cache.At(dir)))
	o, notes := quickOptions(cpuDevice)
	var passed []time.Duration
	o.Progress = func(now, all time.Duration) {
		if all != time.Duration(len(small))*o.Time || now > all {
			t.Errorf("progress: %v of %v", now, all)
		}
		passed = append(passed, now)
	}
	outcomes, err := Run(t.Context(), small, o)
	if err != nil || len(outcomes) != len(small) {
		t.Fatalf("%v, %v, %q", outcomes, err, *notes)
	}
	if len(passed) < len(small) {
		t.Errorf("progress: %v", passed)
	}
	tuned.Substitute(cache.At(dir))
	kept := 0
	for i, x := range outcomes {
		if x.Form != small[i] || x.Measured < 2 || x.Measured > x.Considered || x.Default.Kernel == "" || x.Why == "" ||
			!(x.Before.Median > 0 && x.After.Median > 0 && x.Gain.Speed > 0) || x.Threads < 1 || x.Device == "" {
			t.Errorf("outcome %v", x)
		}
		if x.Kept {
			kept++
		}
		if why := planned(t, cpuDevice, small[i]); strings.Contains(why, "tuned on") != x.Kept {
			t.Errorf("kept: %v; planned: %s", x.Kept, why)
		}
	}
	if n := len(tuned.All(cpu.Backend{}.TuningKey())); n != kept {
		t.Errorf("%d choices in the cache, want %d", n, kept)
	}
}

// TestInterrupted checks that an interruption keeps the choices found before, and nothing of the
// current product.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(tuned.Substitute(cache.At(dir)))
	d := newSimulatedGPU(t)
	d.cost = fastTiled8
	ctx, cancel := context.WithCancel(t.Context())
	o, _ := quickOptions(gpu0)
	other := form
	other.M++
	done := 0
	o.Note = func(line string) {
		if strings.HasPrefix(line, "compiled ") {
			if done++; done == 2 { // the second product
				cancel()
			}
		}
	}
	outcomes, err := Run(ctx, []tuned.Form{form, other}, o)
	if !errors.Is(err, context.Canceled) || len(outcomes) != 1 || !outcomes[0].Kept {
		t.Errorf("%v, %v", outcomes, err)
	}
	tuned.Substitute(cache.At(dir))
	if kept := tuned.All(cpu.Backend{}.TuningKey()); len(kept) != 1 || kept[0].Form != form {
		t.Errorf("kept: %v", kept)
	}
}

// TestProcesses runs two processes that tune at the same time. All choices of both must be in the
// cache, without damaged or temporary files.
func TestProcesses(t *testing.T) {
	const child = "TILEWORK_TEST_TUNE_CHILD"
	const each = 2
	mine := func(who string) (forms []tuned.Form) {
		for i := range each {
			f := form
			f.M += i + each*int(who[0]-'a')
			forms = append(forms, f)
		}
		return forms
	}
	if who := os.Getenv(child); who != "" {
		d := newSimulatedGPU(t)
		d.cost = fastTiled8
		o, _ := quickOptions(gpu0)
		if _, err := Run(t.Context(), mine(who), o); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	var wg sync.WaitGroup
	for _, who := range []string{"a", "b"} {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
			cmd.Env = append(os.Environ(), child+"="+who, cache.EnvVar+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", who, err, out)
			}
		})
	}
	wg.Wait()
	t.Cleanup(tuned.Substitute(cache.At(dir)))
	newSimulatedGPU(t)
	for _, f := range append(mine("a"), mine("b")...) {
		if why := planned(t, gpu0, f); !strings.HasPrefix(why, "tiled: tuned on") {
			t.Errorf("%v: %s", f, why)
		}
	}
	if notes := tuned.Notes(); len(notes) > 0 {
		t.Errorf("notes: %q", notes)
	}
	// and the lock
	if files, err := filepath.Glob(filepath.Join(dir, "v1", "tuned", "*")); err != nil || len(files) != 2*each+1 {
		t.Errorf("%v, %v", files, err)
	}
}
