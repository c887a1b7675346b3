// Package resident keeps matrices in the memory of a real or emulated GPU and multiplies them
// there. [Gemm] only enqueues a product.
//
// A device executes its work in order. Memory is therefore freed as soon as no more work can be
// enqueued with it: the free itself is enqueued after the work that uses the memory. The same order
// makes a download wait for earlier products.
//
// The matrices of a device of several GPUs are divided among them; see package split.
package resident

import (
	"context"
	"fmt"
	"sync"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/trial"
	"tilework/internal/memo"
	"tilework/internal/sentinel"
	"tilework/internal/split"
)

// GPUs is an open device, of one GPU or several. Its methods are safe for concurrent use. After
// Close they return ErrClosed.
type GPUs struct {
	name    backend.DeviceName
	members []*member
	weights []float64 // rates of the members, to divide matrices
	// unit is the number of rows or columns at whose multiples large matrices are divided, and
	// panelBytes limits the panels of gathered operands. Tests make them smaller, and pick a division
	// and, unless it is negative, a candidate for the tile of the parts.
	unit, panelBytes int
	pick             func([]split.Division) int
	pickTile         func([]choose.Candidate) int
	dividesAll       bool // for tests; see DivideSmall

	// using is read-locked during each use of the backends, and locked by Close.
	using  sync.RWMutex
	closed bool

	// ordering is held while a product is enqueued on several members, so that all of them execute
	// products in the same order.
	ordering sync.Mutex

	// timed reports whether repeated products are timed and try several plans: on a single GPU, and in
	// tests.
	timed  bool
	trials *trial.Device

	plans      memo.Table[planKey, *trial.Product]
	divisions  memo.Table[divisionKey, *division]
	placements memo.Table[squaresKey, placement]

	mu    sync.Mutex // guards the fields below
	live  map[*block]struct{}
	later error // the first error that no caller has received
}

// member is a GPU of a device.
type member struct {
	name    backend.DeviceName
	backend *exec.Backend
	close   func() error  // of the backend
	copies  device.Stream // for copies from other members; nil if there are none
	// kept is memory of keptSize bytes for the next divided product; guarded by Device.ordering.
	kept     device.Ptr
	keptSize int
}

// usualPanelBytes is the usual limit of panels, which an H200 copies in less than a millisecond.
const usualPanelBytes = 256 << 20

// Open opens a real or emulated GPU, or several. The errors are ErrNoDevice and ErrUnsupported.
func Open(name backend.DeviceName) (*GPUs, error) {
	if !name.IsGPU() {
		return nil, fmt.Errorf("%w: matrices that stay on device %v (want gpu, gpu:N, gpu:N,N, gpu:all, emu or emu:MODEL)",
			gemm.ErrUnsupported, name)
	}
	d := &GPUs{name: name, unit: split.UsualUnit, panelBytes: usualPanelBytes, trials: trial.NewDevice(),
		live: map[*block]struct{}{}}
	err := gpu.EachMember(name, func(name backend.DeviceName) error {
		b, release, err := gpu.Open(name)
		if err != nil {
			return err
		}
		d.members = append(d.members, &member{name: name, backend: b.Backend, close: release})
		d.weights = append(d.weights, b.Weight())
		return nil
	})
	if err == nil && len(d.members) > 1 {
		err = d.openStreams()
	} else if err == nil {
		d.timed = !d.first().Info().Emulated
	}
	if err != nil {
		return nil, device.Join(err, d.release())
	}
	return d, nil
}

func (d *GPUs) openStreams() (err error) {
	for _, m := range d.members {
		if m.copies, err = m.backend.Device.NewStream(); err != nil {
			return d.failed(m, err)
		}
	}
	return nil
}

// first returns the backend of the first member, which chooses kernels.
func (d *GPUs) first() *exec.Backend { return d.members[0].backend }

// Divided reports whether matrices are divided among several members.
func (d *GPUs) Divided() bool { return len(d.members) > 1 }

// failed adds the name of a member to its error if there are several.
func (d *GPUs) failed(m *member, err error) error {
	if err == nil || !d.Divided() {
		return err
	}
	return fmt.Errorf("device %v: %w", m.name, err)
}

// release closes the streams and the backends.
func (d *GPUs) release() error {
	var errs []error
	for _, m := range d.members {
		if m.copies != nil {
			errs = append(errs, d.failed(m, m.copies.Close()), d.failed(m, m.freeKept()))
		}
	}
	for _, m := range d.members {
		errs = append(errs, d.failed(m, m.close()))
	}
	return device.Join(errs...)
}

// DivideSmall makes the device divide the smallest matrices too. It is for tests. Call it before
// the device has matrices.
func (d *GPUs) DivideSmall() { d.dividesAll = true }

// KeepPlans makes repeated products keep the plan of their first call. Call it before the device
// has products.
func (d *GPUs) KeepPlans() { d.timed = false }

// String returns the name by which the device was opened, such as "gpu:1".
func (d *GPUs) String() string { return d.name.String() }

// enter starts a use of the backend. Call leave at its end.
func (d *GPUs) enter() error {
	d.using.RLock()
	if d.closed {
		d.using.RUnlock()
		return fmt.Errorf("%w: device %v", sentinel.ErrClosed, d)
	}
	return nil
}

func (d *GPUs) leave() { d.using.RUnlock() }

// Sync waits until all enqueued work is done. It returns the first error since the last Sync that
// no caller has received.
func (d *GPUs) Sync(ctx context.Context) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return device.Join(d.sync(ctx), d.failedLater())
}

// sync waits for all members.
func (d *GPUs) sync(ctx context.Context) error {
	var errs []error
	for _, m := range d.members {
		errs = append(errs, d.failed(m, m.backend.Device.Sync(ctx)))
	}
	return device.Join(errs...)
}

// Close waits for the enqueued work and frees all memory, that of matrices included. A second call
// does nothing.
func (d *GPUs) Close() error {
	d.using.Lock()
	defer d.using.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	errs := []error{d.sync(context.Background())}
	for b := range d.live {
		b.closed = true // a block is held only while d.using is
		errs = append(errs, b.freeParts())
	}
	clear(d.live)
	d.trials.Close()
	for _, x := range d.plans.All() {
		errs = append(errs, x.Close())
	}
	d.plans.Clear()
	d.divisions.Clear()
	d.placements.Clear()
	return device.Join(append(errs, d.failedLater(), d.release())...)
}

// failLater keeps an error for the next Sync.
func (d *GPUs) failLater(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.later = device.Join(d.later, err)
}

func (d *GPUs) failedLater() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.later
	d.later = nil
	return err
}
