package dispatch

import (
	"errors"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/dispatch/auto"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// TestPlanOn: a product is computed on the device that was chosen, or on the processor if
// that cannot; the plan says so.
func TestPlanOn(t *testing.T) {
	small := *testkit.Product(t, dtype.F32, dtype.F32, 3, 2, 2)
	b := gemm.Buffers{gemm.A: dtype.Bytes([]float32{1, 2, 3, 4, 5, 6}), gemm.B: dtype.Bytes([]float32{1, 2, 3, 4}), gemm.C: make([]byte, 24)}
	want := dtype.Bytes([]float32{7, 10, 15, 22, 23, 34})
	restore := Substitute(func(d backend.Device) (device.Device, error) {
		if d.Model == "broken" {
			return nil, device.ErrNoDevice
		}
		return openDevice(d)
	})
	defer func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct{ d, want, why string }{
		{"cpu", "cpu", "no GPU: because; "},
		{"emu", "emu", "no GPU: because; predicted to be the fastest"},
		{"emu:broken", "cpu", "no GPU: because, which cannot compute it: no such device"},
	} {
		pl := &Plan{Request: Request{Problem: small}}
		pl.choice = auto.Decision{Device: name(t, c.d), Reason: auto.NoGPU, Err: errors.New("because")}
		err := pl.asChosen()
		if err != nil {
			t.Fatal(err)
		}
		clear(b[gemm.C])
		if err := pl.Run(t.Context(), b); err != nil || string(b[gemm.C]) != string(want) {
			t.Errorf("%s: %v, %v", c.d, b[gemm.C], err)
		}
		if pl.Device.String() != c.want || !strings.HasPrefix(pl.Why(), c.why) {
			t.Errorf("%s: on %v, %q; want %s, %q", c.d, pl.Device, pl.Why(), c.want, c.why)
		}
	}
}

// TestByKernel: a kernel that was asked for decides for the devices that have it.
func TestByKernel(t *testing.T) {
	small := *testkit.Product(t, dtype.F32, dtype.F32, 3, 2, 2)
	restore := Substitute(func(d backend.Device) (device.Device, error) {
		if d.Kind != "gpu" || d.Index != 0 {
			t.Errorf("opens %v", d)
		}
		return openDevice(backend.Device{Kind: "emu"})
	})
	defer func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	}()
	for kernel, want := range map[string]string{"loop": "cpu", "tiled": "gpu", "tiled:8": "gpu"} {
		pl, err := New(Request{Problem: small, Kernel: kernel})
		if err != nil || pl.Device.String() != want || !strings.Contains(pl.Why(), "requested by name") {
			t.Errorf("%s: %+v, %v", kernel, pl, err)
		}
	}
	if _, err := New(Request{Problem: small, Kernel: "fastest"}); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("no kernel at all: %v", err)
	}
	gpus.with = func(backend.Device) (device.Device, error) { return nil, device.ErrNoDevice }
	gpus.open = nil
	if _, err := New(Request{Problem: small, Kernel: "naive"}); !errors.Is(err, gemm.ErrNoDevice) || !strings.HasPrefix(err.Error(), "kernel naive runs on GPUs") {
		t.Errorf("a GPU's kernel without one: %v", err)
	}
}

// TestTryOn: a Trial is a product like everybody's.
func TestTryOn(t *testing.T) {
	for _, d := range []string{"cpu", "emu"} {
		try := tryOn(backend.Device{Kind: d}, auto.Types{In: dtype.I8, Out: dtype.I32}, 1)
		for range 2 {
			if took, err := try(5); err != nil || took <= 0 {
				t.Errorf("%s: %v, %v", d, took, err)
			}
		}
	}
}
