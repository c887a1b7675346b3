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
)

// card is the first GPU of this machine. Without one the test is skipped, or fails
// where TILEWORK_REQUIRE_GPU is set.
func card(t *testing.T) *GPU {
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

func TestCardList(t *testing.T) {
	g := card(t)
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range all {
		t.Logf("%+v", in)
	}
	in := g.Details()
	all[0].Staging = in.Staging // which comes with opening
	if in != all[0] || in.Memory <= 0 || in.SMs <= 0 || in.MaxShared < 48<<10 || in.UUID == "" {
		t.Errorf("opened: %+v", in)
	}
}

// TestCardCopies: what goes in comes out, whole and in rows, and what lies between
// rows stays.
func TestCardCopies(t *testing.T) {
	g := card(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx := t.Context()
	for _, r := range []device.Rows{
		device.Whole(1), device.Whole(4096), device.Whole(slotBytes - 1), device.Whole(slotBytes), device.Whole(5*slotBytes + 3),
		{Count: 7, Width: 3, Host: 5, Device: 16},
		{Count: 100, Width: 1000, Host: 1000, Device: 1024},
		{Count: 100, Width: 1000, Host: 1100, Device: 1000},
		{Count: 5000, Width: 4001, Host: 4001, Device: 4016},
		{Count: 3, Width: slotBytes + 77, Host: slotBytes + 100, Device: slotBytes + 256},
		{Count: 200_000, Width: 4, Host: 4, Device: 16},
	} {
		hostLen, deviceLen := (r.Count-1)*r.Host+r.Width, (r.Count-1)*r.Device+r.Width
		in, before, out := noise(rng, hostLen), noise(rng, deviceLen), noise(rng, hostLen)
		want, wantHost := bytes.Clone(before), bytes.Clone(out)
		for i := range r.Count {
			copy(want[i*r.Device:][:r.Width], in[i*r.Host:][:r.Width])
			copy(wantHost[i*r.Host:][:r.Width], in[i*r.Host:][:r.Width])
		}
		p, err := g.Alloc(deviceLen)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(p)%256 != 0 {
			t.Errorf("memory at %#x", uint64(p))
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
			t.Errorf("%+v: the device holds other bytes", r)
		case !bytes.Equal(out, wantHost):
			t.Errorf("%+v: other bytes come out", r)
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

func TestCardOutOfMemory(t *testing.T) {
	g := card(t)
	memory := int(g.Info().Memory)
	_, err := g.Alloc(2 * memory)
	if !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("twice what there is: %v", err)
	}
	t.Log(err)
	// Together more than there is: what the first leaves must be had again.
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

// TestCardLost: a kernel that writes to an address of nobody loses the device, and
// everything says so. It loses the process's context, hence one of its own.
func TestCardLost(t *testing.T) {
	const child = "TILEWORK_CUDA_CHILD"
	if os.Getenv(child) == "" {
		card(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestCardLost$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	g := card(t)
	ctx := t.Context()
	poke := find(t, g, texts, "poke")
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

// TestCardConformance: each kernel, the way products take, in each precision that it has, and
// in the shapes with clusters, which no small product takes.
func TestCardConformance(t *testing.T) {
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

// TestCardBatches: each kernel computes batches and groups of rows, in its largest shape, its
// smallest and in those with clusters.
func TestCardBatches(t *testing.T) {
	for _, k := range choose.Kernels() {
		for i, s := range k.Tiles {
			if i > 0 && i < len(k.Tiles)-1 && s.ClusterM < 2 && s.ClusterK < 2 {
				continue
			}
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				g := cardFor(t, k)
				backend, seed := stream.New(g), rand.Uint64()
				report := gemmtest.Check(t.Context(), gputest.Way{Kernel: k, Shape: s}.On(backend), gemmtest.Options{Cases: 20, Only: "batch", Seed: seed})
				if err := errors.Join(report.Err(), backend.Close()); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				t.Logf("%d cases, %d left out", report.Checks[0].Cases, report.Checks[0].LeftOut)
			})
		}
	}
}

// cardFor is the card, if it runs the kernel.
func cardFor(t *testing.T, k *gpukernel.Kernel) *GPU {
	g := card(t)
	if !g.Info().Target.Has(k.Target()) {
		t.Skipf("the kernel needs %v, and %s is %v", k.Target(), g.Info().Name, g.Info().Target)
	}
	return g
}

// conform runs the suite with a kernel, on products in a precision.
func conform(t *testing.T, k *gpukernel.Kernel, precision gemm.Precision) {
	backend := stream.New(cardFor(t, k))
	defer func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := gputest.Way{Kernel: k, Precision: precision}
	gemmtest.Run(t, w.On(backend))
	for _, w.Shape = range k.Tiles {
		if w.Shape.ClusterM < 2 && w.Shape.ClusterK < 2 {
			continue
		}
		seed := rand.Uint64()
		if err := gemmtest.Check(t.Context(), w.On(backend), gemmtest.Options{Cases: 20, Seed: seed}).Err(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
