package cuda

import (
	"context"
	"fmt"
	"unsafe"

	"tilework/internal/device"
)

// queue implements [device.Stream] with a CUDA stream.
type queue struct {
	gpu    *GPU
	stream uintptr // the CUstream
}

// NewStream creates an additional stream.
func (g *GPU) NewStream() (device.Stream, error) {
	s := &queue{gpu: g}
	if err := s.create(); err != nil {
		return nil, err
	}
	return s, nil
}

// create creates an additional CUDA stream, which the GPU closes unless Close does.
func (s *queue) create() error {
	g := s.gpu
	return g.within(func() error {
		if err := s.open(); err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.streams[s] = struct{}{}
		return nil
	})
}

// open creates the CUDA stream.
func (s *queue) open() error {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING: no implicit synchronisation with the legacy default stream
	return s.gpu.call(cuStreamCreate, uintptr(unsafe.Pointer(&s.stream)), nonBlocking)
}

// Close waits for work in flight and destroys the stream. Closing it again does nothing.
func (s *queue) Close() error {
	g := s.gpu
	defer g.lockCopies()()
	return g.within(func() error {
		if !forget(g, g.streams, s) {
			return nil
		}
		err := device.Join(g.call(cuStreamSynchronize, s.stream), g.call(cuStreamDestroy, s.stream))
		for _, staging := range g.stagings() {
			for b := range staging.buffers() {
				if b.stream == s.stream {
					b.state, b.stream = idle, 0
				}
			}
		}
		return err
	})
}

// Sync waits until all work enqueued on the stream has finished.
func (s *queue) Sync(ctx context.Context) error { return s.gpu.wait(ctx, cuStreamQuery, s.stream) }

// Wait makes all work that is enqueued after this call wait for e.
func (s *queue) Wait(e device.Event) error {
	x, ok := e.(*event)
	switch {
	case !ok || x.gpu.driver != s.gpu.driver:
		return fmt.Errorf("cannot wait for event of type %T: want an event of a GPU of the same driver", e)
	case !x.alive():
		return fmt.Errorf("cannot wait for an event of %s that was freed", x.gpu.info.Name)
	}
	if err := x.gpu.checkOpen(); err != nil {
		return err
	}
	return s.gpu.within(func() error { return s.gpu.call(cuStreamWaitEvent, s.stream, x.handle, 0) })
}
