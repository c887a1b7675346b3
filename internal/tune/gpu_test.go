package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/dispatch"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
)

// timed is a GPU whose times are known. The emulator computes what follows a copy, which
// is the product that is checked, and nothing else.
type timed struct {
	device.Device
	info device.Info
	// cost is what a launch of a kernel takes.
	cost  func(kernel string, block device.Dim3) time.Duration
	spoil string // the kernel that is not run at all
	fail  func(call, text string) error

	mu             sync.Mutex
	now            time.Duration
	computes       int // until so many times more the device has been asked for the time
	loading, atOne int // modules that are being compiled, and the most at one time
}

func newTimed(t *testing.T) *timed {
	t.Helper()
	e, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &timed{
		Device: e, info: *e.Info(),
		cost: func(string, device.Dim3) time.Duration { return time.Millisecond },
		fail: func(string, string) error { return nil },
	}
	d.info.Name, d.info.Emulated = "a card of paper", false
	restore := dispatch.Substitute(func(backend.Device) (device.Device, error) { return d, nil })
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *timed) Info() *device.Info { return &d.info }

// holding is the kernel that keeps the device waiting, which takes no time here.
type holding struct{ device.Function }

type holder struct{}

func (holder) Function(string) (device.Function, error) { return holding{}, nil }
func (holder) Log() string                              { return "" }
func (holder) Unload() error                            { return nil }

func (d *timed) Load(ctx context.Context, text string) (device.Module, error) {
	if err := d.fail("Load", text); err != nil {
		return nil, err
	}
	if strings.Contains(text, ".entry hold(") {
		return holder{}, nil
	}
	d.mu.Lock()
	d.loading++
	d.atOne = max(d.atOne, d.loading)
	d.mu.Unlock()
	time.Sleep(10 * time.Millisecond) // a compiler takes its time
	defer func() {
		d.mu.Lock()
		d.loading--
		d.mu.Unlock()
	}()
	return d.Device.Load(ctx, text)
}

func (d *timed) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	if _, ok := f.(holding); ok {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fail("Launch", f.Name()); err != nil {
		return err
	}
	d.now += d.cost(f.Name(), l.Block)
	if d.computes == 0 || d.spoil == f.Name() {
		return nil
	}
	return d.Device.Launch(ctx, f, l)
}

func (d *timed) Record() (device.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.computes = max(d.computes-1, 0)
	return moment{d.now}, nil
}

func (d *timed) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	d.mu.Lock()
	d.computes = 2 // before the product, and after it
	d.mu.Unlock()
	return d.Device.CopyIn(ctx, dst, src, rows)
}

type moment struct{ at time.Duration }

func (m moment) Since(_ context.Context, earlier device.Event) (time.Duration, error) {
	return m.at - earlier.(moment).at, nil
}
func (m moment) Free() error { return nil }

// tiles makes launches of the tiled kernel with 8×8 threads fast, and all others slow.
func tiles(kernel string, block device.Dim3) time.Duration {
	if kernel == "tilework_tiled" && block == (device.Dim3{X: 8, Y: 8, Z: 1}) {
		return time.Millisecond
	}
	return 2 * time.Millisecond
}

var (
	gpu0 = backend.Device{Kind: "gpu"}
	form = tuned.Form{M: 24, N: 20, K: 17, In: dtype.F32, Out: dtype.F32}
)

// quick is a device's options for tests, with what Run notes.
func quick(d backend.Device) (Options, *[]string) {
	var notes []string
	note := func(s string) { notes = append(notes, s) }
	return Options{Device: d, Time: 100 * time.Millisecond, Seed: 3, Note: note, Warn: note}, &notes
}

// planned is why a product is computed as it is on a device.
func planned(t *testing.T, d backend.Device, f tuned.Form) string {
	t.Helper()
	p, err := f.Problem()
	if err != nil {
		t.Fatal(err)
	}
	pl, err := dispatch.New(dispatch.Request{Problem: p, Device: d})
	if err != nil {
		t.Fatal(err)
	}
	return pl.Kernel + ": " + pl.Why()
}

// TestGPU: on a GPU the candidate that is fastest there is found among those that are
// worth measuring, kept, and used; its kernels are compiled several at once.
func TestGPU(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	d := newTimed(t)
	d.cost = tiles
	o, notes := quick(gpu0)
	outcomes, err := Run(t.Context(), []tuned.Form{form}, o)
	if err != nil || len(outcomes) != 1 {
		t.Fatal(outcomes, err)
	}
	x := outcomes[0]
	if !x.Kept || x.Best.String() != "tiled:8" || x.Default.Kernel != "blocked" || x.Gain.Speed < 1.99 || x.Gain.Speed > 2.01 || x.Device != d.info.Name {
		t.Errorf("%v", x)
	}
	if x.Measured < 3 || x.Measured >= x.Considered {
		t.Errorf("%d measured of %d", x.Measured, x.Considered)
	}
	if n := *notes; len(n) != 3 || !strings.Contains(n[0], fmt.Sprintf(" of %d ways are to be measured", x.Considered)) || !strings.HasPrefix(n[1], "compiled ") || n[2] != x.String() {
		t.Errorf("notes: %q", n)
	}
	if d.atOne < 2 {
		t.Error("kernels are compiled one after the other")
	}
	if why := planned(t, gpu0, form); !strings.HasPrefix(why, "tiled: tuned on ") || !strings.Contains(why, ": 2.00 × as fast as the default, blocked:") {
		t.Errorf("planned afterwards: %s", why)
	}
	// All take as long now: what was kept goes.
	d.cost = func(string, device.Dim3) time.Duration { return time.Millisecond }
	if outcomes, err = Run(t.Context(), []tuned.Form{form}, o); err != nil || len(outcomes) != 1 || outcomes[0].Kept {
		t.Errorf("%v, %v", outcomes, err)
	}
	if why := planned(t, gpu0, form); strings.Contains(why, "tuned") {
		t.Errorf("planned in the end: %s", why)
	}
}

// TestGPUFaults: a candidate that does not compile or gives a wrong product is left out
// and told; a lost device ends it.
func TestGPUFaults(t *testing.T) {
	t.Cleanup(tuned.Substitute(nil))
	d := newTimed(t)
	d.cost = tiles
	d.fail = func(call, text string) error {
		if call == "Load" && strings.Contains(text, "tilework_tiled") && strings.Contains(text, "tile 8") {
			return fmt.Errorf("%w: no such register", device.ErrCompile)
		}
		return nil
	}
	o, notes := quick(gpu0)
	outcomes, err := Run(t.Context(), []tuned.Form{form}, o)
	if err != nil || len(outcomes) != 1 || outcomes[0].Kept || !strings.Contains(strings.Join(*notes, "\n"), "tiled:8 does not compile: ") {
		t.Errorf("%v, %v, notes %q", outcomes, err, *notes)
	}

	d = newTimed(t)
	d.cost, d.spoil = tiles, "tilework_tiled"
	if outcomes, err = Run(t.Context(), []tuned.Form{form}, o); !errors.Is(err, gemm.ErrVerify) || len(outcomes) != 1 || outcomes[0].Kept {
		t.Errorf("wrong: %v, %v", outcomes, err)
	}

	d = newTimed(t)
	launches := 0
	d.fail = func(call, _ string) error {
		if call == "Launch" {
			launches++
		}
		if launches > 20 {
			return fmt.Errorf("%w: fell off the bus", device.ErrLost)
		}
		return nil
	}
	if outcomes, err = Run(t.Context(), []tuned.Form{form, form}, o); !errors.Is(err, gemm.ErrNoDevice) || len(outcomes) > 0 {
		t.Errorf("lost: %v, %v", outcomes, err)
	}
}

// TestRefuses: what cannot be tuned for is refused, with the reason.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		device  backend.Device
		form    tuned.Form
		threads int
		want    error
		says    string
	}{
		{backend.Device{Kind: "emu"}, form, 0, gemm.ErrUnsupported, "an emulated GPU has counts and no times of its own"},
		{backend.Device{Kind: "auto"}, form, 0, gemm.ErrUnsupported, "name one"},
		{backend.Device{Kind: "cpu"}, form, -1, gemm.ErrUnsupported, "-1 threads"},
		{backend.Device{Kind: "cpu"}, tuned.Form{M: 1, N: 0, K: 1, In: dtype.F32, Out: dtype.F32}, 0, gemm.ErrShape, "nothing to tune in 1x0x1 float32"},
	} {
		_, err := Run(t.Context(), []tuned.Form{c.form}, Options{Device: c.device, Threads: c.threads})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("on %v: %v", c.device, err)
		}
	}
}
