package dispatch

import (
	"errors"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/dispatch/auto"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/sentinel"
	"tilework/internal/testkit"
)

// substitute makes open open all GPUs until the test ends.
func substitute(t *testing.T, open func(backend.DeviceName) (device.Device, error)) {
	restore := gpu.Substitute(open)
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
}

// TestPlanAsDecided checks that a product runs on the chosen device, or on the CPU if that device
// refuses it, and that the plan states the reason.
func TestPlanAsDecided(t *testing.T) {
	p := *testkit.Product(t, dtype.F32, dtype.F32, 3, 2, 2)
	b := newBuffers(&p)
	copy(b[gemm.A], dtype.Bytes([]float32{1, 2, 3, 4, 5, 6}))
	copy(b[gemm.B], dtype.Bytes([]float32{1, 2, 3, 4}))
	want := dtype.Bytes([]float32{7, 10, 15, 22, 23, 34})
	substitute(t, func(d backend.DeviceName) (device.Device, error) {
		if d.Model == "broken" {
			return nil, sentinel.ErrNoDevice
		}
		return emu.Open(emu.Options{})
	})
	for _, c := range []struct{ device, want, why string }{
		{"cpu", "cpu", "no GPU: because; "},
		{"emu", "emu", "no GPU: because; predicted to be the fastest"},
		{"emu:broken", "cpu", "no GPU: because, which cannot compute it: no such device"},
	} {
		pl := &Plan{Request: Request{Problem: p}}
		pl.decision = auto.Decision{Device: name(t, c.device), Reason: auto.NoGPU, Err: errors.New("because")}
		if err := pl.planAsDecided(); err != nil {
			t.Fatal(err)
		}
		clear(b[gemm.C])
		if err := pl.Run(t.Context(), &b); err != nil || string(b[gemm.C]) != string(want) {
			t.Errorf("%s: got %v, error %v", c.device, b[gemm.C], err)
		}
		if pl.Device().String() != c.want || !strings.HasPrefix(pl.Why(), c.why) {
			t.Errorf("%s: planned on %v (%q), want %s (%q)", c.device, pl.Device(), pl.Why(), c.want, c.why)
		}
	}
}

// TestPlanByKernel checks that a requested kernel selects the device, and that only the first GPU
// is opened for it.
func TestPlanByKernel(t *testing.T) {
	p := *testkit.Product(t, dtype.F32, dtype.F32, 3, 2, 2)
	substitute(t, func(d backend.DeviceName) (device.Device, error) {
		if d.Kind != backend.GPU || d.Index != 0 {
			t.Errorf("opened %v", d)
		}
		return emu.Open(emu.Options{})
	})
	for kernel, want := range map[string]string{"loop": "cpu", "tiled": "gpu", "tiled:8": "gpu"} {
		pl, err := New(t.Context(), Request{Problem: p, Kernel: kernel})
		if err != nil || pl.Device().String() != want || !strings.Contains(pl.Why(), "requested by name") {
			t.Errorf("%s: got %+v, error %v", kernel, pl, err)
		}
	}
	if _, err := New(t.Context(), Request{Problem: p, Kernel: "fastest"}); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("an unknown kernel: got error %v, want ErrUnsupported", err)
	}
	substitute(t, func(backend.DeviceName) (device.Device, error) { return nil, sentinel.ErrNoDevice })
	_, err := New(t.Context(), Request{Problem: p, Kernel: "naive"})
	if !errors.Is(err, sentinel.ErrNoDevice) ||
		!strings.HasPrefix(err.Error(), "kernel naive is for device gpu or emu: ") {
		t.Errorf("a GPU kernel without a GPU: got error %v", err)
	}
}

// TestTrial checks that a trial runs a product on its device and returns the time.
func TestTrial(t *testing.T) {
	for _, kind := range []backend.Kind{backend.CPU, backend.Emulator} {
		trial := newTrial(backend.DeviceName{Kind: kind}, auto.Types{In: dtype.I8, Out: dtype.I32}, 1)
		for range 2 {
			if took, err := trial(t.Context(), 5); err != nil || took <= 0 {
				t.Errorf("%v: took %v, error %v", kind, took, err)
			}
		}
	}
}
