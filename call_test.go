package tilework

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"tilework/internal/cpu/asm"
)

// TestNoAllocations: a product into a matrix that is there allocates nothing, on any
// number of threads, with options that were made before.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has pools forget what they are given")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, n := range []int{1, 8, 64, 130, 300} {
		for _, threads := range []int{1, 4} {
			opts := []Option{WithDevice("cpu"), WithThreads(threads)}
			noAllocations[float64, float64](t, n, opts...)
			noAllocations[float32, float32](t, n, opts...)
			noAllocations[int8, int32](t, n, opts...)
			if n > 200 {
				continue // it would take long, and shows nothing new
			}
			noAllocations[Float16, Float16](t, n, opts...)
			noAllocations[float32, float32](t, n, append(opts, WithKernel("portable"), WithColBias(make([]float32, n)), WithActivation("relu"))...)
		}
	}
	noAllocations[float32, float32](t, 64) // whichever the device
}

// noAllocations counts the whole process's allocations: helpers must make none either.
func noAllocations[I, O Element](t *testing.T, n int, opts ...Option) {
	t.Helper()
	a, b, c := New[I](n, n), New[I](n, n), New[O](n, n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const runs = 4
	least := uint64(math.MaxUint64)
	for range 5 { // other goroutines of the process allocate too, now and then
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			if err := Gemm(ctx, 2, a, b, 1, c, opts...); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
		if least == 0 {
			return
		}
	}
	t.Errorf("%d·%d %v with %d options: %d allocations in %d products", n, n, a.layout().Type, len(opts), least, runs)
}

// BenchmarkCall compares a product of 64³ on one thread with the calls of the
// micro-kernel that it consists of, in turns, and reports what is between the two.
func BenchmarkCall(b *testing.B) {
	k := asm.F32AVX512
	if !k.ISA.Supported {
		b.Skip("this processor lacks AVX-512")
	}
	const n = 64
	x, y, z := New[float32](n, n), New[float32](n, n), New[float32](n, n)
	ctx, opts := context.Background(), []Option{WithThreads(1)}
	call := func() {
		if err := MulInto(ctx, z, x, y, opts...); err != nil {
			b.Fatal(err)
		}
	}
	const high = 11 // rows of a tile: as few tiles as there can be, equally high
	kernel := func() {
		for j := 0; j < n; j += k.NR {
			for i := 0; i < n; i += high {
				rows, right := min(high, n-i), &y.data[j]
				k.Direct[rows-1](n, &x.data[i*n], n, 1, right, n, &z.data[i*n+j], right, 0, n, k.NR, 1, 0)
			}
		}
	}
	const batch = 50
	least := func(f func(), old float64) float64 {
		start := time.Now()
		for range batch {
			f()
		}
		return min(old, float64(time.Since(start).Nanoseconds())/batch)
	}
	calls, kernels := math.Inf(1), math.Inf(1)
	b.ReportAllocs()
	for b.Loop() {
		calls, kernels = least(call, calls), least(kernel, kernels)
	}
	b.ReportMetric(calls, "ns/call")
	b.ReportMetric(kernels, "ns/kernel")
	b.ReportMetric(calls-kernels, "ns/overhead")
	b.ReportMetric(0, "ns/op")
}
