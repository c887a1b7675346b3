package gpu

import (
	"errors"
	"fmt"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
	"tilework/ptx/emu/check"
)

// TestSwapABConflicts checks that swapAB tiles access shared memory with few bank conflicts: on
// average at most two extra wavefronts per access, and at most one with split-K.
func TestSwapABConflicts(t *testing.T) {
	for _, split := range []string{"", "*2"} { // with split-K, C does not pass through shared memory
		p := swapABProblem(t, 64, 128, 256)
		d := devicetest.Checked(t, check.Options{MaxConflicts: map[string]float64{"": 2, "*2": 1}[split]})
		plan, err := stream.New(d).Plan(p, exec.Options{Kernel: sm90.WGMMA.Name, Tile: "64x64x32/2x16/3t" + split})
		if err != nil {
			t.Fatal(err)
		}
		a, b, c := make([]byte, p.A().Bytes()), make([]byte, p.B().Bytes()), make([]byte, p.C().Bytes())
		if err := plan.Run(t.Context(), gemm.Buffers{gemm.A: a, gemm.B: b, gemm.C: c}); err != nil {
			t.Error(err)
		}
	}
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

// TestSwapABRefused checks that Check rejects a swapAB tile unless B is an MN-major matrix in TF32,
// and that ParseTile rejects swapAB tiles that no kernel has.
func TestSwapABRefused(t *testing.T) {
	s, err := sm90.WGMMA.ParseTile("64x64x32/2x16/3t")
	if err != nil {
		t.Fatal(err)
	}
	bf16 := *testkit.Product(t, dtype.BF16, dtype.BF16, 64, 64, 64)
	kMajor, grouped, gated := *swapABProblem(t, 64, 64, 64), *swapABProblem(t, 64, 64, 64), *swapABProblem(t, 64, 64, 64)
	kMajor.Layouts[gemm.B] = gemm.Dense(dtype.F32, 64, 64).T()
	grouped.Batch = gemm.Batch{Kind: gemm.Grouped, Count: 2}
	gated.Epilogue.Gated, gated.Layouts[gemm.Up] = true, gated.Layouts[gemm.B]
	for name, p := range map[string]*gemm.Problem{"B is K-major": &kMajor, "bfloat16": &bf16, "grouped GEMM": &grouped,
		"gated product": &gated} {
		if err := sm90.WGMMA.Check(p, s, kernel.Align{}, nil); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("%s: Check returned %v, want ErrUnsupported", name, err)
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
