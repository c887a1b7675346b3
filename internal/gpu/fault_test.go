package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
)

// double is a device that runs nothing, keeps account of what it was given and can
// fail any one call.
type double struct {
	info device.Info

	mu     sync.Mutex
	calls  int
	failAt int // number of the call that fails, from 1; 0 for none
	err    error
	next   device.Ptr
	live   map[device.Ptr]int
	loaded int
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

func (d *double) Info() *device.Info { return &d.info }

func (d *double) Alloc(n int) (p device.Ptr, err error) {
	err = d.locked("alloc", func() {
		p = d.next
		d.next += device.Ptr(n+511) &^ 255
		d.live[p] = n
	})
	return p, err
}

// Free fails after it has freed, as a driver that reports an earlier kernel's error.
func (d *double) Free(p device.Ptr) error {
	if p == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.live[p]; !ok {
		return fmt.Errorf("free of %#x, which is not allocated", uint64(p))
	}
	delete(d.live, p)
	return d.call("free")
}

func (d *double) copy(ctx context.Context, what string, host []byte, p device.Ptr, r device.Rows) error {
	if err := r.Check(len(host)); err != nil {
		return err
	}
	return d.locked(what, func() {
		if r.Count > 0 && (r.Count-1)*r.Device+r.Width > d.live[p] {
			panic(fmt.Sprintf("%s of %+v, and %d bytes are allocated", what, r, d.live[p]))
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
func (d *double) Sync(context.Context) error    { return d.locked("sync", nil) }
func (d *double) Record() (device.Event, error) { return nil, errors.ErrUnsupported }
func (d *double) Close() error                  { return nil }

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
	p, b := small(t, 0.5)
	for _, kind := range []struct{ from, want error }{
		{device.ErrOutOfMemory, gemm.ErrOutOfMemory}, {device.ErrLost, gemm.ErrNoDevice}, {device.ErrLaunch, device.ErrLaunch},
	} {
		for n := 1; ; n++ {
			d := newDouble()
			d.failAt, d.err = n, kind.from
			backend := New(d)
			plan, err := backend.Plan(p, Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = plan.Run(t.Context(), b)
			if d.calls < n {
				if err != nil {
					t.Errorf("no call failed: %v", err)
				}
				break
			}
			if !errors.Is(err, kind.from) || !errors.Is(err, kind.want) {
				t.Errorf("call %d failed with %v, Run with %v", n, kind.from, err)
			}
			if len(d.live) != 0 {
				t.Errorf("call %d failed (%v): %d allocations are left", n, err, len(d.live))
			}
			if err := plan.Run(t.Context(), b); err != nil {
				t.Errorf("call %d failed, and then the next run: %v", n, err)
			}
			if err := backend.Close(); err != nil || d.loaded != 0 {
				t.Errorf("call %d failed: close: %v, %d modules are left", n, err, d.loaded)
			}
		}
	}
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
	plan, err := New(d).Plan(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plan.Run(ctx, b); !errors.Is(err, context.Canceled) || d.calls > 0 {
		t.Errorf("got %v after %d calls to the device, want %v after none", err, d.calls, context.Canceled)
	}
}
