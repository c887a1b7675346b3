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

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/device/faulty"
	"tilework/internal/dispatch"
	"tilework/internal/gpu"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// work is a product and the result that a single goroutine computes.
type work struct {
	a, b, want Matrix[float32]
	multiply   multiplier
	opts       []Option
}

// multiplier is the signature of Mul on host matrices.
type multiplier func(ctx context.Context, a, b Matrix[float32], opts ...Option) (Matrix[float32], error)

func onHost(ctx context.Context, a, b Matrix[float32], opts ...Option) (Matrix[float32], error) {
	return Mul(ctx, a, b, opts...)
}

func newWork(t *testing.T, rng *rand.Rand, m, n, k int, multiply multiplier, opts ...Option) work {
	t.Helper()
	w := work{a: random(rng, m, k), b: random(rng, k, n), multiply: multiply, opts: opts}
	var err error
	if w.want, err = multiply(t.Context(), w.a, w.b, append(opts, WithThreads(1), WithVerify())...); err != nil {
		t.Fatal(err)
	}
	return w
}

// check computes the product and compares it with the wanted result. It ignores the error of a
// cancelled product.
func (w *work) check(ctx context.Context) error {
	c, err := w.multiply(ctx, w.a, w.b, w.opts...)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	case !slices.Equal(c.data, w.want.data):
		return fmt.Errorf("%d×%d·%d×%d differs bitwise from the product computed alone", w.a.Rows(), w.a.Cols(), w.b.Rows(),
			w.b.Cols())
	}
	return nil
}

// mixture returns products of various sizes, on the CPU and on the emulated GPU.
func mixture(t *testing.T) []work {
	rng := testrand.New(t)
	var all []work
	for _, n := range []int{5, 40, 150, 300} {
		all = append(all, newWork(t, rng, n, n, n+7, onHost, WithDevice("cpu")),
			newWork(t, rng, n, 3, n, onHost, WithDevice("cpu"), WithVerify()))
	}
	for _, kernel := range []string{"naive", "tiled", "blocked"} {
		all = append(all, newWork(t, rng, 9, 20, 11, onHost, WithDevice("emu"), WithKernel(kernel)))
	}
	return all
}

// gpuMixture returns products of various sizes on the first GPU, from host and from device
// matrices. It includes every kernel that multiplies float32.
func gpuMixture(t *testing.T, d *Device) []work {
	rng := testrand.New(t)
	onDevice := func(ctx context.Context, a, b Matrix[float32], opts ...Option) (Matrix[float32], error) {
		return mulOnDevice(ctx, d, a, b, opts...)
	}
	var all []work
	for _, n := range []int{5, 40, 150, 300, 1500} {
		all = append(all, newWork(t, rng, n, n+3, n+7, onHost, WithDevice("gpu")),
			newWork(t, rng, n, 3, n, onDevice, WithVerify()), newWork(t, rng, n, n+1, n, onDevice))
	}
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		if k.Kind == backend.GPU && slices.Contains(k.Types, dtype.F32) {
			all = append(all, newWork(t, rng, 120, 99, 77, onHost, WithDevice("gpu"), WithKernel(k.Name)))
		}
	}
	return all
}

// mulOnDevice uploads a and b to d, multiplies them there and downloads the product.
func mulOnDevice(ctx context.Context, d *Device, a, b Matrix[float32], opts ...Option) (c Matrix[float32], err error) {
	on := make([]DeviceMatrix[float32], 3)
	defer func() {
		for _, m := range on {
			err = errors.Join(err, m.Close())
		}
	}()
	for i, m := range []Matrix[float32]{a, b} {
		if on[i], err = Upload(ctx, d, m); err != nil {
			return c, err
		}
	}
	if on[2], err = Mul(ctx, on[0], on[1], opts...); err != nil {
		return c, err
	}
	return on[2].Download(ctx)
}

// TestManyCallers checks that 64 concurrent goroutines get bitwise the same results as one alone,
// for products of various sizes on the CPU and on the emulated GPU.
func TestManyCallers(t *testing.T) { manyCallers(t, mixture(t)) }

// TestGPUManyCallers checks the results of 64 concurrent goroutines on a GPU.
func TestGPUManyCallers(t *testing.T) { manyCallers(t, gpuMixture(t, firstGPU(t))) }

func manyCallers(t *testing.T, all []work) {
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for r := range testkit.Repeats(6, 100) {
				if err := all[(g+r)%len(all)].check(t.Context()); err != nil {
					t.Errorf("goroutine %d, round %d: %v", g, r, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestSoak computes products for the duration in TILEWORK_SOAK and cancels some of them. Every
// result must be bitwise equal to the wanted one, and neither memory nor goroutines may grow.
func TestSoak(t *testing.T) { soak(t, mixture(t), func() int { return 0 }) }

// TestGPUSoak is TestSoak on a GPU. The number of live device resources (memory, streams, events)
// must not grow either.
func TestGPUSoak(t *testing.T) {
	firstGPU(t) // skips the test without a GPU
	var account *faulty.Device
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) {
		g, err := cuda.Open(0)
		if err != nil {
			return nil, err
		}
		account = faulty.New(g)
		return account, nil
	})
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
		if left := account.Leaks(); len(left) > 0 {
			t.Errorf("left on the device: %v", left)
		}
	})
	d := on(t, "gpu")
	soak(t, gpuMixture(t, d), func() int { return len(account.Leaks()) })
}

// soak computes the products in all concurrently. The function taken returns the number of live
// device resources, which the garbage collector does not track.
func soak(t *testing.T, all []work, taken func() int) {
	lasts := testkit.SoakTime(t)
	callers := 2 * runtime.GOMAXPROCS(0)
	seeds := testrand.New(t)
	round := func(d time.Duration) (products int64) {
		end := time.Now().Add(d)
		seed, counts := seeds.Uint64(), make([]int64, callers)
		var wg sync.WaitGroup
		for g := range callers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(g)))
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
	// The first tenth fills the caches: workspaces, worker goroutines and compiled kernels.
	products := round(lasts / 10)
	memory, goroutines := held()
	resources := taken()
	products += round(lasts - lasts/10)
	moreMemory, moreGoroutines := held()
	moreResources := taken()
	t.Logf("%d products in %v; memory in use %.1f → %.1f MiB, goroutines %d → %d, device resources %d → %d", products,
		lasts,
		float64(memory)/(1<<20), float64(moreMemory)/(1<<20), goroutines, moreGoroutines, resources, moreResources)
	const slack = 8 << 20 // workspaces of products that first ran concurrently in this round
	if moreMemory > memory+slack {
		t.Errorf("memory in use grew from %d to %d bytes", memory, moreMemory)
	}
	if limit := goroutines + runtime.GOMAXPROCS(0); moreGoroutines > limit {
		t.Errorf("goroutines grew from %d to %d", goroutines, moreGoroutines)
	}
	// Products that first ran concurrently in this round may each add a stream and an event.
	if limit := resources + 2*callers; moreResources > limit {
		t.Errorf("the number of live resources on the device grew from %d to %d", resources, moreResources)
	}
}

// held returns the heap bytes and the number of goroutines in use while no product runs.
func held() (memory uint64, goroutines int) {
	for range 3 { // memory freed by a cleanup is collected in the next cycle
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, runtime.NumGoroutine()
}
