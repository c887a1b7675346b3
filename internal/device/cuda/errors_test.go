package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/stream"
	"tilework/internal/ref"
)

// TestErrors checks that F32x3 products are at least as accurate as float32 products.
func TestErrors(t *testing.T) { compareErrors(t, emulated(t, 1), 32, 64, 512) }

// TestGPUErrors is like TestErrors on the GPU, for K up to 65,536.
func TestGPUErrors(t *testing.T) {
	compareErrors(t, openGPU(t), 128, 64, 256, 1024, 4096, 16384, 65536)
}

// compareErrors computes n×n products with each K of depths in float32, F32x3 and tf32. It logs
// their RMS errors relative to |A|·|B| in units of the float32 roundoff.
func compareErrors(t *testing.T, d device.Device, n int, depths ...int) {
	t.Helper()
	b := stream.New(d)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	signed := func() float64 { return 2*rng.Float64() - 1 }
	for _, data := range []struct {
		name   string
		number func() float64
	}{
		{"in [-1, 1]", signed},
		{"in [0, 1]", rng.Float64},
		{"normal", rng.NormFloat64},
		{"2^-20 to 2^20", func() float64 { return math.Ldexp(signed(), rng.IntN(41)-20) }},
		{"around 2^-70", func() float64 { return math.Ldexp(signed(), -70) }},
	} {
		for _, depth := range depths {
			l, r := gemm.Dense(dtype.F32, n, depth), gemm.Dense(dtype.F32, depth, n)
			p, _, err := gemm.New(1, l, r, 0, gemm.Dense(dtype.F32, n, n), gemm.Epilogue{})
			if err != nil {
				t.Fatal(err)
			}
			m := gemm.Buffers{gemm.A: make([]byte, l.Bytes()), gemm.B: make([]byte, r.Bytes()),
				gemm.C: make([]byte, p.C().Bytes())}
			absolute := gemm.Buffers{gemm.A: make([]byte, l.Bytes()), gemm.B: make([]byte, r.Bytes()), gemm.C: m[gemm.C]}
			for _, x := range [][2][]byte{{m[gemm.A], absolute[gemm.A]}, {m[gemm.B], absolute[gemm.B]}} {
				for i := range n * depth {
					v := float64(float32(data.number()))
					dtype.F32.Set(x[0], i, v)
					dtype.F32.Set(x[1], i, math.Abs(v))
				}
			}
			want, scale := ref.Values(&p, m).Value, ref.Values(&p, absolute).Value
			text := fmt.Sprintf("%-17s K = %5d:", data.name, depth)
			var errors [3]float64 // RMS
			for i, way := range []struct {
				gemm.Precision
				kernel, shape string
			}{
				{gemm.Native, "blocked", "64x64x8/8x4/4"}, // sums along K in order
				{gemm.F32x3, "wgmma", ""},
				{gemm.TF32, "wgmma", ""},
			} {
				q, err := p.WithPrecision(way.Precision)
				if err != nil {
					t.Fatal(err)
				}
				plan, err := b.Plan(&q, exec.Options{Kernel: way.kernel, Tile: way.shape})
				if err != nil {
					t.Fatal(err)
				}
				if err := plan.Run(t.Context(), m); err != nil {
					t.Fatal(err)
				}
				largest := 0.
				for at, w := range want {
					e := math.Abs(dtype.F32.At(m[gemm.C], at)-w) / scale[at] / dtype.F32.Info().Roundoff
					largest = max(largest, e)
					errors[i] += e * e / float64(len(want))
				}
				errors[i] = math.Sqrt(errors[i])
				text += fmt.Sprintf("  %v %.3f (%.2f)", way.Precision, errors[i], largest)
			}
			if t.Log(text); errors[1] > errors[0] {
				t.Errorf("%s: the error of F32x3 exceeds that of float32", text)
			}
		}
	}
}
