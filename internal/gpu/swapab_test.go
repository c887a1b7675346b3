package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu/check"
)

// TestSwapABConflicts checks that swapAB tiles access shared memory with few bank conflicts: in
// tf32 on average at most two extra wavefronts per access, and at most one with split-K, where C
// does not pass through shared memory. In 16 bits there are few, because stmatrix writes whole
// chunks.
func TestSwapABConflicts(t *testing.T) {
	tf32, bf16 := swapABProblem(t, 64, 128, 256), testkit.Product(t, dtype.BF16, dtype.BF16, 96, 128, 256)
	nt := testkit.Product(t, dtype.BF16, dtype.BF16, 128, 240, 256)
	nt.Layouts[gemm.B] = gemm.Dense(dtype.BF16, 240, 256).T()
	for _, c := range []struct {
		p         *gemm.Problem
		tile      string
		conflicts float64
	}{{tf32, "64x64x32/2x16/3t", 2}, {tf32, "64x64x32/2x16/3t*2", 1}, {bf16, "64x96x64/2x24/3t", 0.1},
		{nt, "64x40x64/2x10/3", 0.1}, {nt, "128x112x64/2x28/3", 0.1}} {
		p, d := c.p, devicetest.Checked(t, check.Options{MaxConflicts: c.conflicts})
		plan, err := stream.New(d).Plan(p, exec.Options{Kernel: sm90.WGMMA.Name, Tile: c.tile})
		if err != nil {
			t.Fatal(err)
		}
		a, b, c := make([]byte, p.A().Bytes()), make([]byte, p.B().Bytes()), make([]byte, p.C().Bytes())
		if err := plan.Run(t.Context(), gemm.Buffers{gemm.A: a, gemm.B: b, gemm.C: c}); err != nil {
			t.Error(err)
		}
	}
}

// TestSwapABHeights checks under all checkers that tiles with swapAB of odd multiples of 8 rows of
// C, by 64, 128 and 192 columns, have the bits of a tile without it.
func TestSwapABHeights(t *testing.T) {
	cases := []tileCase{
		{in: dtype.BF16, out: dtype.BF16, tile: "128x%dx64/2x%d/2t", transB: true},
		{in: dtype.BF16, out: dtype.F32, tile: "64x%dx64/2x%d/2t"},
		{in: dtype.F16, out: dtype.F16, tile: "192x%dx64/2x%d/2t", transB: true},
		{in: dtype.F8E4M3, out: dtype.BF16, precision: gemm.Fast, tile: "128x%dx128/2x%d/2t", transB: true},
		{in: dtype.F8E4M3, out: dtype.F32, tile: "64x%dx128/2x%d/2t", transB: true},
	}
	parallel(t, cases, func(c tileCase) string { return fmt.Sprint(c.in, " ", c.tile) }, func(t *testing.T, c tileCase) {
		rng := testrand.New(t)
		b := exec.New(devicetest.Checked(t, check.Options{MaxConflicts: 2, MaxScatter: 2}))
		for range testkit.Repeats(3, 300) {
			height := 16*rng.IntN(12) + 8 // odd multiples of 8
			p := c.problem(t, 1+rng.IntN(2*height), 8+8*rng.IntN(30), 1+rng.IntN(300))
			s := fmt.Sprintf(c.tile, height, height/frag.Quad)
			tile, err := sm90.WGMMA.ParseTile(s)
			if err != nil {
				t.Fatal(err)
			}
			if why := sm90.WGMMA.Check(p, tile, kernel.Align{}, nil); why != nil {
				if c.precision == gemm.Native && c.in == dtype.F8E4M3 {
					continue // promotion wants equal parts of some columns
				}
				t.Fatal(why)
			}
			x := testkit.Filled(rng, p)
			plain := fmt.Sprintf("64x64x%d/2x16/2", tile.K)
			if want, got := c.run(t, b, p, x, plain), c.run(t, b, p, x, s); !bytes.Equal(got, want) {
				t.Errorf("%v: tile %s has other bits than %s", p, s, plain)
			}
		}
	})
}

// swapABProblem returns an M×N×K product in TF32 of matrices that are not transposed. B is
// MN-major, as swapAB requires.
func swapABProblem(t *testing.T, m, n, k int) *gemm.Problem {
	t.Helper()
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, m, k), gemm.Dense(dtype.F32, k, n), 0, gemm.Dense(dtype.F32, m, n),
		gemm.Epilogue{})
	if err == nil {
		p, err = p.WithPrecision(gemm.TF32)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestSwapABRefused checks that Check rejects a swapAB tile of tf32 unless B is MN-major, all of
// them for groups, gates, block scales and F32x3, and that ParseTile rejects swapAB tiles that no
// kernel has.
func TestSwapABRefused(t *testing.T) {
	s, err := sm90.WGMMA.ParseTile("64x64x32/2x16/3t")
	if err != nil {
		t.Fatal(err)
	}
	kMajor, grouped, gated := *swapABProblem(t, 64, 64, 64), *swapABProblem(t, 64, 64, 64), *swapABProblem(t, 64, 64, 64)
	kMajor.Layouts[gemm.B] = gemm.Dense(dtype.F32, 64, 64).T()
	grouped.Batch = gemm.Batch{Kind: gemm.Grouped, Count: 2}
	gated.Epilogue.Gated, gated.Layouts[gemm.Up] = true, gated.Layouts[gemm.B]
	f32x3, err := testkit.Product(t, dtype.F32, dtype.F32, 64, 64, 64).WithPrecision(gemm.F32x3)
	if err != nil {
		t.Fatal(err)
	}
	scaled := *testkit.Product(t, dtype.F8E4M3, dtype.BF16, 64, 64, 64)
	scaled.Layouts[gemm.ScaleA], scaled.Layouts[gemm.ScaleB] = gemm.Dense(dtype.F32, 64, 1), gemm.Dense(dtype.F32, 1, 1)
	int8 := testkit.Product(t, dtype.I8, dtype.I32, 64, 64, 64)
	odd := s
	odd.N, odd.ColsPerThread, odd.K = 40, 10, 128
	if err := sm90.WGMMA.Check(int8, odd, kernel.Align{}, nil); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("N of 40 in int8: Check returned %v, want ErrUnsupported", err)
	}
	for name, c := range map[string]struct {
		k int // of a tile
		p *gemm.Problem
	}{"B is K-major": {32, &kMajor}, "float32 in three parts": {64, &f32x3}, "block scales": {128, &scaled},
		"grouped GEMM": {32, &grouped}, "gated product": {32, &gated}} {
		s, p := s, c.p
		s.K = c.k
		if err := sm90.WGMMA.Check(p, s, kernel.Align{}, nil); !errors.Is(err, gemm.ErrUnsupported) ||
			!strings.Contains(err.Error(), "swapAB") {
			t.Errorf("%s: Check returned %v, want ErrUnsupported with swapAB", name, err)
		}
	}
	for _, shape := range []string{"32x64x32/2x16/3t", "64x64x32/2x16/3tk2"} {
		if _, err := sm90.WGMMA.ParseTile(shape); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("ParseTile(%q): error %v, want ErrUnsupported", shape, err)
		}
	}
	if _, err := kernel.MMA.ParseTile("128x128x16/8x8/3t"); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("swapAB tile of mma: ParseTile returned %v, want ErrUnsupported", err)
	}
	if got := fmt.Sprint(s); got != "64x64x32/2x16/3t" {
		t.Errorf("tile prints as %s, want 64x64x32/2x16/3t", got)
	}
}

// TestSwapABPackedBatch checks that a tile is refused if it alone needs an operand of a large batch
// packed: with swapAB, a ragged tile reads a column of A as rows of one element.
func TestSwapABPackedBatch(t *testing.T) {
	p := *testkit.Product(t, dtype.F8E4M3, dtype.F32, 1, 128, 96)
	p.Layouts[gemm.A], p.Layouts[gemm.B] = gemm.Dense(p.In(), 96, 1).T(), gemm.Dense(p.In(), 128, 96).T()
	for _, c := range []struct {
		count   int
		tile    string
		refused bool
	}{
		{kernel.MaxGridRows, "64x8x128/2x2/12t", false},
		{kernel.MaxGridRows + 1, "64x8x128/2x2/12t", true},
		{kernel.MaxGridRows + 1, "64x64x128/2x16/12", false},
	} {
		q, err := p.Strided(c.count, gemm.Batch{Stride: gemm.Strides{96, 128 * 96, 128}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := sm90.WGMMA.ParseTile(c.tile)
		if err != nil {
			t.Fatal(err)
		}
		if err := sm90.WGMMA.Check(&q, s, kernel.Align{}, nil); errors.Is(err, gemm.ErrUnsupported) != c.refused {
			t.Errorf("%d products with %s: Check returned %v, want a refusal: %t", c.count, c.tile, err, c.refused)
		}
	}
}
