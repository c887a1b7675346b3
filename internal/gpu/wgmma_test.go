package gpu

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

// TestWgmmaShapes checks which tiles ParseTile accepts for the kernel wgmma, and its errors.
func TestWgmmaShapes(t *testing.T) {
	for _, c := range []struct{ shape, want string }{
		{"128x256x64/2x64/4c2", ""},
		{"128x256x64/2x64/4", ""},
		{"64x64x128/2x16/8*3", ""},
		{"128x128x64/4x32/6c2*7", ""},
		{"128x256x64/2x64", "not a tile of kernel wgmma (want one like 128x256x128/2x64/4,"},
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
		{"128x256x64/2x64/4c2x2", ""},
		{"128x256x64/2x64/4c1x2", ""},
		{"128x256x64/2x64/4c2x1", `clusters of "2x1"`},
		{"128x256x64/2x64/4c2x2x2", `clusters of "2x2x2"`},
		{"128x128x64/2x32/4c1x4", ""},
		{"128x256x64/2x64/4c2x4", "a cluster of 2×4 blocks: want at most 4"},
		{"128x128x64/2x32/4c4x2", "a cluster of 4×2 blocks: want at most 4"},
		{"64x64x64/2x16/4c1x4", "a multiple of 32 rows for each"},
		{"32x64x64/2x16/4c1x2", "a multiple of 32 rows for each"},
		{"128x128x32/2x32/4tc2x2", "neither swapAB nor blocks along K"},
		{"128x128x64/2x32/4c2x2k2", "neither swapAB nor blocks along K"},
		{"16x32x64/2x8/12", ""},
		{"32x32x64/2x8/4c2", "a cluster with N of 32"},
		{"128x256x64/1x64/4", "1 rows per thread: want 2 or 4"},
		{"128x96x64/2x24/4", ""},
		{"128x100x64/2x25/4", "N is 100: want a multiple of 8 up to 256"},
		{"128x136x64/2x34/4", "N is 136: want a multiple of 16, of which half can be stored"},
		{"128x96x64/2x24/4c2", "a multiple of 32 columns for each"},
		{"128x24x64/2x6/4t", ""},
		{"128x12x64/2x3/4t", "N is 12: want a multiple of 8 up to 256"},
		{"128x264x64/2x66/4t", "N is 264: want a multiple of 8 up to 256"},
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
			t.Errorf("ParseTile(%q): error %v, want %q", c.shape, err, c.want)
		case c.want == "" && (err != nil || s.String() != c.shape):
			t.Errorf("ParseTile(%q) = %v, %v, want the same tile", c.shape, s, err)
		}
	}
	if _, err := kernel.MMA.ParseTile("128x128x16/8x8/3c2"); !errors.Is(err, gemm.ErrUnsupported) ||
		!strings.Contains(err.Error(), "kernel mma with clusters") {
		t.Errorf("mma with a cluster: ParseTile returned %v, want an error that names clusters", err)
	}
}

// TestWgmmaGrid checks that the grid has fewer blocks than SMs where these compute equally many
// tiles in as many rounds, if the rounds are several.
func TestWgmmaGrid(t *testing.T) {
	d := devicetest.NewNull().Info()
	d.SMs = 132
	for _, c := range []struct {
		m, n   int
		tile   string
		blocks int
	}{
		{8192, 8192, "128x256x64/2x64/4", 128},   // 16 rounds
		{4096, 4096, "128x256x64/2x64/4", 128},   // 4 rounds
		{8192, 8192, "128x256x64/2x64/4c2", 128}, // 16 rounds of 64 clusters
		{16384, 16384, "128x256x64/2x64/4", 132}, // 63 rounds do not divide 8,192 tiles
		{2560, 2560, "128x256x64/2x64/4", 132},   // 2 rounds
		{1024, 1024, "128x256x64/2x64/4", 32},    // fewer tiles than SMs
		{8192, 8192, "128x256x64/2x64/4*2", 132},
	} {
		p := testkit.Product(t, dtype.BF16, dtype.BF16, c.m, c.n, 8192)
		s, err := sm90.WGMMA.ParseTile(c.tile)
		if err != nil {
			t.Fatal(err)
		}
		grid, _, err := sm90.Grid(sm90.WGMMA.Config(p, s), p, d)
		if err != nil || grid.X != c.blocks {
			t.Errorf("%d×%d in tiles %s: %d blocks, %v, want %d", c.m, c.n, c.tile, grid.X, err, c.blocks)
		}
	}
}

// TestPlanF32x3 checks that plans in precision f32x3 use wgmma for any number of rows, with a
// pipeline stage for each of the three terms of an operand split.
func TestPlanF32x3(t *testing.T) {
	d := devicetest.FewSMs(t, emu.Options{})
	for _, m := range []int{1, 64, 500} {
		p := precise(t, gemm.F32x3)
		p.M, p.A().Rows, p.C().Rows = m, m, m
		plan, err := stream.New(d).Plan(p, exec.Options{})
		if err != nil || plan.Kernel != sm90.WGMMA || plan.Config.Tile.Stages < kernel.SplitTerms {
			t.Errorf("%v: plan %+v, error %v: want wgmma with at least %d stages", p, plan, err, kernel.SplitTerms)
		}
		_, err = stream.New(d).Plan(p, exec.Options{Kernel: "wgmma", Tile: "64x64x64/2x16/2"})
		want := "want at least 3 stages for precision f32x3"
		if !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("f32x3 with two stages: Plan returned %v, want %q", err, want)
		}
	}
}

// precise returns a 64×64×64 product in the given precision, of the first type that it supports.
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

// TestNarrowedRefused checks that Check rejects a tile with an N of 40 for products that it cannot
// compute, and names N.
func TestNarrowedRefused(t *testing.T) {
	kMajor := func(in, out dtype.Type) gemm.Problem {
		p := *testkit.Product(t, in, out, 64, 64, 128)
		p.Layouts[gemm.B] = gemm.Dense(in, 64, 128).T()
		return p
	}
	bf16, f32, scaled := kMajor(dtype.BF16, dtype.BF16), kMajor(dtype.F32, dtype.F32), kMajor(dtype.F8E4M3, dtype.BF16)
	scaled.Layouts[gemm.ScaleA], scaled.Layouts[gemm.ScaleB] = gemm.Dense(dtype.F32, 64, 1), gemm.Dense(dtype.F32, 1, 1)
	tf32, err := f32.WithPrecision(gemm.TF32)
	if err != nil {
		t.Fatal(err)
	}
	f32x3, err := f32.WithPrecision(gemm.F32x3)
	if err != nil {
		t.Fatal(err)
	}
	mnMajor := *testkit.Product(t, dtype.BF16, dtype.BF16, 64, 64, 128)
	gated, int8 := bf16, kMajor(dtype.I8, dtype.I32)
	gated.Epilogue.Gated, gated.Layouts[gemm.Up] = true, gated.Layouts[gemm.B]
	for _, c := range []struct {
		name, tile, want string // want is part of the error, or "" for none
		p                gemm.Problem
	}{
		{"bfloat16", "64x40x64/2x10/3", "", bf16},
		{"int8", "64x40x128/2x10/3", "N is 40: wgmma of int8", int8},
		{"MN-major B", "64x40x64/2x10/3", "N is 40 with an MN-major B", mnMajor},
		{"block scales", "64x40x128/2x10/3", "N is 40 with block scales", scaled},
		{"tf32", "64x40x32/2x10/3", "N is 40: want a multiple of 64", tf32},
		{"f32x3", "64x40x64/2x10/3", "N is 40: want a multiple of 64", f32x3},
		{"gate", "64x40x64/2x10/3", "a gated epilogue wants N of 128", gated},
	} {
		s, err := sm90.WGMMA.ParseTile(c.tile)
		if err != nil {
			t.Fatal(err)
		}
		err = sm90.WGMMA.Check(&c.p, s, kernel.Align{}, nil)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, gemm.ErrUnsupported) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: Check returned %v, want %q", c.name, err, c.want)
		}
	}
}

// TestClusterAlongKTypes checks that a cluster along K has the result of one block for each element
// type of the result, whose subtiles hold accumulators in every case.
func TestClusterAlongKTypes(t *testing.T) {
	d := devicetest.FewSMs(t, emu.Options{})
	for _, out := range []dtype.Type{dtype.F8E4M3, dtype.BF16, dtype.F32} {
		p := testkit.Product(t, dtype.F8E4M3, out, 128, 64, 256)
		a, b := make([]byte, p.A().Bytes()), make([]byte, p.B().Bytes())
		for i := range a {
			p.In().Set(a, i, float64(i%3-1))
		}
		for i := range b {
			p.In().Set(b, i, float64(i%5-2)/64)
		}
		var results [][]byte
		for _, tile := range []string{"128x64x128/2x16/4", "128x64x128/2x16/4k2"} {
			plan, err := stream.New(d).Plan(p, exec.Options{Kernel: sm90.WGMMA.Name, Tile: tile})
			if err != nil {
				t.Fatal(err)
			}
			c := make([]byte, p.C().Bytes())
			if err := plan.Run(t.Context(), gemm.Buffers{gemm.A: a, gemm.B: b, gemm.C: c}); err != nil {
				t.Fatal(err)
			}
			results = append(results, c)
		}
		if !bytes.Equal(results[0], results[1]) {
			t.Errorf("%v: a cluster along K has another result than one block", out)
		}
	}
}
