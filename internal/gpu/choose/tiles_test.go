package choose_test

import (
	"maps"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
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
	rng := testrand.New(t)
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

// TestWGMMACandidates checks that every tile of wgmma for the type is a candidate, with swapAB only
// the lowest of those that cover C with equally many tiles, that its grid fits the GPU, and that no
// part of K is shorter than a step, for random products and GPUs. Narrowed tiles have a test of
// their own.
func TestWGMMACandidates(t *testing.T) {
	rng := testrand.New(t)
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
			if n := s.ClusterBlocks(); err != nil || g.X%n != 0 || g.X > max(d.SMs, n) || n > 1 && cluster.X != n {
				t.Errorf("%v on %d SMs: %v has a grid of %v in clusters of %v, %v", p, d.SMs, s, g, cluster, err)
			}
			if s.SplitK = 0; !sm90.IsNarrowed(s) && !s.StreamK {
				whole[s] = true
			}
		}
		step := sm90.SwapABStep
		if q, _ := kernel.Repack(p, kernel.Tile{SwapAB: true, N: step}, kernel.Align{}); q.A().Trans {
			step = sm90.WarpgroupRows // of the boxes in which TMA loads A
		}
		tiles, swapAB := 0, 0
		for n := step; n <= 256; n += step {
			if x := kernel.Tiles(p.M, n); x != tiles {
				tiles = x
				if swapAB += 2; n >= 72 && n <= 176 { // of 128 and 64 columns, and of 192
					swapAB++
				}
			}
		}
		if want := len(sm90.BaseTiles) + len(sm90.FurtherTiles[64]) + swapAB; len(whole) != want {
			t.Errorf("%v on %d SMs: %d tiles, want %d", p, d.SMs, len(whole), want)
		}
	}
}

// TestEvenRounds checks that 448 tiles are computed in four even rounds of fewer blocks than SMs,
// unless C has a single row of tiles.
func TestEvenRounds(t *testing.T) {
	s, err := sm90.WGMMA.ParseTile("128x8x64/2x2/11t")
	if err != nil {
		t.Fatal(err)
	}
	for rows, want := range map[int]int{1: 132, 2: 112, 4: 112} {
		p := testkit.Product(t, dtype.BF16, dtype.BF16, rows*s.N, 448/rows*s.M, 64)
		g, _, err := sm90.Grid(sm90.WGMMA.Config(p, s), p, h200)
		if err != nil || g.X != want {
			t.Errorf("%v: %d blocks, error %v, want %d", p, g.X, err, want)
		}
	}
}

// TestSwapABCandidates checks for random products of 8- and 16-bit types that the candidates with
// swapAB are possible, and that they are the lowest possible ones for each number of tiles.
func TestSwapABCandidates(t *testing.T) {
	rng := testrand.New(t)
	for _, x := range []struct {
		in        dtype.Type
		precision gemm.Precision
	}{{dtype.F16, gemm.Native}, {dtype.I8, gemm.Native}, {dtype.F8E4M3, gemm.Native}, {dtype.F8E4M3, gemm.Fast}} {
		for range 200 {
			p := testkit.Product(t, x.in, x.in.Info().Results[0], 1+rng.IntN(1<<rng.IntN(12)), 1+rng.IntN(1000), 512)
			p.Precision = x.precision
			if rng.IntN(2) == 0 {
				p.Layouts[gemm.A] = gemm.Dense(x.in, p.K, p.M).T() // 8-bit types pack it
			}
			want, got := map[int]int{}, map[int]int{} // heights by the number of tiles
			for _, s := range sm90.Tiles[128/x.in.Bytes(1)] {
				q, _ := kernel.Repack(p, s, kernel.Align{})
				if !s.SwapAB || s.M != 64 || sm90.WGMMA.Check(&q, s, kernel.Align{}, nil) != nil {
					continue
				}
				if q.A().Trans && s.N%sm90.WarpgroupRows != 0 {
					t.Errorf("%v: %v is possible with an MN-major A", p, s)
				}
				if n := kernel.Tiles(p.M, s.N); want[n] == 0 || s.N < want[n] {
					want[n] = s.N
				}
			}
			for _, c := range choose.CandidatesOf(sm90.WGMMA, p, kernel.Align{}, h200) {
				s := c.Config.Tile
				if !s.SwapAB || s.M != 64 || s.SplitK > 1 || s.StreamK {
					continue
				}
				if c.Rejected != nil {
					t.Errorf("%v: %v", p, c.Rejected)
				}
				got[kernel.Tiles(p.M, s.N)] = s.N
			}
			if !maps.Equal(got, want) {
				t.Errorf("%v: heights %v by the number of tiles, want %v", p, got, want)
			}
		}
	}
}

// TestNarrowedCandidates checks which narrowed tiles are candidates, for random products with a
// K-major B: those whose rows C needs, and of those that cover C with equally many tiles only the
// narrowest, unless one of 64 columns is among them. With an MN-major B there are none.
func TestNarrowedCandidates(t *testing.T) {
	rng := testrand.New(t)
	narrowed := func(p *gemm.Problem) map[[2]int]bool {
		all := map[[2]int]bool{}
		for _, c := range choose.CandidatesOf(sm90.WGMMA, p, kernel.Align{}, h200) {
			if s := c.Config.Tile; sm90.IsNarrowed(s) {
				all[[2]int{s.M, s.N}] = true
			}
		}
		return all
	}
	for range 200 {
		m, n := 1+rng.IntN(1<<rng.IntN(13)), 2+rng.IntN(1<<rng.IntN(15))
		p := testkit.Product(t, dtype.BF16, dtype.BF16, m, n, 512)
		if got := narrowed(p); len(got) > 0 {
			t.Errorf("%v: narrowed tiles %v with an MN-major B", p, got)
		}
		p.Layouts[gemm.B] = gemm.Dense(dtype.BF16, n, 512).T()
		want := map[[2]int]bool{}
		for _, rows := range []int{16, 64, 128} {
			if (rows == 16) != (m <= 16) || rows == 128 && m <= 64 {
				continue
			}
			least := map[int]int{kernel.Tiles(n, 64): 64} // columns by the number of tiles
			for _, cols := range sm90.NarrowedColumns {
				across := kernel.Tiles(n, cols)
				if now, ok := least[across]; !ok || cols < now {
					least[across] = cols
				}
			}
			for across, cols := range least {
				if cols != 64 && kernel.Tiles(m, rows)*across <= 4*h200.SMs {
					want[[2]int{rows, cols}] = true
				}
			}
		}
		if got := narrowed(p); !maps.Equal(got, want) {
			t.Errorf("%v: narrowed tiles %v, want %v", p, got, want)
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
