package tilework

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/call"
	"tilework/internal/split"
)

// Device is a GPU, real or emulated, or several of them, that stores matrices; or the devices of
// several processes, see [OpenRanks]. Its methods, and all
// functions that take it or matrices on it, may be called from any number of goroutines at once.
//
// A Device executes its work in the order of the calls. Products only enqueue work. An upload
// returns once the host's memory has been read. A download waits for all earlier work. Goroutines
// that use one matrix, one of them writing, must agree on the order of their calls, as with Go's
// memory.
//
// Several GPUs divide each matrix among them, by rows unless [WithColumnDivision] or
// [WithCopyOnEach] says otherwise. A matrix whose products would not be faster is on the first GPU
// alone or whole on each. Every product has the bits of one GPU.
type Device struct{ at call.Place }

// Open opens a device: "gpu", "gpu:N", "emu" or "emu:MODEL". Several GPUs are one device, which
// divides matrices among them: "gpu:0,1", "gpu:all" or, emulated, "emu:h200,h200". The errors are
// ErrNoDevice and ErrUnsupported. Call [Device.Close] when the device is no longer needed.
func Open(name string) (*Device, error) {
	parsed, err := backend.ParseDevice(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	at, err := call.Open(parsed)
	if err != nil {
		return nil, err
	}
	return &Device{at}, nil
}

// WithColumnDivision divides a new matrix among several GPUs or ranks by its columns instead of its
// rows. The choice decides which parts a product copies between them. It is for [NewDeviceMatrix],
// [NewDeviceBatch], [Upload] and the result of [Mul]; elsewhere it is ErrUnsupported. On one GPU it
// has no effect.
func WithColumnDivision() Option { return withDivision(split.Columns) }

// WithCopyOnEach gives each of several GPUs or ranks the whole of a new matrix. Products of other
// matrices with it copy nothing of it. See [WithColumnDivision].
func WithCopyOnEach() Option { return withDivision(split.OnEach) }

// division is the way in which several GPUs or ranks divide a matrix.
type division = split.By

func withDivision(by division) Option { return func(c *config) { c.Division = by } }

// Sync waits until the device has finished all enqueued work. The error is that of work whose
// failure no call has returned yet. It wraps ErrLaunch, ErrDeviceLost or ErrClosed, or is the
// context's.
func (d *Device) Sync(ctx context.Context) error {
	if err := firstErr(checkContext(ctx), d.check()); err != nil {
		return err
	}
	return d.at.Sync(ctx)
}

// Close waits for the enqueued work, frees the matrices that are still on the device and closes it.
// A device of several ranks waits for products of other ranks that need this one; the group goes
// on. The methods of the matrices then return ErrClosed. The error is that of [Device.Sync]. Later
// calls of Close do nothing.
func (d *Device) Close() error {
	if err := d.check(); err != nil {
		return err
	}
	return d.at.Close()
}

func (d *Device) check() error {
	if d == nil || d.at == nil {
		return fmt.Errorf("%w: a Device that neither Open nor OpenRanks made", ErrNoDevice)
	}
	return nil
}
