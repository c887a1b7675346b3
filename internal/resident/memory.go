package resident

import (
	"fmt"
	"runtime"
	"sync"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
	"tilework/internal/split"
)

// Memory is a block of device memory that matrices share. When it becomes unreachable, it is freed
// as by Close.
type Memory struct{ *block }

// block is the allocation of a Memory. It outlives its Memory while work with it is being enqueued.
type block struct {
	device *GPUs
	at     []device.Ptr // of the parts of the members, or of a single GPU
	ld     []int        // leading dimensions of the parts
	// whole is the matrix in the block, divided at multiples of unit, and layout its layout on a
	// single GPU. Matrices are addressed by their offset there. They are unset on a single GPU, where
	// a block may hold anything.
	whole  *split.Matrix
	asked  split.By // by which the caller wanted to divide it
	unit   int
	layout gemm.Layout
	size   int // bytes on a single GPU

	mu     sync.Mutex
	users  int  // calls that are enqueueing work with the block
	closed bool // the block is freed when there are no users
}

// Alloc allocates n bytes on a single GPU with undefined contents for the given elements, which are
// only formatted for an error. The errors are ErrOutOfMemory, ErrNoDevice and ErrClosed.
func (d *GPUs) Alloc(n int, elements fmt.Stringer) (*Memory, error) {
	return d.alloc(&block{device: d, size: n}, []int{n}, elements)
}

// alloc allocates sizes[i] bytes at member i.
func (d *GPUs) alloc(b *block, sizes []int, elements fmt.Stringer) (*Memory, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	for i, n := range sizes {
		at, err := d.members[i].backend.Device.Alloc(n)
		if err != nil {
			return nil, device.Join(fmt.Errorf("a matrix of %v: %w", elements, d.failed(d.members[i], err)), b.freeParts())
		}
		b.at = append(b.at, at)
	}
	d.mu.Lock()
	d.live[b] = struct{}{}
	d.mu.Unlock()
	m := &Memory{b}
	runtime.AddCleanup(m, (*block).abandon, b)
	return m, nil
}

// Device returns the device of the memory.
func (m *Memory) Device() *GPUs { return m.device }

// Size returns the size in bytes.
func (m *Memory) Size() int { return m.size }

// Close frees the memory after the enqueued work that uses it. It does not wait. A second call does
// nothing.
func (m *Memory) Close() error { return m.giveUp() }

// abandon is Close for the garbage collector. It must not block, but some devices free memory only
// when they are idle.
func (b *block) abandon() {
	go func() {
		if err := b.giveUp(); err != nil {
			b.device.failLater(err)
		}
	}()
}

func (b *block) giveUp() error {
	if b.device.enter() != nil {
		return nil // closing the device has freed everything
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

// hold prevents the memory from being freed until release is called. The caller must have entered
// the device.
func (b *block) hold() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("%w: a matrix on %v", sentinel.ErrClosed, b.device)
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
	return b.freeParts()
}

func (b *block) freeParts() error {
	var errs []error
	for i, at := range b.at {
		m := b.device.members[i]
		errs = append(errs, b.device.failed(m, m.backend.Device.Free(at)))
	}
	return device.Join(errs...)
}

// holdAll holds all blocks that are not nil or, if it fails, none.
func holdAll(blocks []*block) error {
	for i, b := range blocks {
		if b == nil {
			continue
		}
		if err := b.hold(); err != nil {
			releaseAll(blocks[:i])
			return err
		}
	}
	return nil
}

// releaseAll releases all blocks that are not nil.
func releaseAll(blocks []*block) {
	for _, b := range blocks {
		if b != nil {
			b.release()
		}
	}
}
