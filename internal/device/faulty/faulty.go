// Package faulty provides a [device.Device] for tests that injects failures. It forwards all calls
// to another device, fails a chosen call or hangs in it, and tracks resources that were not
// released.
//
// A call that fails is not forwarded, unless it releases a resource: then it is forwarded and fails
// afterwards, like a driver call that reports the failure of earlier work.
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

// Device wraps another device and injects failures. Its methods are safe for concurrent use.
type Device struct {
	stream // the default stream
	inner  device.Device

	mu     sync.Mutex
	calls  int
	counts map[string]int // calls by name
	failAt int
	err    error
	failed string
	waits  int // calls that wait for the device
	hangAt int
	cancel func()         // called when the hang begins
	held   map[any]string // descriptions of resources: allocations by address, others by pointer
	closed bool
	// sizes holds the bytes of allocations. used is their sum, and most its maximum since Fail.
	sizes      map[device.Ptr]int
	used, most int
}

// New returns a Device that forwards to inner. No call fails until [Device.Fail] is called.
func New(inner device.Device) *Device {
	d := &Device{inner: inner, held: map[any]string{}, counts: map[string]int{}, sizes: map[device.Ptr]int{}}
	d.stream = stream{d, inner}
	return d
}

// Fail makes the n-th call from now, counted from 1, return an error that wraps err. If err is
// [device.ErrLost], all later calls fail as well. If n is 0, no call fails. A device that hangs
// recovers.
func (d *Device) Fail(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.failAt, d.err, d.failed = 0, n, err, ""
	d.waits, d.hangAt, d.cancel = 0, 0, nil
	d.most = d.used
	clear(d.counts)
}

// Hang makes the device hang in the n-th call from now that waits for it, counted from 1: CopyIn,
// CopyOut, Sync or Since. This call and all later ones block until their context ends. The device
// calls cancel when the hang begins. Closing the device or a stream, which waits without a context,
// returns an error instead. Fail(0, nil) ends the hang.
func (d *Device) Hang(n int, cancel func()) {
	d.Fail(0, nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangAt, d.cancel = n, cancel
}

// FailedCall returns a description of the call that failed or in which the device began to hang, or
// an empty string.
func (d *Device) FailedCall() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Calls returns the number of calls since Fail.
func (d *Device) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// Counts returns the number of calls since Fail by the names of the methods, such as "Launch".
func (d *Device) Counts() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counts)
}

// MostBytes returns the largest number of bytes that were allocated at the same time since Fail.
func (d *Device) MostBytes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

// Leaks returns descriptions of all resources that were not released. Closing the device releases
// none of them.
func (d *Device) Leaks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Values(d.held))
}

// Closed reports whether the device has been closed.
func (d *Device) Closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// call counts a call and returns the error that it must fail with, or nil.
func (d *Device) call(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.counts[name]++
	switch {
	case d.closed:
		return fmt.Errorf("%s on a closed device", name)
	case d.calls == d.failAt:
		d.failed = fmt.Sprintf("%s, call %d", name, d.calls)
		return fmt.Errorf("%s: %w", d.failed, d.err)
	case d.failed != "" && errors.Is(d.err, device.ErrLost):
		return fmt.Errorf("%s after failure of %s: %w", name, d.failed, d.err)
	}
	return nil
}

// wait is call for a call that waits for the device until ctx ends.
func (d *Device) wait(ctx context.Context, name string) error {
	if err := d.call(name); err != nil {
		return err
	}
	d.mu.Lock()
	d.waits++
	if d.waits == d.hangAt {
		d.failed = fmt.Sprintf("%s, wait %d", name, d.waits)
		d.cancel()
	}
	hangs := d.hangs()
	d.mu.Unlock()
	if !hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// hangs reports whether the device hangs. The caller has locked d.
func (d *Device) hangs() bool { return d.hangAt > 0 && d.waits >= d.hangAt }

// close is call for a call that waits for the device without a context.
func (d *Device) close(name string) error {
	if err := d.call(name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hangs() {
		return fmt.Errorf("%s would wait forever since %s", name, d.failed)
	}
	return nil
}

// acquire records a resource.
func (d *Device) acquire(key any, description string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[key] = description
}

// release forgets a resource.
func (d *Device) release(key any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, key)
}

// resize records n bytes at p, which are 0 if the memory is free.
func (d *Device) resize(p device.Ptr, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used += n - d.sizes[p]
	d.most = max(d.most, d.used)
	if d.sizes[p] = n; n == 0 {
		delete(d.sizes, p)
	}
}

// Info forwards to the wrapped device. It never fails and is not counted.
func (d *Device) Info() *device.Info { return d.inner.Info() }

func (d *Device) Alloc(n int) (device.Ptr, error) {
	if err := d.call("Alloc"); err != nil {
		return 0, err
	}
	p, err := d.inner.Alloc(n)
	if err == nil && p != 0 {
		d.acquire(p, fmt.Sprintf("%d bytes", n))
		d.resize(p, n)
	}
	return p, err
}

func (d *Device) Free(p device.Ptr) error {
	err := d.call("Free")
	if innerErr := d.inner.Free(p); innerErr != nil {
		return innerErr
	}
	d.release(p)
	d.resize(p, 0)
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
	d.acquire(m, "module")
	return m, nil
}

// Precompile forwards to the wrapped device. It is not counted, as it has no error.
func (d *Device) Precompile(text string) bool { return d.inner.Precompile(text) }

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
	d.acquire(s, "stream")
	return s, nil
}

// Close closes the device. All later calls return an error.
func (d *Device) Close() error {
	err := d.close("Close")
	if innerErr := d.inner.Close(); innerErr != nil {
		return innerErr
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return err
}

// stream wraps the default stream or an additional one.
type stream struct {
	device *Device
	inner  device.Stream
}

func (s *stream) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	if err := s.device.wait(ctx, "CopyIn"); err != nil {
		return err
	}
	return s.inner.CopyIn(ctx, dst, src, rows)
}

func (s *stream) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	if err := s.device.wait(ctx, "CopyOut"); err != nil {
		return err
	}
	return s.inner.CopyOut(ctx, dst, src, rows)
}

// CopyPeer forwards a copy from another Device of this package.
func (s *stream) CopyPeer(dst device.Ptr, from device.Device, src device.Ptr, rows device.PeerRows) error {
	if err := s.device.call("CopyPeer"); err != nil {
		return err
	}
	peer, ok := from.(*Device)
	if !ok {
		return fmt.Errorf("cannot copy from a device of type %T: want one that can be made to fail", from)
	}
	return s.inner.CopyPeer(dst, peer.inner, src, rows)
}

func (s *stream) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	if err := s.device.call("Launch"); err != nil {
		return err
	}
	return s.inner.Launch(ctx, f, l)
}

func (s *stream) Sync(ctx context.Context) error {
	if err := s.device.wait(ctx, "Sync"); err != nil {
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
	s.device.acquire(e, "event")
	return e, nil
}

func (s *stream) Wait(e device.Event) error {
	if err := s.device.call("Wait"); err != nil {
		return err
	}
	x, ok := e.(*event)
	if !ok {
		return fmt.Errorf("cannot wait for an event of type %T: want an event of this device", e)
	}
	return s.inner.Wait(x.inner)
}

// Close closes an additional stream.
func (s *stream) Close() error {
	err := s.device.close("Stream.Close")
	if innerErr := s.inner.Close(); innerErr != nil {
		return innerErr
	}
	s.device.release(s)
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
	if innerErr := m.inner.Unload(); innerErr != nil {
		return innerErr
	}
	m.device.release(m)
	return err
}

type event struct {
	device *Device
	inner  device.Event
}

func (e *event) Since(ctx context.Context, earlier device.Event) (time.Duration, error) {
	if err := e.device.wait(ctx, "Since"); err != nil {
		return 0, err
	}
	from, ok := earlier.(*event)
	if !ok {
		return 0, fmt.Errorf("cannot measure from an event of type %T: want an event of this device", earlier)
	}
	return e.inner.Since(ctx, from.inner)
}

func (e *event) Free() error {
	err := e.device.call("Event.Free")
	if innerErr := e.inner.Free(); innerErr != nil {
		return innerErr
	}
	e.device.release(e)
	return err
}

// FailEachCall runs f repeatedly, each time on a new device, and makes one call per run fail with
// an error that wraps err: the first call in the first run, the second call in the second run, and
// so on. After the n-th call it skips calls at growing intervals. It returns after the first run in
// which no call failed.
func FailEachCall(n int, err error, open func() (device.Device, error), f func(*Device)) error {
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
		if d.FailedCall() == "" {
			return nil
		}
	}
}
