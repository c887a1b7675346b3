package tilework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"tilework/internal/testkit"
)

// work is a product with the result that one goroutine alone gets.
type work struct {
	a, b, want Matrix[float32]
	opts       []Option
}

func newWork(t *testing.T, rng *rand.Rand, m, n, k int, opts ...Option) work {
	t.Helper()
	w := work{a: New[float32](m, k), b: New[float32](k, n), opts: opts}
	for _, x := range []Matrix[float32]{w.a, w.b} {
		for i := range x.data {
			x.data[i] = rng.Float32() - 0.5
		}
	}
	var err error
	if w.want, err = Mul(t.Context(), w.a, w.b, append(opts, WithThreads(1))...); err != nil {
		t.Fatal(err)
	}
	return w
}

// check multiplies and compares. A product that is cancelled midway need not be done.
func (w *work) check(ctx context.Context) error {
	c, err := Mul(ctx, w.a, w.b, w.opts...)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	case !slices.Equal(c.data, w.want.data):
		return fmt.Errorf("%d×%d·%d×%d has other bits than alone", w.a.rows, w.a.cols, w.b.rows, w.b.cols)
	}
	return nil
}

// mixture is products of all sizes, on the processor and on the emulator.
func mixture(t *testing.T) []work {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var all []work
	for _, n := range []int{5, 40, 150, 300} {
		all = append(all, newWork(t, rng, n, n, n+7, WithDevice("cpu")), newWork(t, rng, n, 3, n, WithDevice("cpu"), WithVerify()))
	}
	for _, kernel := range []string{"naive", "tiled", "blocked"} {
		all = append(all, newWork(t, rng, 9, 20, 11, WithDevice("emu"), WithKernel(kernel)))
	}
	return all
}

// TestManyCallers: 64 goroutines at once, with products of all sizes on the processor
// and on the emulator, get the bits that one alone gets.
func TestManyCallers(t *testing.T) {
	all := mixture(t)
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for r := range testkit.Repeats(2, 6, 100) {
				if err := all[(g+r)%len(all)].check(t.Context()); err != nil {
					t.Errorf("goroutine %d, round %d: %v", g, r, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestSoak multiplies, and cancels some, for as long as TILEWORK_SOAK says: every result
// has its bits, and neither memory nor goroutines grow.
func TestSoak(t *testing.T) {
	lasts := testkit.Soak(t)
	all := mixture(t)
	callers := 2 * runtime.GOMAXPROCS(0)
	round := func(d time.Duration) (products int64) {
		end := time.Now().Add(d)
		counts := make([]int64, callers)
		var wg sync.WaitGroup
		for g := range callers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), uint64(end.UnixNano())))
				for time.Now().Before(end) && !t.Failed() {
					ctx, cancel := context.WithCancel(t.Context())
					if rng.IntN(4) == 0 {
						time.AfterFunc(time.Duration(rng.IntN(300))*time.Microsecond, cancel)
					}
					if err := all[rng.IntN(len(all))].check(ctx); err != nil {
						t.Errorf("goroutine %d: %v", g, err)
					}
					cancel()
					counts[g]++
				}
			})
		}
		wg.Wait()
		for _, n := range counts {
			products += n
		}
		return products
	}
	// The first tenth fills what is kept: workspaces, helpers, compiled kernels.
	products := round(lasts / 10)
	memory, goroutines := held()
	products += round(lasts - lasts/10)
	moreMemory, moreGoroutines := held()
	t.Logf("%d products in %v; memory in use %.1f → %.1f MiB, goroutines %d → %d", products, lasts,
		float64(memory)/(1<<20), float64(moreMemory)/(1<<20), goroutines, moreGoroutines)
	const slack = 8 << 20 // workspaces of products that now ran at once for the first time
	if moreMemory > memory+slack {
		t.Errorf("memory in use grew from %d to %d bytes", memory, moreMemory)
	}
	if limit := goroutines + runtime.GOMAXPROCS(0); moreGoroutines > limit {
		t.Errorf("goroutines grew from %d to %d", goroutines, moreGoroutines)
	}
}

// held is the memory and the goroutines that are in use when nothing runs.
func held() (memory uint64, goroutines int) {
	for range 3 { // what a clean-up frees is garbage of the next collection
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, runtime.NumGoroutine()
}
