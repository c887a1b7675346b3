package gpu

import (
	"context"
	"os"
	"testing"

	"tilework/gemmtest"
	"tilework/internal/device"
	"tilework/internal/device/emu"
)

// TestConformance: every kernel, in every shape of its list, multiplies as it should.
func TestConformance(t *testing.T) {
	if os.Getenv("TILEWORK_CASES") == "" {
		t.Setenv("TILEWORK_CASES", "200") // of every shape: emulated products take their time
	}
	for _, k := range Kernels() {
		for _, s := range k.Shapes() {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				d, err := emu.Open(emu.Options{})
				if err != nil {
					t.Fatal(err)
				}
				conform(t, d, Options{Kernel: k.Name, Shape: s.String(), KeepLayout: true})
				if n := d.Used(); n != 0 {
					t.Errorf("%d bytes are still allocated", n)
				}
			})
		}
	}
}

// conform runs the suite through the seam.
func conform(t *testing.T, d device.Device, opt Options) {
	b := New(d)
	k, err := Find(opt.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.ParseShape(opt.Shape)
	if err != nil {
		t.Fatal(err)
	}
	gemmtest.Run(t, gemmtest.Implementation{
		Name: opt.Kernel + ":" + opt.Shape,
		Gemm: func(ctx context.Context, p *gemmtest.Problem, m gemmtest.Buffers) error {
			plan, err := b.Plan(p, opt)
			if err != nil {
				return err
			}
			return plan.Run(ctx, m)
		},
		Supports:   func(p *gemmtest.Problem) bool { return k.Supports(p) == nil },
		Tiles:      []int{s.M, s.N, max(s.K, 1)},
		Volume:     1 << 17,
		Concurrent: true,
		Cancels:    true,
	})
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
