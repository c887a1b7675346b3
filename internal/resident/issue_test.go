package resident

import (
	"context"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/split"
)

// idle is a device that launches nothing.
type idle struct{ device.Device }

func (idle) Launch(context.Context, device.Function, device.Launch) error { return nil }

// issue is a product on an idle device: all that it takes is this side of the driver.
func issue(t testing.TB) *Product {
	inner, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	restore := gpu.Substitute(func(backend.Device) (device.Device, error) { return idle{inner}, nil })
	d, err := Open(backend.Device{Kind: backend.Emulator})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	p := &Product{Alpha: 1}
	for o := range gemm.C + 1 {
		if p.Operands[o].On, err = New(d, gemm.Dense(dtype.F32, 64, 64), split.Rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := Gemm(t.Context(), p); err != nil { // compiles
		t.Fatal(err)
	}
	return p
}

// BenchmarkIssue is the host's time to ask for a product, the driver's apart.
func BenchmarkIssue(b *testing.B) {
	p := issue(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := Gemm(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
}

// TestIssueAllocates: asking allocates next to nothing, so that no collector gets in
// between.
func TestIssueAllocates(t *testing.T) {
	p := issue(t)
	n := testing.AllocsPerRun(100, func() {
		if err := Gemm(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	})
	if n > 2 {
		t.Errorf("%v allocations a product", n)
	}
}
