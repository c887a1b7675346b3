package gpu

import (
	"testing"

	"tilework/internal/gemm"
	"tilework/ptx/emu/check"
)

func TestTurned(t *testing.T) {
	for _, s := range []string{"64x64x32/2x16/3t", "128x128x32/2x32/3t", "64x16x32/2x4/3t", "256x64x32/4x16/2t"} {
		t.Run(s, func(t *testing.T) {
			d := checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
			conform(t, d, 12, Options{Kernel: "wgmma", Shape: s}, gemm.TF32)
		})
	}
}
