// Package faulty is a [device.Device] for tests: it hands everything on to another one,
// fails the call that it is told to, and keeps account of what was taken and not given
// back.
//
// A call that takes something fails instead of being made; one that gives something
// back is made and then fails, as with a driver that reports the failure of earlier
// work.
package faulty

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tilework/internal/device"
	"tilework/ptx"
)

// Device is the device. Its methods may be called from several goroutines at once.
type Device struct {
	stream // its own
	inner  device.Device

	mu     sync.Mutex
	calls  int
	failAt int
	err    error
	failed string
	taken  map[any]string // allocations by address, modules, events and streams by identity
	closed bool
}

// New wraps a device. Nothing fails yet.
func New(inner device.Device) *Device {
	d := &Device{inner: inner, taken: map[any]string{}}
	d.stream = stream{d, inner}
	return d
}

// Fail has the n-th call from now, counted from 1, fail with an error that wraps err,
// and all calls after it too if that is [device.ErrLost]. 0 has none fail.
func (d *Device) Fail(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.failAt, d.err, d.failed = 0, n, err, ""
}

// Failed names the call that failed, empty if none has.
func (d *Device) Failed() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Calls is the number of calls since Fail.
func (d *Device) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// Left lists in words what was taken and not given back, be the device closed or not.
func (d *Device) Left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Values(d.taken))
}

// Closed reports whether the device has been closed.
func (d *Device) Closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// call counts a call and decides its fate.
func (d *Device) call(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	switch {
	case d.closed:
		return fmt.Errorf("%s of a device that has been closed", name)
	case d.calls == d.failAt:
		d.failed = fmt.Sprintf("%s, call %d", name, d.calls)
		return fmt.Errorf("%s: %w", d.failed, d.err)
	case d.failed != "" && errors.Is(d.err, device.ErrLost):
		return fmt.Errorf("%s, since %s: %w", name, d.failed, d.err)
	}
	return nil
}

func (d *Device) take(key any, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken[key] = what
}

func (d *Device) give(key any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.taken, key)
}

// Info is not a call that fails.
func (d *Device) Info() *device.Info { return d.inner.Info() }

func (d *Device) Alloc(n int) (device.Ptr, error) {
	if err := d.call("Alloc"); err != nil {
		return 0, err
	}
	p, err := d.inner.Alloc(n)
	if err == nil && p != 0 {
		d.take(p, fmt.Sprintf("%d bytes", n))
	}
	return p, err
}

func (d *Device) Free(p device.Ptr) error {
	err := d.call("Free")
	if real := d.inner.Free(p); real != nil {
		return real
	}
	d.give(p)
	return err
}

func (d *Device) Load(ctx context.Context, text string) (device.Module, error) {
	if err := d.call("Load"); err != nil {
		return nil, err
	}
	inner, err := d.inner.Load(ctx, text)
	if err != nil {
		return nil, err
	}
	m := &module{d, inner}
	d.take(m, "a module")
	return m, nil
}

func (d *Device) EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	if err := d.call("EncodeTensorMap"); err != nil {
		return [ptx.TensorMapBytes]byte{}, err
	}
	return d.inner.EncodeTensorMap(m)
}

func (d *Device) NewStream() (device.Stream, error) {
	if err := d.call("NewStream"); err != nil {
		return nil, err
	}
	inner, err := d.inner.NewStream()
	if err != nil {
		return nil, err
	}
	s := &stream{d, inner}
	d.take(s, "a stream")
	return s, nil
}

// Close closes the device, after which every call is an error.
func (d *Device) Close() error {
	err := d.call("Close")
	if real := d.inner.Close(); real != nil {
		return real
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return err
}

// stream is a device's own or one beside it.
type stream struct {
	device *Device
	inner  device.Stream
}

func (s *stream) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	if err := s.device.call("CopyIn"); err != nil {
		return err
	}
	return s.inner.CopyIn(ctx, dst, src, rows)
}

func (s *stream) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	if err := s.device.call("CopyOut"); err != nil {
		return err
	}
	return s.inner.CopyOut(ctx, dst, src, rows)
}

func (s *stream) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	if err := s.device.call("Launch"); err != nil {
		return err
	}
	return s.inner.Launch(ctx, f, l)
}

func (s *stream) Sync(ctx context.Context) error {
	if err := s.device.call("Sync"); err != nil {
		return err
	}
	return s.inner.Sync(ctx)
}

func (s *stream) Record() (device.Event, error) {
	if err := s.device.call("Record"); err != nil {
		return nil, err
	}
	inner, err := s.inner.Record()
	if err != nil {
		return nil, err
	}
	e := &event{s.device, inner}
	s.device.take(e, "an event")
	return e, nil
}

func (s *stream) Wait(e device.Event) error {
	if err := s.device.call("Wait"); err != nil {
		return err
	}
	x, ok := e.(*event)
	if !ok {
		return fmt.Errorf("an event of another device (%T)", e)
	}
	return s.inner.Wait(x.inner)
}

// Close gives back a stream beside the device's own.
func (s *stream) Close() error {
	err := s.device.call("Stream.Close")
	if real := s.inner.Close(); real != nil {
		return real
	}
	s.device.give(s)
	return err
}

type module struct {
	device *Device
	inner  device.Module
}

func (m *module) Function(name string) (device.Function, error) {
	if err := m.device.call("Function"); err != nil {
		return nil, err
	}
	return m.inner.Function(name)
}

func (m *module) Log() string { return m.inner.Log() }

func (m *module) Unload() error {
	err := m.device.call("Unload")
	if real := m.inner.Unload(); real != nil {
		return real
	}
	m.device.give(m)
	return err
}

type event struct {
	device *Device
	inner  device.Event
}

func (e *event) Since(ctx context.Context, earlier device.Event) (time.Duration, error) {
	if err := e.device.call("Since"); err != nil {
		return 0, err
	}
	from, ok := earlier.(*event)
	if !ok {
		return 0, fmt.Errorf("an event of another device (%T)", earlier)
	}
	return e.inner.Since(ctx, from.inner)
}

func (e *event) Free() error {
	err := e.device.call("Event.Free")
	if real := e.inner.Free(); real != nil {
		return real
	}
	e.device.give(e)
	return err
}

// EveryCall runs f again and again, each time on a device of its own, and fails
// another call each time with an error that wraps err: the first, the second and so
// on, from the n-th on only some, ever rarer, until f makes so few calls that none
// fails.
func EveryCall(n int, err error, open func() (device.Device, error), f func(*Device)) error {
	for failAt := 1; ; failAt++ {
		if failAt > n {
			failAt += failAt / 3
		}
		inner, openErr := open()
		if openErr != nil {
			return openErr
		}
		d := New(inner)
		d.Fail(failAt, err)
		f(d)
		if d.Failed() == "" {
			return nil
		}
	}
}
