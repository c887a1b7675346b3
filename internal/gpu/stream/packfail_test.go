package stream

import (
	"errors"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/sm90"
)

// TestPackFails fails each device call of a split-K product with packed operands in turn. It checks
// that Run returns the error and that nothing stays allocated.
func TestPackFails(t *testing.T) {
	p, _, err := gemm.New(1, gemm.Dense(dtype.I8, 40, 2000), gemm.Dense(dtype.I8, 2000, 40), 0,
		gemm.Dense(dtype.I32, 40, 40), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	b := gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()),
		gemm.C: make([]byte, p.C().Bytes())}
	calls := 0
	for n := 1; ; n++ {
		null := devicetest.NewNull()
		null.Device.Target, null.Device.MaxShared = sm90.WGMMA.Target(), 227<<10
		d := faulty.New(null)
		d.Fail(n, device.ErrLaunch)
		backend := New(d)
		plan, err := backend.Plan(&p, exec.Options{Kernel: "wgmma", Tile: "64x64x128/2x16/8*4"})
		if err != nil {
			t.Fatal(err)
		}
		err = plan.Run(t.Context(), b)
		failed := d.FailedCall()
		if left := slices.DeleteFunc(d.Leaks(), kept); len(left) > 0 {
			t.Errorf("%s failed: leaked %v", failed, left)
		}
		d.Fail(0, nil)
		if err := backend.Close(); err != nil || len(d.Leaks()) > 0 {
			t.Errorf("%s failed: Close returned %v, leaked %v", failed, err, d.Leaks())
		}
		if failed == "" {
			if err != nil {
				t.Errorf("no call failed, but Run returned %v", err)
			}
			break
		}
		if calls = n; !errors.Is(err, device.ErrLaunch) {
			t.Errorf("%s failed: Run returned %v", failed, err)
		}
	}
	// Three modules are loaded, three functions looked up, and three kernels launched.
	if calls < 9 {
		t.Errorf("Run made %d device calls, want at least 9", calls)
	}
}
