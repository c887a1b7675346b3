package tilework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device/cuda"
	"tilework/internal/dispatch"
)

// firstGPU opens the first GPU of this machine. Without a GPU it skips the test, or fails it if
// TILEWORK_REQUIRE_GPU is set.
func firstGPU(t *testing.T) *Device {
	t.Helper()
	d, err := Open("gpu")
	if errors.Is(err, ErrNoDevice) && os.Getenv("TILEWORK_REQUIRE_GPU") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// random returns a rows×cols matrix of random numbers in [-1, 1).
func random(rng *rand.Rand, rows, cols int) Matrix[float32] {
	m := New[float32](rows, cols)
	for i := range m.data {
		m.data[i] = 2*rng.Float32() - 1
	}
	return m
}

// allGPUs opens all GPUs of this machine. Without a GPU it behaves like firstGPU.
func allGPUs(t *testing.T) []*Device {
	t.Helper()
	all := []*Device{firstGPU(t)}
	gpus, err := cuda.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gpus[1:] {
		d, err := Open(fmt.Sprintf("gpu:%d", g.Index))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, d)
	}
	return all
}

// TestGPUChain runs chains of products in several goroutines on all GPUs and compares the results
// with those of the CPU. Each chain closes its matrices while the GPU may still use them.
func TestGPUChain(t *testing.T) {
	devices := allGPUs(t)
	t.Logf("on %v", devices)
	rng := rand.New(rand.NewPCG(11, 12))
	w := make([]Matrix[float32], 6)
	for i := range w {
		w[i] = whole[float32](rng, 96, 96) // sums of few numbers: exact in any order
		for j := range w[i].data {
			if rng.IntN(16) > 0 {
				w[i].data[j] = 0
			}
		}
	}
	want := w[0]
	for _, x := range w[1:] {
		var err error
		if want, err = Mul(t.Context(), want, x.T(), WithDevice("cpu")); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range 8 * len(devices) {
		d := devices[i%len(devices)]
		all.Go(func() {
			for range 50 {
				got, err := gpuChain(t.Context(), d, w)
				if err != nil || !slices.Equal(got.Data(), want.Data()) {
					t.Errorf("a chain of %d products differs from the CPU, or error %v", len(w)-1, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func gpuChain(ctx context.Context, d *Device, w []Matrix[float32]) (Matrix[float32], error) {
	h, err := Upload(ctx, d, w[0])
	if err != nil {
		return Matrix[float32]{}, err
	}
	for _, x := range w[1:] {
		y, err := Upload(ctx, d, x)
		if err != nil {
			return Matrix[float32]{}, err
		}
		next, err := Mul(ctx, h, y.T())
		if err := errors.Join(err, h.Close(), y.Close()); err != nil {
			return Matrix[float32]{}, err
		}
		h = next
	}
	got, err := h.Download(ctx)
	return got, errors.Join(err, h.Close())
}

// TestGPUAsync checks that Gemm enqueues a product in much less time than the product takes. Sync
// waits for the product, and returns early if its context ends.
func TestGPUAsync(t *testing.T) {
	d := firstGPU(t)
	rng := rand.New(rand.NewPCG(13, 14))
	a := upload(t, d, random(rng, 4096, 4096))
	c, err := Mul(t.Context(), a, a) // compiles
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 10 {
		if err := Gemm(t.Context(), 1, a, a, 0, c); err != nil {
			t.Fatal(err)
		}
	}
	enqueued := time.Since(start)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := d.Sync(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Sync with a timeout of 1 ms: %v, want DeadlineExceeded", err)
	}
	if err := d.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	t.Logf("ten products of 4096³ enqueued in %v, done in %v", enqueued, took)
	if enqueued > took/4 {
		t.Errorf("enqueueing took %v of %v, want at most a quarter", enqueued, took)
	}
}

// TestGPUOutOfMemory checks that allocating a matrix that exceeds the GPU's memory returns
// ErrOutOfMemory, and that the device remains usable.
func TestGPUOutOfMemory(t *testing.T) {
	d := firstGPU(t)
	_, err := NewDeviceMatrix[float32](d, 1<<20, 1<<18)
	if !errors.Is(err, ErrOutOfMemory) {
		t.Fatal(err)
	}
	t.Log(err)
	if got := download(t, square(t, d)).Data(); !slices.Equal(got, []float32{1, 2, 3, 4}) {
		t.Errorf("a matrix allocated after the error is %v, want [1 2 3 4]", got)
	}
}

// TestGPUIssue measures the host time of enqueueing a product of 64³, which must be at most 10 µs.
// It also logs the host time of other calls and compares it with their limits.
func TestGPUIssue(t *testing.T) {
	const limit = 10 * time.Microsecond
	if os.Getenv("TILEWORK_REQUIRE_GPU") == "" {
		t.Skip("set TILEWORK_REQUIRE_GPU=1 to measure")
	}
	d := firstGPU(t)
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(15, 16))
	a, b := upload(t, d, random(rng, 64, 64)), upload(t, d, random(rng, 64, 64))
	start := time.Now()
	c, err := Mul(ctx, a, b)
	if err != nil {
		t.Fatal(err)
	}
	first := time.Since(start)
	plan, err := PlanGemm(t.Context(), a, b, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the first product took %v: %v", first, plan)
	if first > 2*time.Second || plan.Compile <= 0 || plan.Compile > first {
		t.Errorf("the first product took %v, including %v of compilation", first, plan.Compile)
	}
	bias := upload(t, d, random(rng, 1, 64))
	gelu := []Option{WithColBias(bias), WithGELU()}
	for _, x := range []struct {
		name  string
		limit time.Duration
		f     func() error
	}{
		{"Gemm", limit, func() error { return Gemm(ctx, 1, a, b, 0, c) }},
		{"Gemm, factors", limit, func() error { return Gemm(ctx, 2, a, b, 3, c) }},
		{"Gemm, bias and gelu", limit, func() error { return Gemm(ctx, 1, a, b, 0, c, gelu...) }},
		{"Mul and Close", 2 * limit, func() error {
			h, err := Mul(ctx, a, b)
			return errors.Join(err, h.Close())
		}},
		{"NewDeviceMatrix and Close", 2 * limit, func() error {
			h, err := NewDeviceMatrix[float32](d, 64, 64)
			return errors.Join(err, h.Close())
		}},
		{"Gemm and Sync", 10 * limit, func() error { return errors.Join(Gemm(ctx, 1, a, b, 0, c), d.Sync(ctx)) }},
	} {
		// The driver queues about a thousand launches and then blocks.
		const burst, bursts = 200, 30
		var times []time.Duration
		for range bursts {
			start := time.Now()
			for range burst {
				if err := x.f(); err != nil {
					t.Fatal(err)
				}
			}
			times = append(times, time.Since(start)/burst)
			if err := d.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(times[1:])
		median := times[1:][(bursts-1)/2]
		t.Logf("%-22s %v per call (median of %d bursts of %d calls; from %v to %v)", x.name, median, bursts-1, burst,
			times[1], times[bursts-1])
		if median > x.limit {
			t.Errorf("%s: %v, want at most %v", x.name, median, x.limit)
		}
	}
}

// TestGPULargeIndices checks that each kernel reads and writes matrices of more than 2^31
// elements.
func TestGPULargeIndices(t *testing.T) {
	d := firstGPU(t)
	const n = 46_400
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		for _, in := range k.Types {
			run := map[string]func(*testing.T, *Device, int, ...Option){
				"float64": outerProduct[float64, float64], "float32": outerProduct[float32, float32],
				"float16": outerProduct[dtype.Float16, float32], "bfloat16": outerProduct[dtype.BFloat16, float32],
			}[in.String()]
			if k.Kind == backend.GPU && run != nil {
				t.Run(k.Name+"/"+in.String(), func(t *testing.T) { run(t, d, n, WithKernel(k.Name)) })
			}
		}
	}
}
