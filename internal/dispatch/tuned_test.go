package dispatch

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// cpuKey is the key of the choices tuned for the CPU.
var cpuKey = cpu.Backend{}.TuningKey()

// fresh makes package tuned read the cache in dir again, as a new process would.
func fresh(t *testing.T, dir string) {
	t.Helper()
	t.Cleanup(tuned.Substitute(cache.At(dir)))
}

// sample returns a choice for the product of 70×50 and 50×60 matrices of float32.
func sample() tuned.Tuned {
	return tuned.Tuned{
		Form:   tuned.Form{M: 70, N: 60, K: 50, In: dtype.F32, Out: dtype.F32},
		Choice: backend.Choice{Kernel: "portable", Config: backend.Config{KC: 16, MC: 8, Method: "blocked-pack-A"}},
		Device: "this CPU", Default: backend.Choice{Kernel: "avx2"}, Seconds: 1, Before: 1.5, Gain: 1.5, P10: 1.4, P90: 1.6,
		Date: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
	}
}

// TestTuned checks that plans of this process and of the next one use a stored choice for its
// product of dense matrices only, and not if the request selects a kernel.
func TestTuned(t *testing.T) {
	dir := t.TempDir()
	fresh(t, dir)
	p := *testkit.Product(t, dtype.F32, dtype.F32, 70, 60, 50)
	plan := func(r Request) *Plan {
		t.Helper()
		r.Device = backend.DeviceName{Kind: backend.CPU}
		pl, err := New(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return pl
	}
	isTuned := func(pl *Plan) bool { return strings.HasPrefix(pl.Why(), "tuned on 2026-11-21: 1.50 × as fast") }
	if pl := plan(Request{Problem: p}); isTuned(pl) {
		t.Errorf("with an empty cache: %s", pl.Why())
	}
	before := tuned.Changes()
	if err := tuned.For(cpuKey).Keep(sample()); err != nil || tuned.Changes() == before {
		t.Fatalf("Keep: error %v, %d changes", err, tuned.Changes())
	}
	for _, process := range []string{"this", "a new"} {
		pl := plan(Request{Problem: p})
		if !isTuned(pl) || pl.Kernel() != "portable" || !strings.Contains(pl.Detail(), "KC 16") {
			t.Errorf("in %s process: %s, %s (%s)", process, pl.Kernel(), pl.Detail(), pl.Why())
		}
		_, b := product(t, dtype.F32, dtype.F32, 70, 60, 50, gemm.Epilogue{})
		if err := pl.Run(t.Context(), &b); err != nil || dtype.F32.At(b[gemm.C], 69*60+59) != 50 {
			t.Errorf("in %s process: wrong result, error %v", process, err)
		}
		strided, zero := p, p
		strided.A().LD += 3
		zero.Alpha = 0
		other := *testkit.Product(t, dtype.F32, dtype.F32, 70, 60, 51)
		for name, r := range map[string]Request{
			"with a kernel": {Problem: p, Kernel: "loop"}, "with a choice": {Problem: p, Choice: &backend.Choice{}},
			"with the default kernel": {Problem: p, Kernel: backend.DefaultKernel},
			"of a view":               {Problem: strided}, "without A and B": {Problem: zero},
			"of another size": {Problem: other},
		} {
			if pl := plan(r); isTuned(pl) {
				t.Errorf("a product %s: %s", name, pl.Why())
			}
		}
		fresh(t, dir)
	}
	if kept := tuned.All(cpuKey); len(kept) != 1 || kept[0].Form != sample().Form || kept[0].Stale {
		t.Errorf("got stored choices %+v", kept)
	}
	err := tuned.For(cpuKey).Drop(sample().Form)
	if err != nil || isTuned(plan(Request{Problem: p})) || len(tuned.All(cpuKey)) != 0 {
		t.Errorf("after Drop: %d choices, error %v", len(tuned.All(cpuKey)), err)
	}
	if err := tuned.For(cpuKey).Keep(sample()); err != nil {
		t.Fatal(err)
	}
	if n, err := tuned.Clear(); n != 1 || err != nil || isTuned(plan(Request{Problem: p})) {
		t.Errorf("after Clear of %d choices: error %v", n, err)
	}
}

// TestInvalidTuned checks that plans ignore choices tuned with other kernels, invalid entries and
// damaged files, and that Notes reports them.
func TestInvalidTuned(t *testing.T) {
	dir := t.TempDir()
	fresh(t, dir)
	p := *testkit.Product(t, dtype.F32, dtype.F32, 70, 60, 50)
	section := cache.At(dir).Section("tuned")
	here := tuned.For(cpuKey).Key(sample().Form)
	why := func() string {
		t.Helper()
		fresh(t, dir)
		pl, err := New(t.Context(), Request{Problem: p, Device: backend.DeviceName{Kind: backend.CPU}})
		if err != nil {
			t.Fatal(err)
		}
		return pl.Why()
	}
	if err := section.Put(strings.Replace(here, runtime.Version(), "go1.0", 1), sample()); err != nil {
		t.Fatal(err)
	}
	if got := why(); strings.Contains(got, "tuned") {
		t.Errorf("tuned with another Go version: %s", got)
	}
	stale := "tuned choices for other kernels, or another driver, are ignored: 1 in " + filepath.Join(dir, "v1", "tuned")
	if notes := strings.Join(tuned.Notes(), "\n"); !strings.Contains(notes, stale) {
		t.Errorf("got notes %q, want %q", notes, stale)
	}
	if kept := tuned.All(cpuKey); len(kept) != 1 || !kept[0].Stale {
		t.Errorf("got stored choices %+v", kept)
	}
	bad := func(change func(*tuned.Tuned)) tuned.Tuned {
		x := sample()
		change(&x)
		return x
	}
	for name, value := range map[string]any{
		"not an object":   7,
		"empty":           tuned.Tuned{},
		"another product": bad(func(x *tuned.Tuned) { x.K++ }),
		"no gain":         bad(func(x *tuned.Tuned) { x.Gain = 0.5 }),
		"no kernel":       bad(func(x *tuned.Tuned) { x.Kernel = "" }),
	} {
		if b, err := json.Marshal(value); err == nil {
			if err := section.Put(here, json.RawMessage(b)); err != nil {
				t.Fatal(err)
			}
			if got := why(); strings.Contains(got, "tuned") {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	for _, change := range []func(*tuned.Tuned){
		func(x *tuned.Tuned) { x.Kernel = "unknown" },
		func(x *tuned.Tuned) { x.Choice.Config.KC = math.MaxInt },
		func(x *tuned.Tuned) { x.Choice.Config.Method = "some" },
	} {
		if err := section.Put(here, bad(change)); err != nil {
			t.Fatal(err)
		}
		if got := why(); !strings.Contains(got, "; the choice tuned for it is not possible") {
			t.Errorf("an impossible choice: %s", got)
		}
	}
	// Truncated files.
	files, err := filepath.Glob(filepath.Join(section.Dir(), "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if err := os.Truncate(f, 40); err != nil {
			t.Fatal(err)
		}
	}
	if got := why(); strings.Contains(got, "tuned") {
		t.Errorf("truncated: %s", got)
	}
	notes := strings.Join(tuned.Notes(), "\n")
	if strings.Count(notes, "damaged") != len(files) || strings.Count(notes, "(ignored)") != len(files) {
		t.Errorf("got notes %q for %d files", notes, len(files))
	}
}

// TestTunedWithoutCache checks that a choice holds for the process if it cannot be stored.
func TestTunedWithoutCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*cache.Cache{nil, cache.At(file)} {
		restore := tuned.Substitute(c)
		err := tuned.For(cpuKey).Keep(sample())
		if (err == nil) != (c == nil) {
			t.Errorf("cache %q: error %v", c.Dir(), err)
		}
		p := *testkit.Product(t, dtype.F32, dtype.F32, 70, 60, 50)
		pl, err := New(t.Context(), Request{Problem: p, Device: backend.DeviceName{Kind: backend.CPU}})
		if err != nil || !strings.HasPrefix(pl.Why(), "tuned on") {
			t.Errorf("cache %q: got %v, error %v", c.Dir(), pl, err)
		}
		if notes := tuned.Notes(); (len(notes) > 0) != (c != nil) {
			t.Errorf("cache %q: got notes %q", c.Dir(), notes)
		}
		restore()
	}
}

// TestThreads checks that every device refuses a negative number of threads.
func TestThreads(t *testing.T) {
	p := *testkit.Product(t, dtype.F32, dtype.F32, 2, 2, 2)
	for _, d := range []string{"cpu", "auto", "emu"} {
		_, err := New(t.Context(), Request{Problem: p, Device: name(t, d), Threads: -1})
		if !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("on %s: got error %v, want ErrUnsupported", d, err)
		}
	}
}

// FuzzTuned checks that planning succeeds with any entry in the cache.
func FuzzTuned(f *testing.F) {
	good, err := json.Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"m":70,"n":60,"k":50,"in":"float32","out":"float32","gain":2,
		"choice":{"kernel":"avx2","config":{"kc":-1,"threads":99}}}`))
	f.Add([]byte(`{"m":1e99}`))
	p, err := sample().Problem()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		c := cache.At(t.TempDir())
		defer tuned.Substitute(c)()
		if err := c.Section("tuned").Put(tuned.For(cpuKey).Key(sample().Form), json.RawMessage(b)); err != nil {
			return
		}
		pl, err := New(t.Context(), Request{Problem: p, Device: backend.DeviceName{Kind: backend.CPU}})
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if pl.Threads() < 1 {
			t.Errorf("%s: %d threads", b, pl.Threads())
		}
	})
}
