package cuda

import (
	"fmt"
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/gputest"
)

// TestCardTerms: each term counts once, in every tile of float64 on tensor cores, however the operands
// lie: rows of either begin where 16 bytes can be copied at once, or 8.
func TestCardTerms(t *testing.T) {
	g := card(t)
	testTerms(t, g, waysOf(t, "mma"))
}

// TestTerms: on the emulator, in the smallest of them.
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
	k, err := gpu.Find(kernel)
	if err != nil {
		t.Fatal(err)
	}
	return gputest.Way{Kernel: k}.Shapes()
}

func testTerms(t *testing.T, d device.Device, ways []gputest.Way) {
	b := gpu.New(d)
	for _, w := range ways {
		for layout := range 16 {
			p, err := float64Of(5, 8, 65, layout)
			if err != nil {
				t.Fatal(err)
			}
			if !w.Takes(p, d.Info()) {
				continue
			}
			if err := countTerms(t, b, w, p); err != nil {
				t.Errorf("%v: %v, layout %04b: %v", w, p, layout, err)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// float64Of is a product in float64, whose layouts' bits say of A and of B whether it is transposed, and
// whether its rows begin at odd elements.
func float64Of(m, n, k, layout int) (*gemm.Problem, error) {
	operand := func(rows, cols, bits int) gemm.Layout {
		trans := bits&1 != 0
		if trans {
			rows, cols = cols, rows
		}
		l := gemm.Dense(dtype.F64, rows, cols)
		l.LD, l.Trans = (cols+1)/2*2+bits>>1&1, trans
		return l
	}
	p, _, err := gemm.New(1, operand(m, k, layout), operand(k, n, layout>>2), 0, gemm.Dense(dtype.F64, m, n), gemm.Epilogue{})
	return &p, err
}

// countTerms multiplies ones by powers of two, so that an element of C says which terms are in it, and
// how often: the first 50, and then the others.
func countTerms(t *testing.T, b *gpu.Backend, w gputest.Way, p *gemm.Problem) error {
	const atOnce = 50
	x, y, c := make([]float64, p.A.Len()), make([]float64, p.B.Len()), make([]float64, p.C.Len())
	for i := range x {
		x[i] = 1
	}
	for from := 0; from < p.K; from += atOnce {
		clear(y)
		var want float64
		for k := from; k < min(from+atOnce, p.K); k++ {
			v := math.Exp2(float64(k - from))
			want += v
			for j := range p.N {
				y[p.B.Index(k, j)] = v
			}
		}
		if err := w.On(b).Gemm(t.Context(), p, gemm.Buffers{A: dtype.Bytes(x), B: dtype.Bytes(y), C: dtype.Bytes(c)}); err != nil {
			return err
		}
		for _, got := range c {
			if got != want {
				return fmt.Errorf("of terms %d and on there are %050b, want %050b", from, int64(got), int64(want))
			}
		}
	}
	return nil
}
