package cuda

import (
	"context"
	"runtime"
	"unsafe"

	"tilework/internal/cpu/asm"
)

// A copy goes through pinned host buffers, which the GPU accesses by DMA. This is several times as
// fast as a copy from pageable memory. The GPU never accesses the caller's memory, so a copy can be
// abandoned at any time. Each worker has two buffers: it fills or empties one while the GPU copies
// the other.
//
// On a host of an H200 (PCIe 5.0 x16, 55 GB/s), eight workers copy in at 48 GB/s and out at
// 51 GB/s. Two buffers each are as fast into the GPU and copy out at 45 GB/s, buffers of 512 KiB
// copy at 42 and 34 GB/s, and more workers gain nothing (TestGPUCopyRates). Strided rows of 2 KiB
// are slower: 26 GB/s in.
const (
	bufferBytes      = 2 << 20
	buffersPerWorker = 4
	maxCopyWorkers   = 8
	// minPieceBytes is the minimum size of the pieces of a copy. A copy that does not fill all
	// buffers is cut into smaller pieces so that all workers take part. Each piece costs the GPU
	// 2 µs on top of its bytes.
	minPieceBytes = 512 << 10
)

// copyWorkers returns the number of goroutines that share a copy. It is at most half of
// GOMAXPROCS, because goroutines that wait for copies and workers that wait for tasks spin before
// they sleep.
func copyWorkers() int { return max(1, min(maxCopyWorkers, runtime.GOMAXPROCS(0)/2)) }

// stagingSize is the size of a staging: the number of its workers, and the number and the bytes of
// the buffers of each.
type stagingSize struct{ workers, perWorker, bytes int }

// staging holds the pinned buffers of one copy direction. One copy uses it at a time.
type staging struct {
	stagingSize
	busy  chan struct{} // contains one element while a copy uses the buffers
	rings []bufferRing  // one per worker
	// move copies between the caller's memory and a buffer. next is nil or the memory to copy next.
	move func(dst, src, next []byte)
}

// bufferRing holds the buffers of one worker.
type bufferRing struct {
	buffers []buffer
	last    int // index of the buffer used last, modulo the number of buffers
}

// buffer is a pinned buffer. Its memory is allocated on first use.
type buffer struct {
	bytes   int
	address uintptr
	event   uintptr // completes when the GPU no longer uses the buffer
	state   bufferState
	stream  uintptr // CUstream in which the GPU uses it
	// pending is the piece that the GPU copies into the buffer and that the copy in flight must
	// still move to the caller's memory. It is nil for a copy to the GPU and after the copy has
	// been abandoned.
	pending *piece
}

// bufferState describes the use of a buffer by the GPU.
type bufferState int

const (
	idle     bufferState = iota
	issued               // in use, event not recorded: wait for the whole stream
	recorded             // in use until the event completes
)

// newStaging returns a staging that copies with non-temporal stores: the CPU does not read the
// destination soon, and ordinary stores would first read its cache lines.
func newStaging(size stagingSize) *staging {
	s := &staging{stagingSize: size, busy: make(chan struct{}, 1), rings: make([]bufferRing, size.workers),
		move: asm.Copy}
	for i := range s.rings {
		s.rings[i].buffers = make([]buffer, size.perWorker)
		for j := range s.rings[i].buffers {
			s.rings[i].buffers[j].bytes = size.bytes
		}
	}
	return s
}

// acquire waits for exclusive use of the buffers, until release.
func (s *staging) acquire(ctx context.Context) error {
	select {
	case s.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release ends a copy, complete or abandoned.
func (s *staging) release() {
	for x := range s.buffers() {
		x.pending = nil
	}
	<-s.busy
}

// buffers ranges over the buffers of all workers.
func (s *staging) buffers() func(yield func(*buffer) bool) {
	return func(yield func(*buffer) bool) {
		for i := range s.rings {
			for j := range s.rings[i].buffers {
				if !yield(&s.rings[i].buffers[j]) {
					return
				}
			}
		}
	}
}

// next returns the least recently used buffer.
func (d *bufferRing) next() *buffer {
	d.last++
	return &d.buffers[d.last%len(d.buffers)]
}

// memory returns the buffer's memory, which Go's garbage collector does not manage.
func (b *buffer) memory() []byte { return unsafe.Slice((*byte)(pointer(b.address)), b.bytes) }

// open allocates the buffer's memory and event, unless it has them.
func (b *buffer) open(g *GPU) error {
	if b.event != 0 {
		return nil
	}
	return g.within(func() error {
		if b.address == 0 {
			if err := g.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&b.address)), uintptr(b.bytes), 0); err != nil {
				return err
			}
		}
		const disableTiming = 2 // CU_EVENT_DISABLE_TIMING
		return g.call(cuEventCreate, uintptr(unsafe.Pointer(&b.event)), disableTiming)
	})
}
