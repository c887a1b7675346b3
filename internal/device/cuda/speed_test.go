package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	gpukernel "tilework/internal/gpu/kernel"
)

// TestSpeed logs the speed of the first GPU: copies, launches, compilation, and each kernel and
// tile on square float32 products. All runs use the same matrices, so those of size 1024 are read
// from the L2 cache.
func TestSpeed(t *testing.T) {
	if os.Getenv("TILEWORK_REQUIRE_GPU") == "" {
		t.Skip("set TILEWORK_REQUIRE_GPU=1 to measure")
	}
	s := newSpeed(t, 8192)
	t.Run("copies", s.copies)
	t.Run("launches", s.launches)
	t.Run("kernels", s.kernels)
}

// speed is a GPU with matrices in its memory.
type speed struct {
	gpu  *GPU
	host [2][]float32 // A and B of the largest product
	at   gpukernel.Memory
}

// newSpeed allocates matrices for products up to largest×largest and fills A and B.
func newSpeed(t *testing.T, largest int) *speed {
	s := &speed{gpu: openGPU(t)}
	rng := rand.New(rand.NewPCG(1, 2))
	alloc := func(to *device.Ptr) {
		p, err := s.gpu.Alloc(4 * largest * largest)
		if err != nil {
			t.Fatal(err)
		}
		*to = p
	}
	alloc(&s.at[gemm.C])
	for i, to := range []*device.Ptr{&s.at[gemm.A], &s.at[gemm.B]} {
		alloc(to)
		s.host[i] = make([]float32, largest*largest)
		for j := range s.host[i] {
			s.host[i][j] = 2*rng.Float32() - 1
		}
		b := dtype.Bytes(s.host[i])
		if err := s.gpu.CopyIn(t.Context(), *to, b, device.Whole(len(b))); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *speed) copies(t *testing.T) {
	for _, n := range []int{4 << 10, 1 << 20, 256 << 20} {
		b := dtype.Bytes(s.host[0])[:n]
		in := median(9, func() time.Duration {
			return took(t, func() error { return s.gpu.CopyIn(t.Context(), s.at[gemm.A], b, device.Whole(n)) })
		})
		out := median(9, func() time.Duration {
			return took(t, func() error { return s.gpu.CopyOut(t.Context(), b, s.at[gemm.A], device.Whole(n)) })
		})
		t.Logf("%9d bytes: in %v (%.2f GB/s), out %v (%.2f GB/s)", n, in, rate(n, in), out, rate(n, out))
	}
}

func rate(n int, d time.Duration) float64 { return float64(n) / d.Seconds() / 1e9 }

func (s *speed) launches(t *testing.T) {
	kernels := choose.Kernels()
	k := kernels[len(kernels)-1]
	p := square(t, 64)
	c, err := choose.Named(k.Name, "", p, gpukernel.Align{}, s.gpu.Info())
	if err != nil {
		t.Fatal(err)
	}
	f, l := s.load(t, k, c.Config, p)
	launch := func() error { return s.gpu.Launch(t.Context(), f, l) }
	sync := func() error { return s.gpu.Sync(t.Context()) }
	took(t, launch)
	took(t, sync)

	const n = 1000
	var enqueueTime time.Duration
	perLaunch := s.events(t, func() error {
		start := time.Now()
		for range n {
			if err := launch(); err != nil {
				return err
			}
		}
		enqueueTime = time.Since(start)
		return nil
	}) / n
	round := median(99, func() time.Duration {
		return took(t, func() error { return errors.Join(launch(), sync()) })
	})
	alloc := median(99, func() time.Duration {
		return took(t, func() error {
			p, err := s.gpu.Alloc(1 << 20)
			return errors.Join(err, s.gpu.Free(p))
		})
	})
	t.Logf("%s at 64³: %v host time per launch, %v GPU time per launch, %v for a launch and Sync; %v for Alloc and "+
		"Free of 1 MiB",
		k.Name, enqueueTime/n, perLaunch, round, alloc)
}

func (s *speed) kernels(t *testing.T) {
	for _, k := range choose.Kernels() {
		for _, shape := range k.Tiles {
			for _, n := range []int{1024, 4096, 8192} {
				p := square(t, n)
				f, l := s.load(t, k, k.For(k.Config(p, shape), s.gpu.Info().Target), p)
				run := func() error { return s.gpu.Launch(t.Context(), f, l) }
				s.events(t, run)
				d := median(9, func() time.Duration { return s.events(t, run) })
				t.Logf("%-8s %-16v N %5d: %8.3f ms, %6.2f TFLOP/s, %d registers, %d bytes of local memory, %d of "+
					"shared",
					k.Name, shape, n, d.Seconds()*1e3, p.Flops()/d.Seconds()/1e12,
					f.Resources().Registers, f.Resources().Spilled, f.Resources().Shared)
				s.verify(t, k.Name, n)
			}
		}
	}
}

// load compiles a kernel and logs the time.
func (s *speed) load(t *testing.T, k *gpukernel.Kernel, c gpukernel.Config, p *gemm.Problem) (device.Function,
	device.Launch) {
	t.Helper()
	text, err := k.Emit(c)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	f := find(t, s.gpu, text.String(), k.Entry())
	if d := time.Since(start); d > 2*time.Millisecond { // otherwise it came from the driver's cache
		t.Logf("%-8s %-16v compiled in %v", k.Name, c.Tile, d)
	}
	l, err := k.Launch(gpukernel.Args{Config: &c, Problem: p, Memory: s.at}, s.gpu)
	if err != nil {
		t.Fatal(err)
	}
	return f, l
}

// events returns the GPU time of the work that f enqueues.
func (s *speed) events(t *testing.T, f func() error) time.Duration {
	t.Helper()
	from, err := s.gpu.Record()
	if err != nil {
		t.Fatal(err)
	}
	if err := f(); err != nil {
		t.Fatal(err)
	}
	to, err := s.gpu.Record()
	if err != nil {
		t.Fatal(err)
	}
	d, err := to.Since(t.Context(), from)
	if err := errors.Join(err, from.Free(), to.Free()); err != nil {
		t.Fatal(err)
	}
	return d
}

// verify checks the corners of C.
func (s *speed) verify(t *testing.T, kernel string, n int) {
	t.Helper()
	c := make([]float32, n*n)
	if err := s.gpu.CopyOut(t.Context(), dtype.Bytes(c), s.at[gemm.C], device.Whole(4*n*n)); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, n - 1} {
		for _, j := range []int{0, n - 1} {
			var want, size float64
			for k := range n {
				x := float64(s.host[0][i*n+k]) * float64(s.host[1][k*n+j])
				want, size = want+x, size+math.Abs(x)
			}
			if got := float64(c[i*n+j]); math.Abs(got-want) > size*float64(n)*0x1p-24 {
				t.Errorf("%s, N %d: C[%d,%d] is %v, want %v", kernel, n, i, j, got, want)
			}
		}
	}
}

// square returns the product of two n×n float32 matrices.
func square(t *testing.T, n int) *gemm.Problem {
	t.Helper()
	m := gemm.Dense(dtype.F32, n, n)
	p, _, err := gemm.New(1, m, m, 0, m, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

func took(t *testing.T, f func() error) time.Duration {
	t.Helper()
	start := time.Now()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

func median(n int, f func() time.Duration) time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = f()
	}
	slices.Sort(all)
	return all[n/2]
}
