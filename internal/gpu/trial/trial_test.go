package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// clock is a stream on which launches advance the time. Its events are complete unless it is busy.
type clock struct {
	device.Stream
	mu      sync.Mutex
	now     time.Duration
	busy    bool
	records int   // number of events that were recorded
	live    int   // number of events that were not freed
	failure error // of Record
}

type event struct {
	of *clock
	at time.Duration
}

func (c *clock) Record() (device.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return nil, c.failure
	}
	c.records++
	c.live++
	return &event{c, c.now}, nil
}

// Since waits for the end of ctx while the stream is busy.
func (e *event) Since(ctx context.Context, earlier device.Event) (time.Duration, error) {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	if e.of.busy {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return e.at - earlier.(*event).at, nil
}

func (e *event) Free() error {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	e.of.live--
	return nil
}

// plans is the number of candidates of the product of a rig.
const plans = 6

// rig is a product on a device that executes nothing, and the clock of its stream.
type rig struct {
	*Product
	*clock
	null         *devicetest.Null
	took         map[string]time.Duration // by the name of a plan
	called       []string                 // plans of the calls
	interruption time.Duration            // of each call
	fails        string                   // a plan that fails
	outcomes     chan Outcome
}

func newRig(t *testing.T) *rig {
	t.Helper()
	null := devicetest.NewNull()
	null.Device.Name, null.Device.Target.Suffix, null.Device.SMs, null.Device.MaxShared = "NVIDIA H200", "a", 132, 227<<10
	b := exec.New(null)
	pl, err := b.Plan(testkit.Product(t, dtype.BF16, dtype.BF16, 512, 1024, 768), exec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{clock: &clock{}, null: null, took: map[string]time.Duration{}, outcomes: make(chan Outcome, 1)}
	d := NewDevice()
	r.Product = New(d, pl, func(x Outcome) { r.outcomes <- x })
	t.Cleanup(func() {
		d.Close()
		if err := errors.Join(r.Product.Close(), b.Close()); err != nil || r.live != 0 {
			t.Errorf("Close: %d events are left, error %v", r.live, err)
		}
	})
	return r
}

var errFailed = errors.New("failed")

// call makes a call.
func (r *rig) call(t *testing.T) {
	t.Helper()
	err := r.Enqueue(func(pl *exec.Plan) error {
		launch := func() error {
			spec := pl.Spec()
			r.called = append(r.called, spec)
			if spec == r.fails {
				return errFailed
			}
			r.clock.mu.Lock()
			defer r.clock.mu.Unlock()
			r.now += r.took[spec] + r.interruption
			return nil
		}
		if pl.Around == nil {
			return launch()
		}
		return pl.Around(r.clock, launch)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// prepare makes the calls before the trials, and returns the names of the candidates.
func (r *rig) prepare(t *testing.T) (all []string) {
	t.Helper()
	r.call(t)
	if r.device.Wait(); r.candidates != nil {
		t.Error("a product that was not repeated has candidates")
	}
	r.call(t)
	r.device.Wait()
	for i, c := range r.candidates {
		all = append(all, c.plan.Spec())
		r.took[all[i]] = 100 * time.Microsecond
	}
	if len(all) != plans || all[0] != r.standard.Spec() || r.records > 0 {
		t.Fatalf("candidates %v, want %d, the default one first; %d events before", all, plans, r.records)
	}
	return all
}

// TestFastest checks that 20 calls find the fastest candidate although calls are interrupted, that
// the plan and the outcome report it, and that later calls use it.
func TestFastest(t *testing.T) {
	rng := testrand.New(t)
	for best := range plans {
		r := newRig(t)
		all := r.prepare(t)
		r.took[all[best]] = 90 * time.Microsecond
		var quiet [plans]int // the round in which a candidate is not interrupted
		for i := range quiet {
			quiet[i] = rng.IntN(timings)
		}
		for n := range plans * timings {
			r.interruption = 0
			if n/plans != quiet[n%plans] {
				r.interruption = time.Duration(rng.IntN(100)) * time.Microsecond
			}
			want := fmt.Sprintf("try 6 candidates with the same bits: %d of 18 timings are done", max(n-1, 0))
			if why := r.Described().Why; !strings.Contains(why, want) {
				t.Errorf("before trial %d: %s, want %q", n, why, want)
			}
			r.call(t)
			if spec := r.called[len(r.called)-1]; spec != all[n%plans] {
				t.Fatalf("trial %d is of %s, want %s", n, spec, all[n%plans])
			}
		}
		if len(r.called) != 20 {
			t.Errorf("%d calls, want 20", len(r.called))
		}
		for range 3 {
			r.call(t)
			r.call(t)
			if spec := r.called[len(r.called)-1]; spec != all[best] || r.Plan().Spec() != spec {
				t.Errorf("a later call is of %s and the plan is %s, want %s", spec, r.Plan().Spec(), all[best])
			}
		}
		if why := r.Described().Why; !strings.Contains(why, "the fastest of 6 candidates with the same bits") ||
			!strings.Contains(why, "90µs") && best > 0 {
			t.Errorf("the reason is %q", why)
		}
		r.device.Wait()
		select {
		case x := <-r.outcomes:
			if best == 0 || x.Best.Spec() != all[best] || x.Standard != r.standard || x.Seconds != 90e-6 ||
				x.StandardSeconds != 100e-6 {
				t.Errorf("candidate %d: outcome %+v", best, x)
			}
		default:
			if best > 0 {
				t.Errorf("candidate %d: no outcome", best)
			}
		}
		if r.records != 2*plans*timings {
			t.Errorf("%d events, want %d", r.records, 2*plans*timings)
		}
	}
}

// TestNearlyAsFast checks that the default plan stays if another one is faster by less than 2 %.
func TestNearlyAsFast(t *testing.T) {
	r := newRig(t)
	all := r.prepare(t)
	r.took[all[3]] = 99 * time.Microsecond
	for range 25 {
		r.call(t)
	}
	r.device.Wait()
	if spec := r.Plan().Spec(); spec != all[0] || len(r.outcomes) > 0 || !r.settled.Load() {
		t.Errorf("later calls use %s, with %d outcomes, settled: %v; want %s and no outcome", spec, len(r.outcomes),
			r.settled.Load(), all[0])
	}
}

// TestCompilesInLoad checks that no candidate is compiled where this would delay calls.
func TestCompilesInLoad(t *testing.T) {
	r := newRig(t)
	r.null.CompilesInLoad = true
	for range 20 {
		r.call(t)
		r.device.Wait()
	}
	for _, spec := range r.called {
		if spec != r.standard.Spec() {
			t.Errorf("a call is of %s, want %s", spec, r.standard.Spec())
		}
	}
	if r.records > 0 || !r.settled.Load() {
		t.Errorf("%d events, settled: %v; want none, and no further trials", r.records, r.settled.Load())
	}
}

// TestBusy checks that calls neither wait for events that do not complete nor record more of them:
// they use the default plan. The trials go on when the events have completed.
func TestBusy(t *testing.T) {
	r := newRig(t)
	all := r.prepare(t)
	r.took[all[1]] = time.Microsecond
	r.busy = true
	for range 100 {
		r.call(t)
	}
	for i, spec := range r.called[2+plans*timings:] {
		if spec != all[0] {
			t.Errorf("call %d is of %s, want the default %s", i, spec, all[0])
		}
	}
	if r.records != 2*plans*timings {
		t.Errorf("%d events, want %d", r.records, 2*plans*timings)
	}
	r.busy = false
	r.call(t)
	r.call(t)
	if spec := r.called[len(r.called)-1]; spec != all[1] {
		t.Errorf("after the events %s is called, want %s", spec, all[1])
	}
}

// TestFailures checks that a call succeeds with the default plan if a candidate or an event fails.
func TestFailures(t *testing.T) {
	r := newRig(t)
	all := r.prepare(t)
	r.took[all[2]], r.took[all[3]] = time.Microsecond, 2*time.Microsecond
	r.fails = all[2]
	for range 20 {
		r.call(t)
	}
	if n := count(r.called, all[2]); n != 1 || r.Plan().Spec() != all[3] {
		t.Errorf("a candidate that fails was called %d times, and the plan is %s, want %s", n, r.Plan().Spec(), all[3])
	}
	r = newRig(t)
	all = r.prepare(t)
	r.call(t)
	r.failure = errFailed
	for range 10 {
		r.call(t)
	}
	if n := len(r.called); n != 13 || count(r.called[4:], all[0]) != n-4 {
		t.Errorf("calls after an event failed: %v", r.called)
	}
}

func count(all []string, spec string) (n int) {
	for _, x := range all {
		if x == spec {
			n++
		}
	}
	return n
}

// TestFixed checks that products use only the plan whose kernel was requested by name, and other
// plans that must not be tried.
func TestFixed(t *testing.T) {
	r := newRig(t)
	named, err := r.standard.With(&choose.Candidate{Kernel: r.standard.Kernel, Config: r.standard.Config})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]*Product{
		"named": New(r.device, named, nil), "fixed": Fixed(r.device, r.standard),
	} {
		r.Product, r.called = x, nil
		for range 10 {
			r.call(t)
		}
		r.device.Wait()
		if r.records > 0 || x.candidates != nil || count(r.called, named.Spec()) != 10 {
			t.Errorf("%s: %d events, calls of %v", name, r.records, r.called)
		}
	}
}

// TestConcurrent checks calls of several goroutines: between the events of a trial no other product
// is enqueued, and the fastest candidate is found.
func TestConcurrent(t *testing.T) {
	r := newRig(t)
	all := r.prepare(t)
	r.took[all[4]] = time.Microsecond
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 50 {
				err := r.Enqueue(func(pl *exec.Plan) error {
					launch := func() error {
						r.clock.mu.Lock()
						defer r.clock.mu.Unlock()
						r.now += r.took[pl.Spec()]
						return nil
					}
					order := &r.device.order
					if pl.Around == nil {
						if order.TryLock() {
							t.Error("a trial may begin while a product is enqueued")
						}
						return launch()
					}
					if order.TryRLock() {
						t.Error("a product may be enqueued during a trial")
					}
					return pl.Around(r.clock, launch)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	for range 20 {
		r.call(t)
	}
	if spec := r.Plan().Spec(); spec != all[4] {
		t.Errorf("the plan is %s, want %s", spec, all[4])
	}
}
