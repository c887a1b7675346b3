package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"tilework/internal/cpu/asm"
	"tilework/internal/device"
)

// TestGPUCopyRates logs the rates of copies between plain memory and the GPU, in each direction
// alone and in both at once, for several numbers of workers, buffers per worker and sizes of a
// buffer, and with non-temporal or ordinary stores. It also logs two bounds: the rate of the link,
// from and to pinned memory, and the rate at which the workers copy to pinned memory that no GPU
// reads.
func TestGPUCopyRates(t *testing.T) {
	if os.Getenv("TILEWORK_REQUIRE_GPU") == "" {
		t.Skip("set TILEWORK_REQUIRE_GPU=1 to measure")
	}
	g := openGPU(t)
	g.workers.close()
	g.workers = newWorkerPool(64)
	const n = 1 << 30
	from, to := make([]byte, n), make([]byte, n)
	for i := 0; i < n; i += 4096 {
		from[i], to[i] = 1, 1 // map the pages
	}
	var at [2]device.Ptr
	for i := range at {
		var err error
		if at[i], err = g.Alloc(n); err != nil {
			t.Fatal(err)
		}
	}
	out, err := g.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, back := g.linkRates(t)
	both := g.linkRateBothWays(t)
	t.Logf("GOMAXPROCS %d; link, pinned memory: %.1f GB/s in, %.1f GB/s out, %.1f GB/s each way at once",
		runtime.GOMAXPROCS(0), in/1e9, back/1e9, both/1e9)

	stores := []struct {
		name string
		move func(dst, src, next []byte)
	}{{"non-temporal", asm.Copy}, {"ordinary", func(dst, src, _ []byte) { copy(dst, src) }}}
	for _, store := range stores {
		for _, workers := range []int{4, 8, 12, 16} {
			t.Logf("%-12s stores, %2d workers: %5.1f GB/s to memory that no GPU reads", store.name, workers,
				float64(n)/1e9/copyAlone(to, from, workers, store.move).Seconds())
		}
	}
	for _, store := range stores {
		for _, workers := range []int{4, 8, 12, 16} {
			for _, perWorker := range []int{2, 4} {
				for _, bytes := range []int{256 << 10, 512 << 10, 2 << 20} {
					size := stagingSize{workers, perWorker, bytes}
					in, out, both := g.copyRates(t, size, store.move, from, to, at, out.(*queue))
					t.Logf("%-12s stores, %2d workers, %d buffers of %4d KiB: %5.1f GB/s in, %5.1f GB/s out, %5.1f GB/s each way "+
						"at once", store.name, workers, perWorker, bytes>>10, in, out, both)
				}
			}
		}
	}
}

// copyAlone returns the time in which workers copy between memory of the host.
func copyAlone(dst, src []byte, workers int, move func(dst, src, next []byte)) time.Duration {
	return median(3, func() time.Duration {
		start := time.Now()
		var group sync.WaitGroup
		for i := range workers {
			part := func(b []byte) []byte { return b[i*len(b)/workers : (i+1)*len(b)/workers] }
			group.Go(func() {
				move(part(dst), part(src), nil)
				asm.Fence()
			})
		}
		group.Wait()
		return time.Since(start)
	})
}

// copyRates returns the rates in GB/s of copies through stagings of a size.
func (g *GPU) copyRates(t *testing.T, size stagingSize, move func(dst, src, next []byte), from, to []byte,
	at [2]device.Ptr, s *queue) (in, out, both float64) {
	t.Helper()
	g.info.Staging.Threads = size.workers
	stagings := [2]*staging{newStaging(size), newStaging(size)}
	rows := device.Whole(len(from))
	copyIn := func(ctx context.Context) error {
		return (&transfer{queue: g.queue, in: true, host: from, at: at[0], rows: rows}).run(ctx, stagings[0])
	}
	copyOut := func(ctx context.Context) error {
		return (&transfer{queue: s, host: to, at: at[1], rows: rows}).run(ctx, stagings[1])
	}
	for _, s := range stagings {
		s.move = move
	}
	measure := func(f func() error) float64 {
		took(t, f) // allocates the buffers
		return rate(len(from), median(3, func() time.Duration { return took(t, f) }))
	}
	ctx := t.Context()
	in = measure(func() error { return errors.Join(copyIn(ctx), g.Sync(ctx)) })
	out = measure(func() error { return copyOut(ctx) })
	both = measure(func() error {
		var errs [2]error
		var group sync.WaitGroup
		group.Go(func() { errs[0] = errors.Join(copyIn(ctx), g.Sync(ctx)) })
		group.Go(func() { errs[1] = copyOut(ctx) })
		group.Wait()
		return errors.Join(errs[:]...)
	})
	err := g.within(func() error {
		var errs []error
		for _, s := range stagings {
			for b := range s.buffers() {
				errs = append(errs, g.call(cuEventDestroy, b.event), g.call(cuMemFreeHost, b.address))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(fmt.Errorf("freeing buffers: %w", err))
	}
	return in, out, both
}

// linkRateBothWays returns the rate in bytes per second of copies from and to pinned memory at
// once.
func (g *GPU) linkRateBothWays(t *testing.T) float64 {
	t.Helper()
	const n = 256 << 20
	var at [2]device.Ptr
	var pinned [2]uintptr
	for i := range at {
		var err error
		if at[i], err = g.Alloc(n); err != nil {
			t.Fatal(err)
		}
		if err := g.within(func() error {
			return g.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&pinned[i])), n, 0)
		}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := g.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	stream := s.(*queue).stream
	d := median(5, func() time.Duration {
		return took(t, func() error {
			return g.within(func() error {
				return errors.Join(g.call(cuMemcpyIn, uintptr(at[0]), pinned[0], n, g.stream),
					g.call(cuMemcpyOut, pinned[1], uintptr(at[1]), n, stream),
					g.call(cuStreamSynchronize, g.stream), g.call(cuStreamSynchronize, stream))
			})
		})
	})
	for i := range at {
		err := g.within(func() error { return g.call(cuMemFreeHost, pinned[i]) })
		if err := errors.Join(err, g.Free(at[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return n / d.Seconds()
}
