package gpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
)

// double is a device that runs nothing, keeps account of what it was given and can
// fail any one call.
type double struct {
	info device.Info

	mu              sync.Mutex
	calls           int
	failAt          int    // number of the call that fails, from 1; 0 for none
	failed          string // what call that was
	err             error
	next            device.Ptr
	live            map[device.Ptr]int
	loaded          int
	streams, events int
}

func newDouble() *double {
	return &double{
		info: device.Info{Name: "double", Target: ptx.Target{SM: 90}, SMs: 4, MaxThreads: 1024},
		next: 256, live: map[device.Ptr]int{},
	}
}

func (d *double) call(what string) error {
	d.calls++
	if d.calls == d.failAt {
		d.failed = what
		return fmt.Errorf("%s: %w", what, d.err)
	}
	return nil
}

func (d *double) locked(what string, f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.call(what)
	if err == nil && f != nil {
		f()
	}
	return err
}

// after is a call that fails after it has done its work, as a driver that reports an
// earlier kernel's error.
func (d *double) after(what string, f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	return d.call(what)
}

func (d *double) Info() *device.Info { return &d.info }

func (d *double) Alloc(n int) (p device.Ptr, err error) {
	err = d.locked("alloc", func() {
		p = d.next
		d.next += device.Ptr(n+511) &^ 255
		d.live[p] = n
	})
	return p, err
}

func (d *double) Free(p device.Ptr) (err error) {
	if p == 0 {
		return nil
	}
	known := true
	err = d.after("free", func() {
		_, known = d.live[p]
		delete(d.live, p)
	})
	if !known {
		return fmt.Errorf("free of %#x, which is not allocated", uint64(p))
	}
	return err
}

func (d *double) copy(ctx context.Context, what string, host []byte, p device.Ptr, r device.Rows) error {
	if err := r.Check(len(host)); err != nil {
		return err
	}
	return d.locked(what, func() {
		n := device.Ptr(max(r.Count-1, 0)*r.Device + r.Width)
		for start, size := range d.live {
			if start <= p && p+n <= start+device.Ptr(size) {
				return
			}
		}
		if r.Count > 0 {
			panic(fmt.Sprintf("%s of %+v at %#x, which is not allocated", what, r, uint64(p)))
		}
	})
}

func (d *double) CopyIn(ctx context.Context, p device.Ptr, b []byte, r device.Rows) error {
	return d.copy(ctx, "copy in", b, p, r)
}

func (d *double) CopyOut(ctx context.Context, b []byte, p device.Ptr, r device.Rows) error {
	return d.copy(ctx, "copy out", b, p, r)
}

func (d *double) EncodeTensorMap(*ptx.TensorMap) (m [ptx.TensorMapBytes]byte, err error) {
	return m, d.locked("tensor map", nil)
}

func (d *double) Load(context.Context, string) (device.Module, error) {
	return doubleModule{d}, d.locked("load", func() { d.loaded++ })
}

func (d *double) Launch(context.Context, device.Function, device.Launch) error {
	return d.locked("launch", nil)
}
func (d *double) Sync(context.Context) error { return d.locked("sync", nil) }
func (d *double) Record() (device.Event, error) {
	return doubleEvent{d}, d.locked("record", func() { d.events++ })
}
func (d *double) Wait(device.Event) error { return d.locked("wait", nil) }
func (d *double) NewStream() (device.Stream, error) {
	return doubleStream{d}, d.locked("new stream", func() { d.streams++ })
}
func (d *double) Close() error { return nil }

type doubleStream struct{ *double }

func (s doubleStream) Close() error { return s.after("close", func() { s.streams-- }) }

type doubleEvent struct{ d *double }

func (e doubleEvent) Since(context.Context, device.Event) (time.Duration, error) { return 0, nil }
func (e doubleEvent) Free() error                                                { return e.d.after("free event", func() { e.d.events-- }) }

type doubleModule struct{ d *double }

func (m doubleModule) Function(string) (device.Function, error) {
	return doubleFunction{}, m.d.locked("function", nil)
}
func (m doubleModule) Log() string   { return "" }
func (m doubleModule) Unload() error { return m.d.locked("unload", func() { m.d.loaded-- }) }

type doubleFunction struct{}

func (doubleFunction) Name() string                { return "double" }
func (doubleFunction) Resources() device.Resources { return device.Resources{} }

// TestEveryCallFails: whichever call to the device fails, its error comes out, nothing
// stays allocated, and the next run is as if nothing had been.
func TestEveryCallFails(t *testing.T) {
	schedules := maps.Clone(schedules)
	schedules["whole"] = func(pl *HostPlan, _ []span) *schedule { return pl.wholly() }
	for name, build := range schedules {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []struct{ from, want error }{
				{device.ErrOutOfMemory, gemm.ErrOutOfMemory}, {device.ErrLost, gemm.ErrNoDevice}, {device.ErrLaunch, device.ErrLaunch},
			} {
				n := 1
				for everyCall(t, n, kind.from, kind.want, build) {
					n++
				}
				t.Logf("%d calls failed with %v", n-1, kind.from)
			}
		})
	}
}

// everyCall runs a product whose call number n fails, and says whether it has so many.
func everyCall(t *testing.T, n int, from, want error, build func(*HostPlan, []span) *schedule) bool {
	t.Helper()
	p, b := small(t, 0.5)
	d := newDouble()
	d.failAt, d.err = n, from
	backend := NewHost(d)
	plan, err := backend.Plan(p, Options{Kernel: "naive"})
	if err != nil {
		t.Fatal(err)
	}
	plan.steps = build(plan, cutSpan(span{0, p.K}, p.K))
	err = plan.Run(t.Context(), b)
	failed := d.calls >= n
	// A schedule that needs less memory may have had enough.
	recovered := err == nil && d.failed == "alloc" && from == device.ErrOutOfMemory
	switch {
	case !failed && err != nil:
		t.Errorf("no call failed: %v", err)
	case failed && !recovered && (!errors.Is(err, from) || !errors.Is(err, want)):
		t.Errorf("call %d, %s, failed with %v, Run with %v", n, d.failed, from, err)
	}
	if len(d.live) != 0 || d.events != 0 {
		t.Errorf("call %d failed (%v): %d allocations and %d events are left", n, err, len(d.live), d.events)
	}
	d.failAt = 0
	if err := plan.Run(t.Context(), b); err != nil {
		t.Errorf("call %d failed, and then the next run: %v", n, err)
	}
	if err := backend.Close(); err != nil || d.loaded != 0 || d.streams != 0 {
		t.Errorf("call %d failed: close: %v, %d modules and %d streams are left", n, err, d.loaded, d.streams)
	}
	return failed
}

// small is a product with a bias, and memory for it.
func small(t *testing.T, beta float64) (*gemm.Problem, gemm.Buffers) {
	t.Helper()
	a, b, c := gemm.Dense(dtype.F32, 5, 7), gemm.Dense(dtype.F32, 7, 6), gemm.Dense(dtype.F32, 5, 6)
	c.LD = 9
	p, _, err := gemm.New(1, a, b, beta, c, gemm.Epilogue{Bias: gemm.BiasRow})
	if err != nil {
		t.Fatal(err)
	}
	return &p, gemm.Buffers{A: make([]byte, a.Bytes()), B: make([]byte, b.Bytes()), C: make([]byte, c.Bytes()), Bias: make([]byte, 20)}
}

func TestCancelled(t *testing.T) {
	p, b := small(t, 0)
	d := newDouble()
	plan, err := NewHost(d).Plan(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plan.Run(ctx, b); !errors.Is(err, context.Canceled) || d.calls > 0 {
		t.Errorf("got %v after %d calls to the device, want %v after none", err, d.calls, context.Canceled)
	}
}
