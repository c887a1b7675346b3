package gpu

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/ptx"
)

func TestMMAShapes(t *testing.T) {
	for _, c := range []struct{ shape, want string }{
		{"128x128x16/8x8/3", ""},
		{"16x32x32/2x4/8", ""},
		{"32x16x64/4x2/4*3", ""},
		{"128x128x16/8x8", "no shape of kernel mma (want one like 128x256x32/8x16/4"},
		{"128x96x16/8x8/3", "96 is no power of two"},
		{"32x32x32/2x2/4", "at least 2×4 or 4×2 elements"},
		{"32x32x16/8x8/3", "a warp alone has 64×32"},
		{"128x128x8/8x8/3", "K is at least 16"},
		{"128x128x16/8x8/1", "1 stages"},
		{"512x256x16/8x8/3", "at most 1024 threads, not 2048"},
	} {
		s, err := kernel.MMA.ParseTile(c.shape)
		switch {
		case c.want != "" && (!errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.shape, err, c.want)
		case c.want == "" && (err != nil || s.String() != c.shape):
			t.Errorf("%s reads as %v, %v", c.shape, s, err)
		}
	}
}

// TestFitsMMA: a tile that is too small, too large or without the threads for an element
// type is refused, with the reason.
func TestFitsMMA(t *testing.T) {
	for _, c := range []struct {
		in          dtype.Type
		shape, want string
	}{
		{dtype.F16, "128x256x32/8x16/4", ""},
		{dtype.F64, "128x256x32/8x16/4", "registers for 64 sums in float64"},
		{dtype.I8, "128x256x32/8x16/4", ""},
		{dtype.I8, "128x256x16/8x16/4", "K is 32 to 256 in int8"},
		{dtype.F16, "128x128x16/8x8/3", ""},
		{dtype.F64, "128x128x128/8x8/3", "K is 8 to 32 in float64"},
		{dtype.F32, "128x256x16/8x16/4", ""},
		{dtype.F16, "32x16x32/4x2/8", "at least 4 columns in float16"},
		{dtype.F64, "32x16x32/4x2/8", ""},
		{dtype.F16, "256x256x64/8x16/4", "262144 bytes of shared memory"},
		{dtype.F16, "64x512x32/8x16/2", "cannot share out"},
		{dtype.F64, "64x512x16/8x8/2", ""},
		{dtype.F64, "64x512x16/8x16/2", "sums in float64"},
		{dtype.F8E4M3, "16x512x64/2x32/2", "cannot share out"},
	} {
		s, err := kernel.MMA.ParseTile(c.shape)
		if err != nil {
			t.Errorf("%s: %v", c.shape, err)
			continue
		}
		p, _, err := gemm.New(1, gemm.Dense(c.in, 64, 64), gemm.Dense(c.in, 64, 64), 0, gemm.Dense(c.in.Info().Results[0], 64, 64), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		err = kernel.MMA.Fits(&p, s)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v with %s: %v, want %q", c.in, c.shape, err, c.want)
		}
	}
}

// TestPreferMMA: whatever the product and the GPU, each tile is there to choose, all are
// tiles that the kernel has, and parts of K are not too short.
func TestPreferMMA(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		d := &device.Info{SMs: 1 + rng.IntN(200), MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90}}
		p := testkit.Product(t, dtype.F64, dtype.F64, rng.IntN(1<<rng.IntN(20)), rng.IntN(1<<rng.IntN(20)), rng.IntN(1<<rng.IntN(20)))
		whole := map[kernel.Tile]bool{}
		for _, s := range choose.OrderMMA(choose.RowOf(kernel.MMA), p, d) {
			if err := kernel.MMA.CheckTile(s); err != nil {
				t.Errorf("%v on %d SMs: %v", p, d.SMs, err)
			}
			if s.SplitK > 1 && s.SplitK*s.K > p.K {
				t.Errorf("%v on %d SMs: %v has parts of less than a step", p, d.SMs, s)
			}
			s.SplitK = 0
			whole[s] = true
		}
		if len(whole) != len(kernel.MMATilesF64) {
			t.Errorf("%v on %d SMs: %d tiles to choose from, want %d", p, d.SMs, len(whole), len(kernel.MMATilesF64))
		}
	}
}

// TestPreferMMAOnH200: choices that were measured on an H200.
func TestPreferMMAOnH200(t *testing.T) {
	d := &device.Info{SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90}}
	for _, c := range []struct {
		m, n, k int
		want    string
	}{
		{4096, 4096, 4096, "128x128x16/8x8/3"},
		{1024, 1024, 1024, "64x64x16/4x8/4"},
		{511, 511, 511, "64x32x32/4x4/3"}, // copied element by element
		{512, 512, 512, "32x64x32/2x8/4"},
		{1, 4096, 4096, "16x32x32/2x4/8"},
		{4096, 1, 4096, "32x16x32/4x2/8"},
		{4096, 4096, 128, "64x128x16/8x8/3"},
		{256, 256, 65536, "128x128x16/8x8/3*33"},
		{64, 4096, 4096, "64x64x16/4x8/4*4"},
	} {
		p := testkit.Product(t, dtype.F64, dtype.F64, c.m, c.n, c.k)
		if got := choose.Configs(kernel.MMA, p, d)[0].Tile.String(); got != c.want {
			t.Errorf("%v: %s, want %s", p, got, c.want)
		}
	}
}
