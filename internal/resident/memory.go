package resident

import (
	"fmt"
	"runtime"
	"sync"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
)

// Memory is a piece of a device's memory, which matrices share. When nobody refers to
// it any more it is given back as by Close.
type Memory struct{ *block }

// block is what there is to give back. It outlives its Memory where work is being
// asked for with it.
type block struct {
	device *Device
	at     device.Ptr
	size   int // bytes

	mu     sync.Mutex
	users  int  // that are asking for work with it
	closed bool // it is given back when there are none
}

// Alloc reserves n bytes, which hold anything. What stands for the thing that they are
// for, in the error. The errors are ErrOutOfMemory, ErrNoDevice and ErrClosed.
func (d *Device) Alloc(n int, what fmt.Stringer) (*Memory, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	at, err := d.backend.Device.Alloc(n)
	if err != nil {
		return nil, fmt.Errorf("a matrix of %v: %w", what, exec.Sentinel(err))
	}
	b := &block{device: d, at: at, size: n}
	d.mu.Lock()
	d.live[b] = struct{}{}
	d.mu.Unlock()
	m := &Memory{b}
	runtime.AddCleanup(m, (*block).abandon, b)
	return m, nil
}

// Device is where the memory is.
func (m *Memory) Device() *Device { return m.device }

// Size is how many bytes it has.
func (m *Memory) Size() int { return m.size }

// Close gives the memory back once nothing that was asked for uses it. It does not
// wait for that. A second time it does nothing.
func (m *Memory) Close() error { return m.giveUp() }

// abandon is Close for the garbage collector, which must not be kept waiting, as it is
// by devices that give memory back only when nothing is under way.
func (b *block) abandon() {
	go func() {
		if err := b.giveUp(); err != nil {
			b.device.failLater(err)
		}
	}()
}

func (b *block) giveUp() error {
	if b.device.enter() != nil {
		return nil // the device was closed, and gave back all
	}
	defer b.device.leave()
	b.mu.Lock()
	last := !b.closed && b.users == 0
	b.closed = true
	b.mu.Unlock()
	if !last {
		return nil
	}
	return b.free()
}

// hold keeps the memory from being given back until release is called. Its caller has
// entered the device.
func (b *block) hold() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("%w: a matrix on %v", gemm.ErrClosed, b.device)
	}
	b.users++
	return nil
}

func (b *block) release() {
	b.mu.Lock()
	b.users--
	last := b.closed && b.users == 0
	b.mu.Unlock()
	if !last {
		return
	}
	if err := b.free(); err != nil {
		b.device.failLater(err)
	}
}

func (b *block) free() error {
	d := b.device
	d.mu.Lock()
	delete(d.live, b)
	d.mu.Unlock()
	return exec.Sentinel(d.backend.Device.Free(b.at))
}

// holdAll holds several blocks, or none of them.
func holdAll(blocks ...*block) error {
	for i, b := range blocks {
		if err := b.hold(); err != nil {
			for _, held := range blocks[:i] {
				held.release()
			}
			return err
		}
	}
	return nil
}
