package cuda

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	gpukernel "tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit/testrand"
)

// TestGPUOverlap checks that a product that is streamed through the GPU in many steps has the same
// bits as a single launch, for integer values, and leaves the bytes between rows of C unchanged.
func TestGPUOverlap(t *testing.T) {
	g := openGPU(t)
	b := stream.New(g)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	rng := testrand.New(t)
	for _, c := range []struct {
		in, out     dtype.Type
		alpha, beta complex128
		m, n, k     int
	}{
		{dtype.F32, dtype.F32, 2, 0, 4001, 3000, 2500},
		{dtype.F32, dtype.F32, 3, 0.5, 3000, 4100, 2000},
		{dtype.F16, dtype.F32, 1, 0, 4096, 4096, 2048},
		{dtype.I8, dtype.I32, -5, 0, 6000, 6000, 3001},
		{dtype.F64, dtype.F64, 1, 1, 3000, 2000, 2000},
	} {
		la, lb, lc := gemm.Dense(c.in, c.k, c.m).T(), gemm.Dense(c.in, c.k, c.n), gemm.Dense(c.out, c.m, c.n)
		la.LD, lc.LD = la.LD+3, lc.LD+5
		p, _, err := gemm.New(c.alpha, la, lb, c.beta, lc, gemm.Epilogue{Bias: gemm.BiasRow})
		if err != nil {
			t.Fatal(err)
		}
		whole := func(l gemm.Layout) []byte {
			x := make([]byte, l.Bytes())
			for i := range l.Len() {
				l.Type.Set(x, i, float64(rng.IntN(9)-4))
			}
			return x
		}
		m := gemm.Buffers{gemm.A: whole(la), gemm.B: whole(lb), gemm.C: whole(lc),
			gemm.Bias: whole(gemm.Dense(c.out, 1, c.m))}
		// The blocked kernel reads matrices in place. Kernels with packed operands use a single step.
		plan, err := b.Plan(&p, exec.Options{Kernel: "blocked"})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan.Detail(), "predicted") {
			t.Errorf("%v runs in one step, want several", &p)
		}
		want := singleLaunch(t, g, plan, &p, m)
		if err := plan.Run(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m[gemm.C], want) {
			t.Errorf("%v, %s: C differs from a single launch", &p, plan.Detail())
		}
	}
}

// singleLaunch returns C computed by one launch, in the host layout.
func singleLaunch(t *testing.T, g *GPU, plan *stream.Plan, p *gemm.Problem, m gemm.Buffers) []byte {
	t.Helper()
	ctx, d := t.Context(), plan.Problem()
	var at gpukernel.Memory
	for _, x := range []struct {
		to       *device.Ptr
		from, on gemm.Layout
		mem      []byte
	}{
		{&at[gemm.A], p.Layouts[gemm.A], d.Layouts[gemm.A], m[gemm.A]}, {&at[gemm.B], p.Layouts[gemm.B], d.Layouts[gemm.B],
			m[gemm.B]}, {&at[gemm.C], p.Layouts[gemm.C], d.Layouts[gemm.C], m[gemm.C]},
		{&at[gemm.Bias], gemm.Dense(p.Out(), 1, p.BiasLen()), gemm.Dense(p.Out(), 1, p.BiasLen()), m[gemm.Bias]},
	} {
		var err error
		if *x.to, err = g.Alloc(x.on.Bytes()); err == nil {
			err = g.CopyIn(ctx, *x.to, x.mem, exec.Rows(x.from, x.on))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := bytes.Clone(m[gemm.C])
	err := errors.Join(
		plan.Enqueue(ctx, at), g.CopyOut(ctx, c, at[gemm.C], exec.Rows(p.Layouts[gemm.C], d.Layouts[gemm.C])),
		g.Free(at[gemm.A]), g.Free(at[gemm.B]), g.Free(at[gemm.C]), g.Free(at[gemm.Bias]))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
