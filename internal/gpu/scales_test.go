package gpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// blockScaled is a product of m×n with k terms and block scales of those sides.
func blockScaled(t *testing.T, m, n, k int, out dtype.Type, sideA, sideB int) gemm.Problem {
	t.Helper()
	a, b := gemm.Dense(dtype.F8E4M3, m, k), gemm.Dense(dtype.F8E4M3, n, k).T()
	p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, m, n), gemm.Epilogue{})
	if err == nil {
		steps := gemm.ScaleBlocks(k)
		p, err = p.Scaled(gemm.Dense(dtype.F32, ceilDiv(m, sideA), steps), gemm.Dense(dtype.F32, steps, ceilDiv(n, sideB)), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBlockScalesAssemble: there are registers for the scales, of rows, columns and blocks.
func TestBlockScalesAssemble(t *testing.T) {
	assemble := assembler(t)
	for _, s := range wgmma.Shapes() {
		for _, side := range [][2]int{{1, gemm.ScaleBlock}, {1, 1}, {gemm.ScaleBlock, 1}} {
			for _, out := range []dtype.Type{dtype.F32, dtype.BF16} {
				p := blockScaled(t, 512, 512, 512, out, side[0], side[1])
				if wgmma.Fits(&p, s) != nil || testing.Short() && out == dtype.F32 {
					continue
				}
				assemble(wgmma, wgmma.Config(&p, s))
			}
		}
	}
}

// TestNoBlockScales: what has no arithmetic for block scales says so.
func TestNoBlockScales(t *testing.T) {
	p := blockScaled(t, 64, 64, 256, dtype.F32, 1, gemm.ScaleBlock)
	for _, k := range Kernels() {
		if err := k.Supports(&p); (err == nil) != k.scales {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	if q, err := p.In(gemm.Fast); err != nil || wgmma.Supports(&q) == nil {
		t.Errorf("in precision fast: %v", err)
	}
}
