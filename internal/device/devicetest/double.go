package devicetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tilework/internal/device"
	"tilework/ptx"
)

// double is a device that runs nothing, keeps account of what it was given and can
// fail any one call.
type Double struct {
	Device device.Info

	mu              sync.Mutex
	Calls           int
	FailAt          int    // number of the call that fails, from 1; 0 for none
	Failed          string // what call that was
	Err             error
	next            device.Ptr
	Live            map[device.Ptr]int
	Loaded          int
	Streams, Events int
}

func NewDouble() *Double {
	return &Double{
		Device: device.Info{Name: "double", Target: ptx.Target{SM: 90}, SMs: 4, MaxThreads: 1024},
		next:   256, Live: map[device.Ptr]int{},
	}
}

func (d *Double) call(what string) error {
	d.Calls++
	if d.Calls == d.FailAt {
		d.Failed = what
		return fmt.Errorf("%s: %w", what, d.Err)
	}
	return nil
}

func (d *Double) locked(what string, f func()) error {
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
func (d *Double) after(what string, f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	return d.call(what)
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
		return fmt.Errorf("free of %#x, which is not allocated", uint64(p))
	}
	return err
}

func (d *Double) copy(ctx context.Context, what string, host []byte, p device.Ptr, r device.Rows) error {
	if err := r.Check(len(host)); err != nil {
		return err
	}
	return d.locked(what, func() {
		n := device.Ptr(max(r.Count-1, 0)*r.Device + r.Width)
		for start, size := range d.Live {
			if start <= p && p+n <= start+device.Ptr(size) {
				return
			}
		}
		if r.Count > 0 {
			panic(fmt.Sprintf("%s of %+v at %#x, which is not allocated", what, r, uint64(p)))
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
