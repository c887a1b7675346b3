package gpu

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/ref"
	"tilework/internal/sentinel"
)

// runBatch copies the buffers m of p to the device, plans p with opt and enqueues it. ends holds
// the group ends of a grouped GEMM and is nil otherwise.
func runBatch(ctx context.Context, b *stream.Backend, opt exec.Options, p *gemmtest.Problem, ends []int32,
	m gemmtest.Buffers) error {
	plan, err := b.Plan(p, opt)
	if err != nil {
		return err
	}
	pieces := [][]byte{m[gemm.A], m[gemm.B], m[gemm.C], m[gemm.Bias], dtype.Bytes(ends)}
	return devicetest.WithBuffers(ctx, b.Device, int(gemm.C), pieces, func(at []device.Ptr) error {
		return plan.Enqueue(ctx, kernel.Memory{gemm.A: at[0], gemm.B: at[1], gemm.C: at[2], gemm.Bias: at[3],
			gemm.GroupEnds: at[4]})
	})
}

// TestManyProducts checks a batch with more products than the grid's maximum in one dimension,
// which takes several launches.
func TestManyProducts(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	one := gemm.Dense(dtype.F32, 1, 1)
	p, _, err := gemm.New(1, one, one, 0, one, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	const n = kernel.MaxGridRows + 2
	if p, err = p.Strided(n, gemm.Batch{Stride: gemm.Strides{gemm.A: 1, gemm.B: 1, gemm.C: 1}}); err != nil {
		t.Fatal(err)
	}
	a, b, c := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range a {
		a[i], b[i] = float32(i%13), float32(i%7)
	}
	m := gemm.Buffers{gemm.A: dtype.Bytes(a), gemm.B: dtype.Bytes(b), gemm.C: dtype.Bytes(c)}
	opt := exec.Options{Kernel: "tiled", Tile: "2", KeepLayout: true}
	if err := runBatch(t.Context(), stream.New(d), opt, &p, nil, m); err != nil {
		t.Fatal(err)
	}
	for i := range c {
		if c[i] != a[i]*b[i] {
			t.Fatalf("product %d: C = %v, want %v", i, c[i], a[i]*b[i])
		}
	}
}

// onHost returns a problem, count sets of host buffers for it, and the contents of each C after a
// correct run, with the padding between rows unchanged. A has m rows.
func onHost(t *testing.T, count, m int) (p gemm.Problem, all []gemm.Buffers, want [][]byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	a, c := gemm.Dense(dtype.F32, m, 3), gemm.Dense(dtype.F32, m, 5)
	c.LD = 7
	p, _, err := gemm.New(1, a, gemm.Dense(dtype.F32, 5, 3).T(), 2, c, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(l gemm.Layout) []byte {
		list := make([]float32, l.Len())
		for i := range list {
			list[i] = float32(rng.IntN(5) - 2)
		}
		return dtype.Bytes(list)
	}
	for range count {
		b := gemm.Buffers{gemm.A: fill(p.Layouts[gemm.A]), gemm.B: fill(p.Layouts[gemm.B]), gemm.C: fill(p.Layouts[gemm.C])}
		values := ref.Values(&p, b).Value
		w := bytes.Clone(b[gemm.C])
		for i, v := range values {
			dtype.F32.Set(w, p.C().Index(i/p.N, i%p.N), v)
		}
		all, want = append(all, b), append(want, w)
	}
	return p, all, want
}

// short wraps a device and fails every allocation of more than most bytes.
type short struct {
	device.Device
	most    int
	refused int // allocations
}

func (s *short) Alloc(n int) (device.Ptr, error) {
	if n > s.most {
		s.refused++
		return 0, device.ErrOutOfMemory
	}
	return s.Device.Alloc(n)
}

// TestHostBatch checks that RunBatch multiplies host matrices in one launch, or in several launches
// if the largest possible allocation is too small for the batch. No launch has more products than
// one before it for which there was memory. The padding between rows of C must not change.
func TestHostBatch(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for most, refused := range map[int]int{1 << 30: 0, 600: 1, 300: 2} { // 7, 3 and 1 products at once
		p, all, want := onHost(t, 7, 4)
		limited := &short{Device: d, most: most}
		b := stream.New(limited)
		if err := b.RunBatch(t.Context(), &p, exec.Options{}, 0, all); err != nil {
			t.Fatal(err)
		}
		for i, m := range all {
			if !bytes.Equal(m[gemm.C], want[i]) {
				t.Errorf("allocations of at most %d bytes: product %d is wrong", most, i)
			}
		}
		if limited.refused != refused {
			t.Errorf("allocations of at most %d bytes: %d are refused, want %d", most, limited.refused, refused)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	p, all, _ := onHost(t, 2, 4)
	err = stream.New(&short{Device: d, most: 50}).RunBatch(t.Context(), &p, exec.Options{}, 0, all)
	if !errors.Is(err, sentinel.ErrOutOfMemory) {
		t.Errorf("RunBatch with too little memory for one product: error %v, want ErrOutOfMemory", err)
	}
}

// TestHostBatchFaults fails each device call of RunBatch in turn. It checks that RunBatch returns
// the error and that Close then leaves nothing on the device.
func TestHostBatchFaults(t *testing.T) {
	inner, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	d := faulty.New(inner)
	p, all, _ := onHost(t, 3, 4)
	broken := errors.New("broken")
	for n := 1; ; n++ {
		b := stream.New(d)
		d.Fail(n, broken)
		err := b.RunBatch(t.Context(), &p, exec.Options{}, 0, all)
		failed := d.FailedCall()
		d.Fail(0, nil)
		if (failed != "") != errors.Is(err, broken) {
			t.Errorf("call %d (%s) failed: RunBatch returned %v", n, failed, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if left := d.Leaks(); len(left) > 0 {
			t.Errorf("call %d (%s) failed: leaked %v", n, failed, left)
		}
		if failed == "" {
			if n < 8 {
				t.Errorf("RunBatch made %d device calls, want at least 7", n-1)
			}
			return
		}
	}
}
