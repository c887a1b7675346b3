package cpu

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// phased is a task of many phases, each item of which checks that all of the
// phases before are done.
type phased struct {
	sizes     []int
	done      []atomic.Int64 // items done, of each phase
	running   atomic.Int64
	most      atomic.Int64 // that ran at once
	early     atomic.Int64 // items that began before their time
	shared    atomic.Int64 // items that met another in their slot
	at        [16]atomic.Int64
	taken     [16]atomic.Bool
	whileBusy func()
}

func (p *phased) phases() int { return len(p.sizes) }

func (p *phased) enter(phase, slot int) int {
	p.at[slot].Store(int64(phase))
	return p.sizes[phase]
}

func (p *phased) do(_, slot int) {
	at := int(p.at[slot].Load())
	if !p.taken[slot].CompareAndSwap(false, true) {
		p.shared.Add(1)
	}
	defer p.taken[slot].Store(false)
	now := p.running.Add(1)
	for most := p.most.Load(); now > most && !p.most.CompareAndSwap(most, now); most = p.most.Load() {
	}
	for phase := range at {
		if p.done[phase].Load() != int64(p.sizes[phase]) {
			p.early.Add(1)
		}
	}
	if p.whileBusy != nil {
		p.whileBusy()
	}
	p.done[at].Add(1)
	p.running.Add(-1)
}

func TestPhasesFollowEachOther(t *testing.T) {
	for _, threads := range []int{1, 2, 8} {
		p := &phased{sizes: []int{3, 0, 1, 50, 7, 0}, whileBusy: runtime.Gosched}
		p.done = make([]atomic.Int64, len(p.sizes))
		if err := new(crew).execute(t.Context(), p, threads, nil); err != nil {
			t.Fatal(err)
		}
		for phase, want := range p.sizes {
			if got := p.done[phase].Load(); got != int64(want) {
				t.Errorf("%d threads: %d items of phase %d were done, want %d", threads, got, phase, want)
			}
		}
		if p.early.Load() > 0 {
			t.Errorf("%d threads: %d items began before the phase before them was done", threads, p.early.Load())
		}
		if p.shared.Load() > 0 {
			t.Errorf("%d threads: %d items began in a slot that another one had", threads, p.shared.Load())
		}
		if most := p.most.Load(); most > int64(threads) || most > int64(runtime.GOMAXPROCS(0)) {
			t.Errorf("%d threads: %d items ran at once", threads, most)
		}
	}
}

// However many tasks run at once, there are never more helpers than GOMAXPROCS
// less one, and none is left with a task that has ended.
func TestHelpersAreBounded(t *testing.T) {
	before := runtime.NumGoroutine()
	const callers = 20
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range 20 {
				p := &phased{sizes: []int{5, 5}}
				p.done = make([]atomic.Int64, 2)
				if err := new(crew).execute(context.Background(), p, 4, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	helpers.Lock()
	started := helpers.started
	helpers.Unlock()
	if limit := runtime.GOMAXPROCS(0) - 1; started > limit {
		t.Errorf("%d helpers, want at most %d", started, limit)
	}
	for deadline := time.Now().Add(time.Second); runtime.NumGoroutine() > before+started; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before and %d helpers", runtime.NumGoroutine(), before, started)
		}
	}
}

// A task that is cancelled returns only when nothing of it runs any more.
func TestCancelledTaskLeavesNothingRunning(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		p := &phased{sizes: []int{1000}, whileBusy: func() { time.Sleep(10 * time.Microsecond) }}
		p.done = make([]atomic.Int64, 1)
		time.AfterFunc(200*time.Microsecond, cancel)
		err := new(crew).execute(ctx, p, 4, nil)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want context.Canceled", err)
		}
		if p.running.Load() != 0 {
			t.Fatalf("%d items still run after the task has returned", p.running.Load())
		}
		if p.done[0].Load() == 1000 {
			t.Fatal("the task was carried out to its end")
		}
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
				if fewest := ceilDiv(n, max(size/unit*unit, unit)); ceilDiv(n, part) > fewest {
					t.Fatalf("equalParts(%d, %d, %d) = %d makes %d parts where %d do", n, size, unit, part, ceilDiv(n, part), fewest)
				}
			}
		}
	}
}
