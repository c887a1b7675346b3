package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"tilework/internal/device"
	"tilework/internal/sentinel"
)

// GPU implements [device.Device] with the CUDA driver.
type GPU struct {
	*queue  // the default stream
	driver  *driver
	info    Info
	context uintptr // the primary context
	pool    uintptr // the CUmemoryPool of Alloc; 0 if the driver does not support pools

	stagingIn, stagingOut *staging
	workers               *workerPool

	// lost is the first error that made the context unusable.
	lost atomic.Pointer[Error]

	linking sync.Mutex
	links   map[*GPU]*peerLink // from the GPUs that copies come from; guarded by linking

	// closing is held for reading by every method while it uses the driver.
	closing sync.RWMutex
	closed  bool

	mu      sync.Mutex // guards the fields below
	memory  regions
	streams map[*queue]struct{} // without the default stream
	events  map[*event]struct{}
	idle    []uintptr // CUDA events of freed ones
	modules map[digest]*compiled
}

var _ device.Device = (*GPU)(nil)

// open creates a GPU with the given index.
func (d *driver) open(index int) (*GPU, error) {
	info, err := d.info(index)
	if err != nil {
		return nil, err
	}
	size := stagingSize{copyWorkers(), buffersPerWorker, bufferBytes}
	info.Staging = device.Staging{Threads: size.workers, BufferBytes: size.workers * size.perWorker * size.bytes}
	g := &GPU{
		driver: d, info: info, stagingIn: newStaging(size), stagingOut: newStaging(size),
		workers: newWorkerPool(2 * (size.workers - 1)), // for concurrent copies in both directions

		links:   map[*GPU]*peerLink{},
		streams: map[*queue]struct{}{}, events: map[*event]struct{}{}, modules: map[digest]*compiled{},
	}
	g.queue = &queue{gpu: g}
	if err := g.call(cuPrimaryCtxRetain, uintptr(unsafe.Pointer(&g.context)), info.handle); err != nil {
		return nil, withKind(sentinel.ErrNoDevice, err)
	}
	err = g.within(func() error {
		if err := g.queue.open(); err != nil {
			return err
		}
		return g.openPool()
	})
	if err != nil {
		return nil, errors.Join(withKind(sentinel.ErrNoDevice, err), g.Close())
	}
	return g, nil
}

// Info returns the properties of the GPU.
func (g *GPU) Info() *device.Info { return &g.info.Info }

// Details returns all known properties of the GPU.
func (g *GPU) Details() Info { return g.info }

// lockCopies waits until no copy is in flight and blocks new copies until the caller calls resume.
func (g *GPU) lockCopies() (resume func()) {
	for _, s := range g.stagings() {
		s.busy <- struct{}{}
	}
	return func() {
		for _, s := range g.stagings() {
			s.release()
		}
	}
}

// within runs f on an OS thread on which the GPU's context is current. Driver calls that use
// resources of the context must be made within f. It returns an error without calling f if the GPU
// is closed or lost.
func (g *GPU) within(f func() error) error {
	g.closing.RLock()
	defer g.closing.RUnlock()
	if g.closed {
		return fmt.Errorf("%w: %s is closed", sentinel.ErrNoDevice, g.info.Name)
	}
	if e := g.lost.Load(); e != nil {
		return fmt.Errorf("%w: %s failed earlier: %w", device.ErrLost, g.info.Name, e)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := g.call(cuCtxSetCurrent, g.context); err != nil {
		return err
	}
	return f()
}

// checkOpen returns an error if the GPU is closed.
func (g *GPU) checkOpen() error {
	g.closing.RLock()
	defer g.closing.RUnlock()
	if g.closed {
		return fmt.Errorf("%w: %s is closed", sentinel.ErrNoDevice, g.info.Name)
	}
	return nil
}

// call calls the driver. It records an error that makes the context unusable.
//
//go:uintptrescapes
func (g *GPU) call(s *symbol, args ...uintptr) error {
	return g.check(s, g.driver.result(s, args...))
}

// check converts the result c of a call to s to an error, and records that the GPU is lost.
func (g *GPU) check(s *symbol, c code) error {
	if c == success {
		return nil
	}
	e := g.driver.newError(s, c)
	if e.sticky() {
		g.lost.CompareAndSwap(nil, e)
	}
	return e
}

// stagings returns the pinned buffers of both directions in lock order.
func (g *GPU) stagings() []*staging { return []*staging{g.stagingIn, g.stagingOut} }

// wait polls query on handle, an event or a stream, until it reports completion or ctx ends. A
// blocking driver call could not be cancelled. The interval between polls grows with the elapsed
// time, so it adds little latency. wait spins for spinLimit and then sleeps between polls. It never
// polls without an interval, because each poll takes driver locks that enqueuing threads need.
func (g *GPU) wait(ctx context.Context, query *symbol, handle uintptr) error {
	const (
		spinLimit = 100 * time.Microsecond
		maxPause  = time.Millisecond
	)
	start := time.Now()
	for {
		done := false
		err := g.within(func() error {
			result := g.driver.result(query, handle)
			if result == notReady {
				return nil
			}
			done = true
			return g.check(query, result)
		})
		if err != nil || done {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		waited := time.Since(start)
		if waited >= spinLimit {
			pause(min(waited/16, maxPause))
			continue
		}
		for until := waited + max(waited/8, time.Microsecond); time.Since(start) < until; {
		}
	}
}

// Close waits for work in flight, destroys all resources and releases the context. If the device
// is lost, it only releases the context.
func (g *GPU) Close() error {
	defer g.lockCopies()()
	g.closing.Lock()
	defer g.closing.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.workers.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs []error
	if g.lost.Load() == nil {
		errs = append(errs, g.destroyResources()...)
	}
	lost := g.lost.Load() != nil
	if err := g.call(cuPrimaryCtxRelease, g.info.handle); err != nil && !lost {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// forget removes a stream or event from the live ones of g. It reports whether it was live.
func forget[K comparable](g *GPU, live map[K]struct{}, key K) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := live[key]
	delete(live, key)
	return ok
}

// destroyResources destroys everything but the context. It skips resources that were not created
// and stops calling the driver when the device is lost.
func (g *GPU) destroyResources() (errs []error) {
	try := func(s *symbol, handle uintptr) {
		if handle != 0 && g.lost.Load() == nil {
			if err := g.call(s, handle); err != nil {
				errs = append(errs, err)
			}
		}
	}
	try(cuCtxSetCurrent, g.context)
	if len(errs) > 0 { // retry, because no resource can be destroyed while the context is not current
		try(cuCtxSetCurrent, g.context)
	}
	for s := range g.streams {
		try(cuStreamSynchronize, s.stream)
		try(cuStreamDestroy, s.stream)
	}
	try(cuStreamSynchronize, g.stream)
	for e := range g.events {
		g.idle = append(g.idle, e.handle)
	}
	for _, handle := range g.idle {
		try(cuEventDestroy, handle)
	}
	for _, l := range g.links {
		for _, b := range l.buffers {
			try(cuMemFreeHost, b.address)
		}
	}
	for _, c := range g.modules {
		try(cuModuleUnload, c.handle)
	}
	for _, r := range g.memory {
		try(cuMemFree, uintptr(r.start))
	}
	for _, s := range g.stagings() {
		for b := range s.buffers() {
			try(cuEventDestroy, b.event)
			try(cuMemFreeHost, b.address)
		}
	}
	try(cuMemPoolDestroy, g.pool)
	try(cuStreamDestroy, g.stream)
	return errs
}
