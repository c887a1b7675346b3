package cuda

import (
	"context"
	"fmt"
	"unsafe"

	"tilework/internal/device"
)

// queue is a [device.Stream]: the GPU's own or one beside it.
type queue struct {
	gpu    *GPU
	stream uintptr // the CUstream
}

// NewStream makes a stream beside the GPU's own.
func (g *GPU) NewStream() (device.Stream, error) {
	s := &queue{gpu: g}
	err := g.within(func() error {
		if err := s.open(); err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.streams[s] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *queue) open() error {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING: no waiting for others' work in the process
	return s.gpu.call(cuStreamCreate, uintptr(unsafe.Pointer(&s.stream)), nonBlocking)
}

// Close waits for what is in flight and gives the stream back; a second time does
// nothing.
func (s *queue) Close() error {
	g := s.gpu
	defer g.stopCopies()()
	return g.within(func() error {
		g.mu.Lock()
		_, alive := g.streams[s]
		delete(g.streams, s)
		g.mu.Unlock()
		if !alive {
			return nil
		}
		err := device.Join(g.call(cuStreamSynchronize, s.stream), g.call(cuStreamDestroy, s.stream))
		for _, ring := range g.rings() {
			for x := range ring.slots() {
				if x.stream == s.stream {
					x.state, x.stream = idle, 0
				}
			}
		}
		return err
	})
}

// Sync waits until all that was asked for is done.
func (s *queue) Sync(ctx context.Context) error { return s.gpu.wait(ctx, cuStreamQuery, s.stream) }

// Wait puts off what is asked for from now on until the GPU has come to an event.
func (s *queue) Wait(e device.Event) error {
	x, ok := e.(*event)
	switch {
	case !ok || x.gpu != s.gpu:
		return fmt.Errorf("waiting for an event of another device than %s", s.gpu.info.Name)
	case !x.alive():
		return fmt.Errorf("waiting for an event of %s that was freed", s.gpu.info.Name)
	}
	return s.gpu.within(func() error { return s.gpu.call(cuStreamWaitEvent, s.stream, x.handle, 0) })
}
