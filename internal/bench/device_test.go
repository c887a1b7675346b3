package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
)

// fakeDevice is a device whose events read a fake clock. Its memory is that of the emulator. It
// does not run the holder's kernel, the only kernel it is given.
type fakeDevice struct {
	*emu.Device
	clock  *clock
	info   device.Info
	held   []time.Duration
	events int // not freed yet
	loaded int // modules not unloaded yet
	sensed atomic.Int64
	watts  float64    // power according to the energy counter; 0 if the device has none
	runs   []Matrices // operands of each product, in order
	fail   func(call string) error
}

func newFakeDevice(t *testing.T, c *clock) *fakeDevice {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &fakeDevice{Device: d, clock: c, info: *d.Info(), fail: func(string) error { return nil }}
	l.info.Emulated = false
	return l
}

func (l *fakeDevice) Info() *device.Info { return &l.info }

func (l *fakeDevice) Load(context.Context, string) (device.Module, error) {
	if err := l.fail("Load"); err != nil {
		return nil, err
	}
	l.loaded++
	return fakeModule{l}, nil
}

func (l *fakeDevice) Launch(_ context.Context, _ device.Function, g device.Launch) error {
	l.held = append(l.held, time.Duration(binary.LittleEndian.Uint64(g.Params)))
	return l.fail("Launch")
}

func (l *fakeDevice) Record() (device.Event, error) {
	if err := l.fail("Record"); err != nil {
		return nil, err
	}
	l.events++
	return fakeEvent{l, l.clock.now()}, nil
}

func (l *fakeDevice) Alloc(n int) (device.Ptr, error) {
	if err := l.fail("Alloc"); err != nil {
		return 0, err
	}
	return l.Device.Alloc(n)
}

func (l *fakeDevice) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	if err := l.fail("CopyIn"); err != nil {
		return err
	}
	return l.Device.CopyIn(ctx, dst, src, rows)
}

func (l *fakeDevice) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	if err := l.fail("CopyOut"); err != nil {
		return err
	}
	return l.Device.CopyOut(ctx, dst, src, rows)
}

func (l *fakeDevice) Sensors() (device.Sensors, error) {
	sensed := l.sensed.Add(1)
	return device.Sensors{SMClock: 1000 + float64(sensed), Power: 500, PowerLimit: 700, Temperature: 40,
		Energy: l.watts * (1 + l.clock.now().Seconds())}, nil
}

type fakeModule struct{ *fakeDevice }

func (m fakeModule) Function(string) (device.Function, error) {
	return fakeFunction{}, m.fail("Function")
}
func (m fakeModule) Log() string   { return "" }
func (m fakeModule) Unload() error { m.loaded--; return nil }

type fakeFunction struct{ device.Function }

type fakeEvent struct {
	*fakeDevice
	at time.Duration
}

func (e fakeEvent) Since(_ context.Context, earlier device.Event) (time.Duration, error) {
	return e.at - earlier.(fakeEvent).at, e.fail("Since")
}

func (e fakeEvent) Free() error { e.events--; return nil }

// checkFreed fails the test if a measurement has not freed its memory, events and modules.
func (l *fakeDevice) checkFreed(t *testing.T) {
	t.Helper()
	if l.Used() != 0 || l.events != 0 || l.loaded != 0 {
		t.Errorf("not freed on the device: %d bytes, %d events, %d modules", l.Used(), l.events, l.loaded)
	}
}

// fakeDeviceSubject is a subject that multiplies on a fakeDevice.
type fakeDeviceSubject struct {
	fake
	device *fakeDevice
	trials []time.Duration // durations of the algorithms that it tries
	tried  []float64
}

func (f *fakeDeviceSubject) Prepare(ctx context.Context, p *gemm.Problem, try Try) (Enqueue, error) {
	multiply, err := f.fake.Prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, cost := range f.trials {
		took, err := try(func(_ context.Context, m Matrices) error {
			f.device.runs = append(f.device.runs, m)
			f.device.clock.advance(cost)
			return nil
		})
		if err != nil {
			return nil, err
		}
		f.tried = append(f.tried, took)
	}
	return func(ctx context.Context, m Matrices) error {
		f.device.runs = append(f.device.runs, m)
		b := gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()),
			gemm.C: make([]byte, p.C().Bytes())}
		first := b[gemm.C][:p.Out().Size()]
		if err := f.device.Device.CopyOut(ctx, first, m[gemm.C], device.Whole(len(first))); err != nil {
			return err
		}
		if !untouched(p, first) { // the result is not checked
			return multiply(&b)
		}
		for _, x := range []struct {
			to []byte
			at device.Ptr
		}{{b[gemm.A], m[gemm.A]}, {b[gemm.B], m[gemm.B]}, {b[gemm.C], m[gemm.C]}} {
			if err := f.device.Device.CopyOut(ctx, x.to, x.at, device.Whole(len(x.to))); err != nil {
				return err
			}
		}
		if err := multiply(&b); err != nil {
			return err
		}
		return f.device.Device.CopyIn(ctx, m[gemm.C], b[gemm.C], device.Whole(len(b[gemm.C])))
	}, nil
}

func TestMeasureOn(t *testing.T) {
	c := new(clock)
	l := newFakeDevice(t, c)
	kernel := &fakeDeviceSubject{device: l, fake: fake{name: "kernel", clock: c, cost: every(300 * time.Microsecond)}}
	peer := &fakeDeviceSubject{device: l, trials: []time.Duration{time.Millisecond, 10 * time.Microsecond},
		fake: fake{name: "peer", clock: c, cost: every(30 * time.Microsecond)}}
	o := quick(c)
	o.Lead, o.Cold = 0, true
	o.Environment.GPUCache = 1 << 20
	records, err := MeasureOn(t.Context(), l, shape(t, Cube(128), dtype.F32, dtype.F32), []DeviceSubject{kernel},
		[]DeviceSubject{peer}, o)
	if err != nil {
		t.Fatal(err)
	}
	l.checkFreed(t)
	k, p := records[0], records[1]
	for i, want := range []struct {
		name    string
		seconds float64
		batch   int
	}{{"kernel", 300e-6, 64}, {"peer", 30e-6, 64}} {
		r := records[i]
		if err := r.check(); err != nil {
			t.Errorf("%s: %v", want.name, err)
		}
		if r.Subject != want.name || !near(r.Seconds.Median, want.seconds) || r.Batch != want.batch || !r.Verified ||
			!r.Cold {
			t.Errorf("record %+v: want %+v, verified and cold", r, want)
		}
	}
	if v, ok := k.RatioTo("peer"); !ok || !near(v.Speed, 0.1) {
		t.Errorf("the kernel's speed relative to the peer is %v, want 0.1", v.Speed)
	}
	if p.Setup <= 0 || len(peer.tried) != 2 || !near(peer.tried[0], 1e-3) || !near(peer.tried[1], 10e-6) {
		t.Errorf("the peer measured trials of %v s in a setup of %v s, want 1e-3 and 10e-6", peer.tried, p.Setup)
	}
	if k.Load == nil || k.Load.Samples < 1 || k.Load.SMClock.Min <= 1000 || k.Load.PowerLimit != 700 ||
		k.Load.Power.Median != 500 {
		t.Errorf("got load %+v, want the sensors' values", k.Load)
	}
	if k.Buffers*3*128*128*4 < 2<<20 {
		t.Errorf("%d sets of operands are smaller than twice the cache of 1 MiB", k.Buffers)
	}
	// The products of the rounds. Verified products, before and after them, use the first set.
	rounds := len(l.runs) - 2
	used := l.runs[rounds-8*k.Buffers : rounds]
	for i := range len(used) - k.Buffers + 1 {
		window := map[Matrices]bool{}
		for _, m := range used[i : i+k.Buffers] {
			window[m] = true
		}
		if len(window) != k.Buffers {
			t.Fatalf("products %d to %d used %d sets of operands, want %d", i, i+k.Buffers, len(window), k.Buffers)
		}
	}
	for _, m := range used {
		for _, at := range []device.Ptr{m[gemm.A], m[gemm.B], m[gemm.C]} {
			if at%deviceAlign != 0 {
				t.Fatalf("matrix at %#x: want a multiple of %d", at, deviceAlign)
			}
		}
	}
	if slices.Min(l.held) < 30*time.Microsecond || slices.Max(l.held) > maxHold {
		t.Errorf("the device was held for %v to %v, want 30 µs to maxHold", slices.Min(l.held), slices.Max(l.held))
	}
}

// TestAlone measures the times and the energy of a product on a device that always draws 400 W and
// slows down after 50 ms of work.
func TestAlone(t *testing.T) {
	c := new(clock)
	l := newFakeDevice(t, c)
	l.watts = 400
	worked := time.Duration(0) // since the device was idle
	cost := func(d time.Duration) func(int) time.Duration {
		return func(int) time.Duration {
			took := d
			if worked > 50*time.Millisecond {
				took *= 2
			}
			worked += took
			return took
		}
	}
	a := &fakeDeviceSubject{device: l, fake: fake{name: "a", clock: c, cost: cost(2 * time.Millisecond)}}
	b := &fakeDeviceSubject{device: l, fake: fake{name: "b", clock: c, cost: cost(5 * time.Millisecond)}}
	o := quick(c)
	o.Sustained = 500 * time.Millisecond
	o.sleep = func(_ context.Context, d time.Duration) error {
		worked = 0
		c.advance(d)
		return nil
	}
	measure := func() ([]Record, error) {
		return MeasureOn(t.Context(), l, shape(t, Cube(8), dtype.F32, dtype.F32), []DeviceSubject{a}, []DeviceSubject{b}, o)
	}
	records, err := measure()
	if err != nil {
		t.Fatal(err)
	}
	for i, burst := range []float64{2e-3, 5e-3} {
		r := &records[i]
		if !near(r.Burst, burst) || !near(r.Sustained, 2*burst) || math.Abs(r.Joules-800*burst) > 8*burst {
			t.Errorf("%s: %v s in bursts, %v s sustained, %v J, want %v, %v and %v", r.Subject, r.Burst, r.Sustained,
				r.Joules, burst, 2*burst, 800*burst)
		}
	}
	l.watts = 0
	if _, err := measure(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without an energy counter: error %v, want ErrUnsupported", err)
	}
	o.Sustained = 0
	records, err = measure()
	if err != nil || records[0].Burst != 0 || records[0].Sustained != 0 || records[0].Joules != 0 {
		t.Errorf("without the option: %+v, error %v", records[0], err)
	}
}

// TestLateHost checks that a timing with late enqueueing is repeated with a longer hold, and that
// the hold shrinks again afterwards.
func TestLateHost(t *testing.T) {
	c, host := new(clock), new(clock)
	l := newFakeDevice(t, c)
	a := &fakeDeviceSubject{device: l, fake: fake{name: "a", clock: c}}
	late := 40 // index of the slow call
	a.cost = func(call int) time.Duration {
		host.advance(time.Microsecond)
		if call == late {
			host.advance(3 * time.Millisecond)
			return 3 * time.Millisecond // like a device that waits for the host
		}
		return 200 * time.Microsecond
	}
	o := quick(c)
	o.hostNow = host.now
	records, err := MeasureOn(t.Context(), l, shape(t, Cube(8), dtype.F32, dtype.F32), []DeviceSubject{a}, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	if s := records[0].Seconds; !near(s.Max, 200e-6) {
		t.Errorf("got seconds %+v, want none from the late timing", s)
	}
	if longest := slices.Max(l.held); longest < 3*time.Millisecond {
		t.Errorf("the longest hold is %v, want at least 3 ms", longest)
	}
	if last := l.held[len(l.held)-1]; last > time.Millisecond {
		t.Errorf("the last hold is %v, want at most 1 ms", last)
	}
}

// TestMeasureOnFailures checks that each failure is reported and leaves nothing on the device.
func TestMeasureOnFailures(t *testing.T) {
	boom := fmt.Errorf("%w: boom", device.ErrLost)
	for _, call := range []string{"Alloc", "CopyIn", "CopyOut", "Load", "Function", "Launch", "Record", "Since"} {
		for nth := range 4 {
			t.Run(fmt.Sprintf("%s %d", call, nth), func(t *testing.T) {
				c := new(clock)
				l := newFakeDevice(t, c)
				calls, failed := 0, false
				l.fail = func(which string) error {
					if which == call {
						if calls++; calls == nth+1 {
							failed = true
							return boom
						}
					}
					return nil
				}
				a := &fakeDeviceSubject{device: l, fake: fake{name: "a", clock: c, cost: every(time.Millisecond)}}
				b := &fakeDeviceSubject{device: l, fake: fake{name: "b", clock: c, cost: every(time.Millisecond)}}
				_, err := MeasureOn(t.Context(), l, shape(t, Cube(8), dtype.F32, dtype.F32), []DeviceSubject{a, b}, nil, quick(c))
				if failed != errors.Is(err, boom) {
					t.Errorf("the device failed: %v; got error %v", failed, err)
				}
				l.checkFreed(t)
			})
		}
	}
	t.Run("wrong result", func(t *testing.T) {
		c := new(clock)
		l := newFakeDevice(t, c)
		a := &fakeDeviceSubject{device: l, fake: fake{name: "a", clock: c,
			spoil: func(p *gemm.Problem, b gemm.Buffers) { p.Out().Set(b[gemm.C], 5, 1e3) }}}
		_, err := MeasureOn(t.Context(), l, shape(t, Cube(8), dtype.F32, dtype.F32), []DeviceSubject{a}, nil, quick(c))
		if !errors.Is(err, gemm.ErrVerify) {
			t.Errorf("got error %v, want ErrVerify", err)
		}
		l.checkFreed(t)
	})
	t.Run("out of device memory", func(t *testing.T) {
		c := new(clock)
		l := newFakeDevice(t, c)
		l.info.Memory = 1000
		a := &fakeDeviceSubject{device: l, fake: fake{name: "a", clock: c}}
		_, err := MeasureOn(t.Context(), l, shape(t, Cube(30), dtype.F32, dtype.F32), []DeviceSubject{a}, nil, quick(c))
		if !errors.Is(err, sentinel.ErrOutOfMemory) {
			t.Errorf("got error %v, want ErrOutOfMemory", err)
		}
	})
	t.Run("interruption", func(t *testing.T) {
		c := new(clock)
		l := newFakeDevice(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		a := &fakeDeviceSubject{device: l, fake: fake{name: "a", clock: c, cost: every(time.Millisecond)}}
		a.seen = func(gemm.Buffers) {
			if a.calls == 2000 { // leaves room for timings that are repeated because enqueueing was late
				cancel()
			}
		}
		l.fail = func(call string) error { return ctx.Err() }
		o := quick(c)
		o.MinTime, o.MaxTime = time.Hour, time.Hour // longer than the test
		records, err := MeasureOn(ctx, l, shape(t, Cube(8), dtype.F32, dtype.F32), []DeviceSubject{a}, nil, o)
		if !errors.Is(err, context.Canceled) || len(records) != 1 || records[0].Error != "" || records[0].Reps < 5 ||
			!records[0].Interrupted {
			t.Errorf("got error %v, records %+v; want Canceled and one interrupted record", err, records)
		}
	})
}

// TestHold checks that an emulated device is not held, and that the emulator can run the kernel.
func TestHold(t *testing.T) {
	d, err := emu.Open(emu.Options{MaxInstructions: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHolder(t.Context(), d)
	if err != nil || h.function != nil {
		t.Errorf("newHolder on an emulated device: %v, error %v; want no function", h, err)
	}
	m, err := d.Load(t.Context(), holdPTX)
	if err != nil {
		t.Fatal(err)
	}
	h.device = d
	if h.function, err = m.Function("hold"); err != nil {
		t.Fatal(err)
	}
	if held, err := h.hold(t.Context(), 100*time.Microsecond); err != nil || held < 100*time.Microsecond {
		t.Errorf("held for %v, error %v; want at least 100 µs", held, err)
	}
}
