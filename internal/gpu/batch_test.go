package gpu

import (
	"context"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device"
	"tilework/internal/testkit"
	"tilework/ptx/emu/check"
)

// runBatch computes a batch on a device with a kernel's tiles of some shape.
func runBatch(ctx context.Context, b *Backend, opt Options, p *gemmtest.Problem, ends []int32, m gemmtest.Buffers) error {
	plan, err := b.Plan(p, opt)
	if err != nil {
		return err
	}
	pieces := [][]byte{m.A, m.B, m.C, m.Bias, dtype.Bytes(ends)}
	return testkit.OnDevice(ctx, b.Device, inC, pieces, func(at []device.Ptr) error {
		return plan.Enqueue(ctx, Memory{A: at[0], B: at[1], C: at[2], Bias: at[3], Ends: at[4]})
	})
}

// TestBatches: every kernel computes batches and groups of rows in one launch, under the
// checkers: no product reads or writes what is another's.
func TestBatches(t *testing.T) {
	for _, k := range Kernels() {
		for _, s := range smallest(shapes(k, emulable(k))) {
			if s.Split > 1 {
				continue
			}
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				d := checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds}})
				b, opt := New(d), Options{Kernel: k.Name, Shape: s.String(), KeepLayout: true}
				impl := gemmtest.Implementation{
					Name: k.Name, Tiles: []int{s.M, s.N}, Volume: 1 << 15, Accuracy: k.Accuracy,
					Supports: func(p *gemmtest.Problem) bool { return k.Supports(p) == nil && k.Fits(p, s) == nil },
					Batch: func(ctx context.Context, p *gemmtest.Problem, ends []int32, m gemmtest.Buffers) error {
						return runBatch(ctx, b, opt, p, ends, m)
					},
				}
				seed := rand.Uint64()
				report := gemmtest.Check(t.Context(), impl, gemmtest.Options{Cases: 16, Only: "batch", Seed: seed})
				if err := report.Err(); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				t.Logf("%d cases, %d left out", report.Checks[0].Cases, report.Checks[0].LeftOut)
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				if n := d.Used(); n != 0 {
					t.Errorf("%d bytes are still allocated", n)
				}
			})
		}
	}
}
