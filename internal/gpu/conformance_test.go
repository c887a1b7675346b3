package gpu_test

import (
	"fmt"
	"slices"
	"testing"
	"tilework/internal/testkit"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/gputest"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/model"
	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu/check"
)

// volume is the limit for M·N·K of a case, as [gputest.Way.Volume] takes it.
var volume = testkit.Cases(1<<16, 1<<17)

// suite runs the conformance suite, or one check of it, once on several ways together. Each way is
// a subtest and has an emulated GPU of its own. The ways share the cases, because most of the code
// of a kernel is the same in every tile: each way gets perWay cases of check "exact" or of the
// single check, and its part of those of the other checks. The seed decides which cases a way gets.
type suite struct {
	seed   uint64 // of the test
	ways   []gputest.Way
	open   func(t *testing.T) *emu.Device
	perWay int
	check  string                     // the single check, or "" for all but batches, which TestBatches covers
	types  func(p gemmtest.Pair) bool // the element types, or nil for all
}

// run runs the suite and checks that no device memory leaks.
func (x suite) run(t *testing.T) {
	t.Helper()
	opt := gemmtest.Options{Cases: testkit.Repeats(x.perWay, 50*x.perWay) * len(x.ways), Only: x.check,
		Seed: x.seed, Parts: len(x.ways)}
	for i, w := range x.ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			opt := opt
			opt.Part = (i + int(opt.Seed%uint64(opt.Parts))) % opt.Parts
			d := x.open(t)
			b := stream.New(d)
			impl := w.On(b)
			impl.Volume = w.Volume(volume)
			if x.check == "" {
				impl.Batch = nil
			}
			if x.types != nil {
				impl.Types = slices.DeleteFunc(impl.Types, func(p gemmtest.Pair) bool { return !x.types(p) })
			}
			ran := 0
			const tries = 30 // seeds, as the way may declare none of the few cases that one gives it
			for o := opt; ran == 0 && o.Seed-opt.Seed < tries; o.Seed++ {
				for _, c := range gemmtest.Check(t.Context(), impl, o).Checks {
					for _, line := range c.Lines {
						t.Error(line)
					}
					t.Logf("%s: %d cases, %d skipped as undeclared", c.Name, c.Cases, c.Skipped)
					ran += c.Cases
				}
			}
			if ran == 0 {
				t.Error("no case ran, want at least one")
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if n := d.Used(); n != 0 {
				t.Errorf("%d bytes of device memory leaked", n)
			}
		})
	}
}

// checked opens an emulated GPU that looks for races, divergent barriers, accesses out of bounds
// and reads of uninitialized memory.
func checked(t *testing.T) *emu.Device {
	return gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
}

// unchecked opens an emulated GPU without checkers.
func unchecked(t *testing.T) *emu.Device { return gpu.FewSMs(t, emu.Options{}) }

// waysIn returns kernel k with each tile of list.
func waysIn(k *kernel.Kernel, precision gemm.Precision, list []kernel.Tile) (ways []gputest.Way) {
	for _, s := range list {
		ways = append(ways, gputest.Way{Kernel: k, Precision: precision, Shape: s})
	}
	return ways
}

// tilesFor returns the tiles of k that support a precision and that the emulator can run, with
// those variants of [gpu.Shapes] that support it.
func tilesFor(k *kernel.Kernel, precision gemm.Precision) []kernel.Tile {
	unfit := func(s kernel.Tile) bool { return !(gputest.Way{Kernel: k, Precision: precision, Shape: s}).Fits() }
	return slices.DeleteFunc(gpu.Shapes(k, slices.DeleteFunc(gpu.Emulable(k), unfit)), unfit)
}

// smallest returns kernel k with the smallest tiles of tilesFor.
func smallest(k *kernel.Kernel, precision gemm.Precision) []gputest.Way {
	return waysIn(k, precision, gpu.Smallest(tilesFor(k, precision)))
}

// TestConformance runs the conformance suite for the smallest tiles of every kernel, with and
// without split-K, without checkers. TestChecked covers all tiles.
func TestConformance(t *testing.T) {
	if !testkit.Full() {
		t.Skip("TestChecked runs the same suite under the checkers")
	}
	seed := testrand.Seed(t)
	for _, k := range choose.Kernels() {
		suite{seed: seed, ways: smallest(k, gemm.Native), open: unchecked, perWay: 6}.run(t)
	}
}

// TestPrecisions runs the conformance suite under the checkers for every kernel and every precision
// other than native.
func TestPrecisions(t *testing.T) {
	seed := testrand.Seed(t)
	for _, k := range choose.Kernels() {
		for _, precision := range k.Precisions() {
			ways := smallest(k, precision)
			if !testkit.Full() {
				ways = ways[:1]
			}
			suite{seed: seed, ways: ways, open: checked, perWay: 3}.run(t)
		}
	}
}

// TestOlder runs the conformance suite on the oldest GPU that a kernel supports, if the kernel uses
// better instructions on newer GPUs.
func TestOlder(t *testing.T) {
	seed := testrand.Seed(t)
	for _, k := range choose.Kernels() {
		if !gpu.Better(k) {
			continue
		}
		m, err := model.Lookup(fmt.Sprintf("sm_%d", k.SM))
		if err != nil {
			t.Fatal(err)
		}
		ways := waysIn(k, gemm.Native, k.Tiles[len(k.Tiles)-1:])
		suite{seed: seed, ways: ways, perWay: 6, open: func(t *testing.T) *emu.Device {
			d, err := emu.Open(emu.Options{Model: m})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}}.run(t)
	}
}

// TestChecked runs the conformance suite for every kernel and every tile that is small enough for
// the emulator. The checkers look for races, divergent barriers, accesses out of bounds and reads
// of uninitialized memory.
func TestChecked(t *testing.T) {
	seed := testrand.Seed(t)
	for _, k := range choose.Kernels() {
		ways := waysIn(k, gemm.Native, tilesFor(k, gemm.Native))
		suite{seed: seed, ways: ways, open: checked, perWay: max(testkit.Cases(2, 3), testkit.Cases(12, 24)/len(ways))}.run(t)
	}
}

// TestBatches checks strided batches and grouped GEMM in one launch for every kernel. The checkers
// report a product that accesses the memory of another product.
func TestBatches(t *testing.T) {
	seed := testrand.Seed(t)
	for _, k := range choose.Kernels() {
		ways := slices.DeleteFunc(smallest(k, gemm.Native), func(w gputest.Way) bool { return w.Shape.SplitK > 1 })
		suite{seed: seed, ways: ways, open: checked, perWay: testkit.Cases(3, 5), check: "batch"}.run(t)
	}
}

// TestZeroPoints checks, under the checkers, the products of int8 and uint8 with zero points: with
// the smallest tile of every kernel, and with K in parts.
func TestZeroPoints(t *testing.T) {
	seed := testrand.Seed(t)
	quantised := func(p gemmtest.Pair) bool { return p.In.Signed() == dtype.I8 }
	for _, k := range choose.Kernels() {
		way := gputest.Way{Kernel: k, Shape: k.Tiles[len(k.Tiles)-1]}
		ways := []gputest.Way{way}
		if way.Shape.SplitK = 3; k.SplitsK {
			ways = append(ways, way)
		}
		ways = slices.DeleteFunc(ways, func(w gputest.Way) bool { return !slices.ContainsFunc(w.Types(), quantised) })
		suite{seed: seed, ways: ways, open: checked, perWay: testkit.Cases(6, 60), check: "zeros", types: quantised}.run(t)
	}
}

// TestConverted checks, under the checkers, that every kernel converts int32 sums to floating-point
// results, and rounds sums of float32 operands to 16 bits. The tiles cover every epilogue store.
// Without TILEWORK_FULL, the seed selects one of three checks for each tile.
func TestConverted(t *testing.T) {
	seed := testrand.Seed(t)
	ways := []gputest.Way{
		way(t, "wgmma", gemm.Native, "128x64x128/2x16/4"), way(t, "wgmma", gemm.Native, "64x128x128/2x32/3"),
		way(t, "wgmma", gemm.Native, "128x64x128/2x16/4k2"), way(t, "wgmma", gemm.Native, "64x16x128/2x4/4"),
		way(t, "wgmma", gemm.TF32, "64x64x32/2x16/4t"), way(t, "wgmma", gemm.TF32, "64x64x32/2x16/4"),
		way(t, "wgmma", gemm.F32x3, "64x64x64/2x16/4"),
		way(t, "mma", gemm.TF32, "32x32x32/2x4/4*2"), way(t, "wgmma", gemm.F32x3, "64x64x64/2x16/4*2"),
		way(t, "blocked", gemm.Native, "128x128x8/16x8/3+3"), way(t, "wgmma", gemm.Native, "128x64x128/2x16/4+3"),
		way(t, "wgmma", gemm.TF32, "64x64x32/2x16/4t+3"), way(t, "wgmma", gemm.F32x3, "64x64x64/2x16/4+3"),
	}
	for _, k := range choose.Kernels() {
		for _, s := range gpu.Smallest(gpu.Shapes(k, gpu.Emulable(k))) {
			if s.SplitK < 3 { // larger splits use the same PTX
				ways = append(ways, gputest.Way{Kernel: k, Shape: s})
			}
		}
	}
	converted := func(p gemmtest.Pair) bool {
		return (p.In == dtype.I8 || p.In == dtype.F32) && p.Out != p.In.Info().Accum
	}
	ways = slices.DeleteFunc(ways, func(w gputest.Way) bool { return !slices.ContainsFunc(w.Types(), converted) })
	checks := []string{"exact", "bound", "epilogue"}
	for i, name := range checks {
		t.Run(name, func(t *testing.T) {
			var own []gputest.Way
			for n, w := range ways {
				if testkit.Full() || (n+i+int(seed%3))%len(checks) == 0 {
					own = append(own, w)
				}
			}
			suite{seed: seed, ways: own, open: checked, perWay: testkit.Cases(1, 3), check: name, types: converted}.run(t)
		})
	}
}

// way returns the named kernel with a precision and a tile, which shape describes.
func way(t *testing.T, kernel string, precision gemm.Precision, shape string) gputest.Way {
	t.Helper()
	k, err := choose.Find(kernel)
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.ParseTile(shape)
	if err != nil {
		t.Fatal(err)
	}
	return gputest.Way{Kernel: k, Precision: precision, Shape: s}
}

// TestSwapAB runs the conformance suite under the checkers for swapAB tiles of tf32 and of 8- and
// 16-bit types: ping-pong and cooperative, with 64 and 128 rows per warpgroup, with a cluster, with
// split-K, with fewer rows of C than an epilogue subtile, and with rows that fill no whole subtile.
func TestSwapAB(t *testing.T) {
	seed := testrand.Seed(t)
	tiles := []string{"64x128x32/2x32/3t", "64x16x32/2x4/3t", "128x64x32/2x16/3tc2", "256x64x32/4x16/2t",
		"64x64x32/2x16/3t*5"}
	native := []string{"64x176x64/2x44/3t", "64x24x64/2x6/3t", "128x80x64/2x20/3t", "64x144x128/2x36/3t",
		"128x48x128/2x12/3t", "128x64x64/2x16/3tc2", "256x64x64/4x16/2t", "64x48x64/2x12/3t*5", "64x96x128/2x24/2t*3"}
	if !testkit.Full() {
		tiles, native = tiles[1:3], native[1:4]
	}
	var ways []gputest.Way
	for _, s := range tiles {
		ways = append(ways, way(t, "wgmma", gemm.TF32, s))
	}
	for _, s := range native {
		ways = append(ways, way(t, "wgmma", gemm.Native, s))
	}
	suite{seed: seed, ways: ways, open: checked, perWay: 4}.run(t)
}

// TestNarrowed runs the conformance suite under the checkers for tiles with an N that is no
// multiple of 64: cooperative and ping-pong, with fewer than 64 rows, with one subtile and with
// several, with split-K and serial parts, and with subtiles that TMA cannot store.
func TestNarrowed(t *testing.T) {
	seed := testrand.Seed(t)
	var ways []gputest.Way
	for _, s := range []string{"64x40x64/2x10/3", "128x112x64/2x28/3", "16x24x128/2x6/3", "32x144x64/2x36/3",
		"128x80x128/2x20/3", "64x120x128/2x30/3", "128x56x64/2x14/3*4", "64x72x64/2x18/3+3", "64x240x64/2x60/2",
		"64x88x64/2x22/3", "16x224x128/2x56/2"} {
		if w := way(t, "wgmma", gemm.Native, s); testkit.Full() || len(ways) < 8 {
			ways = append(ways, w)
		}
	}
	suite{seed: seed, ways: ways, open: checked, perWay: 4}.run(t)
}

// TestPackedBatches checks batches of operands that TMA or wgmma cannot read in their layout, so
// that the plan packs them. It covers one type and each precision that needs packing, and swapAB.
func TestPackedBatches(t *testing.T) {
	seed := testrand.Seed(t)
	ways := []gputest.Way{
		way(t, "wgmma", gemm.Native, "64x64x128/2x16/4"), way(t, "wgmma", gemm.TF32, "64x64x32/2x16/4"),
		way(t, "wgmma", gemm.TF32, "64x32x32/2x8/4t"), way(t, "wgmma", gemm.F32x3, "64x64x64/2x16/4"),
	}
	suite{seed: seed, ways: ways, open: checked, perWay: 8, check: "batch"}.run(t)
}

// TestBlockScales checks, under the checkers, the kernels that support block scales. The tiles are
// of every kind, with a cluster along K and with split-K among them.
func TestBlockScales(t *testing.T) {
	seed := testrand.Seed(t)
	var ways []gputest.Way
	for _, x := range [][2]string{
		{"naive", "16"}, {"wgmma", "64x128x128/2x32/3"}, {"wgmma", "64x64x128/2x16/4"}, {"wgmma", "128x64x128/2x16/4k2"},
		{"wgmma", "64x16x128/2x4/4"}, {"wgmma", "64x64x128/2x16/4*3"}, {"wgmma", "128x256x128/2x64/2"},
		{"wgmma", "128x192x128/2x48/2"}, {"wgmma", "128x128x128/2x32/3c2"},
	} {
		ways = append(ways, way(t, x[0], gemm.Native, x[1]))
	}
	suite{seed: seed, ways: ways, open: checked, perWay: testkit.Cases(4, 8), check: "scales"}.run(t)
}
