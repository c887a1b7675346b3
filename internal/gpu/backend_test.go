package gpu

import (
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/testkit"
)

// namedGPU is an emulated device with the properties of some GPU.
type namedGPU struct {
	device.Device
	info device.Info
}

func (d *namedGPU) Info() *device.Info { return &d.info }

// TestTunedChoice checks that a choice tuned on one GPU holds for all GPUs of the same model, for
// matrices in the layout that was tuned, and never for an emulated GPU.
func TestTunedChoice(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	open := func(name string, emulated bool) *exec.Backend {
		e, err := emu.Open(emu.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		d := &namedGPU{e, *e.Info()}
		d.info.Name, d.info.Emulated = name, emulated
		return exec.New(d)
	}
	p := *testkit.Product(t, dtype.F32, dtype.F32, 70, 1000, 30)
	choice := tuned.Tuned{
		Form: tuned.FormOf(&p), Choice: backend.Choice{Kernel: "tiled", Tile: "8"},
		Default: backend.Choice{Kernel: "blocked"},
		Seconds: 1, Before: 1.5, Gain: 1.5, P10: 1.4, P90: 1.6, Date: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
	}
	b := open("H200", false)
	if err := tuned.For(TuningKey(b)).Keep(choice); err != nil {
		t.Fatal(err)
	}
	padded, invariant := p, p.WithRowInvariance()
	for o := range gemm.C + 1 {
		padded.Layouts[o] = gemm.Padded(p.Layouts[o])
	}
	for _, c := range []struct {
		name string
		b    *exec.Backend
		p    *gemm.Problem
		opt  exec.Options
		want bool
	}{
		{"of host matrices", b, &p, exec.Options{}, true},
		{"that is row-invariant", b, &invariant, exec.Options{}, true}, // the choice has the order of summation
		{"on another GPU of the model", open("H200", false), &p, exec.Options{}, true},
		{"of padded resident matrices", b, &padded, exec.Options{KeepLayout: true}, true},
		{"of other resident matrices", b, &p, exec.Options{KeepLayout: true}, false},
		{"with a kernel", b, &p, exec.Options{Kernel: "naive"}, false},
		{"on another model", open("H100", false), &p, exec.Options{}, false},
		{"on the emulator", open("H200", true), &p, exec.Options{}, false},
	} {
		pl, err := PlanResident(c.b, c.p, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.HasPrefix(pl.Why, "tuned on 2026-11-21")
		if got != c.want || got != (pl.Kernel.Name == "tiled" && pl.Config.Tile.M == 8) {
			t.Errorf("a product %s: kernel %s, %v (%s)", c.name, pl.Kernel.Name, pl.Config, pl.Why)
		}
	}
	choice.Tile = "many"
	if err := tuned.For(TuningKey(b)).Keep(choice); err != nil {
		t.Fatal(err)
	}
	const want = `the choice tuned for it is not possible: not supported: "many" is not a tile`
	if pl, err := PlanResident(b, &p, exec.Options{}); err != nil || !strings.Contains(pl.Why, want) {
		t.Errorf("got %+v, error %v, want a reason with %q", pl, err, want)
	}
	choice.Kernel, choice.Tile = "skinny", "1x32x128/1x4"
	if err := tuned.For(TuningKey(b)).Keep(choice); err != nil {
		t.Fatal(err)
	}
	const order = "is not possible: not supported: kernel skinny with tile 1x32x128/1x4 in a row-invariant product"
	if pl, err := PlanResident(b, &invariant, exec.Options{}); err != nil || !strings.Contains(pl.Why, order) {
		t.Errorf("got %+v, error %v, want a reason with %q", pl, err, order)
	}
}
