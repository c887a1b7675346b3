package gpu_test

import (
	"fmt"
	"slices"
	"testing"
	"tilework/internal/testkit"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device"
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

// cases returns the number of cases for each tile of k: n divided by the number of tiles that the
// emulator can run, and at least 1. So every kernel gets about n cases in all.
func cases(n int, k *kernel.Kernel) int { return max(n/len(gpu.Emulable(k)), 1) }

// TestConformance runs the conformance suite for the smallest tiles of every kernel, with and
// without split-K, and checks that no device memory leaks. TestChecked covers all tiles.
func TestConformance(t *testing.T) {
	if !testkit.Full() {
		t.Skip("TestChecked runs the same suite under the checkers")
	}
	for _, k := range choose.Kernels() {
		for _, s := range gpu.Smallest(gpu.Shapes(k, gpu.Emulable(k))) {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				t.Parallel()
				d := gpu.FewSMs(t, emu.Options{})
				conform(t, d, cases(50, k), gputest.Way{Kernel: k, Shape: s})
				if n := d.Used(); n != 0 {
					t.Errorf("%d bytes of device memory leaked", n)
				}
			})
		}
	}
}

// TestPrecisions runs the conformance suite under the checkers for every kernel and every precision
// other than native.
func TestPrecisions(t *testing.T) {
	for _, k := range choose.Kernels() {
		for _, precision := range k.Precisions() {
			fitting := slices.DeleteFunc(gpu.Emulable(k),
				func(s kernel.Tile) bool { return !(gputest.Way{Kernel: k, Precision: precision, Shape: s}).Fits() })
			list := gpu.Smallest(gpu.Shapes(k, fitting))
			if !testkit.Full() {
				list = list[:1]
			}
			for _, s := range list {
				w := gputest.Way{Kernel: k, Precision: precision, Shape: s}
				t.Run(w.String(), func(t *testing.T) {
					t.Parallel()
					d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
					conform(t, d, testkit.Cases(4, 8), w)
				})
			}
		}
	}
}

// TestOlder runs the conformance suite on the oldest GPU that a kernel supports, if the kernel uses
// better instructions on newer GPUs.
func TestOlder(t *testing.T) {
	for _, k := range choose.Kernels() {
		if !gpu.Better(k) {
			continue
		}
		m, err := model.Lookup(fmt.Sprintf("sm_%d", k.SM))
		if err != nil {
			t.Fatal(err)
		}
		s := k.Tiles[len(k.Tiles)-1]
		t.Run(k.Name+":"+s.String(), func(t *testing.T) {
			t.Parallel()
			d, err := emu.Open(emu.Options{Model: m})
			if err != nil {
				t.Fatal(err)
			}
			conform(t, d, cases(50, k), gputest.Way{Kernel: k, Shape: s})
		})
	}
}

// TestChecked runs the conformance suite for every kernel and every tile that is small enough for
// the emulator. The checkers look for races, divergent barriers, accesses out of bounds and reads
// of uninitialized memory.
func TestChecked(t *testing.T) {
	for _, k := range choose.Kernels() {
		for _, s := range gpu.Shapes(k, gpu.Emulable(k)) {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				t.Parallel()
				d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
				conform(t, d, cases(25, k), gputest.Way{Kernel: k, Shape: s})
			})
		}
	}
}

// conform runs the conformance suite on device d, except for batches. cases is the default number
// of cases, which TILEWORK_CASES overrides. It is small because emulation is slow.
func conform(t *testing.T, d device.Device, cases int, w gputest.Way) {
	b := stream.New(d)
	impl := w.On(b)
	impl.Volume, impl.Cases = 1<<17, cases
	impl.Batch = nil // TestBatches covers batches, with other checkers
	gemmtest.Run(t, impl)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// only runs the check with the given name of the conformance suite, and fails if the check has no
// cases.
func only(t *testing.T, d *emu.Device, name string, cases int, w gputest.Way) {
	t.Helper()
	b := stream.New(d)
	impl := w.On(b)
	impl.Volume = 1 << 17
	report := gemmtest.Check(t.Context(), impl, gemmtest.Options{Cases: cases, Only: name, Seed: testrand.Seed(t)})
	if err := report.Err(); err != nil || report.Checks[0].Cases == 0 {
		t.Errorf("ran %d cases: %v", report.Checks[0].Cases, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := d.Used(); n != 0 {
		t.Errorf("%d bytes of device memory leaked", n)
	}
}

// TestBatches checks strided batches and grouped GEMM in one launch for every kernel. The checkers
// report a product that accesses the memory of another product.
func TestBatches(t *testing.T) {
	cases := 16
	if !testkit.Full() {
		cases = 6
	}
	for _, k := range choose.Kernels() {
		for _, s := range gpu.Smallest(gpu.Shapes(k, gpu.Emulable(k))) {
			if s.SplitK > 1 {
				continue
			}
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				t.Parallel()
				d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds}})
				only(t, d, "batch", cases, gputest.Way{Kernel: k, Shape: s})
			})
		}
	}
}

// TestConverted checks, under the checkers, that every kernel converts int32 sums to floating-point
// results, and rounds sums of float32 operands to 16 bits. The tiles cover every epilogue store.
func TestConverted(t *testing.T) {
	cases := 8
	if !testkit.Full() {
		cases = 2
	}
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
	for _, w := range ways {
		d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
		b := stream.New(d)
		impl := w.On(b)
		impl.Volume = 1 << 17
		impl.Types = slices.DeleteFunc(impl.Types, func(p gemmtest.Pair) bool {
			return p.In != dtype.I8 && p.In != dtype.F32 || p.Out == p.In.Info().Accum
		})
		if len(impl.Types) == 0 {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			seed := testrand.Seed(t)
			for _, name := range []string{"exact", "bound", "epilogue"} {
				report := gemmtest.Check(t.Context(), impl, gemmtest.Options{Cases: cases, Only: name, Seed: seed})
				if err := report.Err(); err != nil || report.Checks[0].Cases == 0 {
					t.Errorf("%s: ran %d cases: %v", name, report.Checks[0].Cases, err)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
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

// TestSwapAB runs the conformance suite under the checkers for swapAB tiles: ping-pong and
// cooperative, with 64 and 128 rows per warpgroup, with a cluster, with split-K, and with fewer
// rows of C than an epilogue subtile.
func TestSwapAB(t *testing.T) {
	shapes := []string{"64x128x32/2x32/3t", "64x16x32/2x4/3t", "128x64x32/2x16/3tc2", "256x64x32/4x16/2t",
		"64x64x32/2x16/3t*5"}
	if !testkit.Full() {
		shapes = shapes[1:3]
	}
	for _, s := range shapes {
		w := way(t, "wgmma", gemm.TF32, s)
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
			conform(t, d, testkit.Cases(6, 12), w)
		})
	}
}

// TestPackedBatches checks batches of operands that TMA or wgmma cannot read in their layout, so
// that the plan packs them. It covers one type and each precision that needs packing, and swapAB.
func TestPackedBatches(t *testing.T) {
	cases := 24
	if !testkit.Full() {
		cases = 8
	}
	for _, w := range []gputest.Way{
		way(t, "wgmma", gemm.Native, "64x64x128/2x16/4"), way(t, "wgmma", gemm.TF32, "64x64x32/2x16/4"),
		way(t, "wgmma", gemm.TF32, "64x32x32/2x8/4t"),
		way(t, "wgmma", gemm.F32x3, "64x64x64/2x16/4"),
	} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds}})
			only(t, d, "batch", cases, w)
		})
	}
}

// TestBlockScales checks, under the checkers, the kernels that support block scales. The tiles are
// of every kind, with a cluster along K and with split-K among them.
func TestBlockScales(t *testing.T) {
	cases := testkit.Cases(4, 24)
	for _, x := range [][2]string{
		{"naive", "16"}, {"wgmma", "64x128x128/2x32/3"}, {"wgmma", "64x64x128/2x16/4"}, {"wgmma", "128x64x128/2x16/4k2"},
		{"wgmma", "64x16x128/2x4/4"}, {"wgmma", "64x64x128/2x16/4*3"}, {"wgmma", "128x256x128/2x64/2"},
		{"wgmma", "128x192x128/2x48/2"}, {"wgmma", "128x128x128/2x32/3c2"},
	} {
		w := way(t, x[0], gemm.Native, x[1])
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
			only(t, d, "scales", cases, w)
		})
	}
}
