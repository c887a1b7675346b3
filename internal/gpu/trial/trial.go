// Package trial tunes products while a device repeats them (online autotuning). The first calls of
// a product try the plans that are predicted to be nearly as fast as the default one and have its
// bits. Events time the plans, and later calls use the fastest one. No call waits for an event or a
// compiler.
package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/phrase"
	"tilework/internal/relay"
)

// timings is the number of timings of each plan. The shortest one counts, as interruptions only
// lengthen a timing.
const timings = 3

// Device coordinates the trials of products that are enqueued on the default stream of a device.
type Device struct {
	// order is locked while a timed product is enqueued, so that no other product is enqueued between
	// its events, and read-locked while another one is.
	order sync.RWMutex

	ending     context.Context // ends when the device closes
	end        context.CancelFunc
	background relay.Group
	compiling  sync.Mutex // so that the candidates of one product are compiled at a time
}

// NewDevice returns a Device without trials. The caller closes it before the backend of the plans.
func NewDevice() *Device {
	d := &Device{}
	d.ending, d.end = context.WithCancel(context.Background())
	return d
}

// Close stops the work in the background and waits for it. No call of [Product.Enqueue] may follow.
func (d *Device) Close() {
	d.end()
	d.Wait()
}

// Wait waits for the work in the background: compiling candidates and storing outcomes.
func (d *Device) Wait() { d.background.Wait() }

// Product is a product that may be repeated on a device. Its methods are safe for concurrent use.
type Product struct {
	device   *Device
	standard *exec.Plan
	keep     func(Outcome)

	plan    atomic.Pointer[exec.Plan] // of calls that are not timed
	settled atomic.Bool               // whether no call is timed any more

	mu         sync.Mutex // guards the fields below; calls only try to lock it
	calls      int
	candidates []*candidate // the default plan first; nil until they are compiled
	pending    []timing     // in the order of the stream
}

// candidate is a plan that is tried.
type candidate struct {
	plan    *exec.Plan
	started int           // number of timings, read or pending
	least   time.Duration // the shortest timing that was read
}

// timing is a call whose events are not read yet.
type timing struct {
	of       *candidate
	from, to device.Event
}

// Outcome is the result of trials in which a plan was faster than the default one.
type Outcome struct {
	Standard, Best           *exec.Plan
	StandardSeconds, Seconds float64 // positive
}

// Fixed returns a product that uses pl in all calls.
func Fixed(d *Device, pl *exec.Plan) *Product {
	x := &Product{device: d, standard: pl}
	x.plan.Store(pl)
	x.settled.Store(true)
	return x
}

// New returns a product that tries other plans besides pl if it is repeated, unless the kernel of
// pl was requested by name. keep stores the outcome if another plan was faster, in the background.
func New(d *Device, pl *exec.Plan, keep func(Outcome)) *Product {
	x := Fixed(d, pl)
	x.keep = keep
	p := pl.Problem()
	// The time of groups depends on their sizes. A caller's function is not called in the background.
	if pl.Selected() && !p.Empty() && p.Batch.Kind != gemm.Grouped && p.Epilogue.Function == nil {
		x.settled.Store(false)
	}
	return x
}

// Close frees the events of timings that were not read.
func (x *Product) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, t := range x.pending {
		errs = append(errs, t.free())
	}
	x.pending = nil
	return device.Join(errs...)
}

// Plan returns the plan of calls that are not timed.
func (x *Product) Plan() *exec.Plan { return x.plan.Load() }

// Described returns [Product.Plan] with a reason that reports trials in progress.
func (x *Product) Described() *exec.Plan {
	x.mu.Lock()
	defer x.mu.Unlock()
	pl := x.plan.Load()
	if x.settled.Load() || x.candidates == nil {
		return pl
	}
	read := -len(x.pending)
	for _, c := range x.candidates {
		read += c.started
	}
	trying := *pl
	trying.Why += fmt.Sprintf("; repeated calls try %s with the same bits: %d of %d timings are done",
		phrase.Count(len(x.candidates), "candidate"), read, timings*len(x.candidates))
	return &trying
}

// Enqueue calls enqueue with the plan of the next call, and times the call if it is a trial. If
// enqueue fails with a plan other than the default one, Enqueue calls it again with that.
func (x *Product) Enqueue(enqueue func(*exec.Plan) error) error {
	if !x.settled.Load() && x.mu.TryLock() {
		defer x.mu.Unlock()
		if c := x.next(); c != nil && x.device.order.TryLock() {
			defer x.device.order.Unlock()
			return x.try(c, enqueue)
		}
	}
	x.device.order.RLock()
	defer x.device.order.RUnlock()
	return enqueue(x.plan.Load())
}

// next returns the candidate that the next call tries, or nil if the call is no trial.
func (x *Product) next() *candidate {
	x.calls++
	if x.calls == 2 {
		x.device.background.Go(x.prepare)
	}
	if x.candidates == nil || !x.read() {
		return nil
	}
	c := slices.MinFunc(x.candidates, func(a, b *candidate) int { return cmp.Compare(a.started, b.started) })
	if c.started < timings {
		return c
	}
	if len(x.pending) == 0 {
		x.settle()
	}
	return nil
}

// prepare compiles the candidates. It leaves out those whose compilation would delay calls.
func (x *Product) prepare() {
	x.device.compiling.Lock()
	defer x.device.compiling.Unlock()
	plans := []*exec.Plan{x.standard}
	for _, c := range choose.Trials(&x.standard.Choice, x.standard.SameBits()) {
		pl, err := x.standard.With(&c)
		if x.device.ending.Err() == nil && err == nil && pl.Precompile() {
			plans = append(plans, pl)
		}
	}
	var compiled []*candidate
	for i, err := range exec.CompileAll(x.device.ending, plans) {
		if err == nil {
			compiled = append(compiled, &candidate{plan: plans[i], least: math.MaxInt64})
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.candidates = compiled; len(compiled) < 2 || compiled[0].plan != x.standard {
		x.settled.Store(true)
	}
}

// try enqueues the product with a candidate between two events.
func (x *Product) try(c *candidate, enqueue func(*exec.Plan) error) error {
	t := timing{of: c}
	var unrecorded error
	timed := *c.plan
	timed.Around = func(s device.Stream, launch func() error) error {
		t.from, unrecorded = s.Record()
		err := launch()
		if err == nil && unrecorded == nil {
			t.to, unrecorded = s.Record()
		}
		return err
	}
	err := enqueue(&timed)
	if err == nil && unrecorded == nil {
		c.started++
		x.pending = append(x.pending, t)
		return nil
	}
	_ = t.free() // the error of enqueue is more informative
	if unrecorded != nil {
		x.settled.Store(true)
	}
	if err == nil || c.plan == x.standard {
		return err
	}
	x.candidates = slices.DeleteFunc(x.candidates, func(y *candidate) bool { return y == c })
	return enqueue(x.standard)
}

// ended is a context with which [device.Event.Since] does not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// read reads the timings that are complete. It reports whether the trials go on, which they do not
// if an event fails.
func (x *Product) read() bool {
	for len(x.pending) > 0 {
		t := x.pending[0]
		took, err := t.to.Since(ended, t.from)
		if errors.Is(err, context.Canceled) {
			return true
		}
		x.pending = x.pending[1:]
		if err = device.Join(err, t.free()); err != nil {
			x.settled.Store(true)
			return false
		}
		t.of.least = min(t.of.least, max(took, 1)) // 0 is less than the resolution
	}
	return true
}

// settle makes the fastest candidate the plan of later calls, or the default one if that is nearly
// as fast.
func (x *Product) settle() {
	defer x.settled.Store(true)
	standard := x.candidates[0]
	best := slices.MinFunc(x.candidates, func(a, b *candidate) int { return cmp.Compare(a.least, b.least) })
	if float64(standard.least) < backend.LeastGain*float64(best.least) {
		best = standard
	}
	found := *best.plan
	found.Why = fmt.Sprintf("the fastest of %s with the same bits in repeated calls: %v, and the default, %s, %v",
		phrase.Count(len(x.candidates), "candidate"), best.least, x.standard.Spec(), standard.least)
	x.plan.Store(&found)
	if best != standard {
		x.device.background.Go(func() {
			x.keep(Outcome{x.standard, best.plan, standard.least.Seconds(), best.least.Seconds()})
		})
	}
}

// free frees the events.
func (t *timing) free() error {
	var errs []error
	for _, e := range []device.Event{t.from, t.to} {
		if e != nil {
			errs = append(errs, e.Free())
		}
	}
	return device.Join(errs...)
}
