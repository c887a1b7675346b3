package devicetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tilework/internal/device"
	"tilework/ptx"
)

// Null is a device that executes nothing, for tests of the calls that a run makes rather than of
// its results. It checks that copies and frees address allocated memory. It never fails: package
// faulty injects failures and reports leaks.
type Null struct {
	Device device.Info
	// Pools has Alloc return the memory that was freed last, if its size is n, as a memory pool does.
	Pools bool
	// CompilesInLoad has Precompile report that it cannot compile.
	CompilesInLoad bool

	mu         sync.Mutex
	next       device.Ptr
	live       map[device.Ptr]int // bytes of live allocations by address
	freed      device.Ptr         // by the last Free, of freedBytes
	freedBytes int
}

// NewNull returns a Null of compute capability 9.0 with 4 SMs.
func NewNull() *Null {
	return &Null{
		Device: device.Info{Name: "null", Target: ptx.Target{SM: 90}, SMs: 4, MaxThreads: 1024},
		next:   256, live: map[device.Ptr]int{},
	}
}

func (d *Null) Info() *device.Info { return &d.Device }

func (d *Null) Alloc(n int) (device.Ptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.next
	if d.Pools && d.freed != 0 && d.freedBytes == n {
		p, d.freed = d.freed, 0
	} else {
		d.next += device.Ptr(n+511) &^ 255
	}
	d.live[p] = n
	return p, nil
}

func (d *Null) Free(p device.Ptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, known := d.live[p]
	if p == 0 {
		return nil
	}
	if !known {
		return fmt.Errorf("free of %#x: want an allocated address", uint64(p))
	}
	delete(d.live, p)
	d.freed, d.freedBytes = p, n
	return nil
}

// copy checks the bounds of a copy.
func (d *Null) copy(name string, host []byte, p device.Ptr, r device.Rows) error {
	if err := r.Check(len(host)); err != nil {
		return err
	}
	if r.Count > 0 {
		d.check(name, p, (r.Count-1)*r.DevicePitch+r.Width)
	}
	return nil
}

// check panics unless n bytes at p are allocated.
func (d *Null) check(name string, p device.Ptr, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for start, size := range d.live {
		if start <= p && p+device.Ptr(n) <= start+device.Ptr(size) {
			return
		}
	}
	panic(fmt.Sprintf("%s of %d bytes at %#x: want allocated memory", name, n, uint64(p)))
}

func (d *Null) CopyIn(_ context.Context, p device.Ptr, b []byte, r device.Rows) error {
	return d.copy("copy in", b, p, r)
}

func (d *Null) CopyOut(_ context.Context, b []byte, p device.Ptr, r device.Rows) error {
	return d.copy("copy out", b, p, r)
}

// CopyPeer checks the bounds of a copy on both devices.
func (d *Null) CopyPeer(dst device.Ptr, from device.Device, src device.Ptr, rows device.PeerRows) error {
	r, err := rows.Merged()
	if err != nil || r.Count == 0 {
		return err
	}
	read, written := r.Spans()
	from.(*Null).check("copy from", src, read)
	d.check("copy to", dst, written)
	return nil
}

func (d *Null) EncodeTensorMap(*ptx.TensorMap) (m [ptx.TensorMapBytes]byte, err error) { return m, nil }

func (d *Null) Load(context.Context, string) (device.Module, error) { return nullModule{}, nil }

func (d *Null) Precompile(string) bool { return !d.CompilesInLoad }

func (d *Null) Launch(context.Context, device.Function, device.Launch) error { return nil }

func (d *Null) Sync(context.Context) error { return nil }

func (d *Null) Record() (device.Event, error) { return nullEvent{}, nil }

func (d *Null) Wait(device.Event) error { return nil }

func (d *Null) NewStream() (device.Stream, error) { return d, nil }

func (d *Null) Close() error { return nil }

type nullEvent struct{}

func (nullEvent) Since(context.Context, device.Event) (time.Duration, error) { return 0, nil }

func (nullEvent) Free() error { return nil }

type nullModule struct{}

func (nullModule) Function(string) (device.Function, error) { return nullFunction{}, nil }

func (nullModule) Log() string { return "" }

func (nullModule) Unload() error { return nil }

type nullFunction struct{}

func (nullFunction) Name() string { return "null" }

func (nullFunction) Resources() device.Resources { return device.Resources{} }
