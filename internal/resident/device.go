// Package resident keeps matrices in the memory of a real or emulated GPU and multiplies them
// there. [Gemm] only enqueues a product.
//
// A device executes its work in order. Memory is therefore freed as soon as no more work can be
// enqueued with it: the free itself is enqueued after the work that uses the memory. The same order
// makes a download wait for earlier products.
package resident

import (
	"context"
	"fmt"
	"sync"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/exec"
)

// Device is an open device. Its methods are safe for concurrent use. After Close they return
// ErrClosed.
type Device struct {
	name    backend.Device
	backend *exec.Backend
	close   func() error // of the backend

	// using is read-locked during each use of the backend, and locked by Close.
	using  sync.RWMutex
	closed bool

	mu    sync.Mutex // guards the fields below
	live  map[*block]struct{}
	plans map[planKey]*exec.Plan
	later error // the first error that no caller has received
}

// Open opens a real or emulated GPU. The errors are ErrNoDevice and ErrUnsupported.
func Open(name backend.Device) (*Device, error) {
	if !name.IsGPU() {
		return nil, fmt.Errorf("%w: matrices that stay on device %v (want gpu, gpu:N, emu or emu:MODEL)", gemm.ErrUnsupported,
			name)
	}
	b, release, err := gpu.Open(name)
	if err != nil {
		return nil, err
	}
	return &Device{name: name, backend: b.Backend, close: release, live: map[*block]struct{}{},
		plans: map[planKey]*exec.Plan{}}, nil
}

// String returns the name by which the device was opened, such as "gpu:1".
func (d *Device) String() string { return d.name.String() }

// enter starts a use of the backend. Call leave at its end.
func (d *Device) enter() error {
	d.using.RLock()
	if d.closed {
		d.using.RUnlock()
		return fmt.Errorf("%w: device %v", gemm.ErrClosed, d)
	}
	return nil
}

func (d *Device) leave() { d.using.RUnlock() }

// Sync waits until all enqueued work is done. It returns the first error since the last Sync that
// no caller has received.
func (d *Device) Sync(ctx context.Context) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return device.Join(exec.Sentinel(d.backend.Device.Sync(ctx)), d.failedLater())
}

// Close waits for the enqueued work and frees all memory, that of matrices included. A second call
// does nothing.
func (d *Device) Close() error {
	d.using.Lock()
	defer d.using.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	errs := []error{d.backend.Device.Sync(context.Background())}
	for b := range d.live {
		b.closed = true // a block is held only while d.using is
		errs = append(errs, d.backend.Device.Free(b.at))
	}
	clear(d.live)
	clear(d.plans)
	errs = append(errs, d.failedLater(), d.close())
	return exec.Sentinel(device.Join(errs...))
}

// failLater keeps an error for the next Sync.
func (d *Device) failLater(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.later = device.Join(d.later, err)
}

func (d *Device) failedLater() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.later
	d.later = nil
	return err
}
