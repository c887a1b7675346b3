package cpu

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestMain lets the tests call sweeps themselves: nothing ends in the middle of another test.
func TestMain(m *testing.M) {
	sweeps.after = func(time.Duration, func()) {}
	os.Exit(m.Run())
}

// occupy runs a job on the given number of threads, the caller's included, and returns when each of
// them has run a task.
func occupy(t *testing.T, threads int) {
	t.Helper()
	var all sync.WaitGroup
	all.Add(threads)
	err := ParallelFor(t.Context(), threads, threads, func(int) {
		all.Done()
		all.Wait()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// workers returns the number of workers in the pool.
func workers() int {
	pool.Lock()
	defer pool.Unlock()
	return pool.started
}

// TestWorkersEnd checks that workers that no job used between two sweeps end, with their
// goroutines, that the others stay, and that a later job starts new ones.
func TestWorkersEnd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	sweeps.sweep()
	sweeps.sweep()
	if n := workers(); n != 0 {
		t.Fatalf("%d workers after two sweeps, want none", n)
	}
	before := runtime.NumGoroutine()
	for range 3 {
		occupy(t, 4)
		sweeps.sweep()
		if n := workers(); n != 3 {
			t.Errorf("%d workers after a sweep, want 3", n)
		}
		occupy(t, 3)
		sweeps.sweep()
		if n := workers(); n != 2 {
			t.Errorf("%d workers after a sweep, want the 2 that a job has used", n)
		}
	}
	sweeps.sweep()
	if n := workers(); n != 0 {
		t.Errorf("%d workers after two sweeps without a job, want none", n)
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, want the %d from before the job", runtime.NumGoroutine(), before)
		}
	}
}

// TestBusyWorkersStay checks that sweeps do not end workers that run a job, and that sweeps go on
// until there is nothing left to end.
func TestBusyWorkersStay(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var pending atomic.Int32
	sweeps.after = func(time.Duration, func()) { pending.Add(1) }
	defer func() { sweeps.after = func(time.Duration, func()) {} }()
	sweeps.sweep()
	sweeps.sweep()
	pending.Store(0)
	run := func() {
		pending.Add(-1)
		sweeps.sweep()
	}
	var all sync.WaitGroup
	all.Add(3)
	err := ParallelFor(t.Context(), 3, 3, func(i int) {
		all.Done()
		all.Wait()
		if i == 0 {
			sweeps.schedule()
			for range 3 {
				run()
			}
			if n := workers(); n != 2 {
				t.Errorf("%d workers during a job, want 2", n)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n := pending.Load(); n != 1 {
			t.Fatalf("%d sweeps are scheduled while there are workers, want 1", n)
		}
		run()
	}
	if n := pending.Load(); n != 0 || workers() > 0 {
		t.Errorf("%d sweeps are scheduled with %d workers, want none", n, workers())
	}
}

// TestSweepsWhileWorking checks that jobs and sweeps at the same time lose no task, so that no
// worker ends after a job was assigned to it.
func TestSweepsWhileWorking(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	rng := testrand.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		for ctx.Err() == nil {
			sweeps.sweep()
			runtime.Gosched()
		}
	})
	for range 300 {
		var done atomic.Int64
		tasks := rng.IntN(20)
		if err := ParallelFor(t.Context(), tasks, 4, func(int) { done.Add(1) }); err != nil {
			t.Fatal(err)
		}
		if n := int(done.Load()); n != tasks {
			t.Fatalf("%d tasks ran, want %d", n, tasks)
		}
	}
	cancel()
	sweeping.Wait()
}

// TestWorkspacesEnd checks that workspaces that no product used between two sweeps are dropped.
func TestWorkspacesEnd(t *testing.T) {
	const size = 1 << 10
	sweeps.sweep()
	sweeps.sweep()
	kept := func() (n, bytes int) {
		freeList.Lock()
		defer freeList.Unlock()
		return len(freeList.list), freeList.bytes
	}
	use := func(count int) {
		var all [2]workspace
		for i := range all[:count] {
			all[i] = getWorkspace(size)
		}
		for i := range all[:count] {
			all[i].put()
		}
	}
	use(2)
	sweeps.sweep()
	use(1)
	sweeps.sweep()
	if n, bytes := kept(); n != 1 || bytes != allocHugeBytes(size) {
		t.Errorf("%d workspaces of %d bytes are kept, want the one of %d that was used", n, bytes, size)
	}
	sweeps.sweep()
	if n, bytes := kept(); n != 0 || bytes != 0 {
		t.Errorf("%d workspaces of %d bytes are kept after two sweeps without a product", n, bytes)
	}
}

// TestMemoryKept multiplies matrices of many sizes and types from several goroutines. Between the
// products, workers and workspaces are bounded, and so is the memory that is reachable. After two
// sweeps all of it is free.
func TestMemoryKept(t *testing.T) {
	const procs, slack = 4, 2 << 20 // for all that is not a workspace
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	rng := testrand.New(t)
	types := [][2]dtype.Type{{dtype.F64, dtype.F64}, {dtype.F32, dtype.F32}, {dtype.F32, dtype.BF16},
		{dtype.F16, dtype.F16}, {dtype.BF16, dtype.F32}, {dtype.I8, dtype.I32}, {dtype.I8, dtype.F32}}
	products := func(count int, seed uint64, longest float64) {
		var all sync.WaitGroup
		for g := range procs {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			side := func() int { return int(math.Exp(rng.Float64() * math.Log(longest))) }
			all.Go(func() {
				for range count {
					types := types[rng.IntN(len(types))]
					multiply(t, types[0], types[1], side(), side(), side(), 1+rng.IntN(procs))
				}
			})
		}
		all.Wait()
	}
	kept := func() int {
		for range 3 { // a sync.Pool keeps its values for a cycle
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	products(2*len(types), rng.Uint64(), 10) // starts all that later products use
	sweeps.sweep()
	sweeps.sweep()
	before := kept()
	for range testkit.Short(5) {
		products(20, rng.Uint64(), 1200)
		freeList.Lock()
		bytes := freeList.bytes
		freeList.Unlock()
		n, more := workers(), kept()-before
		if n >= procs || bytes > maxFreeBytes || more > bytes+slack {
			t.Errorf("%d workers, %d bytes of workspaces and %d bytes of heap are kept, want at most %d, %d and %d", n, bytes,
				more, procs-1, maxFreeBytes, bytes+slack)
		}
	}
	sweeps.sweep()
	sweeps.sweep()
	if n, more := workers(), kept()-before; n != 0 || more > slack {
		t.Errorf("%d workers and %d bytes of heap are kept after two sweeps, want none and at most %d", n, more, slack)
	}
}

// multiply computes a product of zeros.
func multiply(t *testing.T, in, out dtype.Type, m, n, k, threads int) {
	a, b := gemm.Dense(in, m, k), gemm.Dense(in, k, n)
	p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, m, n), gemm.Epilogue{})
	if err != nil {
		t.Error(err)
		return
	}
	pl, err := NewPlan(&p, backend.Options{Threads: threads})
	if err == nil {
		err = pl.Run(t.Context(), &gemm.Buffers{gemm.A: make([]byte, a.Bytes()), gemm.B: make([]byte, b.Bytes()),
			gemm.C: make([]byte, p.C().Bytes())})
	}
	if err != nil {
		t.Error(err)
	}
}
