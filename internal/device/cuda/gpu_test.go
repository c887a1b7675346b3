package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"tilework/gemmtest"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/gputest"
	gpukernel "tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit/testrand"
)

// openGPU returns the first GPU of the machine. Without one, it skips the test, or fails it if
// TILEWORK_REQUIRE_GPU is set.
func openGPU(t *testing.T) *GPU {
	t.Helper()
	d, err := Open(0)
	if err != nil {
		if os.Getenv("TILEWORK_REQUIRE_GPU") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d.(*GPU)
}

func TestGPUList(t *testing.T) {
	g := openGPU(t)
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range all {
		t.Logf("%+v", in)
	}
	in := g.Details()
	all[0].Staging = in.Staging // set by Open only
	if in != all[0] || in.Memory <= 0 || in.SMs <= 0 || in.MaxShared < 48<<10 || in.UUID == "" {
		t.Errorf("Details() = %+v, want %+v", in, all[0])
	}
}

// TestGPUCopies checks contiguous and strided copies in both directions. Bytes between rows must
// not change.
func TestGPUCopies(t *testing.T) {
	g := openGPU(t)
	rng := testrand.New(t)
	ctx := t.Context()
	for _, r := range []device.Rows{
		device.Whole(1), device.Whole(4096), device.Whole(bufferBytes - 1), device.Whole(bufferBytes),
		device.Whole(5*bufferBytes + 3),
		{Count: 7, Width: 3, HostPitch: 5, DevicePitch: 16},
		{Count: 100, Width: 1000, HostPitch: 1000, DevicePitch: 1024},
		{Count: 100, Width: 1000, HostPitch: 1100, DevicePitch: 1000},
		{Count: 5000, Width: 4001, HostPitch: 4001, DevicePitch: 4016},
		{Count: 3, Width: bufferBytes + 77, HostPitch: bufferBytes + 100, DevicePitch: bufferBytes + 256},
		{Count: 200_000, Width: 4, HostPitch: 4, DevicePitch: 16},
	} {
		hostLen, deviceLen := (r.Count-1)*r.HostPitch+r.Width, (r.Count-1)*r.DevicePitch+r.Width
		in, before, out := noise(rng, hostLen), noise(rng, deviceLen), noise(rng, hostLen)
		want, wantHost := bytes.Clone(before), bytes.Clone(out)
		for i := range r.Count {
			copy(want[i*r.DevicePitch:][:r.Width], in[i*r.HostPitch:][:r.Width])
			copy(wantHost[i*r.HostPitch:][:r.Width], in[i*r.HostPitch:][:r.Width])
		}
		p, err := g.Alloc(deviceLen)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(p)%256 != 0 {
			t.Errorf("Alloc returned %#x, want a multiple of 256", uint64(p))
		}
		there := make([]byte, deviceLen)
		err = errors.Join(
			g.CopyIn(ctx, p, before, device.Whole(deviceLen)),
			g.CopyIn(ctx, p, in, r),
			g.CopyOut(ctx, out, p, r),
			g.CopyOut(ctx, there, p, device.Whole(deviceLen)),
			g.Free(p))
		switch {
		case err != nil:
			t.Fatalf("%+v: %v", r, err)
		case !bytes.Equal(there, want):
			t.Errorf("%+v: device memory is wrong", r)
		case !bytes.Equal(out, wantHost):
			t.Errorf("%+v: host memory after CopyOut is wrong", r)
		}
	}
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, (n+7)/8*8)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b[:n]
}

func TestGPUOutOfMemory(t *testing.T) {
	g := openGPU(t)
	memory := int(g.Info().Memory)
	_, err := g.Alloc(2 * memory)
	if !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("Alloc of twice the device memory: got error %v", err)
	}
	t.Log(err)
	// The sizes exceed the device memory together, so freed memory must be reused.
	for _, n := range []int{memory / 20 * 9, memory / 10 * 6, memory / 20 * 9} {
		p, err := g.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Free(p); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGPULost checks that all calls report a lost device after a kernel wrote to an invalid
// address. It runs in a child process, because the process's context becomes unusable.
func TestGPULost(t *testing.T) {
	const child = "TILEWORK_CUDA_CHILD"
	if os.Getenv(child) == "" {
		openGPU(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestGPULost$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	g := openGPU(t)
	ctx := t.Context()
	poke := find(t, g, kernelsPTX, "poke")
	p, _ := word(t, g)
	var args device.Params
	args.U64(16)
	args.U32(1)
	l := device.Launch{Grid: one, Block: one, Params: args.Bytes()}
	if err := g.Launch(ctx, poke, l); err != nil {
		t.Fatal(err)
	}
	err := g.Sync(ctx)
	if !errors.Is(err, device.ErrLost) || !errors.Is(err, device.ErrLaunch) {
		t.Errorf("Sync: %v", err)
	}
	t.Log(err)
	if err := g.Launch(ctx, poke, l); !errors.Is(err, device.ErrLost) {
		t.Errorf("Launch: %v", err)
	}
	if err := g.CopyOut(ctx, make([]byte, 4), p, device.Whole(4)); !errors.Is(err, device.ErrLost) {
		t.Errorf("CopyOut: %v", err)
	}
	_, err = g.Alloc(4)
	if !errors.Is(err, device.ErrLost) {
		t.Errorf("Alloc: %v", err)
	}
	t.Log(err)
}

// TestGPUConformance runs the conformance suite with each kernel in each supported precision, and
// in the tiles with clusters, which small products do not select.
func TestGPUConformance(t *testing.T) {
	for _, k := range choose.Kernels() {
		for _, precision := range append([]gemm.Precision{gemm.Native}, k.Precisions()...) {
			name := k.Name
			if precision != gemm.Native {
				name += "-" + precision.String()
			}
			t.Run(name, func(t *testing.T) { conform(t, k, precision) })
		}
	}
}

// TestGPUBatches runs batched and grouped products with each kernel in its largest tile, its
// smallest tile and all tiles with clusters.
func TestGPUBatches(t *testing.T) {
	for _, k := range choose.Kernels() {
		for i, s := range k.Tiles {
			if i > 0 && i < len(k.Tiles)-1 && s.ClusterM < 2 && s.ClusterK < 2 {
				continue
			}
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				g := openGPUFor(t, k)
				backend := stream.New(g)
				report := gemmtest.Check(t.Context(), gputest.Way{Kernel: k, Shape: s}.On(backend),
					gemmtest.Options{Cases: 20, Only: "batch", Seed: testrand.Seed(t)})
				if err := errors.Join(report.Err(), backend.Close()); err != nil {
					t.Error(err)
				}
				t.Logf("%d cases, %d skipped", report.Checks[0].Cases, report.Checks[0].Skipped)
			})
		}
	}
}

// openGPUFor returns the GPU and skips the test if it does not support the kernel.
func openGPUFor(t *testing.T, k *gpukernel.Kernel) *GPU {
	g := openGPU(t)
	if !g.Info().Target.Has(k.Target()) {
		t.Skipf("the kernel requires %v and %s is %v", k.Target(), g.Info().Name, g.Info().Target)
	}
	return g
}

// conform runs the conformance suite with a kernel and a precision.
func conform(t *testing.T, k *gpukernel.Kernel, precision gemm.Precision) {
	backend := stream.New(openGPUFor(t, k))
	defer func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := gputest.Way{Kernel: k, Precision: precision}
	gemmtest.Run(t, w.On(backend))
	rng := testrand.New(t)
	for _, w.Shape = range k.Tiles {
		if w.Shape.ClusterM < 2 && w.Shape.ClusterK < 2 {
			continue
		}
		if err := gemmtest.Check(t.Context(), w.On(backend),
			gemmtest.Options{Cases: 20, Seed: rng.Uint64()}).Err(); err != nil {
			t.Error(err)
		}
	}
}
