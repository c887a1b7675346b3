package gpu

import (
	"errors"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// TestMMAShapes checks which tiles ParseTile accepts for the kernel mma, and its errors.
func TestMMAShapes(t *testing.T) {
	for _, c := range []struct{ shape, want string }{
		{"128x128x16/8x8/3", ""},
		{"16x32x32/2x4/8", ""},
		{"32x16x64/4x2/4*3", ""},
		{"128x128x16/8x8", "not a tile of kernel mma (want one like 128x256x32/8x16/4"},
		{"128x96x16/8x8/3", "size 96: want a power of two"},
		{"32x32x32/2x2/4", "2×2 elements per thread: want at least 2×4 or 4×2"},
		{"32x32x16/8x8/3", "want at least the tile of one warp, 64×32"},
		{"128x128x8/8x8/3", "K is 8: want at least 16"},
		{"128x128x16/8x8/1", "1 stages"},
		{"512x256x16/8x8/3", "a block of 2048 threads: want at most 1024"},
	} {
		s, err := kernel.MMA.ParseTile(c.shape)
		switch {
		case c.want != "" && (!errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("ParseTile(%q): error %v, want %q", c.shape, err, c.want)
		case c.want == "" && (err != nil || s.String() != c.shape):
			t.Errorf("ParseTile(%q) = %v, %v, want the same tile", c.shape, s, err)
		}
	}
}

// TestFitsMMA checks that Check rejects a tile that is too small or too large for an element type,
// or whose threads cannot partition its loads, and that the error states the reason.
func TestFitsMMA(t *testing.T) {
	for _, c := range []struct {
		in          dtype.Type
		shape, want string
	}{
		{dtype.F16, "128x256x32/8x16/4", ""},
		{dtype.F64, "128x256x32/8x16/4", "128 accumulators per thread: want at most 64 in float64"},
		{dtype.I8, "128x256x32/8x16/4", ""},
		{dtype.I8, "128x256x16/8x16/4", "K is 16: want 32 to 256 in int8"},
		{dtype.F16, "128x128x16/8x8/3", ""},
		{dtype.F64, "128x128x128/8x8/3", "K is 128: want 8 to 32 in float64"},
		{dtype.F32, "128x256x16/8x16/4", ""},
		{dtype.F16, "32x16x32/4x2/8", "2 columns per thread: want at least 4 in float16"},
		{dtype.F64, "32x16x32/4x2/8", ""},
		{dtype.F16, "256x256x64/8x16/4", "262144 bytes of shared memory"},
		{dtype.F16, "64x512x32/8x16/2", "cannot share out"},
		{dtype.F64, "64x512x16/8x8/2", ""},
		{dtype.F64, "64x512x16/8x16/2", "want at most 64 in float64"},
		{dtype.F8E4M3, "16x512x64/2x32/2", "cannot share out"},
	} {
		s, err := kernel.MMA.ParseTile(c.shape)
		if err != nil {
			t.Errorf("ParseTile(%q): %v", c.shape, err)
			continue
		}
		p, _, err := gemm.New(1, gemm.Dense(c.in, 64, 64), gemm.Dense(c.in, 64, 64), 0,
			gemm.Dense(c.in.Info().Results[0], 64, 64), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		if c.in == dtype.F32 {
			p.Precision = gemm.TF32
		}
		err = kernel.MMA.Check(&p, s, kernel.Align{}, nil)
		if (err == nil) != (c.want == "") || err != nil &&
			(!errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v with tile %s: error %v, want %q", c.in, c.shape, err, c.want)
		}
	}
}
