package gpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/ptxas"
	"tilework/internal/gpu/sm90"
	"tilework/internal/testkit"
)

// TestBlockScalesAssemble checks that ptxas assembles wgmma with block scales without spills. The
// scales are for rows, columns and blocks.
func TestBlockScalesAssemble(t *testing.T) {
	assemble := ptxas.Sampler(t)
	for _, s := range sm90.WGMMA.Tiles {
		for _, side := range [][2]int{{1, gemm.ScaleBlock}, {1, 1}, {gemm.ScaleBlock, 1}} {
			for _, out := range []dtype.Type{dtype.F32, dtype.BF16} {
				p := testkit.BlockScaled(t, 512, 512, 512, out, side[0], side[1])
				if sm90.WGMMA.Check(&p, s, kernel.Align{}, nil) != nil || !testkit.Full() && out == dtype.F32 {
					continue
				}
				assemble(sm90.WGMMA, sm90.WGMMA.Config(&p, s))
			}
		}
	}
}

// TestNoBlockScales checks that Check rejects block scales exactly for the kernels and the
// precisions that do not support them.
func TestNoBlockScales(t *testing.T) {
	p := testkit.BlockScaled(t, 64, 64, 256, dtype.F32, 1, gemm.ScaleBlock)
	for _, k := range choose.Kernels() {
		if err := k.Check(&p, kernel.Tile{}, kernel.Align{}, nil); (err == nil) != k.BlockScales {
			t.Errorf("%s: Check with block scales: error %v, BlockScales is %v", k.Name, err, k.BlockScales)
		}
	}
	if q, err := p.WithPrecision(gemm.Fast); err != nil || sm90.WGMMA.Check(&q, kernel.Tile{}, kernel.Align{},
		nil) == nil {
		t.Errorf("wgmma in precision fast: Check accepts block scales, or WithPrecision failed: %v", err)
	}
}
