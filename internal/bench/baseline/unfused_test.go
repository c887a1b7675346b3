package baseline

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/ptx/emu/check"
)

// TestUnfused checks that an unfused epilogue gives the results of the fused kernel, on whole
// numbers.
func TestUnfused(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	d := devicetest.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Bounds, check.Uninit}})
	b := stream.New(d)
	for _, c := range []struct {
		in, out dtype.Type
		m, n, k int
		e       gemm.Epilogue
	}{
		{dtype.BF16, dtype.BF16, 70, 256, 8, gemm.Epilogue{Bias: gemm.BiasCol, Activation: gemm.ActReLU}},
		{dtype.F32, dtype.F32, 33, 35, 7, gemm.Epilogue{Bias: gemm.BiasRow}},
		{dtype.BF16, dtype.BF16, 70, 140, 8, gemm.Epilogue{Gated: true, Activation: gemm.ActReLU, Residual: true}},
		{dtype.I8, dtype.I32, 5, 300, 16, gemm.Epilogue{Activation: gemm.ActReLU}},
	} {
		p, _, err := gemm.New(1, gemm.Dense(c.in, c.m, c.k), gemm.Dense(c.in, c.k, c.n), 0, gemm.Dense(c.out, c.m, c.n), c.e)
		if err != nil {
			t.Fatal(err)
		}
		upload := func(l gemm.Layout) device.Ptr {
			host := make([]byte, l.Bytes())
			for i := range l.Len() {
				l.Type.Set(host, i, float64(rng.IntN(7)-3))
			}
			at, err := d.Alloc(max(len(host), 1))
			if err == nil {
				err = d.CopyIn(t.Context(), at, host, device.Whole(len(host)))
			}
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		var m kernel.Memory
		for o := range m {
			m[o] = upload(p.Layout(gemm.Operand(o)))
		}
		fused, err := b.Plan(&p, exec.Options{KeepLayout: true})
		if err != nil {
			t.Fatal(err)
		}
		unfused, err := PlanUnfused(b.Backend, &p, exec.Options{KeepLayout: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := unfused.Compile(t.Context()); err != nil {
			t.Fatal(err)
		}
		var results [2][]byte
		for i, run := range []func() error{
			func() error { return fused.Enqueue(t.Context(), m) },
			func() error { return unfused.Enqueue(t.Context(), m) },
		} {
			if err := run(); err != nil {
				t.Fatal(err)
			}
			results[i] = make([]byte, p.C().Bytes())
			if err := d.CopyOut(t.Context(), results[i], m[gemm.C], device.Whole(len(results[i]))); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(results[0], results[1]) {
			t.Errorf("%v, %v: the results differ from those of the fused kernel %s", &p, c.e, fused.Config)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
