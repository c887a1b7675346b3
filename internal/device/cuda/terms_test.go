package cuda

import (
	"fmt"
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/gputest"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

// TestGPUTerms checks that every float64 tile on tensor cores adds each term along K exactly once,
// for all operand layouts, with rows aligned to 16 bytes and to 8 bytes.
func TestGPUTerms(t *testing.T) {
	g := openGPU(t)
	testTerms(t, g, waysOf(t, "mma"))
}

// TestTerms is like TestGPUTerms on the emulator, with the smallest tile.
func TestTerms(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ways := waysOf(t, "mma")
	testTerms(t, d, ways[len(ways)-1:])
}

func waysOf(t *testing.T, kernel string) []gputest.Way {
	t.Helper()
	k, err := choose.Find(kernel)
	if err != nil {
		t.Fatal(err)
	}
	return gputest.Way{Kernel: k}.Shapes()
}

func testTerms(t *testing.T, d device.Device, ways []gputest.Way) {
	b := stream.New(d)
	for _, w := range ways {
		for name, p := range testkit.Layouts(t, dtype.F64, 5, 8, 65) {
			if !w.Takes(p, d.Info()) {
				continue
			}
			if err := countTerms(t, b, w, p); err != nil {
				t.Errorf("%v: %v, %s: %v", w, p, name, err)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// countTerms multiplies a matrix of ones by powers of two, so that the bits of each element of C
// show which terms it contains and how often. It tests 50 terms per product.
func countTerms(t *testing.T, b *stream.Backend, w gputest.Way, p *gemm.Problem) error {
	const termsPerProduct = 50
	x, y, c := make([]float64, p.A().Len()), make([]float64, p.B().Len()), make([]float64, p.C().Len())
	for i := range x {
		x[i] = 1
	}
	for from := 0; from < p.K; from += termsPerProduct {
		clear(y)
		var want float64
		for k := from; k < min(from+termsPerProduct, p.K); k++ {
			v := math.Exp2(float64(k - from))
			want += v
			for j := range p.N {
				y[p.B().Index(k, j)] = v
			}
		}
		if err := w.On(b).Gemm(t.Context(), p, gemm.Buffers{gemm.A: dtype.Bytes(x), gemm.B: dtype.Bytes(y),
			gemm.C: dtype.Bytes(c)}); err != nil {
			return err
		}
		for _, got := range c {
			if got != want {
				return fmt.Errorf("terms from %d: C is %050b, want %050b", from, int64(got), int64(want))
			}
		}
	}
	return nil
}
