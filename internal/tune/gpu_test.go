package tune

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	"tilework/internal/gpu"
	"tilework/internal/sentinel"
)

// simulatedGPU is a GPU with simulated times. To save time, it runs kernels (on the emulator) only
// after a copy to the device, when the result will be checked.
type simulatedGPU struct {
	device.Device
	info device.Info
	cost func(kernel string, block device.Dim3) time.Duration // time of a launch
	skip string                                               // kernel that never runs, so that its results are wrong
	fail func(call, text string) error
	mhz  float64 // the clock rate
	idle bool    // kernels never run, because nothing checks results

	// The first call of Load waits for the second one if it is not nil.
	second chan struct{}

	mu       sync.Mutex
	now      time.Duration
	computes int // number of events to record until kernels no longer run
	loads    int // calls of Load
}

// newSimulatedGPU makes the device "gpu" a simulated GPU until the end of the test.
func newSimulatedGPU(t *testing.T) *simulatedGPU {
	t.Helper()
	e, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &simulatedGPU{
		Device: e, info: *e.Info(),
		cost: func(string, device.Dim3) time.Duration { return time.Millisecond },
		fail: func(string, string) error { return nil }, mhz: 1000,
	}
	d.info.Name, d.info.Emulated = "simulated GPU", false
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return d, nil })
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *simulatedGPU) Info() *device.Info { return &d.info }

// Sensors implements [device.SensorReader].
func (d *simulatedGPU) Sensors() (device.Sensors, error) {
	return device.Sensors{SMClock: d.mhz}, d.fail("Sensors", "")
}

// holdFunction is the kernel with which package bench delays the device. It takes no simulated
// time.
type holdFunction struct{ device.Function }

type holdModule struct{}

func (holdModule) Function(string) (device.Function, error) { return holdFunction{}, nil }
func (holdModule) Log() string                              { return "" }
func (holdModule) Unload() error                            { return nil }

func (d *simulatedGPU) Load(ctx context.Context, text string) (device.Module, error) {
	if err := d.fail("Load", text); err != nil {
		return nil, err
	}
	if strings.Contains(text, ".entry hold(") {
		return holdModule{}, nil
	}
	d.mu.Lock()
	d.loads++
	number := d.loads
	d.mu.Unlock()
	switch {
	case d.second == nil:
	case number == 1:
		select {
		case <-d.second:
		case <-time.After(time.Minute):
			return nil, errors.New("kernels are not compiled concurrently")
		}
	case number == 2:
		close(d.second)
	}
	return d.Device.Load(ctx, text)
}

func (d *simulatedGPU) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	if _, ok := f.(holdFunction); ok {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fail("Launch", f.Name()); err != nil {
		return err
	}
	d.now += d.cost(f.Name(), l.Block)
	if d.idle || d.computes == 0 || d.skip == f.Name() {
		return nil
	}
	return d.Device.Launch(ctx, f, l)
}

func (d *simulatedGPU) Record() (device.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.computes = max(d.computes-1, 0)
	return moment{d.now}, nil
}

func (d *simulatedGPU) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	d.mu.Lock()
	d.computes = 2 // the events before and after the product to check
	d.mu.Unlock()
	return d.Device.CopyIn(ctx, dst, src, rows)
}

type moment struct{ at time.Duration }

func (m moment) Since(_ context.Context, earlier device.Event) (time.Duration, error) {
	return m.at - earlier.(moment).at, nil
}
func (m moment) Free() error { return nil }

// fastTiled8 makes launches of the tiled kernel with 8×8 threads fast, and all others slow.
func fastTiled8(kernel string, block device.Dim3) time.Duration {
	if kernel == "tilework_tiled" && block == (device.Dim3{X: 8, Y: 8, Z: 1}) {
		return time.Millisecond
	}
	return 2 * time.Millisecond
}

var (
	gpu0 = backend.DeviceName{Kind: backend.GPU}
	form = tuned.Form{M: 24, N: 20, K: 17, In: dtype.F32, Out: dtype.F32}
)

// quickOptions returns options for a short test, and the messages of Run.
func quickOptions(d backend.DeviceName) (Options, *[]string) {
	var notes []string
	note := func(s string) { notes = append(notes, s) }
	return Options{Device: d, Time: 100 * time.Millisecond, Seed: 3, Note: note, Warn: note}, &notes
}

// planned returns the kernel that is chosen for a product, and the reason.
func planned(t *testing.T, d backend.DeviceName, f tuned.Form) string {
	t.Helper()
	p, err := f.Problem()
	if err != nil {
		t.Fatal(err)
	}
	pl, err := dispatch.New(t.Context(), dispatch.Request{Problem: p, Device: d})
	if err != nil {
		t.Fatal(err)
	}
	return pl.Kernel() + ": " + pl.Why()
}

// TestGPU checks that Run finds the fastest candidate on a GPU and stores it, that later plans use
// it, and that kernels are compiled concurrently.
func TestGPU(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))) // which limits concurrent compilations
	d := newSimulatedGPU(t)
	d.cost, d.second = fastTiled8, make(chan struct{})
	o, notes := quickOptions(gpu0)
	outcomes, err := Run(t.Context(), []tuned.Form{form}, o)
	if err != nil || len(outcomes) != 1 {
		t.Fatal(outcomes, err)
	}
	x := outcomes[0]
	if !x.Kept || x.Best.String() != "tiled:8" || x.Default.String() != "tiled:16" || x.Gain.Speed < 1.99 ||
		x.Gain.Speed > 2.01 || x.Device != d.info.Name {
		t.Errorf("outcome %v", x)
	}
	if x.Measured < 3 || x.Measured >= x.Considered {
		t.Errorf("measured %d of %d candidates, want some but not all", x.Measured, x.Considered)
	}
	if n := *notes; len(n) != 3 || !strings.Contains(n[0], fmt.Sprintf(" of %d candidates\n", x.Considered)) ||
		!strings.HasPrefix(n[1], "compiled ") || n[2] != x.String() {
		t.Errorf("notes: %q", n)
	}
	if why := planned(t, gpu0, form); !strings.HasPrefix(why, "tiled: tuned on ") ||
		!strings.Contains(why, ": 2.00 × as fast as the default, tiled:16") {
		t.Errorf("planned after tuning: %s", why)
	}
	// With equal times, tuning again removes the stored choice.
	d.cost = func(string, device.Dim3) time.Duration { return time.Millisecond }
	if outcomes, err = Run(t.Context(), []tuned.Form{form}, o); err != nil || len(outcomes) != 1 || outcomes[0].Kept {
		t.Errorf("%v, %v", outcomes, err)
	}
	if why := planned(t, gpu0, form); strings.Contains(why, "tuned") {
		t.Errorf("planned after tuning again: %s", why)
	}
}

// TestRepeated checks that products of matrices in host memory use the choice that repeated calls
// found if it has the bits of the default choice, unless the default choice is requested.
func TestRepeated(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	newSimulatedGPU(t)
	b, release, err := gpu.Open(gpu0)
	if err != nil {
		t.Fatal(err)
	}
	x := tuned.Tuned{Form: form, Gain: 1.5, Repeated: true}
	for _, c := range []struct{ kernel, tile, want string }{
		{"tiled", "8", "tiled: found in repeated calls on "},
		{"naive", "", "naive:16 adds in another order than the default choice, tiled:16"},
	} {
		changes := tuned.Changes()
		x.Kernel, x.Tile = c.kernel, c.tile
		if err := tuned.For(gpu.TuningKey(b.Backend)).Keep(x); err != nil || tuned.Changes() != changes {
			t.Fatalf("error %v, earlier plans are out of date: %v", err, tuned.Changes() != changes)
		}
		if why := planned(t, gpu0, form); !strings.HasPrefix(why, "tiled: ") || !strings.Contains(why, c.want) {
			t.Errorf("%s:%s: planned %s", c.kernel, c.tile, why)
		}
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

// TestGPUFaults checks that a candidate that does not compile or returns wrong results is skipped
// and reported, and that a lost device ends Run.
func TestGPUFaults(t *testing.T) {
	t.Cleanup(tuned.Substitute(nil))
	d := newSimulatedGPU(t)
	d.cost = fastTiled8
	d.fail = func(call, text string) error {
		if call == "Load" && strings.Contains(text, "tilework_tiled") && strings.Contains(text, "tile 8") {
			return fmt.Errorf("%w: no such register", device.ErrCompile)
		}
		return nil
	}
	o, notes := quickOptions(gpu0)
	outcomes, err := Run(t.Context(), []tuned.Form{form}, o)
	if err != nil || len(outcomes) != 1 || outcomes[0].Kept ||
		!strings.Contains(strings.Join(*notes, "\n"), "tiled:8 does not compile: ") {
		t.Errorf("%v, %v, notes %q", outcomes, err, *notes)
	}

	d = newSimulatedGPU(t)
	d.cost, d.skip = fastTiled8, "tilework_tiled"
	if outcomes, err = Run(t.Context(), []tuned.Form{form}, o); !errors.Is(err, gemm.ErrVerify) || len(outcomes) != 1 ||
		outcomes[0].Kept {
		t.Errorf("wrong results: %v, %v", outcomes, err)
	}

	d = newSimulatedGPU(t)
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
	if outcomes, err = Run(t.Context(), []tuned.Form{form, form}, o); !errors.Is(err, sentinel.ErrNoDevice) ||
		len(outcomes) > 0 {
		t.Errorf("lost device: %v, %v", outcomes, err)
	}
}

// TestErrors checks the errors of Run for wrong options.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		device  backend.DeviceName
		form    tuned.Form
		threads int
		want    error
		text    string
	}{
		{backend.DeviceName{Kind: backend.Emulator}, form, 0, gemm.ErrUnsupported, "an emulated GPU has no times"},
		{backend.DeviceName{}, form, 0, gemm.ErrUnsupported, "want a certain device"},
		{backend.DeviceName{Kind: backend.CPU}, form, -1, gemm.ErrUnsupported, "-1 threads"},
		{backend.DeviceName{Kind: backend.CPU}, tuned.Form{M: 1, N: 0, K: 1, In: dtype.F32, Out: dtype.F32}, 0, gemm.ErrShape,
			"nothing to tune in 1x0x1 float32"},
	} {
		_, err := Run(t.Context(), []tuned.Form{c.form}, Options{Device: c.device, Threads: c.threads})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("on %v: %v", c.device, err)
		}
	}
}
