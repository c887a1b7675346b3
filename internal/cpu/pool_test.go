package cpu

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/ints"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// phased is a job of many phases. Each task checks that all earlier phases are done.
type phased struct {
	sizes     []int
	done      []atomic.Int64 // finished tasks of each phase
	running   atomic.Int64
	most      atomic.Int64 // the maximum of running
	early     atomic.Int64 // tasks that started before the earlier phases were done
	shared    atomic.Int64 // tasks that started while another task ran on their worker
	at        [16]atomic.Int64
	taken     [16]atomic.Bool
	whileBusy func(worker int)
}

func (p *phased) phases() int { return len(p.sizes) }

func (p *phased) enter(phase, worker int) int {
	p.at[worker].Store(int64(phase))
	return p.sizes[phase]
}

func (p *phased) do(_, worker int) {
	at := int(p.at[worker].Load())
	if !p.taken[worker].CompareAndSwap(false, true) {
		p.shared.Add(1)
	}
	defer p.taken[worker].Store(false)
	now := p.running.Add(1)
	for most := p.most.Load(); now > most && !p.most.CompareAndSwap(most, now); most = p.most.Load() {
	}
	for phase := range at {
		if p.done[phase].Load() != int64(p.sizes[phase]) {
			p.early.Add(1)
		}
	}
	if p.whileBusy != nil {
		p.whileBusy(worker)
	}
	p.done[at].Add(1)
	p.running.Add(-1)
}

func TestPhasesFollowEachOther(t *testing.T) {
	for _, threads := range []int{1, 2, 8} {
		p := &phased{sizes: []int{3, 0, 1, 50, 7, 0}, whileBusy: func(int) { runtime.Gosched() }}
		p.done = make([]atomic.Int64, len(p.sizes))
		if err := new(executor).run(t.Context(), p, threads, nil); err != nil {
			t.Fatal(err)
		}
		for phase, want := range p.sizes {
			if got := p.done[phase].Load(); got != int64(want) {
				t.Errorf("%d threads: %d tasks of phase %d ran, want %d", threads, got, phase, want)
			}
		}
		if p.early.Load() > 0 {
			t.Errorf("%d threads: %d tasks started before the previous phase was done", threads, p.early.Load())
		}
		if p.shared.Load() > 0 {
			t.Errorf("%d threads: %d tasks ran on a busy worker", threads, p.shared.Load())
		}
		if most := p.most.Load(); most > int64(threads) || most > int64(runtime.GOMAXPROCS(0)) {
			t.Errorf("%d threads: %d tasks ran at the same time, want at most %d", threads, most, threads)
		}
	}
}

// TestWorkersAreBounded checks that the pool never has more than GOMAXPROCS-1 workers, however many
// jobs run at the same time, and that no other goroutines remain.
func TestWorkersAreBounded(t *testing.T) {
	before := runtime.NumGoroutine()
	pool.Lock()
	limit := max(pool.started, runtime.GOMAXPROCS(0)-1) // an earlier test may have raised GOMAXPROCS
	pool.Unlock()
	const callers = 20
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range 20 {
				p := &phased{sizes: []int{5, 5}}
				p.done = make([]atomic.Int64, 2)
				if err := new(executor).run(context.Background(), p, 4, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	pool.Lock()
	started := pool.started
	pool.Unlock()
	if started > limit {
		t.Errorf("%d workers, want at most %d", started, limit)
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+started; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, want at most the %d before and %d workers", runtime.NumGoroutine(), before,
				started)
		}
	}
}

// TestCancelledJobLeavesNothingRunning checks that no task runs any more when a cancelled job
// returns.
func TestCancelledJobLeavesNothingRunning(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		p := &phased{sizes: []int{1000}}
		p.done = make([]atomic.Int64, 1)
		e := new(executor)
		p.whileBusy = func(worker int) {
			if p.done[0].Load() >= 10 {
				cancel()
			}
			// Only worker 0 looks at ctx. The others are in a task when it does.
			for worker > 0 && !e.stop.Load() {
				runtime.Gosched()
			}
		}
		err := e.run(ctx, p, 4, nil)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want context.Canceled", err)
		}
		if p.running.Load() != 0 {
			t.Fatalf("%d tasks still run after the job has returned", p.running.Load())
		}
		if p.done[0].Load() == 1000 {
			t.Fatal("the cancelled job ran to its end")
		}
	}
}

// TestPanicLeavesNothingRunning checks that a panic in the progress function leaves no task running
// and all workers idle.
func TestPanicLeavesNothingRunning(t *testing.T) {
	p := &phased{sizes: []int{100, 100}, whileBusy: func(int) { time.Sleep(10 * time.Microsecond) }}
	p.done = make([]atomic.Int64, 2)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("progress did not panic")
			}
		}()
		_ = new(executor).run(t.Context(), p, 4, func(done, _ int64) {
			if done > 10 {
				panic("enough")
			}
		})
	}()
	if n := p.running.Load(); n != 0 {
		t.Errorf("%d tasks still run", n)
	}
	pool.Lock()
	defer pool.Unlock()
	if len(pool.idle) != pool.started {
		t.Errorf("%d workers of %d are idle, want all", len(pool.idle), pool.started)
	}
}

// TestWorkerPanics checks that a panic of a task on a worker, or its end by runtime.Goexit, reaches
// the caller when no task runs any more, and that all workers run tasks afterwards.
func TestWorkerPanics(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for range 20 {
		for _, value := range []any{"no such tile", nil} {
			p := &phased{sizes: []int{1000, 1000}, done: make([]atomic.Int64, 2)}
			e := new(executor)
			p.whileBusy = func(worker int) {
				switch {
				case worker == 0: // leaves tasks for the workers
					for !e.stop.Load() {
						runtime.Gosched()
					}
				case value == nil:
					p.running.Add(-1)
					runtime.Goexit()
				case p.done[0].Load() > 10:
					p.running.Add(-1)
					panic(value)
				}
			}
			returned, got := false, make(chan any)
			go func() {
				defer func() { got <- recover() }()
				_ = e.run(context.Background(), p, 4, nil)
				returned = true
			}()
			if got := <-got; got != value || returned {
				t.Fatalf("run returned: %v, with panic %v: want panic %v", returned, got, value)
			}
			if n := p.running.Load(); n != 0 {
				t.Errorf("%d tasks still run", n)
			}
			occupy(t, 4)
			p = &phased{sizes: []int{100}, done: make([]atomic.Int64, 1)}
			if err := e.run(t.Context(), p, 4, nil); err != nil || p.done[0].Load() != 100 {
				t.Errorf("the next job of the executor ran %d tasks of 100, error %v", p.done[0].Load(), err)
			}
		}
	}
	pool.Lock()
	defer pool.Unlock()
	if len(pool.idle) != pool.started {
		t.Errorf("%d workers of %d are idle, want all", len(pool.idle), pool.started)
	}
}

// TestWorkersJoinAtAnyTime checks that each task runs once, and that one goroutine at a time acts
// as each worker, however late workers join and however often an executor is reused. The pauses
// between jobs are close to spinTime, so that workers are spinning, asleep, or about to sleep.
func TestWorkersJoinAtAnyTime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	rng := testrand.New(t)
	var c executor
	for range testkit.Repeats(400, 10_000) {
		p := &phased{sizes: []int{rng.IntN(20), rng.IntN(20), rng.IntN(20)}}
		p.done = make([]atomic.Int64, len(p.sizes))
		if rng.IntN(4) == 0 {
			p.whileBusy = func(int) { runtime.Gosched() }
		}
		threads := 1 + rng.IntN(8)
		if err := c.run(t.Context(), p, threads, nil); err != nil {
			t.Fatal(err)
		}
		for phase, want := range p.sizes {
			if got := p.done[phase].Load(); got != int64(want) {
				t.Fatalf("%d tasks of phase %d ran on %d threads, want %d", got, phase, threads, want)
			}
		}
		if p.early.Load()+p.shared.Load() > 0 {
			t.Fatalf("%d tasks too early, %d on a busy worker", p.early.Load(), p.shared.Load())
		}
		for rest, start := time.Duration(rng.IntN(250))*time.Microsecond, time.Now(); time.Since(start) < rest; {
			runtime.Gosched()
		}
	}
}

// TestBriefJobsWakeFew checks that a brief job wakes no worker, unless it follows another one.
func TestBriefJobsWakeFew(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	run := func(brief bool) (workers int) {
		e := &executor{brief: brief}
		j := &forLoop{1, func(int) { workers = len(e.workers) }}
		if err := e.run(t.Context(), j, 4, nil); err != nil {
			t.Fatal(err)
		}
		return workers
	}
	run(false) // starts the workers
	for awake, end := true, time.Now().Add(time.Minute); awake; time.Sleep(spinTime) {
		if time.Now().After(end) {
			t.Fatal("the workers do not fall asleep")
		}
		pool.Lock()
		awake = slices.ContainsFunc(pool.idle, func(w *poolWorker) bool { return !w.asleep() })
		pool.Unlock()
	}
	pool.brief.Store(int64(-time.Hour))
	if n := run(true); n != 0 {
		t.Errorf("a brief job has %d workers, want none", n)
	}
	pool.brief.Store(int64(time.Hour)) // as if the last one had just started, however slow the machine is
	if n := run(true); n != 3 {
		t.Errorf("a brief job after another one has %d workers, want 3", n)
	}
}

// TestQueuePopsEachTaskOnce checks that a queue yields every task of a phase once, in order, and no
// task of an earlier phase.
func TestQueuePopsEachTaskOnce(t *testing.T) {
	var s taskQueue
	for _, phase := range [][2]int64{{0, 3}, {3, 3}, {10, 12}} {
		for want := phase[0]; want < phase[1]; want++ {
			if got, ok := s.pop(phase[0], phase[1]); !ok || got != want {
				t.Errorf("phase %v: pop = %d, %v, want %d", phase, got, ok, want)
			}
		}
		if got, ok := s.pop(phase[0], phase[1]); ok {
			t.Errorf("phase %v: pop = %d after the last task", phase, got)
		}
	}
	if got, ok := s.pop(0, 3); ok {
		t.Errorf("pop = %d for an earlier phase", got)
	}
}

// TestTilesCoverC checks that every element of C is computed once per block of K, for any size and
// number of threads.
func TestTilesCoverC(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 5, 7, 8, 12, 16} {
		for _, size := range [][3]int{{1, 1, 1}, {9, 33, 4}, {64, 64, 64}, {100, 37, 600}, {13, 700, 20},
			{700, 13, 20}} {
			p, b := random(t, dtype.F32, size[0], size[1], size[2])
			mk := *kernels[1].f32 // the portable kernel
			mk.mc, mk.kc, mk.ms, mk.ns = 16, 64, 80, 96
			d := newBlocked(&Plan{Problem: &p, Threads: threads, method: method{algorithm: algoBlocked, packsA: true}}, &mk, &b)
			var m workspace
			m.free = allocAligned(d.bytes())
			d.bind(&m, make([]phaseState, threads))
			sum := make([]int, len(d.c)) // number of computations of each element
			d.mk.Packed = func(_ int, _, _, c, _ *float32, ldc, m, n int, _, _ float32) {
				at := int(uintptr(unsafe.Pointer(c))-uintptr(unsafe.Pointer(&d.c[0]))) / 4
				for i := range m {
					for j := range n {
						sum[at+i*ldc+j]++
					}
				}
			}
			for phase := range d.phases() {
				for worker := range threads {
					d.enter(phase, worker)
				}
				for task := range d.enter(phase, 0) {
					d.do(task, task%threads)
				}
			}
			for i, n := range sum {
				if n != ints.CeilDiv(size[2], d.kc) {
					t.Fatalf("%v on %d threads: element %d is computed %d times, want %d", size, threads, i, n,
						ints.CeilDiv(size[2], d.kc))
				}
			}
		}
	}
}

// TestWorkspaceIsBounded checks that the free list is bounded, that workspaces have the requested
// size, and that the most recently used one is returned first.
func TestWorkspaceIsBounded(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var workspaces []workspace
	for range 20 {
		m := getWorkspace(8 << 20)
		if len(m.all) < 8<<20 || len(m.free) != len(m.all) {
			t.Fatalf("workspace of %d bytes, %d of them free, want %d", len(m.all), len(m.free), 8<<20)
		}
		workspaces = append(workspaces, m)
	}
	last := &workspaces[len(workspaces)-1].all[0]
	for i := range workspaces {
		workspaces[i].put()
	}
	freeList.Lock()
	total := 0
	for _, m := range freeList.list {
		total += allocHugeBytes(len(m.all))
	}
	if total != freeList.bytes || total > maxFreeBytes {
		t.Errorf("%d bytes are free, %d by the counter, want both equal and at most %d", total, freeList.bytes,
			maxFreeBytes)
	}
	freeList.Unlock()
	again := getWorkspace(1 << 20)
	if &again.all[0] != last {
		t.Error("getWorkspace does not return the most recently used workspace")
	}
	again.put()
	large := getWorkspace(maxFreeBytes + 1)
	large.put()
	freeList.Lock()
	defer freeList.Unlock()
	if freeList.bytes > maxFreeBytes {
		t.Errorf("%d bytes are free, want at most %d", freeList.bytes, maxFreeBytes)
	}
}

func TestEqualParts(t *testing.T) {
	for n := range 200 {
		for _, size := range []int{1, 7, 8, 32, 100, 1000} {
			for _, unit := range []int{1, 4, 6, 8} {
				part := equalParts(n, size, unit)
				if part%unit != 0 || part > max(size, unit) && part > unit {
					t.Fatalf("equalParts(%d, %d, %d) = %d", n, size, unit, part)
				}
				if fewest := ints.CeilDiv(n, max(size/unit*unit, unit)); ints.CeilDiv(n, part) > fewest {
					t.Fatalf("equalParts(%d, %d, %d) = %d makes %d parts, want %d", n, size, unit, part,
						ints.CeilDiv(n, part), fewest)
				}
			}
		}
	}
}
