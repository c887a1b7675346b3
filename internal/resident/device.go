// Package resident keeps matrices on a device, a GPU or an emulated one, and
// multiplies them there: [Device], the memory that it gives out, and [Gemm], which
// returns when the product is on its way.
//
// A device does what it is asked for in order. Memory is therefore given back as soon
// as nobody can ask for anything with it any more: the device itself lets go of it
// after the work that uses it. The same order makes a download wait for the products
// before it.
package resident

import (
	"context"
	"fmt"
	"sync"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
)

// Device is a device that somebody opened. Its methods may be called from several
// goroutines at once; after Close they return ErrClosed.
type Device struct {
	name    backend.Device
	backend *exec.Backend
	close   func() error // of the backend

	// using is held, shared, by whatever uses the backend, and by Close.
	using  sync.RWMutex
	closed bool

	mu    sync.Mutex // guards what follows
	live  map[*block]struct{}
	plans map[planKey]*exec.Plan
	later error // what failed where nobody could be told
}

// Open begins to use a GPU, real or emulated. The errors are ErrNoDevice and
// ErrUnsupported.
func Open(name backend.Device) (*Device, error) {
	if !name.IsGPU() {
		return nil, fmt.Errorf("%w: matrices that stay on device %v (want gpu, gpu:N, emu or emu:MODEL)", gemm.ErrUnsupported, name)
	}
	b, release, err := dispatch.OpenGPU(name)
	if err != nil {
		return nil, err
	}
	return &Device{name: name, backend: b.Backend, close: release, live: map[*block]struct{}{}, plans: map[planKey]*exec.Plan{}}, nil
}

// String is the name by which the device was opened: "gpu:1".
func (d *Device) String() string { return d.name.String() }

// enter begins a use of the backend, which leave ends.
func (d *Device) enter() error {
	d.using.RLock()
	if d.closed {
		d.using.RUnlock()
		return fmt.Errorf("%w: device %v", gemm.ErrClosed, d)
	}
	return nil
}

func (d *Device) leave() { d.using.RUnlock() }

// Sync waits until all that was asked for is done. What failed since the last Sync
// without anybody being told comes out here.
func (d *Device) Sync(ctx context.Context) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return device.Join(exec.Sentinel(d.backend.Device.Sync(ctx)), d.failedLater())
}

// Close waits for what is under way and gives everything back, matrices included. A
// second time it does nothing.
func (d *Device) Close() error {
	d.using.Lock()
	defer d.using.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	errs := []error{d.backend.Device.Sync(context.Background())}
	for b := range d.live {
		b.closed = true // nobody holds a block without holding d.using
		errs = append(errs, d.backend.Device.Free(b.at))
	}
	clear(d.live)
	clear(d.plans)
	errs = append(errs, d.failedLater(), d.close())
	return exec.Sentinel(device.Join(errs...))
}

// failLater keeps an error for the next who asks.
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
