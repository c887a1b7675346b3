package gpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/ptxas"
	"tilework/internal/gpu/sm90"
	"tilework/ptx"
)

// blockScaled is a product of m×n with k terms and block scales of those sides.
func blockScaled(t *testing.T, m, n, k int, out dtype.Type, sideA, sideB int) gemm.Problem {
	t.Helper()
	a, b := gemm.Dense(dtype.F8E4M3, m, k), gemm.Dense(dtype.F8E4M3, n, k).T()
	p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, m, n), gemm.Epilogue{})
	if err == nil {
		steps := gemm.ScaleBlocks(k)
		p, err = p.Scaled(gemm.Dense(dtype.F32, kernel.CeilDiv(m, sideA), steps), gemm.Dense(dtype.F32, steps, kernel.CeilDiv(n, sideB)), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBlockScalesAssemble: there are registers for the scales, of rows, columns and blocks.
func TestBlockScalesAssemble(t *testing.T) {
	assemble := ptxas.Assembler(t)
	for _, s := range sm90.WGMMA.Tiles {
		for _, side := range [][2]int{{1, gemm.ScaleBlock}, {1, 1}, {gemm.ScaleBlock, 1}} {
			for _, out := range []dtype.Type{dtype.F32, dtype.BF16} {
				p := blockScaled(t, 512, 512, 512, out, side[0], side[1])
				if sm90.WGMMA.Fits(&p, s) != nil || testing.Short() && out == dtype.F32 {
					continue
				}
				assemble(sm90.WGMMA, sm90.WGMMA.Config(&p, s))
			}
		}
	}
}

// TestNoBlockScales: what has no arithmetic for block scales says so.
func TestNoBlockScales(t *testing.T) {
	p := blockScaled(t, 64, 64, 256, dtype.F32, 1, gemm.ScaleBlock)
	for _, k := range choose.Kernels() {
		if err := k.Supports(&p); (err == nil) != k.BlockScales {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	if q, err := p.WithPrecision(gemm.Fast); err != nil || sm90.WGMMA.Supports(&q) == nil {
		t.Errorf("in precision fast: %v", err)
	}
}

// TestPreferScaled: with block scales, too, the tile that an H200 showed to be the fastest of those
// that were measured, or within 1 % of it.
func TestPreferScaled(t *testing.T) {
	d := &device.Info{SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90, Suffix: "a"}}
	for _, c := range []struct {
		m, n, k, sideB int
		want           string
	}{
		{4096, 4096, 4096, 128, "128x256x128/2x64/4"},
		{2048, 2048, 2048, 128, "128x256x128/2x64/4"},
		{512, 7168, 2048, 128, "128x256x128/2x64/4"},
		{128, 7168, 16384, 128, "128x128x128/2x32/6*2"},
		{64, 7168, 2048, 128, "64x64x128/2x16/12"},
		{4096, 4096, 4096, 1, "128x128x128/2x32/6"},
		{512, 7168, 2048, 1, "128x128x128/2x32/6"},
	} {
		p := blockScaled(t, c.m, c.n, c.k, dtype.BF16, 1, c.sideB)
		if got := choose.Configs(sm90.WGMMA, &p, d)[0].Tile.String(); got != c.want {
			t.Errorf("%v, scales of 1 row and %d columns: %s, want %s", &p, c.sideB, got, c.want)
		}
	}
}
