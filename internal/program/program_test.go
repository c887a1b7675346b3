package program

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// machine is a device whose streams record the calls that enqueue work.
type machine struct {
	mu     sync.Mutex
	events int
	live   int // events that are not freed
	calls  int
	failAt int // the number of the call that fails
}

var errBroken = errors.New("broken")

// call counts a call and returns the error of the one that fails.
func (m *machine) call() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls++; m.calls == m.failAt {
		return errBroken
	}
	return nil
}

// item is an op, an event or a wait in a stream. Unused numbers are negative.
type item struct{ op, event, wait int }

// stream is a stream of a machine. Its other methods are not used.
type stream struct {
	device.Stream
	machine *machine
	items   []item
}

type event struct {
	device.Event
	machine *machine
	number  int
}

func (e *event) Free() error {
	e.machine.mu.Lock()
	e.machine.live--
	e.machine.mu.Unlock()
	return e.machine.call()
}

func (s *stream) Record() (device.Event, error) {
	if err := s.machine.call(); err != nil {
		return nil, err
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	s.machine.events++
	s.machine.live++
	s.items = append(s.items, item{-1, s.machine.events, -1})
	return &event{machine: s.machine, number: s.machine.events}, nil
}

func (s *stream) Wait(e device.Event) error {
	if err := s.machine.call(); err != nil {
		return err
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	s.items = append(s.items, item{-1, -1, e.(*event).number})
	return nil
}

func (s *stream) Sync(context.Context) error { return s.machine.call() }

// do enqueues an op.
func (s *stream) do(number int) error {
	if err := s.machine.call(); err != nil {
		return err
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	s.items = append(s.items, item{number, -1, -1})
	return nil
}

// random returns a program of random ops of the first kinds, and the ops for which each was added
// to wait.
func random(rng *rand.Rand, kinds Kind) (p *Program, after [][]int, queues []Queue, m *machine) {
	p, m = &Program{}, &machine{}
	for i := range 1 + rng.IntN(5) {
		p.AddLane(Lane{Name: fmt.Sprintf("lane %d", i), Worker: rng.IntN(3), Engine: rng.IntN(3)})
		queues = append(queues, Queue{Stream: &stream{machine: m}})
	}
	for i := range rng.IntN(40) {
		var on []int
		for range rng.IntN(3) {
			on = append(on, rng.IntN(i+1)-1)
		}
		p.Add(Op{Kind: Kind(rng.IntN(int(kinds))), Lane: rng.IntN(len(p.Lanes)), Step: i}, on...)
		after = append(after, on)
	}
	return p, after, queues, m
}

// run runs a program with streams of a machine.
func run(ctx context.Context, p *Program, queues []Queue) (*Op, error) {
	return p.Runner(queues, func(_ context.Context, op *Op) error {
		return queues[op.Lane].Stream.(*stream).do(op.Step)
	}).Run(ctx)
}

// TestRunWaits runs random programs. The streams must order each op after the ops for which it was
// added to wait, and after the earlier ops of its lane.
func TestRunWaits(t *testing.T) {
	rng := testrand.New(t)
	for range 500 {
		p, after, queues, m := random(rng, Store)
		if op, err := run(t.Context(), p, queues); err != nil || op != nil {
			t.Fatalf("op %v failed: %v", op, err)
		}
		if m.live != 0 {
			t.Fatalf("%d events are left", m.live)
		}
		ended := ends(p, queues)
		for i, on := range after {
			for _, j := range on {
				if j >= 0 && p.Ops[i].Kind != Join && p.Ops[j].Kind != Join && !ended[i][j] {
					t.Fatalf("op %d was added to wait for op %d, and the streams do not order them:\n%v", i, j, p)
				}
			}
		}
		for lane, q := range queues {
			last := -1
			for _, x := range q.Stream.(*stream).items {
				if x.op >= 0 {
					if x.op <= last || p.Ops[x.op].Lane != lane {
						t.Fatalf("op %d follows op %d in lane %d:\n%v", x.op, last, lane, p)
					}
					last = x.op
				}
			}
		}
	}
}

// TestRunStores checks that an op that waits for a store is enqueued when the store has returned,
// and that no stream waits for it.
func TestRunStores(t *testing.T) {
	p := &Program{}
	p.AddLane(Lane{})
	p.AddLane(Lane{Worker: 1})
	p.Add(Op{Kind: Launch, Step: 1}, p.Add(Op{Kind: Store, Lane: 1}))
	m := &machine{}
	queues := []Queue{{Stream: &stream{machine: m}}, {Stream: &stream{machine: m}}}
	var stored atomic.Bool
	if _, err := p.Runner(queues, func(_ context.Context, op *Op) error {
		if op.Kind == Launch && !stored.Load() {
			t.Error("the launch is enqueued before the store returns")
		}
		stored.Store(true)
		return queues[op.Lane].Stream.(*stream).do(op.Step)
	}).Run(t.Context()); err != nil || m.events > 0 {
		t.Errorf("error %v, %d events", err, m.events)
	}
}

// ends returns, for each op, the ops that the streams end before it.
func ends(p *Program, queues []Queue) []map[int]bool {
	all := make([]map[int]bool, len(p.Ops))
	events := map[int]map[int]bool{} // by event, the ops before it
	state, next := make([]map[int]bool, len(queues)), make([]int, len(queues))
	for i := range state {
		state[i] = map[int]bool{}
	}
	for progress := true; progress; {
		progress = false
		for lane, q := range queues {
			items := q.Stream.(*stream).items
			for ; next[lane] < len(items); next[lane]++ {
				x := items[next[lane]]
				if x.wait >= 0 && events[x.wait] == nil {
					break
				}
				progress = true
				before := map[int]bool{}
				for op := range state[lane] {
					before[op] = true
				}
				switch {
				case x.op >= 0:
					all[x.op] = before
					state[lane][x.op] = true
				case x.event >= 0:
					events[x.event] = before
				default:
					for op := range events[x.wait] {
						state[lane][op] = true
					}
				}
			}
		}
	}
	return all
}

// TestRunFails fails each call of random programs in turn. Run must return the error, end all
// workers and leave no event.
func TestRunFails(t *testing.T) {
	rng := testrand.New(t)
	for range 60 {
		p, _, queues, m := random(rng, kinds)
		for m.failAt = 1; ; m.failAt++ {
			m.calls = 0
			op, err := run(t.Context(), p, queues)
			if m.live != 0 {
				t.Fatalf("call %d failed: %d events are left", m.failAt, m.live)
			}
			if m.calls < m.failAt {
				if err != nil || op != nil {
					t.Fatalf("no call failed: error %v", err)
				}
				break
			}
			if !errors.Is(err, errBroken) || op == nil {
				t.Fatalf("call %d of %d failed: error %v of op %v", m.failAt, m.calls, err, op)
			}
		}
	}
}

// TestRunFailedOp fails each op in turn. Run must return that op, and every queue must then wait
// for the work of every other one.
func TestRunFailedOp(t *testing.T) {
	rng := testrand.New(t)
	for range 60 {
		p, _, _, _ := random(rng, kinds)
		for i := range p.Ops {
			if p.Ops[i].Kind == Join {
				continue
			}
			m := &machine{}
			var queues []Queue
			for range p.Lanes {
				queues = append(queues, Queue{Stream: &stream{machine: m}})
			}
			op, err := p.Runner(queues, func(_ context.Context, op *Op) error {
				if op == &p.Ops[i] {
					return errBroken
				}
				return queues[op.Lane].Stream.(*stream).do(op.Step)
			}).Run(t.Context())
			if op != &p.Ops[i] || !errors.Is(err, errBroken) {
				t.Fatalf("op %d failed: Run returned %v and error %v", i, op, err)
			}
			for lane, q := range queues {
				waits := 0
				for _, x := range q.Stream.(*stream).items {
					if x.wait >= 0 {
						waits++
					}
				}
				if waits < len(queues)-1 {
					t.Errorf("op %d failed: lane %d waits %d times at the end, want once for each of %d other lanes", i, lane, waits,
						len(queues)-1)
				}
			}
		}
	}
}

// TestRunCancelled cancels a program while a worker waits for another one.
func TestRunCancelled(t *testing.T) {
	p := &Program{}
	p.AddLane(Lane{})
	p.AddLane(Lane{Worker: 1})
	first := p.Add(Op{Kind: Launch})
	p.Add(Op{Kind: Launch, Lane: 1}, first)
	m := &machine{}
	queues := []Queue{{Stream: &stream{machine: m}}, {Stream: &stream{machine: m}}}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := p.Runner(queues, func(ctx context.Context, op *Op) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}).Run(ctx)
	if !errors.Is(err, context.Canceled) || m.live != 0 {
		t.Errorf("error %v and %d events left, want context.Canceled and none", err, m.live)
	}
}

// TestRunPanics panics in an op of each of two workers. The panic must reach the caller of Run, and
// no event may be left.
func TestRunPanics(t *testing.T) {
	for worker := range 2 {
		p := &Program{}
		p.AddLane(Lane{})
		p.AddLane(Lane{Worker: 1})
		p.Add(Op{Kind: Launch, Lane: 1 - worker})
		p.Add(Op{Kind: Launch, Lane: worker}, 0)
		m := &machine{}
		queues := []Queue{{Stream: &stream{machine: m}}, {Stream: &stream{machine: m}}}
		func() {
			defer func() {
				if got := recover(); got != "oops" {
					t.Errorf("recovered %v, want the panic of the op", got)
				}
			}()
			_, err := p.Runner(queues, func(_ context.Context, op *Op) error {
				if op.Lane == worker {
					panic("oops")
				}
				return nil
			}).Run(t.Context())
			t.Errorf("Run returned %v, want a panic", err)
		}()
		if m.live != 0 {
			t.Errorf("%d events are left", m.live)
		}
	}
}

// TestRunOnHost runs lanes without streams, whose ops have ended when the call returns.
func TestRunOnHost(t *testing.T) {
	p := &Program{}
	a, b := p.AddLane(Lane{}), p.AddLane(Lane{Worker: 1})
	var mu sync.Mutex
	var got []int
	last := p.Add(Op{Kind: Load, Lane: a})
	for i := range 20 {
		last = p.Add(Op{Kind: Launch, Lane: []int{b, a}[i%2], Step: i + 1}, last)
	}
	if _, err := p.Runner(make([]Queue, 2), func(_ context.Context, op *Op) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, op.Step)
		return nil
	}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, step := range got {
		if step != i {
			t.Fatalf("ops ran in the order %v", got)
		}
	}
}

// TestSimulate checks the predicted times of two overlapping panels.
func TestSimulate(t *testing.T) {
	p := &Program{}
	in, kernels, more, out := p.AddLane(Lane{Engine: 0}), p.AddLane(Lane{Engine: 1}), p.AddLane(Lane{Engine: 1}),
		p.AddLane(Lane{Engine: 2})
	a := p.Add(Op{Kind: Load, Lane: in, Bytes: 3})
	b := p.Add(Op{Kind: Load, Lane: in, Bytes: 4})
	c := p.Add(Op{Kind: Launch, Lane: kernels}, a)
	d := p.Add(Op{Kind: Launch, Lane: more}, b)
	p.Add(Op{Kind: Store, Lane: out, Bytes: 2}, c)
	p.Add(Op{Kind: Store, Lane: out, Bytes: 5}, d)
	times := map[Kind]time.Duration{Load: 10, Launch: 20, Store: 5}
	x := p.Simulate(func(op *Op) (delay, busy time.Duration) {
		if op.Kind == Launch {
			delay = 1
		}
		return delay, times[op.Kind]
	})
	// Loads end at 10 and 20, kernels at 31 and 52, stores at 36 and 57.
	if x.Total != 57 || x.Busy[Load] != 20 || x.Busy[Launch] != 40 || x.Busy[Store] != 10 {
		t.Errorf("predicted %+v", x)
	}
	if p.Bytes(Load) != 7 || p.Bytes(Load, Store) != 14 {
		t.Errorf("%d and %d bytes", p.Bytes(Load), p.Bytes(Load, Store))
	}
}

// TestString checks the list of ops.
func TestString(t *testing.T) {
	p := &Program{}
	in, kernels := p.AddLane(Lane{Name: "copies in"}), p.AddLane(Lane{Name: "kernels"})
	p.Add(Op{Kind: Join, Lane: kernels})
	a := p.Add(Op{Kind: Load, Operand: gemm.A, Lane: in, Part: RectAt(0, 0, 4, 5)}, 0)
	b := p.Add(Op{Kind: Load, Operand: gemm.B, Lane: in, Part: RectAt(0, 0, 5, 6)}, 0)
	p.Add(Op{Kind: Launch, Operand: gemm.C, Lane: kernels, Part: RectAt(0, 0, 4, 6)}, b, a)
	want := `   0  kernels    join
   1  copies in  load A, rows 0 to 3 of columns 0 to 4, after 0
   2  copies in  load B, rows 0 to 4 of columns 0 to 5
   3  kernels    launch C, rows 0 to 3 of columns 0 to 5, after 2
`
	if got := p.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for range maxLines {
		p.Add(Op{Kind: Launch, Operand: gemm.C, Lane: kernels})
	}
	if got := p.String(); !strings.HasSuffix(got, "and 4 more\n") {
		t.Errorf("a long program ends with %q", got[len(got)-40:])
	}
}
