package dispatch

import (
	"encoding/json"
	"errors"
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
	"tilework/internal/device"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

// fresh begins as a new process would, with the cache in dir.
func fresh(t *testing.T, dir string) {
	t.Helper()
	t.Cleanup(tuned.Substitute(cache.At(dir)))
}

// sample is a choice for a product of 70×50 and 50×60 matrices of float32.
func sample() tuned.Tuned {
	return tuned.Tuned{
		Form:   tuned.Form{M: 70, N: 60, K: 50, In: dtype.F32, Out: dtype.F32},
		Choice: tuned.Choice{Kernel: "portable", Config: cpu.Config{KC: 16, MC: 8, Packing: cpu.PackBoth}},
		Device: "here", Default: tuned.Choice{Kernel: "usual"}, Seconds: 1, Before: 1.5, Gain: 1.5, P10: 1.4, P90: 1.6,
		Date: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
	}
}

// TestTuned: what is kept is used, in this process and in the next, for that product of
// dense matrices alone, and not where a kernel is named.
func TestTuned(t *testing.T) {
	dir := t.TempDir()
	fresh(t, dir)
	p := *testkit.Product(t, dtype.F32, dtype.F32, 70, 60, 50)
	on := func(r Request) *Plan {
		t.Helper()
		r.Device = backend.Device{Kind: "cpu"}
		pl, err := New(r)
		if err != nil {
			t.Fatal(err)
		}
		return pl
	}
	isTuned := func(pl *Plan) bool { return strings.HasPrefix(pl.Why(), "tuned on 2026-11-21: 1.50 × as fast") }
	if pl := on(Request{Problem: p}); isTuned(pl) {
		t.Errorf("nothing is kept: %s", pl.Why())
	}
	before := tuned.Changes()
	if err := tuned.CPUTuner().Keep(sample()); err != nil || tuned.Changes() == before {
		t.Fatalf("%v, %d changes", err, tuned.Changes())
	}
	for _, process := range []string{"this", "the next"} {
		pl := on(Request{Problem: p})
		if !isTuned(pl) || pl.Kernel != "portable" || !strings.Contains(pl.Detail(), "KC 16") {
			t.Errorf("in %s process: %s, %s (%s)", process, pl.Kernel, pl.Detail(), pl.Why())
		}
		_, b := product(t, dtype.F32, dtype.F32, 70, 60, 50, gemm.Epilogue{})
		if err := pl.Run(t.Context(), b); err != nil || dtype.F32.At(b[gemm.C], 69*60+59) != 50 {
			t.Errorf("in %s process: %v", process, err)
		}
		strided, zero := p, p
		strided.A().LD += 3
		zero.Alpha = 0
		other := *testkit.Product(t, dtype.F32, dtype.F32, 70, 60, 51)
		for name, r := range map[string]Request{
			"with a kernel": {Problem: p, Kernel: "loop"}, "with a choice": {Problem: p, Choice: &tuned.Choice{}},
			"of a view": {Problem: strided}, "without A and B": {Problem: zero}, "of another size": {Problem: other},
		} {
			if pl := on(r); isTuned(pl) {
				t.Errorf("a product %s: %s", name, pl.Why())
			}
		}
		fresh(t, dir)
	}
	if kept := tuned.All(); len(kept) != 1 || kept[0].Form != sample().Form || kept[0].Stale {
		t.Errorf("kept: %+v", kept)
	}
	if err := tuned.CPUTuner().Drop(sample().Form); err != nil || isTuned(on(Request{Problem: p})) || len(tuned.All()) != 0 {
		t.Errorf("dropped: %v", err)
	}
	if err := tuned.CPUTuner().Keep(sample()); err != nil {
		t.Fatal(err)
	}
	if n, err := tuned.Clear(); n != 1 || err != nil || isTuned(on(Request{Problem: p})) {
		t.Errorf("cleared %d: %v", n, err)
	}
}

// TestTunedMatches: what was tuned with other kernels, or is nonsense, is not used, and
// the notes say so.
func TestTunedMatches(t *testing.T) {
	dir := t.TempDir()
	fresh(t, dir)
	p := *testkit.Product(t, dtype.F32, dtype.F32, 70, 60, 50)
	shelf := cache.At(dir).Section("tuned")
	here := tuned.CPUTuner().Key(sample().Form)
	why := func() string {
		t.Helper()
		fresh(t, dir)
		pl, err := New(Request{Problem: p, Device: backend.Device{Kind: "cpu"}})
		if err != nil {
			t.Fatal(err)
		}
		return pl.Why()
	}
	if err := shelf.Put(strings.Replace(here, runtime.Version(), "go1.0", 1), sample()); err != nil {
		t.Fatal(err)
	}
	if got := why(); strings.Contains(got, "tuned") {
		t.Errorf("of other kernels: %s", got)
	}
	if notes := strings.Join(tuned.Notes(), "\n"); !strings.Contains(notes, "tuned choices for other kernels, or another driver, are ignored: 1 in "+filepath.Join(dir, "v1", "tuned")) {
		t.Errorf("notes: %q", notes)
	}
	if kept := tuned.All(); len(kept) != 1 || !kept[0].Stale {
		t.Errorf("kept: %+v", kept)
	}
	bad := func(change func(*tuned.Tuned)) tuned.Tuned {
		x := sample()
		change(&x)
		return x
	}
	for name, value := range map[string]any{
		"no object": 7, "empty": tuned.Tuned{}, "another product": bad(func(x *tuned.Tuned) { x.K++ }), "no gain": bad(func(x *tuned.Tuned) { x.Gain = 0.5 }),
		"no kernel": bad(func(x *tuned.Tuned) { x.Kernel = "" }),
	} {
		if b, err := json.Marshal(value); err == nil {
			if err := shelf.Put(here, json.RawMessage(b)); err != nil {
				t.Fatal(err)
			}
			if got := why(); strings.Contains(got, "tuned") {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	for _, change := range []func(*tuned.Tuned){
		func(x *tuned.Tuned) { x.Kernel = "of the future" }, func(x *tuned.Tuned) { x.Choice.Config.KC = 1 << 40 }, func(x *tuned.Tuned) { x.Choice.Config.Packing = "some" },
	} {
		if err := shelf.Put(here, bad(change)); err != nil {
			t.Fatal(err)
		}
		if got := why(); !strings.Contains(got, "; what was tuned for it does not do") {
			t.Errorf("a choice that no plan can make: %s", got)
		}
	}
	// A file that was cut off, and one that is no entry at all.
	files, err := filepath.Glob(filepath.Join(shelf.Dir(), "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if err := os.Truncate(f, 40); err != nil {
			t.Fatal(err)
		}
	}
	if got := why(); strings.Contains(got, "tuned") {
		t.Errorf("of half a file: %s", got)
	}
	if notes := strings.Join(tuned.Notes(), "\n"); strings.Count(notes, "damaged") != len(files) || strings.Count(notes, "(ignored)") != len(files) {
		t.Errorf("notes of %d files: %q", len(files), notes)
	}
	t.Setenv(cpu.EnvISA, "portable")
	if tuned.CPUTuner().Key(sample().Form) == here {
		t.Error("what may be chosen with fewer instruction sets is not told apart")
	}
}

// TestTunedNowhere: where nothing can be kept, a choice holds for the process.
func TestTunedNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*cache.Cache{nil, cache.At(file)} {
		restore := tuned.Substitute(c)
		err := tuned.CPUTuner().Keep(sample())
		if (err == nil) != (c == nil) {
			t.Errorf("in %q: %v", c.Dir(), err)
		}
		pl, err := New(Request{Problem: *testkit.Product(t, dtype.F32, dtype.F32, 70, 60, 50), Device: backend.Device{Kind: "cpu"}})
		if err != nil || !strings.HasPrefix(pl.Why(), "tuned on") {
			t.Errorf("in %q: %v, %v", c.Dir(), pl, err)
		}
		if notes := tuned.Notes(); (len(notes) > 0) != (c != nil) {
			t.Errorf("in %q: notes %q", c.Dir(), notes)
		}
		restore()
	}
}

// card is the emulator, said to be a GPU of some name.
type card struct {
	device.Device
	info device.Info
}

func (c *card) Info() *device.Info { return &c.info }

// TestTunedGPU: a GPU's choice is for all of its kind, for matrices as they lie there,
// and never for an emulated one.
func TestTunedGPU(t *testing.T) {
	fresh(t, t.TempDir())
	open := func(name string, emulated bool) *stream.Backend {
		e, err := openDevice(backend.Device{Kind: "emu"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		c := &card{e, *e.Info()}
		c.info.Name, c.info.Emulated = name, emulated
		return stream.New(c)
	}
	p := *testkit.Product(t, dtype.F32, dtype.F32, 70, 61, 50)
	x := sample()
	x.Form, x.Choice = tuned.FormOf(&p), tuned.Choice{Kernel: "tiled", Shape: "16"}
	b := open("H200", false)
	if err := tuned.GPUTuner(b.Backend).Keep(x); err != nil {
		t.Fatal(err)
	}
	padded := p
	padded.Layouts[gemm.A], padded.Layouts[gemm.B], padded.Layouts[gemm.C] = kernel.Padded(p.Layouts[gemm.A]), kernel.Padded(p.Layouts[gemm.B]), kernel.Padded(p.Layouts[gemm.C])
	for _, c := range []struct {
		name  string
		b     *stream.Backend
		p     *gemm.Problem
		opt   exec.Options
		tuned bool
	}{
		{"from the host", b, &p, exec.Options{}, true},
		{"on another of its kind", open("H200", false), &p, exec.Options{}, true},
		{"of resident matrices", b, &padded, exec.Options{KeepLayout: true}, true},
		{"of others", b, &p, exec.Options{KeepLayout: true}, false},
		{"with a kernel", b, &p, exec.Options{Kernel: "naive"}, false},
		{"on another model", open("H100", false), &p, exec.Options{}, false},
		{"on the emulator", open("H200", true), &p, exec.Options{}, false},
	} {
		pl, err := PlanGPU(c.b.Backend, c.p, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		isTuned := strings.HasPrefix(pl.Why, "tuned on 2026-11-21")
		if isTuned != c.tuned || isTuned != (pl.Kernel.Name == "tiled" && pl.Config.Tile.M == 16) {
			t.Errorf("a product %s: %s %v, because %s", c.name, pl.Kernel.Name, pl.Config, pl.Why)
		}
	}
	x.Shape = "many"
	if err := tuned.GPUTuner(b.Backend).Keep(x); err != nil {
		t.Fatal(err)
	}
	if pl, err := PlanGPU(b.Backend, &p, exec.Options{}); err != nil || !strings.Contains(pl.Why, `what was tuned for it does not do: not supported: "many" is not a tile`) {
		t.Errorf("%+v, %v", pl, err)
	}
}

// TestThreads: a number of threads that is none is refused.
func TestThreads(t *testing.T) {
	p := *testkit.Product(t, dtype.F32, dtype.F32, 2, 2, 2)
	for _, d := range []string{"cpu", "auto", "emu"} {
		if _, err := New(Request{Problem: p, Device: name(t, d), Threads: -1}); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("on %s: %v", d, err)
		}
	}
}

// FuzzTuned: whatever an entry holds, plans are made, and what they use is for their
// product.
func FuzzTuned(f *testing.F) {
	good, err := json.Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"m":70,"n":60,"k":50,"in":"float32","out":"float32","gain":2,"choice":{"kernel":"avx2","config":{"kc":-1,"threads":99}}}`))
	f.Add([]byte(`{"m":1e99}`))
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, 70, 50), gemm.Dense(dtype.F32, 50, 60), 0, gemm.Dense(dtype.F32, 70, 60), gemm.Epilogue{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		c := cache.At(t.TempDir())
		defer tuned.Substitute(c)()
		if err := c.Section("tuned").Put(tuned.CPUTuner().Key(tuned.FormOf(&p)), json.RawMessage(b)); err != nil {
			return
		}
		pl, err := New(Request{Problem: p, Device: backend.Device{Kind: "cpu"}})
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if pl.Threads < 1 {
			t.Errorf("%s: %d threads", b, pl.Threads)
		}
	})
}
