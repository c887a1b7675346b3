package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	gpukernel "tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
)

// Driver functions for synchronous copies, which textbook uses.
var (
	cuMemcpyInPlain  = lookup("cuMemcpyHtoD_v2", 11010)
	cuMemcpyOutPlain = lookup("cuMemcpyDtoH_v2", 11010)
)

// TestHostToHost logs the time of float32 products of host matrices, next to two other times: the
// lower bound, which is the time of the transfers or of the kernel, and the time of a textbook
// implementation that allocates, copies, launches the naive kernel, copies back and frees. All runs
// use the same host matrices, whose pages are already mapped.
func TestHostToHost(t *testing.T) {
	if os.Getenv("TILEWORK_REQUIRE_GPU") == "" {
		t.Skip("set TILEWORK_REQUIRE_GPU=1 to measure")
	}
	g := openGPU(t)
	b := stream.New(g)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	in, out := g.linkRates(t)
	t.Logf("link: %.1f GB/s in, %.1f GB/s out, pinned; staging: %d threads and %d MiB of buffers per direction; "+
		"GOMAXPROCS %d",
		in/1e9, out/1e9, g.info.Staging.Threads, g.info.Staging.BufferBytes>>20, runtime.GOMAXPROCS(0))
	const largest = 10_000
	rng := rand.New(rand.NewPCG(1, 2))
	host := [3][]float32{}
	for i := range host {
		host[i] = make([]float32, largest*largest)
		for j := range host[i] {
			host[i][j] = 2*rng.Float32() - 1
		}
	}
	for _, n := range []int{64, 256, 1024, 2048, 4096, 8192, 10_000} {
		p := square(t, n)
		m := gemm.Buffers{gemm.A: dtype.Bytes(host[0][:n*n]), gemm.B: dtype.Bytes(host[1][:n*n]),
			gemm.C: dtype.Bytes(host[2][:n*n])}
		plan, err := b.Plan(p, exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		run := func() time.Duration { return took(t, func() error { return plan.Run(t.Context(), m) }) }
		first := run()
		runs := 101
		if n > 1024 {
			runs = 11
		}
		ours := median(runs, run)
		checkCorners(t, host, n)

		seeds := g.textbook(t, p, m)
		seedRuns := 11
		if n > 4096 {
			seedRuns = 3
		}
		theirs := median(seedRuns, seeds)
		checkCorners(t, host, n)

		kernel := g.kernelTime(t, plan)
		bytes := float64(4 * n * n)
		transfer := time.Duration(max(2*bytes/in, bytes/out) * 1e9)
		t.Logf("N %5d: %9.3f ms (first %9.3f), textbook %9.3f ms, %5.2f ×; kernel %7.3f ms, transfer %6.3f ms: %.3f "+
			"× the larger. %s",
			n, ours.Seconds()*1e3, first.Seconds()*1e3, theirs.Seconds()*1e3, theirs.Seconds()/ours.Seconds(),
			kernel.Seconds()*1e3, transfer.Seconds()*1e3, ours.Seconds()/max(kernel, transfer).Seconds(), plan.Detail())
	}
}

// linkRates returns the rates of copies from and to pinned memory in bytes per second.
func (g *GPU) linkRates(t *testing.T) (in, out float64) {
	t.Helper()
	const n = 256 << 20
	p, err := g.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	var pinned uintptr
	rate := func(f func() error) float64 {
		return n / median(5, func() time.Duration { return took(t, func() error { return g.within(f) }) }).Seconds()
	}
	err = g.within(func() error { return g.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&pinned)), n, 0) })
	if err != nil {
		t.Fatal(err)
	}
	in = rate(func() error {
		return errors.Join(g.call(cuMemcpyIn, uintptr(p), pinned, n, g.stream), g.call(cuStreamSynchronize, g.stream))
	})
	out = rate(func() error {
		return errors.Join(g.call(cuMemcpyOut, pinned, uintptr(p), n, g.stream), g.call(cuStreamSynchronize, g.stream))
	})
	if err := errors.Join(g.within(func() error { return g.call(cuMemFreeHost, pinned) }), g.Free(p)); err != nil {
		t.Fatal(err)
	}
	return in, out
}

// textbook returns a function that runs and times the textbook implementation.
func (g *GPU) textbook(t *testing.T, p *gemm.Problem, m gemm.Buffers) func() time.Duration {
	t.Helper()
	choice, err := choose.Named("naive", "", p, gpukernel.Align{}, g.Info())
	if err != nil {
		t.Fatal(err)
	}
	naive, c := choice.Kernel, choice.Config
	text, err := naive.Emit(c)
	if err != nil {
		t.Fatal(err)
	}
	f := find(t, g, text.String(), naive.Entry())
	call := func() error {
		var at [3]uintptr
		sizes := [3]uintptr{uintptr(len(m[gemm.A])), uintptr(len(m[gemm.B])), uintptr(len(m[gemm.C]))}
		for i := range at {
			if err := g.call(cuMemAlloc, uintptr(unsafe.Pointer(&at[i])), sizes[i]); err != nil {
				return err
			}
		}
		err := errors.Join(
			g.call(cuMemcpyInPlain, at[0], uintptr(unsafe.Pointer(&m[gemm.A][0])), sizes[0]),
			g.call(cuMemcpyInPlain, at[1], uintptr(unsafe.Pointer(&m[gemm.B][0])), sizes[1]))
		if err != nil {
			return err
		}
		memory := gpukernel.Memory{gemm.A: device.Ptr(at[0]), gemm.B: device.Ptr(at[1]), gemm.C: device.Ptr(at[2])}
		l, err := naive.Launch(gpukernel.Args{Config: &c, Problem: p, Memory: memory}, g)
		if err != nil {
			return err
		}
		if err := f.(*kernel).launch(g.stream, l); err != nil {
			return err
		}
		if err := g.call(cuStreamSynchronize, g.stream); err != nil {
			return err
		}
		if err := g.call(cuMemcpyOutPlain, uintptr(unsafe.Pointer(&m[gemm.C][0])), at[2], sizes[2]); err != nil {
			return err
		}
		return errors.Join(g.call(cuMemFree, at[0]), g.call(cuMemFree, at[1]), g.call(cuMemFree, at[2]))
	}
	return func() time.Duration { return took(t, func() error { return g.within(call) }) }
}

// kernelTime returns the GPU time of the plan with matrices in device memory.
func (g *GPU) kernelTime(t *testing.T, plan *stream.Plan) time.Duration {
	t.Helper()
	p := plan.Problem()
	var m gpukernel.Memory
	var errs [3]error
	m[gemm.A], errs[0] = g.Alloc(p.A().Bytes())
	m[gemm.B], errs[1] = g.Alloc(p.B().Bytes())
	m[gemm.C], errs[2] = g.Alloc(p.C().Bytes())
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	noise := make([]float32, p.A().Len())
	for i := range noise {
		noise[i] = 2*rng.Float32() - 1
	}
	for _, at := range []device.Ptr{m[gemm.A], m[gemm.B]} {
		if err := g.CopyIn(t.Context(), at, dtype.Bytes(noise), device.Whole(4*len(noise))); err != nil {
			t.Fatal(err)
		}
	}
	s := &speed{gpu: g}
	d := median(5, func() time.Duration {
		return s.events(t, func() error { return plan.Enqueue(t.Context(), m) })
	})
	if err := errors.Join(g.Free(m[gemm.A]), g.Free(m[gemm.B]), g.Free(m[gemm.C])); err != nil {
		t.Fatal(err)
	}
	return d
}

// checkCorners checks the corners of C and overwrites them.
func checkCorners(t *testing.T, host [3][]float32, n int) {
	t.Helper()
	for _, i := range []int{0, n / 2, n - 1} {
		for _, j := range []int{0, n/2 + 1, n - 1} {
			var want, size float64
			for k := range n {
				x := float64(host[0][i*n+k]) * float64(host[1][k*n+j])
				want, size = want+x, size+math.Abs(x)
			}
			got := &host[2][i*n+j]
			if math.Abs(float64(*got)-want) > size*float64(n)*0x1p-24 {
				t.Errorf("N %d: C[%d,%d] is %v, want %v", n, i, j, *got, want)
			}
			*got = float32(math.NaN())
		}
	}
}
