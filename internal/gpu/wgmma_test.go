package gpu

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
	"tilework/ptx"
)

func TestWgmmaShapes(t *testing.T) {
	for _, c := range []struct{ shape, want string }{
		{"128x256x64/2x64/4c2", ""},
		{"128x256x64/2x64/4", ""},
		{"64x64x128/2x16/8*3", ""},
		{"128x128x64/4x32/6c2*7", ""},
		{"128x256x64/2x64", "no shape of kernel wgmma (want one like 128x256x128/2x64/4,"},
		{"128x256x64/2x64/4c", `clusters of ""`},
		{"128x256x64/2x64/4c1", `clusters of "1"`},
		{"64x64x64/2x16/12k4", ""},
		{"64x64x64/2x16/12k3", "a cluster of 3 blocks along K"},
		{"128x128x64/2x32/4c2k2", "2 along M, with split-K of 1: want 2, 4 or 8 along K alone"},
		{"64x64x64/2x16/12k2*2", "with split-K of 2"},
		{"128x256x64/2x64/4k", `clusters of ""`},
		{"128x256x64/2x64/4c8", "a cluster of 8 blocks"},
		{"64x64x64/2x16/8c4", "a cluster of 4 blocks"},
		{"192x192x64/2x48/4c2", ""},
		{"16x32x64/2x8/12", ""},
		{"32x32x64/2x8/4c2", "a cluster with N of 32"},
		{"128x256x64/1x64/4", "1 rows per thread: want 2 or 4"},
		{"128x96x64/2x24/4", "N is 96: want 16, 32, 64, 128, 192 or 256"},
		{"128x256x64/2x32/4", "want a quarter of N, 64"},
		{"256x256x64/4x64/4", "256 accumulators per thread: want at most 128"},
		{"192x256x64/2x64/4", "with three warpgroups at most 96"},
		{"256x64x64/2x16/4", "want 1, 2 or 3 times the 64 rows"},
		{"128x256x32/2x64/4", ""},
		{"128x256x16/2x64/4", "want the elements in 128 bytes"},
		{"128x256x64/2x64/1", "1 stages"},
	} {
		s, err := sm90.WGMMA.ParseTile(c.shape)
		switch {
		case c.want != "" && (!errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.shape, err, c.want)
		case c.want == "" && (err != nil || s.String() != c.shape):
			t.Errorf("%s reads as %v, %v", c.shape, s, err)
		}
	}
	if _, err := kernel.MMA.ParseTile("128x128x16/8x8/3c2"); !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), "kernel mma with clusters") {
		t.Errorf("clusters of mma: %v", err)
	}
}

// TestPlanF32x3: in it every product gets wgmma, however few rows it has, with room for a
// step's three parts.
func TestPlanF32x3(t *testing.T) {
	d := devicetest.FewSMs(t, emu.Options{})
	for _, m := range []int{1, 64, 500} {
		p := precise(t, gemm.F32x3)
		p.M, p.A().Rows, p.C().Rows = m, m, m
		plan, err := stream.New(d).Plan(p, exec.Options{})
		if err != nil || plan.Kernel != sm90.WGMMA || plan.Config.Tile.Stages < kernel.SplitTerms {
			t.Errorf("%v: %+v, %v", p, plan, err)
		}
		if _, err := stream.New(d).Plan(p, exec.Options{Kernel: "wgmma", Shape: "64x64x64/2x16/2"}); !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), "want at least 3 stages for precision f32x3") {
			t.Errorf("two stages: %v", err)
		}
	}
}

// TestPreferTypes: of each type and precision the tile that an H200 showed to be the fastest of
// those that were measured, or within 2 % of it.
func TestPreferTypes(t *testing.T) {
	d := &device.Info{SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90, Suffix: "a"}}
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
		expectTile(t, d, gemm.Dense(c.in, c.n, c.k).T(), c.precision, c.m, c.want)
	}
	// B across K, which turned tiles read as it lies, or which is packed.
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
		expectTile(t, d, gemm.Dense(dtype.F32, c.k, c.n), gemm.TF32, c.m, c.want)
	}
}

// expectTile expects a tile to be preferred on a device for m rows of A times B.
func expectTile(t *testing.T, d *device.Info, b gemm.Layout, precision gemm.Precision, m int, want string) {
	t.Helper()
	k, n := b.OpRows(), b.OpCols()
	p, _, err := gemm.New(1, gemm.Dense(b.Type, m, k), b, 0, gemm.Dense(b.Type.Info().Results[0], m, n), gemm.Epilogue{})
	if err == nil {
		p, err = p.WithPrecision(precision)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := choose.Configs(sm90.WGMMA, &p, d)[0].Tile.String(); got != want {
		t.Errorf("%v: %s, want %s", &p, got, want)
	}
}

// TestPreferWgmma: whatever the product and the GPU, each tile that holds the type is there
// to choose and fits shared memory, and parts of K are not too short.
func TestPreferWgmma(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		d := &device.Info{SMs: 1 + rng.IntN(200), MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90, Suffix: "a"}}
		p := testkit.Product(t, dtype.BF16, dtype.BF16, 1+rng.IntN(1<<rng.IntN(20)), 1+rng.IntN(1<<rng.IntN(20)), rng.IntN(1<<rng.IntN(20)))
		whole := map[kernel.Tile]bool{}
		for _, c := range choose.Configs(sm90.WGMMA, p, d) {
			s := c.Tile
			if err := sm90.WGMMA.CheckTile(s); err != nil {
				t.Errorf("%v on %d SMs: %v", p, d.SMs, err)
			}
			if s.SplitK > 1 && s.SplitK*s.K > p.K {
				t.Errorf("%v on %d SMs: %v has parts of less than a step", p, d.SMs, s)
			}
			g, cluster, err := sm90.Grid(c, p, d)
			if n := s.BlocksM() * s.BlocksK(); err != nil || g.X%n != 0 || g.X > max(d.SMs, n) || n > 1 && cluster.X != n {
				t.Errorf("%v on %d SMs: %v has a grid of %v in clusters of %v, %v", p, d.SMs, s, g, cluster, err)
			}
			s.SplitK = 0
			whole[s] = true
		}
		if want := len(sm90.BaseTiles) + 1; len(whole) != want { // and a tall one
			t.Errorf("%v on %d SMs: %d tiles to choose from, want %d", p, d.SMs, len(whole), want)
		}
	}
}

// TestPreferWgmmaOnH200: what is chosen is what was measured to be the fastest, or as fast.
func TestPreferWgmmaOnH200(t *testing.T) {
	d := &device.Info{SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90, Suffix: "a"}}
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
		if got := choose.Configs(sm90.WGMMA, p, d)[0].Tile.String(); got != c.want {
			t.Errorf("%v: %s, want %s", p, got, c.want)
		}
	}
}

// TestSmallestGetMMA: the smallest products get the kernel that was measured to be faster.
func TestSmallestGetMMA(t *testing.T) {
	d := devicetest.NewDouble()
	d.Device.Target, d.Device.MaxShared = sm90.WGMMA.Target(), 227<<10
	for n, want := range map[int]*kernel.Kernel{64: kernel.MMA, 128: kernel.MMA, 200: kernel.MMA, 256: kernel.MMA, 257: kernel.MMA, 300: kernel.MMA, 328: sm90.WGMMA, 384: sm90.WGMMA} {
		plan, err := stream.New(d).Plan(testkit.Product(t, dtype.BF16, dtype.BF16, n, n, n), exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Kernel != want {
			t.Errorf("%d³: %s, want %s", n, plan.Kernel.Name, want.Name)
		}
	}
}

// precise is a product in a precision.
func precise(t *testing.T, precision gemm.Precision) *gemm.Problem {
	t.Helper()
	in := precision.Info().For[0]
	l := gemm.Dense(in, 64, 64)
	p, _, err := gemm.New(1, l, l, 0, gemm.Dense(in.Info().Results[0], 64, 64), gemm.Epilogue{})
	if err == nil {
		p, err = p.WithPrecision(precision)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &p
}
