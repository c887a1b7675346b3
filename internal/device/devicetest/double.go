package devicetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tilework/internal/device"
	"tilework/ptx"
)

// Double is a device that executes nothing. It counts calls and live resources and can fail one
// chosen call.
type Double struct {
	Device device.Info

	mu              sync.Mutex
	Calls           int
	FailAt          int    // number of the call that fails, counted from 1; 0 for none
	Failed          string // name of the failed call
	Err             error  // error of the failed call
	next            device.Ptr
	Live            map[device.Ptr]int // bytes of live allocations by address
	Loaded          int                // live modules
	Streams, Events int                // live streams and events
}

// NewDouble returns a Double that fails no call.
func NewDouble() *Double {
	return &Double{
		Device: device.Info{Name: "double", Target: ptx.Target{SM: 90}, SMs: 4, MaxThreads: 1024},
		next:   256, Live: map[device.Ptr]int{},
	}
}

// call counts a call and returns the error of the chosen one. The caller holds mu.
func (d *Double) call(name string) error {
	d.Calls++
	if d.Calls == d.FailAt {
		d.Failed = name
		return fmt.Errorf("%s: %w", name, d.Err)
	}
	return nil
}

// locked counts a call and performs f unless the call fails.
func (d *Double) locked(name string, f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.call(name)
	if err == nil && f != nil {
		f()
	}
	return err
}

// after counts a call that performs f even if it fails, like a driver call that reports the error
// of an earlier kernel.
func (d *Double) after(name string, f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	return d.call(name)
}

func (d *Double) Info() *device.Info { return &d.Device }

func (d *Double) Alloc(n int) (p device.Ptr, err error) {
	err = d.locked("alloc", func() {
		p = d.next
		d.next += device.Ptr(n+511) &^ 255
		d.Live[p] = n
	})
	return p, err
}

func (d *Double) Free(p device.Ptr) (err error) {
	if p == 0 {
		return nil
	}
	known := true
	err = d.after("free", func() {
		_, known = d.Live[p]
		delete(d.Live, p)
	})
	if !known {
		return fmt.Errorf("free of %#x: want an allocated address", uint64(p))
	}
	return err
}

// copy checks the bounds of a copy.
func (d *Double) copy(ctx context.Context, name string, host []byte, p device.Ptr, r device.Rows) error {
	if err := r.Check(len(host)); err != nil {
		return err
	}
	return d.locked(name, func() {
		n := device.Ptr(max(r.Count-1, 0)*r.DevicePitch + r.Width)
		for start, size := range d.Live {
			if start <= p && p+n <= start+device.Ptr(size) {
				return
			}
		}
		if r.Count > 0 {
			panic(fmt.Sprintf("%s of %+v at %#x: want allocated memory", name, r, uint64(p)))
		}
	})
}

func (d *Double) CopyIn(ctx context.Context, p device.Ptr, b []byte, r device.Rows) error {
	return d.copy(ctx, "copy in", b, p, r)
}

func (d *Double) CopyOut(ctx context.Context, b []byte, p device.Ptr, r device.Rows) error {
	return d.copy(ctx, "copy out", b, p, r)
}

func (d *Double) EncodeTensorMap(*ptx.TensorMap) (m [ptx.TensorMapBytes]byte, err error) {
	return m, d.locked("tensor map", nil)
}

func (d *Double) Load(context.Context, string) (device.Module, error) {
	return doubleModule{d}, d.locked("load", func() { d.Loaded++ })
}

func (d *Double) Launch(context.Context, device.Function, device.Launch) error {
	return d.locked("launch", nil)
}

func (d *Double) Sync(context.Context) error { return d.locked("sync", nil) }

func (d *Double) Record() (device.Event, error) {
	return doubleEvent{d}, d.locked("record", func() { d.Events++ })
}

func (d *Double) Wait(device.Event) error { return d.locked("wait", nil) }

func (d *Double) NewStream() (device.Stream, error) {
	return doubleStream{d}, d.locked("new stream", func() { d.Streams++ })
}

func (d *Double) Close() error { return nil }

type doubleStream struct{ *Double }

func (s doubleStream) Close() error { return s.after("close", func() { s.Streams-- }) }

type doubleEvent struct{ d *Double }

func (e doubleEvent) Since(context.Context, device.Event) (time.Duration, error) { return 0, nil }

func (e doubleEvent) Free() error { return e.d.after("free event", func() { e.d.Events-- }) }

type doubleModule struct{ d *Double }

func (m doubleModule) Function(string) (device.Function, error) {
	return doubleFunction{}, m.d.locked("function", nil)
}

func (m doubleModule) Log() string { return "" }

func (m doubleModule) Unload() error { return m.d.locked("unload", func() { m.d.Loaded-- }) }

type doubleFunction struct{}

func (doubleFunction) Name() string { return "double" }

func (doubleFunction) Resources() device.Resources { return device.Resources{} }
