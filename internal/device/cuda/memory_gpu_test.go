package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/stream"
	"tilework/internal/sentinel"
)

// TestGPUMemory computes products of host matrices in less and less GPU memory. All results must
// have the bits of the result in all memory. It logs the rates and the predicted times.
func TestGPUMemory(t *testing.T) {
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
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		in        dtype.Type
		precision gemm.Precision
		n         int
	}{{dtype.F32, gemm.Native, 12000}, {dtype.F64, gemm.Native, 12000}, {dtype.F32, gemm.F32x3, 12000},
		{dtype.BF16, gemm.Native, 16000}, {dtype.F32, gemm.TF32, 9000}, {dtype.F8E4M3, gemm.Native, 16000}} {
		m := gemm.Dense(c.in, c.n, c.n)
		out := gemm.Dense(c.in.Info().Results[0], c.n, c.n)
		p, _, err := gemm.New(1, m, m, 0, out, gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = p.WithPrecision(c.precision); err != nil {
			t.Fatal(err)
		}
		buffers := gemm.Buffers{gemm.A: noiseOf(rng, m), gemm.B: noiseOf(rng, m), gemm.C: make([]byte, out.Bytes())}
		var want []byte
		for _, limit := range []int{0, 1 << 30, 512 << 20, 256 << 20} {
			plan, err := b.Plan(&p, exec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			plan.Limit = limit
			clear(buffers[gemm.C])
			run := func() error { return plan.Run(t.Context(), buffers) }
			first := took(t, run)
			again := took(t, run)
			t.Logf("%v %v %d, %4d MiB: %6.1f TFLOP/s (%v, first %v), predicted %v: %s", c.in, c.precision, c.n, limit>>20,
				p.Flops()/again.Seconds()/1e12, again.Round(time.Millisecond), first.Round(time.Millisecond),
				plan.Predicted().Round(time.Millisecond), plan.Detail())
			if want == nil {
				want = bytes.Clone(buffers[gemm.C])
			} else if !bytes.Equal(buffers[gemm.C], want) {
				t.Errorf("%v %v in %d MiB: other bits than in all memory", c.in, c.precision, limit>>20)
			}
		}
		tooLittle, err := b.Plan(&p, exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tooLittle.Limit = 1 << 10
		if err := tooLittle.Run(t.Context(), buffers); !errors.Is(err, sentinel.ErrOutOfMemory) ||
			!bytes.Equal(buffers[gemm.C], want) {
			t.Errorf("%v in 1 KiB: error %v, want ErrOutOfMemory and C as before", c.in, err)
		}
	}
}

// noiseOf returns random elements in [-1, 1] for a matrix. They repeat after some rows.
func noiseOf(rng *rand.Rand, l gemm.Layout) []byte {
	data := make([]byte, l.Bytes())
	period := min(l.Type.Bytes(1<<20+7), len(data))
	for i := range l.Type.Elements(period) {
		l.Type.Set(data, i, 2*rng.Float64()-1)
	}
	for n := period; n < len(data); n *= 2 {
		copy(data[n:], data[:n])
	}
	return data
}
