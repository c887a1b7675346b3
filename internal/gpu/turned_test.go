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

// TestTurnedConflicts: what threads load of B has no bank conflict, and what they write of C one
// at the most.
func TestTurnedConflicts(t *testing.T) {
	for _, split := range []string{"", "*2"} { // in parts of K C passes by shared memory
		p := turnedProblem(t, 64, 128, 256)
		d := devicetest.Checked(t, check.Options{MaxConflicts: map[string]float64{"": 2, "*2": 1}[split]})
		plan, err := stream.New(d).Plan(p, exec.Options{Kernel: sm90.WGMMA.Name, Shape: "64x64x32/2x16/3t" + split})
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Run(t.Context(), gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()), gemm.C: make([]byte, p.C().Bytes())}); err != nil {
			t.Error(err)
		}
	}
}

// turnedProblem is a product in tf32 of matrices as they usually lie.
func turnedProblem(t *testing.T, m, n, k int) *gemm.Problem {
	t.Helper()
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, m, k), gemm.Dense(dtype.F32, k, n), 0, gemm.Dense(dtype.F32, m, n), gemm.Epilogue{})
	if err == nil {
		p, err = p.WithPrecision(gemm.TF32)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestTurnedRefused: a turned tile is refused where it would read something else than B across K.
func TestTurnedRefused(t *testing.T) {
	s, err := sm90.WGMMA.ParseTile("64x64x32/2x16/3t")
	if err != nil {
		t.Fatal(err)
	}
	along, half, grouped, gated := *turnedProblem(t, 64, 64, 64), *testkit.Product(t, dtype.BF16, dtype.BF16, 64, 64, 64), *turnedProblem(t, 64, 64, 64), *turnedProblem(t, 64, 64, 64)
	along.Layouts[gemm.B] = gemm.Dense(dtype.F32, 64, 64).T()
	grouped.Batch = gemm.Batch{Kind: gemm.Grouped, Count: 2}
	gated.Epilogue.Gated, gated.Layouts[gemm.Up] = true, gated.Layouts[gemm.B]
	for name, p := range map[string]*gemm.Problem{"B along K": &along, "bfloat16": &half, "groups": &grouped, "gated": &gated} {
		if err := sm90.WGMMA.Check(p, s, kernel.Align{}, nil); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, shape := range []string{"32x64x32/2x16/3t", "64x64x32/2x16/3tk2"} {
		if _, err := sm90.WGMMA.ParseTile(shape); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("%s: %v", shape, err)
		}
	}
	if _, err := kernel.MMA.ParseTile("128x128x16/8x8/3t"); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("turned tiles of mma: %v", err)
	}
	if got := fmt.Sprint(s); got != "64x64x32/2x16/3t" {
		t.Errorf("it reads as %s", got)
	}
}
