package gpu_test

import (
	"fmt"
	"math/rand/v2"
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
	"tilework/ptx/emu/check"
)

// cases is how many of n cases a shape of k is given, so that no kernel has more than
// the others, and in the short test no shape more than in the long one.
func cases(n int, k *kernel.Kernel) int { return max(n/len(gpu.Emulable(k)), 1) }

// TestConformance: every kernel multiplies as it should and frees what it takes, in its
// smallest shape, whole and split; TestChecked takes all shapes.
func TestConformance(t *testing.T) {
	if !testkit.Full() {
		t.Skip("TestChecked multiplies the same, under the checkers")
	}
	for _, k := range choose.Kernels() {
		for _, s := range gpu.Smallest(gpu.Shapes(k, gpu.Emulable(k))) {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				t.Parallel()
				d := gpu.FewSMs(t, emu.Options{})
				conform(t, d, cases(50, k), gputest.Way{Kernel: k, Shape: s})
				if n := d.Used(); n != 0 {
					t.Errorf("%d bytes are still allocated", n)
				}
			})
		}
	}
}

// TestPrecisions: in other arithmetic than the elements' own a kernel multiplies as it says,
// under the checkers too.
func TestPrecisions(t *testing.T) {
	for _, k := range choose.Kernels() {
		for _, precision := range k.Precisions() {
			fitting := slices.DeleteFunc(gpu.Emulable(k), func(s kernel.Tile) bool { return !(gputest.Way{Kernel: k, Precision: precision, Shape: s}).Fits() })
			list := gpu.Smallest(gpu.Shapes(k, fitting))
			if !testkit.Full() {
				list = list[:1]
			}
			for _, s := range list {
				w := gputest.Way{Kernel: k, Precision: precision, Shape: s}
				t.Run(w.String(), func(t *testing.T) {
					t.Parallel()
					d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
					conform(t, d, 8, w)
				})
			}
		}
	}
}

// TestOlder: a kernel that has better instructions for newer GPUs multiplies as it
// should without them.
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

// TestChecked: every kernel passes under the checkers, and none of them finds anything:
// no race, no divergent barrier, no access that leaves a matrix, no read of what nobody
// wrote.
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

// conform runs the suite through the seam, with so many cases if TILEWORK_CASES does
// not say: emulated products take their time.
func conform(t *testing.T, d device.Device, cases int, w gputest.Way) {
	b := stream.New(d)
	impl := w.On(b)
	impl.Volume, impl.Cases = 1<<17, cases
	impl.Batch = nil // TestBatches has its own checkers
	gemmtest.Run(t, impl)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// only runs one check of the suite, and tells how many cases there were.
func only(t *testing.T, d *emu.Device, name string, cases int, w gputest.Way) {
	t.Helper()
	b, seed := stream.New(d), rand.Uint64()
	impl := w.On(b)
	impl.Volume = 1 << 17
	report := gemmtest.Check(t.Context(), impl, gemmtest.Options{Cases: cases, Only: name, Seed: seed})
	if err := report.Err(); err != nil || report.Checks[0].Cases == 0 {
		t.Errorf("%d cases of seed %d: %v", report.Checks[0].Cases, seed, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := d.Used(); n != 0 {
		t.Errorf("%d bytes are still allocated", n)
	}
}

// TestBatches: every kernel computes batches and groups of rows in one launch, under the
// checkers: no product reads or writes what is another's.
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

// TestConverted: every kernel converts int32 sums to floats, and rounds sums of float32 operands to
// 16 bits, on each way that sums take to C, under the checkers.
func TestConverted(t *testing.T) {
	cases := 8
	if !testkit.Full() {
		cases = 2
	}
	ways := []gputest.Way{
		way(t, "wgmma", gemm.Native, "128x64x128/2x16/4"), way(t, "wgmma", gemm.Native, "64x128x128/2x32/3"),
		way(t, "wgmma", gemm.Native, "128x64x128/2x16/4k2"), way(t, "wgmma", gemm.Native, "64x16x128/2x4/4"),
		way(t, "wgmma", gemm.TF32, "64x64x32/2x16/4t"), way(t, "wgmma", gemm.TF32, "64x64x32/2x16/4"), way(t, "wgmma", gemm.F32x3, "64x64x64/2x16/4"),
		way(t, "mma", gemm.TF32, "32x32x32/2x4/4*2"), way(t, "wgmma", gemm.F32x3, "64x64x64/2x16/4*2"),
	}
	for _, k := range choose.Kernels() {
		for _, s := range gpu.Smallest(gpu.Shapes(k, gpu.Emulable(k))) {
			if s.SplitK < 3 { // more parts are added by the same text
				ways = append(ways, gputest.Way{Kernel: k, Shape: s})
			}
		}
	}
	for _, w := range ways {
		d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
		b := stream.New(d)
		impl := w.On(b)
		impl.Volume = 1 << 17
		impl.Types = slices.DeleteFunc(impl.Types, func(p gemmtest.Pair) bool { return p.In != dtype.I8 && p.In != dtype.F32 || p.Out == p.In.Info().Accum })
		if len(impl.Types) == 0 {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			for _, name := range []string{"exact", "bound", "epilogue"} {
				seed := rand.Uint64()
				report := gemmtest.Check(t.Context(), impl, gemmtest.Options{Cases: cases, Only: name, Seed: seed})
				if err := report.Err(); err != nil || report.Checks[0].Cases == 0 {
					t.Errorf("%s: %d cases of seed %d: %v", name, report.Checks[0].Cases, seed, err)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// way is a kernel with tiles of some shape.
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

// TestTurned: turned tiles of each kind compute what others do, under the checkers: a warpgroup's own and
// shared out, of 64 rows and 128 a warpgroup, with clusters, with K split, and with fewer rows of C than are
// handed over together.
func TestTurned(t *testing.T) {
	shapes := []string{"64x128x32/2x32/3t", "64x16x32/2x4/3t", "128x64x32/2x16/3tc2", "256x64x32/4x16/2t", "64x64x32/2x16/3t*5"}
	if !testkit.Full() {
		shapes = shapes[1:3]
	}
	for _, s := range shapes {
		w := way(t, "wgmma", gemm.TF32, s)
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
			conform(t, d, 12, w)
		})
	}
}

// TestPackedBatches: batches of what bulk copies do not read as it lies are packed and computed, in
// each of the types and precisions of which that is so, or turned.
func TestPackedBatches(t *testing.T) {
	cases := 24
	if !testkit.Full() {
		cases = 8
	}
	for _, w := range []gputest.Way{
		way(t, "wgmma", gemm.Native, "64x64x128/2x16/4"), way(t, "wgmma", gemm.TF32, "64x64x32/2x16/4"), way(t, "wgmma", gemm.TF32, "64x32x32/2x8/4t"),
		way(t, "wgmma", gemm.F32x3, "64x64x64/2x16/4"),
	} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds}})
			only(t, d, "batch", cases, w)
		})
	}
}

// TestBlockScales: kernels that multiply with block scales do so in shapes of every kind, with
// K shared out too, under the checkers.
func TestBlockScales(t *testing.T) {
	cases := 24
	if !testkit.Full() {
		cases = 8
	}
	for _, x := range [][2]string{
		{"naive", "16"}, {"wgmma", "64x128x128/2x32/3"}, {"wgmma", "64x64x128/2x16/4"}, {"wgmma", "128x64x128/2x16/4k2"},
		{"wgmma", "64x16x128/2x4/4"}, {"wgmma", "64x64x128/2x16/4*3"}, {"wgmma", "128x256x128/2x64/2"}, {"wgmma", "128x192x128/2x48/2"}, {"wgmma", "128x128x128/2x32/3c2"},
	} {
		w := way(t, x[0], gemm.Native, x[1])
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := gpu.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
			only(t, d, "scales", cases, w)
		})
	}
}
