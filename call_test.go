package tilework

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/testkit/testrand"
)

// TestNoAllocations checks that a product into an existing matrix allocates nothing, on any number
// of threads, with options created beforehand.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector, sync.Pool drops items at random")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, n := range []int{1, 8, 64, 130, 300} {
		for _, threads := range []int{1, 4} {
			opts := []Option{WithDevice("cpu"), WithThreads(threads)}
			noAllocations[float64, float64](t, n, opts...)
			noAllocations[float32, float32](t, n, opts...)
			noAllocations[int8, int32](t, n, opts...)
			if n > 200 {
				continue // large sizes of the other types are slow and exercise the same code
			}
			noAllocations[dtype.Float16, dtype.Float16](t, n, opts...)
			noAllocations[float32, float32](t, n, append(opts, WithKernel("portable"),
				WithColBias(Vector(make([]float32, n)...)), WithReLU())...)
		}
	}
	noAllocations[float32, float32](t, 64) // on the default device
}

// noAllocations counts the allocations of the whole process, because the worker threads must not
// allocate either.
func noAllocations[I, O dtype.Element](t *testing.T, n int, opts ...Option) {
	t.Helper()
	a, b, c := New[I](n, n), New[I](n, n), New[O](n, n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const runs = 4
	least := uint64(math.MaxUint64)
	for range 25 { // other goroutines of the process allocate occasionally, and so does a pool as threads move
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
	t.Errorf("%d·%d %v with %d options: %d allocations in %d products", n, n, a.layout.Type, len(opts), least, runs)
}

// TestBatchAllocations checks that a batch of products allocates nothing per product, for products
// of equal and of several sizes, on any number of threads.
func TestBatchAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector, sync.Pool drops items at random")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, sizes := range [][]int{{4}, {100}, {4, 9, 33}} {
		for _, threads := range []int{1, 4} {
			few, many := batchAllocations(t, 30, sizes, threads), batchAllocations(t, 300, sizes, threads)
			if many > few+20 { // of the batch, which may have more tasks and threads
				t.Errorf("sizes %v, %d threads: %d allocations in a batch of 300 products, %d in one of 30", sizes,
					threads, many, few)
			}
		}
	}
}

// batchAllocations returns the least number of allocations of the process during a batch.
func batchAllocations(t *testing.T, count int, sizes []int, threads int) uint64 {
	t.Helper()
	var a, b, c Batch[float32]
	for i := range count {
		n := sizes[i%len(sizes)]
		a, b, c = append(a, New[float32](n, n)), append(b, New[float32](n, n)), append(c, New[float32](n, n).T())
	}
	opts := []Option{WithDevice("cpu"), WithThreads(threads)}
	least := uint64(math.MaxUint64)
	for range 10 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := Gemm(t.Context(), 2, a, b, 1, c, opts...); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	return least
}

// TestBatchOfSomeLayouts checks that products of a batch whose plans are shared have the bits of
// single products: with several sizes in turn, transposed operands, one B for all, and a bias.
func TestBatchOfSomeLayouts(t *testing.T) {
	rng := testrand.New(t)
	for _, threads := range []int{1, 4} {
		var a, b, c, want Batch[float64]
		shared := randomMatrix(rng, 5, 7)
		for range 700 {
			m := 1 + rng.IntN(3)
			x, y, z, w := randomMatrix(rng, m, 5), shared, randomMatrix(rng, m, 7), New[float64](m, 7)
			if rng.IntN(3) == 0 {
				y = randomMatrix(rng, 7, 5).T()
			}
			if rng.IntN(3) == 0 {
				z, w = randomMatrix(rng, 7, m).T(), New[float64](7, m).T()
			}
			copy(w.data, z.data)
			a, b, c, want = append(a, x), append(b, y), append(c, z), append(want, w)
		}
		opts := []Option{WithDevice("cpu"), WithThreads(threads), WithColBias(randomMatrix(rng, 1, 7))}
		if err := Gemm(t.Context(), 2, a, b, -1, c, opts...); err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if err := Gemm(t.Context(), 2, a[i], b[i], -1, want[i], opts...); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c[i].data, want[i].data) {
				t.Fatalf("%d threads: product %d is %v, want %v", threads, i, c[i].data, want[i].data)
			}
		}
	}
}

// randomMatrix returns a matrix of small integers.
func randomMatrix(rng *rand.Rand, rows, cols int) Matrix[float64] {
	m := New[float64](rows, cols)
	for i := range m.data {
		m.data[i] = float64(rng.IntN(9) - 4)
	}
	return m
}

// BenchmarkCall alternates a product of 64³ on one thread with the micro-kernel calls that it
// consists of. It reports the difference as ns/overhead.
func BenchmarkCall(b *testing.B) {
	k := asm.F32AVX512
	if !k.ISA.Supported {
		k = asm.F32AVX2
	}
	if !k.ISA.Supported {
		b.Skip("this CPU lacks AVX2")
	}
	const n = 64
	x, y, z := New[float32](n, n), New[float32](n, n), New[float32](n, n)
	ctx, opts := context.Background(), []Option{WithThreads(1)}
	call := func() {
		if err := Gemm(ctx, 1, x, y, 0, z, opts...); err != nil {
			b.Fatal(err)
		}
	}
	tiles := (n + k.MR - 1) / k.MR
	high := (n + tiles - 1) / tiles // rows of a tile: the fewest tiles of nearly equal height
	kernel := func() {
		for j := 0; j < n; j += k.NR {
			right := &y.data[j]
			k.Direct[high-1](n/high, n, &x.data[0], n, 1, right, n, &z.data[j], right, 0, n, k.NR, 1, 0)
			at := n / high * high * n
			k.Direct[n%high-1](1, n, &x.data[at], n, 1, right, n, &z.data[at+j], right, 0, n, k.NR, 1, 0)
		}
	}
	calls, kernels := math.Inf(1), math.Inf(1)
	b.ReportAllocs()
	for b.Loop() {
		calls, kernels = least(50, call, calls), least(50, kernel, kernels)
	}
	b.ReportMetric(calls, "ns/call")
	b.ReportMetric(kernels, "ns/kernel")
	b.ReportMetric(calls-kernels, "ns/overhead")
	b.ReportMetric(0, "ns/op")
}

// least calls f the given number of times and returns the smaller of old and the mean time of a
// call in nanoseconds.
func least(times int, f func(), old float64) float64 {
	start := time.Now()
	for range times {
		f()
	}
	return min(old, float64(time.Since(start).Nanoseconds())/float64(times))
}

// BenchmarkBatch alternates a batch of 256 products with a loop of calls, on one and on two
// threads.
func BenchmarkBatch(b *testing.B) {
	const count = 256
	for _, n := range []int{4, 16, 32, 64} {
		for _, threads := range []int{1, 2} {
			var x, y, z Batch[float32]
			for range count {
				x, y, z = append(x, New[float32](n, n)), append(y, New[float32](n, n)), append(z, New[float32](n, n))
			}
			ctx, opts := context.Background(), []Option{WithDevice("cpu"), WithThreads(threads)}
			batch := func() {
				if err := Gemm(ctx, 1, x, y, 0, z, opts...); err != nil {
					b.Fatal(err)
				}
			}
			loop := func() {
				for i := range x {
					if err := Gemm(ctx, 1, x[i], y[i], 0, z[i], opts...); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.Run(fmt.Sprintf("n=%d/threads=%d", n, threads), func(b *testing.B) {
				b.ReportAllocs()
				batched, called := math.Inf(1), math.Inf(1)
				for b.Loop() {
					batched, called = least(1, batch, batched), least(1, loop, called)
				}
				b.ReportMetric(batched/count, "ns/batched")
				b.ReportMetric(called/count, "ns/called")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkTileFunc alternates a product of 1024³ on one thread with the same product and a tile
// function that does nothing. It reports the added time in percent.
func BenchmarkTileFunc(b *testing.B) {
	const n = 1024
	x, y, z := New[float32](n, n), New[float32](n, n), New[float32](n, n)
	mul := func(opts ...Option) func() {
		opts = append(opts, WithThreads(1))
		return func() {
			if err := Gemm(b.Context(), 1, x, y, 0, z, opts...); err != nil {
				b.Fatal(err)
			}
		}
	}
	plain, tiled := mul(), mul(WithTileFunc(func(Matrix[float32], int, int) {}))
	without, with := math.Inf(1), math.Inf(1)
	for b.Loop() {
		without, with = least(1, plain, without), least(1, tiled, with)
	}
	b.ReportMetric(100*(with/without-1), "%")
	b.ReportMetric(without/1e6, "ms/plain")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReading measures the memory bandwidth of a product of a row or a column and a matrix of
// 64 MiB on one thread. It compares the product with a scan of the matrix's memory for a byte that
// does not occur.
func BenchmarkReading(b *testing.B) {
	const n = 4096
	large := New[float32](n, n)
	for i := range large.data {
		large.data[i] = 2 // so that the operating system backs the pages with memory
	}
	memory := dtype.Bytes(large.data)
	for _, s := range []struct {
		name string
		a, b Matrix[float32]
	}{
		{"row", New[float32](1, n), large}, {"column", large, New[float32](n, 1)},
		{"row-transposed", New[float32](1, n), large.T()}, {"column-transposed", large.T(), New[float32](n, 1)},
	} {
		b.Run(s.name, func(b *testing.B) {
			c := New[float32](s.a.Rows(), s.b.Cols())
			product, read := math.Inf(1), math.Inf(1)
			for b.Loop() {
				product = least(1, func() {
					if err := Gemm(b.Context(), 1, s.a, s.b, 0, c, WithThreads(1)); err != nil {
						b.Fatal(err)
					}
				}, product)
				read = least(1, func() {
					if bytes.IndexByte(memory, 1) >= 0 {
						b.Fatal("found a byte 1 in a matrix of 2")
					}
				}, read)
			}
			b.ReportMetric(float64(len(memory))/product, "GB/s")
			b.ReportMetric(100*read/product, "%-of-reading")
			b.ReportMetric(0, "ns/op")
		})
	}
}
