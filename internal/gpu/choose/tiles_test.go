package choose_test

import (
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/testkit"
	"tilework/ptx"
)

// tileOf returns the tile that is chosen for a kernel on an H200.
func tileOf(t *testing.T, k *kernel.Kernel, p *gemm.Problem) string {
	t.Helper()
	c, err := choose.Named(k.Name, "", p, kernel.Align{}, h200)
	if err != nil {
		t.Fatal(err)
	}
	return c.Config.Tile.String()
}

// TestMMACandidates checks that every tile of mma is a candidate, and that no part of K is shorter
// than a step, for random products and GPUs.
func TestMMACandidates(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		d := &device.Info{SMs: 1 + rng.IntN(200), MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90}}
		p := testkit.Product(t, dtype.F64, dtype.F64, rng.IntN(1<<rng.IntN(20)), rng.IntN(1<<rng.IntN(20)),
			rng.IntN(1<<rng.IntN(20)))
		whole := map[kernel.Tile]bool{}
		for _, c := range choose.CandidatesOf(kernel.MMA, p, kernel.Align{}, d) {
			s := c.Config.Tile
			if c.Rejected != nil {
				t.Errorf("%v on %d SMs: %v", p, d.SMs, c.Rejected)
			}
			if s.SplitK > 1 && s.SplitK*s.K > p.K {
				t.Errorf("%v on %d SMs: %v has parts shorter than a step", p, d.SMs, s)
			}
			s.SplitK = 0
			whole[s] = true
		}
		if len(whole) != len(kernel.MMATilesF64) {
			t.Errorf("%v on %d SMs: %d tiles, want %d", p, d.SMs, len(whole), len(kernel.MMATilesF64))
		}
	}
}

// TestMMATiles checks tiles of mma that were measured to be the fastest on an H200, or as fast.
func TestMMATiles(t *testing.T) {
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
		if got := tileOf(t, kernel.MMA, p); got != c.want {
			t.Errorf("%v: %s, want %s", p, got, c.want)
		}
	}
}

// TestWGMMATilesOfTypes checks tiles of wgmma in every type and precision that were measured to be
// the fastest on an H200, or within 2 % of it.
func TestWGMMATilesOfTypes(t *testing.T) {
	for _, c := range []struct {
		in        dtype.Type
		precision gemm.Precision
		m, n, k   int
		want      string
	}{
		{dtype.F32, gemm.F32x3, 1024, 1024, 1024, "128x64x64/2x16/8"},
		{dtype.F32, gemm.F32x3, 4096, 4096, 4096, "128x128x64/2x32/6"},
		{dtype.F32, gemm.F32x3, 8192, 8192, 8192, "128x128x64/2x32/6"},
		{dtype.F32, gemm.TF32, 4096, 4096, 4096, "256x128x32/4x32/4"},
		{dtype.I8, gemm.Native, 2048, 2048, 2048, "128x128x128/4x32/6"},
		{dtype.I8, gemm.Native, 4096, 4096, 4096, "128x128x128/4x32/6"},
		{dtype.I8, gemm.Native, 8192, 8192, 8192, "128x128x128/4x32/6"},
		{dtype.F8E4M3, gemm.Native, 4096, 4096, 4096, "128x256x128/2x64/4"},
		{dtype.F8E4M3, gemm.Native, 8192, 8192, 8192, "128x192x128/2x48/4"},
		{dtype.F8E4M3, gemm.Native, 16384, 16384, 16384, "128x256x128/2x64/4"},
		{dtype.F8E4M3, gemm.Native, 512, 6144, 4096, "128x192x128/2x48/4"},
		{dtype.F8E4M3, gemm.Native, 32, 4096, 14336, "32x64x128/2x16/12"},
		{dtype.F8E4M3, gemm.Native, 4096, 16, 4096, "64x16x128/2x4/12"},
		{dtype.I8, gemm.Native, 4096, 1, 4096, "64x16x128/2x4/12"},
		{dtype.I8, gemm.Native, 2049, 2049, 2049, "192x192x128/2x48/3"},
		{dtype.F32, gemm.TF32, 3000, 3000, 3000, "192x192x32/2x48/3"},
	} {
		expectTile(t, gemm.Dense(c.in, c.n, c.k).T(), c.precision, c.m, c.want)
	}
	// An MN-major B, which swapAB tiles read in place and others pack.
	for _, c := range []struct {
		m, n, k int
		want    string
	}{
		{512, 512, 512, "64x32x32/2x8/12t"},
		{4096, 4096, 4096, "128x256x32/2x64/4t"},
		{4096, 4096, 16, "128x256x32/2x64/4t"},
		{3000, 3000, 3000, "192x192x32/2x48/3"},
		{32, 4096, 14336, "64x32x32/2x8/12t*2"},
		{128, 4096, 14336, "64x128x32/2x32/8t*2"},
		{512, 6144, 4096, "64x128x32/2x32/8t"},
		{4096, 16, 4096, "64x16x32/2x4/12"},
		{512, 512, 16384, "128x128x32/2x32/6t*8"},
		{1024, 1024, 65536, "128x256x32/2x64/4t*4"},
	} {
		expectTile(t, gemm.Dense(dtype.F32, c.k, c.n), gemm.TF32, c.m, c.want)
	}
}

// expectTile checks the tile of wgmma for m rows of A times B on an H200.
func expectTile(t *testing.T, b gemm.Layout, precision gemm.Precision, m int, want string) {
	t.Helper()
	k, n := b.OpRows(), b.OpCols()
	p, _, err := gemm.New(1, gemm.Dense(b.Type, m, k), b, 0, gemm.Dense(b.Type.Info().Results[0], m, n), gemm.Epilogue{})
	if err == nil {
		p, err = p.WithPrecision(precision)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := tileOf(t, sm90.WGMMA, &p); got != want {
		t.Errorf("%v: %s, want %s", &p, got, want)
	}
}

// TestWGMMACandidates checks that every tile of wgmma for the type is a candidate, that its grid
// fits the GPU, and that no part of K is shorter than a step, for random products and GPUs.
func TestWGMMACandidates(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		d := &device.Info{SMs: 1 + rng.IntN(200), MaxThreads: 1024, MaxShared: 227 << 10,
			Target: ptx.Target{SM: 90, Suffix: "a"}}
		p := testkit.Product(t, dtype.BF16, dtype.BF16, 1+rng.IntN(1<<rng.IntN(20)), 1+rng.IntN(1<<rng.IntN(20)),
			rng.IntN(1<<rng.IntN(20)))
		whole := map[kernel.Tile]bool{}
		for _, c := range choose.CandidatesOf(sm90.WGMMA, p, kernel.Align{}, d) {
			s := c.Config.Tile
			if c.Rejected != nil {
				t.Errorf("%v on %d SMs: %v", p, d.SMs, c.Rejected)
			}
			if s.SplitK > 1 && s.SplitK*s.K > p.K {
				t.Errorf("%v on %d SMs: %v has parts shorter than a step", p, d.SMs, s)
			}
			g, cluster, err := sm90.Grid(c.Config, p, d)
			if n := s.BlocksM() * s.BlocksK(); err != nil || g.X%n != 0 || g.X > max(d.SMs, n) || n > 1 && cluster.X != n {
				t.Errorf("%v on %d SMs: %v has a grid of %v in clusters of %v, %v", p, d.SMs, s, g, cluster, err)
			}
			s.SplitK = 0
			whole[s] = true
		}
		if want := len(sm90.BaseTiles) + 1; len(whole) != want { // and a tall one
			t.Errorf("%v on %d SMs: %d tiles, want %d", p, d.SMs, len(whole), want)
		}
	}
}

// TestWGMMATiles checks tiles of wgmma that were measured to be the fastest on an H200, or as fast.
func TestWGMMATiles(t *testing.T) {
	for _, c := range []struct {
		m, n, k int
		want    string
	}{
		{8192, 8192, 8192, "128x128x64/4x32/6"},
		{4096, 4096, 4096, "128x128x64/4x32/6"},
		{4096, 4096, 1024, "128x128x64/4x32/6"},
		{2048, 2048, 2048, "128x256x64/2x64/4"},
		{3000, 3000, 3000, "192x192x64/2x48/4c2"},
		{1024, 1024, 1024, "128x64x64/2x16/8"},
		{512, 512, 512, "64x64x64/2x16/12"},
		{512, 6144, 4096, "128x192x64/2x48/5"},
		{256, 14336, 4096, "128x256x64/2x64/4"},
		{4096, 1, 4096, "64x16x64/2x4/12"},
		{128, 14336, 4096, "128x128x64/2x32/6"},
		{64, 4096, 14336, "64x64x64/2x16/12"},
		{32, 4096, 4096, "32x64x64/2x16/12"},
		{16, 4096, 4096, "16x64x64/2x16/12"},
		{16, 28672, 4096, "16x64x64/2x16/12"},
		{4096, 4096, 16, "128x256x64/2x64/4"},
		{64, 64, 65536, "32x64x64/2x16/12*66"},
	} {
		p := testkit.Product(t, dtype.BF16, dtype.BF16, c.m, c.n, c.k)
		if got := tileOf(t, sm90.WGMMA, p); got != c.want {
			t.Errorf("%v: %s, want %s", p, got, c.want)
		}
	}
}

// TestWGMMATilesWithBlockScales checks tiles that were measured to be the fastest on an H200, or
// within 1 % of it.
func TestWGMMATilesWithBlockScales(t *testing.T) {
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
		p := testkit.BlockScaled(t, c.m, c.n, c.k, dtype.BF16, 1, c.sideB)
		if got := tileOf(t, sm90.WGMMA, &p); got != c.want {
			t.Errorf("%v with block scales of 1 row and %d columns: %s, want %s", &p, c.sideB, got, c.want)
		}
	}
}
