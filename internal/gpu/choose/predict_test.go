package choose

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/ptx"
)

// measured lists times of float32 products on an H200 at 1980 MHz in microseconds, with a cold
// cache.
var measured = []struct {
	m, n, k int
	tile    string
	took    float64
}{
	{256, 256, 256, "32x64x16/4x4/4", 7.8},
	{512, 512, 512, "32x64x16/4x4/4", 13.4},
	{512, 512, 512, "64x128x8/8x8/4*4", 14.8},
	{512, 512, 512, "64x64x8/8x4/4*2", 15.5},
	{1024, 1024, 1024, "64x128x8/8x8/4", 54.2},
	{1024, 1024, 1024, "64x128x8/8x8/4*2", 54.6},
	{1024, 1024, 1024, "128x128x8/16x8/3*4", 55.0},
	{2048, 2048, 2048, "128x256x8/16x8/3", 332.4},
	{2048, 2048, 2048, "64x128x8/8x8/4", 359.3},
	{4096, 4096, 4096, "128x256x8/16x8/3", 2629.7},
	{4096, 4096, 4096, "128x128x8/16x8/3", 2694.8},
	{1025, 1025, 1025, "128x128x8/16x8/3*3", 74.8},
	{1025, 1025, 1025, "64x128x8/8x8/4", 100.6},
	{2049, 2049, 2049, "64x128x8/8x8/4", 461.4},
	{2049, 2049, 2049, "128x128x8/16x8/3", 758.9},
	{4097, 4097, 4097, "64x128x8/8x8/4", 3021},
	{4097, 4097, 4097, "128x256x8/16x8/3", 3373.3},
	{16, 4096, 4096, "16x128x16/4x4/4*8", 27.5},
	{32, 4096, 14336, "32x128x8/8x8/4*16", 88},
	{128, 4096, 14336, "128x256x8/16x8/3*8", 299.8},
	{256, 256, 65536, "128x256x8/16x8/3*66", 175.4},
	{64, 64, 65536, "64x64x8/8x4/4*264", 24.7},
	{64, 64, 65536, "64x64x8/8x4/4*66", 40.1},
	{1024, 1024, 65536, "128x256x8/16x8/3*4", 2635.9},
}

// TestPredictions compares predicted times with measured ones, and the tile that is predicted to be
// the fastest with the fastest measured one.
func TestPredictions(t *testing.T) {
	const near, slower = 0.3, 1.1
	h200 := &device.Info{SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90, Suffix: "a"}}
	r, err := find("blocked")
	if err != nil {
		t.Fatal(err)
	}
	type best struct{ predicted, took, least float64 }
	all := map[[3]int]best{}
	for _, x := range measured {
		p := testkit.Product(t, dtype.F32, dtype.F32, x.m, x.n, x.k)
		s, err := r.ParseTile(x.tile)
		if err != nil {
			t.Fatal(err)
		}
		j := newJob(p, kernel.Align{}, h200)
		c := Candidate{Kernel: r.Kernel, Config: r.config(j, s)}
		if r.judge(&c, j); c.Rejected != nil {
			t.Fatal(c.Rejected)
		}
		us := c.Cycles / 1980
		if us < x.took*(1-near) || us > x.took*(1+near) {
			t.Errorf("%d×%d×%d with %s: predicted %.1f µs, took %.1f", x.m, x.n, x.k, x.tile, us, x.took)
		}
		key := [3]int{x.m, x.n, x.k}
		b, known := all[key]
		if !known || us < b.predicted {
			b.predicted, b.took = us, x.took
		}
		if !known || x.took < b.least {
			b.least = x.took
		}
		all[key] = b
	}
	for key, b := range all {
		if b.took > slower*b.least {
			t.Errorf("%v: the tile predicted to be the fastest took %.1f µs, another %.1f", key, b.took, b.least)
		}
	}
}
