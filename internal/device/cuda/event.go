package cuda

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"tilework/internal/device"
)

// event is a place in a stream, with the time.
type event struct {
	gpu    *GPU
	handle uintptr
}

// Record marks a place in the stream.
func (s *queue) Record() (device.Event, error) {
	g := s.gpu
	e := &event{gpu: g}
	err := g.within(func() error {
		if err := g.call(cuEventCreate, uintptr(unsafe.Pointer(&e.handle)), 0); err != nil {
			return err
		}
		// Known before it is recorded, so that it is given back whatever happens then.
		g.mu.Lock()
		g.events[e] = struct{}{}
		g.mu.Unlock()
		return g.call(cuEventRecord, e.handle, s.stream)
	})
	if err != nil {
		_ = e.Free() // the error of the event that could not be had says more
		return nil, err
	}
	return e, nil
}

// Since is the GPU's own measurement, to half a microsecond.
func (e *event) Since(ctx context.Context, earlier device.Event) (time.Duration, error) {
	from, ok := earlier.(*event)
	if !ok || from.gpu != e.gpu {
		return 0, fmt.Errorf("the time since an event of another device than %s", e.gpu.info.Name)
	}
	for _, x := range []*event{from, e} {
		if !x.alive() {
			return 0, fmt.Errorf("the time between events of %s of which one was freed", e.gpu.info.Name)
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

func (e *event) alive() bool {
	e.gpu.mu.Lock()
	defer e.gpu.mu.Unlock()
	_, alive := e.gpu.events[e]
	return alive
}

// Free gives the event back; a second time does nothing.
func (e *event) Free() error {
	if !e.alive() {
		return nil
	}
	g := e.gpu
	return g.within(func() error {
		g.mu.Lock()
		_, alive := g.events[e]
		delete(g.events, e)
		g.mu.Unlock()
		if !alive {
			return nil
		}
		return g.call(cuEventDestroy, e.handle)
	})
}
