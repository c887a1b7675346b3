package cuda

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"tilework/internal/device"
)

// event implements [device.Event] with a CUDA event. The CUDA event of a freed one is used again.
// Streams that wait for its earlier recording are not affected.
type event struct {
	gpu    *GPU
	handle uintptr
}

// Record records an event in the stream.
func (s *queue) Record() (device.Event, error) {
	g := s.gpu
	e := &event{gpu: g}
	err := g.within(func() error {
		g.mu.Lock()
		if n := len(g.idle); n > 0 {
			e.handle, g.idle = g.idle[n-1], g.idle[:n-1]
		}
		g.mu.Unlock()
		if e.handle == 0 {
			if err := g.call(cuEventCreate, uintptr(unsafe.Pointer(&e.handle)), 0); err != nil {
				return err
			}
		}
		// Register the event first, so that it is destroyed even if recording fails.
		g.mu.Lock()
		g.events[e] = struct{}{}
		g.mu.Unlock()
		return g.call(cuEventRecord, e.handle, s.stream)
	})
	if err != nil {
		_ = e.Free() // err is more informative than an error of Free
		return nil, err
	}
	return e, nil
}

// Since returns the time measured by the GPU. Its resolution is half a microsecond.
func (e *event) Since(ctx context.Context, earlier device.Event) (time.Duration, error) {
	from, ok := earlier.(*event)
	if !ok || from.gpu != e.gpu {
		return 0, fmt.Errorf("cannot measure from event of type %T: want an event of this %s", earlier, e.gpu.info.Name)
	}
	for _, x := range []*event{from, e} {
		if !x.alive() {
			return 0, fmt.Errorf("cannot measure between events of %s: one was freed", e.gpu.info.Name)
		}
		if err := e.gpu.wait(ctx, cuEventQuery, x.handle); err != nil {
			return 0, err
		}
	}
	var ms float32
	err := e.gpu.within(func() error {
		return e.gpu.call(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), from.handle, e.handle)
	})
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// alive reports whether the event has not been freed.
func (e *event) alive() bool {
	e.gpu.mu.Lock()
	defer e.gpu.mu.Unlock()
	_, alive := e.gpu.events[e]
	return alive
}

// Free keeps the CUDA event for another one. Freeing it again does nothing.
func (e *event) Free() error {
	g := e.gpu
	if !forget(g, g.events, e) {
		return nil
	}
	g.mu.Lock()
	g.idle = append(g.idle, e.handle)
	g.mu.Unlock()
	return g.checkOpen()
}
