package resident

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/exec"
	"tilework/internal/model"
	"tilework/internal/split"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// trialCalls is the number of calls after which a product has its fastest plan.
const trialCalls = 21

// timedDevice is a device whose events report times. A launch of a new size takes less time than
// those before it, so that the default plan is the slowest.
type timedDevice struct {
	device.Device

	mu    sync.Mutex
	now   time.Duration
	took  map[string]time.Duration // by the sizes of a launch
	stuck bool                     // whether no event completes
}

// timedEvent is an event at a time.
type timedEvent struct {
	device.Event
	of *timedDevice
	at time.Duration
}

func (d *timedDevice) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	d.mu.Lock()
	size := fmt.Sprint(l.Grid, l.Block, l.Cluster, l.Shared)
	if d.took[size] == 0 {
		d.took[size] = time.Duration(math.Pow(0.95, float64(len(d.took))) * float64(time.Millisecond))
	}
	d.now += d.took[size]
	d.mu.Unlock()
	return d.Device.Launch(ctx, f, l)
}

func (d *timedDevice) Record() (device.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.Device.Record()
	return timedEvent{e, d, d.now}, err
}

func (e timedEvent) Since(ctx context.Context, earlier device.Event) (time.Duration, error) {
	if e.of.stuck {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return e.at - earlier.(timedEvent).at, nil
}

// timed returns a device whose events report times.
func timed(d device.Device) *timedDevice {
	return &timedDevice{Device: d, took: map[string]time.Duration{}}
}

// openTimed opens an emulated H200 on which repeated products are timed.
func openTimed(t *testing.T) (*GPUs, *timedDevice) {
	t.Helper()
	h200, err := model.Lookup("h200")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := emu.Open(emu.Options{Model: h200})
	if err != nil {
		t.Fatal(err)
	}
	below := faulty.New(inner)
	clock := timed(below)
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return clock, nil })
	d, err := Open(backend.DeviceName{Kind: backend.Emulator, Model: "h200"})
	if err != nil {
		t.Fatal(err)
	}
	d.timed = true
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), restore()); err != nil {
			t.Error(err)
		}
		if left := below.Leaks(); len(left) > 0 {
			t.Errorf("left on the device: %v", left)
		}
	})
	return d, clock
}

// why returns the reason for the plan of the only product of a device.
func why(t *testing.T, d *GPUs) (text string) {
	t.Helper()
	for _, x := range d.plans.All() {
		text += x.Described().Why
	}
	if len(d.plans.All()) != 1 {
		t.Errorf("%d products, want 1", len(d.plans.All()))
	}
	return text
}

// severalPlans returns a product with several candidates of equal bits.
func severalPlans() *bitsCase {
	return &bitsCase{in: dtype.BF16, out: dtype.BF16, m: 192, n: 256, k: 128, seed: 1}
}

// TestTrialBits checks that random products have equal bits in all calls, whichever plans they try.
func TestTrialBits(t *testing.T) {
	rng := testrand.New(t)
	cases := []*bitsCase{severalPlans()}
	for range testkit.Cases(12, 200) {
		c := randomCase(rng)
		c.kernel = ""
		cases = append(cases, c)
	}
	for i, c := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) { checkTrialBits(t, c, i == 0) })
	}
}

// checkTrialBits repeats a product on a device of its own. several reports whether it has several
// plans; other products may be unsupported.
func checkTrialBits(t *testing.T, c *bitsCase, several bool) {
	d, clock := openTimed(t)
	var first []byte
	for n := range trialCalls {
		got, err := c.run(t.Context(), d)
		if errors.Is(err, gemm.ErrUnsupported) && !several {
			return
		}
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if n == 0 {
			first = got
		}
		if !slices.Equal(got, first) {
			t.Fatalf("%+v: call %d has other bits than the first one", c, n)
		}
		d.trials.Wait()
	}
	if several && (len(clock.took) < 4 || !strings.Contains(why(t, d), "the fastest of 6 candidates")) {
		t.Errorf("%d kernels ran: %s", len(clock.took), why(t, d))
	}
}

// TestTrialKept checks that the choice of repeated calls is used by later processes, unless it has
// other bits than the default one, and that it works without a cache.
func TestTrialKept(t *testing.T) {
	dir := t.TempDir()
	find := func(c *cache.Cache, calls int, kernel string) (pl *exec.Plan, events int) {
		t.Helper()
		t.Cleanup(tuned.Substitute(c)) // as in a new process
		var below *faulty.Device
		d := openIdle(t, 1, func(d device.Device) device.Device {
			below = faulty.New(d)
			return timed(below)
		})
		d.timed = true
		p := plain(t, d, dtype.BF16, 512, 768, 640, split.Rows)
		p.Kernel = kernel
		for range calls {
			if err := Gemm(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			d.trials.Wait()
		}
		pl, _, err := PlanOf(p)
		if err != nil {
			t.Fatal(err)
		}
		return pl, below.Counts()["Record"]
	}
	standard, _ := find(cache.At(dir), 1, "")
	found, events := find(cache.At(dir), trialCalls, "")
	if found.Spec() == standard.Spec() || events == 0 || !strings.Contains(found.Why, "in repeated calls") {
		t.Fatalf("repeated calls: %d events, %s (%s)", events, found.Spec(), found.Why)
	}
	all := tuned.All(cpu.Backend{}.TuningKey())
	if len(all) != 1 || !all[0].Repeated || all[0].Gain <= 1 || all[0].Default.String() != standard.Spec() ||
		all[0].Choice.String() != found.Spec() || all[0].Form != tuned.FormOf(found.Problem()) {
		t.Fatalf("stored choices %+v", all)
	}
	again, events := find(cache.At(dir), trialCalls, "")
	if again.Spec() != found.Spec() || events > 0 || !strings.HasPrefix(again.Why, "found in repeated calls on ") {
		t.Errorf("a later process: %d events, %s (%s)", events, again.Spec(), again.Why)
	}
	if pl, _ := find(cache.At(dir), 1, backend.DefaultKernel); pl.Spec() != standard.Spec() {
		t.Errorf("the default choice is %s, want %s", pl.Spec(), standard.Spec())
	}
	other := all[0].Tuned
	other.Tile += "*2"
	if err := tuned.For(gpu.TuningKey(standard.Backend())).Keep(other); err != nil {
		t.Fatal(err)
	}
	if pl, _ := find(cache.At(dir), 1, ""); pl.Spec() != standard.Spec() ||
		!strings.Contains(pl.Why, "adds in another order") {
		t.Errorf("after another choice was stored: %s (%s)", pl.Spec(), pl.Why)
	}
	other.Tile, other.Repeated = "none", false
	if err := tuned.For(gpu.TuningKey(standard.Backend())).Keep(other); err != nil {
		t.Fatal(err)
	}
	if pl, _ := find(cache.At(dir), trialCalls, ""); pl.Spec() != found.Spec() {
		t.Errorf("with a tuned choice that is not possible: %s (%s), want %s", pl.Spec(), pl.Why, found.Spec())
	}
	if all := tuned.All(cpu.Backend{}.TuningKey()); len(all) != 1 || all[0].Repeated {
		t.Errorf("repeated calls replaced the tuned choice: %+v", all)
	}
	if pl, _ := find(nil, trialCalls, ""); pl.Spec() != found.Spec() {
		t.Errorf("without a cache: %s (%s), want %s", pl.Spec(), pl.Why, found.Spec())
	}
}

// TestTrialStuck checks that products use the default plan while no event completes, and that the
// device can be closed then.
func TestTrialStuck(t *testing.T) {
	d, clock := openTimed(t)
	clock.stuck = true
	c := severalPlans()
	for range 2 * trialCalls {
		if _, err := c.run(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		d.trials.Wait()
	}
	if text := why(t, d); !strings.HasPrefix(text, "predicted to be the fastest") ||
		!strings.Contains(text, "0 of 18 timings are done") {
		t.Error(text)
	}
}

// TestTrialUntimed checks that named kernels, verified products, the default choice and products of
// other devices record no events.
func TestTrialUntimed(t *testing.T) {
	for name, change := range map[string]func(*GPUs, *bitsCase){
		"named":    func(_ *GPUs, c *bitsCase) { c.kernel = "wgmma" },
		"verified": func(_ *GPUs, c *bitsCase) { c.verify = true },
		"default":  func(_ *GPUs, c *bitsCase) { c.kernel = backend.DefaultKernel },
		"emulated": func(d *GPUs, _ *bitsCase) { d.timed = false },
	} {
		d, clock := openTimed(t)
		c := severalPlans()
		change(d, c)
		for range 5 {
			if _, err := c.run(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			d.trials.Wait()
		}
		if n := clock.Device.(*faulty.Device).Counts()["Record"]; n > 0 {
			t.Errorf("%s: %d events", name, n)
		}
	}
}

// TestTrialConcurrent checks the bits of products that several goroutines repeat, and that closing
// the device waits for the candidates that are being compiled.
func TestTrialConcurrent(t *testing.T) {
	d, _ := openTimed(t)
	c := severalPlans()
	want, err := c.run(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range trialCalls / 2 {
				if got, err := c.run(t.Context(), d); err != nil || !slices.Equal(got, want) {
					t.Errorf("error %v, equal bits: %v", err, slices.Equal(got, want))
				}
			}
		})
	}
	callers.Wait()
}
