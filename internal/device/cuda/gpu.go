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
)

// GPU is a [device.Device].
type GPU struct {
	*queue  // its own
	driver  *driver
	info    Info
	context uintptr // the device's primary one
	pool    uintptr // where memory comes from; 0: where the driver has none

	stagingIn, stagingOut *staging
	crew                  *crew

	// lost is the error after which the driver answers nothing else.
	lost atomic.Pointer[Error]

	// closing is held, shared, by every method while it uses the driver.
	closing sync.RWMutex
	closed  bool

	mu      sync.Mutex // guards what follows
	memory  regions
	streams map[*queue]struct{} // but its own
	events  map[*event]struct{}
	modules map[digest]*compiled
}

var _ device.Device = (*GPU)(nil)

func (d *driver) open(index int) (*GPU, error) {
	info, err := d.info(index)
	if err != nil {
		return nil, err
	}
	lanes := lanesHere()
	info.Staging = device.Staging{Threads: lanes, Ring: lanes * laneSlots * slotBytes}
	g := &GPU{
		driver: d, info: info, stagingIn: newStaging(), stagingOut: newStaging(),
		crew: newCrew(2 * (lanes - 1)), // for copies both ways

		streams: map[*queue]struct{}{}, events: map[*event]struct{}{}, modules: map[digest]*compiled{},
	}
	g.queue = &queue{gpu: g}
	if err := g.call(cuPrimaryCtxRetain, uintptr(unsafe.Pointer(&g.context)), info.handle); err != nil {
		return nil, as(device.ErrNoDevice, err)
	}
	err = g.within(func() error {
		if err := g.queue.open(); err != nil {
			return err
		}
		return g.openPool()
	})
	if err != nil {
		return nil, errors.Join(as(device.ErrNoDevice, err), g.Close())
	}
	return g, nil
}

// Info describes the GPU.
func (g *GPU) Info() *device.Info { return &g.info.Info }

// Details is all that is known of the GPU.
func (g *GPU) Details() Info { return g.info }

// stopCopies waits until no copy is under way, and lets none begin until what it
// returns is called.
func (g *GPU) stopCopies() (resume func()) {
	for _, ring := range g.rings() {
		ring.mine <- struct{}{}
	}
	return func() {
		for _, ring := range g.rings() {
			ring.leave()
		}
	}
}

// within runs f on a thread on which the GPU's context is current. Only f may call
// the driver with anything of that context.
func (g *GPU) within(f func() error) error {
	g.closing.RLock()
	defer g.closing.RUnlock()
	if g.closed {
		return fmt.Errorf("%w: %s has been closed", device.ErrNoDevice, g.info.Name)
	}
	if e := g.lost.Load(); e != nil {
		return fmt.Errorf("%w: %s, since %w", device.ErrLost, g.info.Name, e)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := g.call(cuCtxSetCurrent, g.context); err != nil {
		return err
	}
	return f()
}

// call calls the driver and remembers when that says that the device is lost.
//
//go:uintptrescapes
func (g *GPU) call(s *symbol, args ...uintptr) error {
	return g.check(s, g.driver.result(s, args...))
}

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

// rings are the pinned memory of both directions, in the order in which they are to be
// entered.
func (g *GPU) rings() []*staging { return []*staging{g.stagingIn, g.stagingOut} }

// wait waits until a query, of an event or of a stream, says that it is done. It asks
// again and again, rather than leave a thread in the driver that nothing can call back:
// with pauses that are short beside the time that has passed, and at first without giving
// up the processor. To ask without a pause would keep the driver's locks from those who
// have work for the device.
func (g *GPU) wait(ctx context.Context, query *symbol, of uintptr) error {
	const (
		eager = 100 * time.Microsecond
		most  = time.Millisecond
	)
	start := time.Now()
	for {
		done := false
		err := g.within(func() error {
			answer := g.driver.result(query, of)
			if answer == notReady {
				return nil
			}
			done = true
			return g.check(query, answer)
		})
		if err != nil || done {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		waited := time.Since(start)
		if waited >= eager {
			pause(min(waited/16, most))
			continue
		}
		for until := waited + max(waited/8, time.Microsecond); time.Since(start) < until; {
		}
	}
}

// Close waits for what is in flight and gives everything back, the context last. Of
// a device that is lost, only that is left to give.
func (g *GPU) Close() error {
	defer g.stopCopies()()
	g.closing.Lock()
	defer g.closing.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.crew.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs []error
	if g.lost.Load() == nil {
		errs = append(errs, g.giveBack()...)
	}
	lost := g.lost.Load() != nil
	if err := g.call(cuPrimaryCtxRelease, g.info.handle); err != nil && !lost {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// giveBack returns everything but the context, as far as it was come by.
func (g *GPU) giveBack() (errs []error) {
	try := func(s *symbol, handle uintptr) {
		if handle != 0 && g.lost.Load() == nil {
			if err := g.call(s, handle); err != nil {
				errs = append(errs, err)
			}
		}
	}
	try(cuCtxSetCurrent, g.context)
	if len(errs) > 0 { // once more: a thread that is new to the context can give nothing back without it
		try(cuCtxSetCurrent, g.context)
	}
	for s := range g.streams {
		try(cuStreamSynchronize, s.stream)
		try(cuStreamDestroy, s.stream)
	}
	try(cuStreamSynchronize, g.stream)
	for e := range g.events {
		try(cuEventDestroy, e.handle)
	}
	for _, c := range g.modules {
		try(cuModuleUnload, c.handle)
	}
	for _, r := range g.memory {
		try(cuMemFree, uintptr(r.start))
	}
	for _, ring := range g.rings() {
		for s := range ring.slots() {
			try(cuEventDestroy, s.event)
			try(cuMemFreeHost, s.address)
		}
	}
	try(cuMemPoolDestroy, g.pool)
	try(cuStreamDestroy, g.stream)
	return errs
}
