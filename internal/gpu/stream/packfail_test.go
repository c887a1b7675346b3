package stream

import (
	"errors"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
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
		d := devicetest.NewDouble()
		d.Device.Target, d.Device.MaxShared = sm90.WGMMA.Target(), 227<<10
		d.FailAt, d.Err = n, device.ErrLaunch
		backend := New(d)
		plan, err := backend.Plan(&p, exec.Options{Kernel: "wgmma", Shape: "64x64x128/2x16/8*4"})
		if err != nil {
			t.Fatal(err)
		}
		err = plan.Run(t.Context(), b)
		if len(d.Live) != 0 {
			t.Errorf("call %d (%s) failed: %d allocations leaked", n, d.Failed, len(d.Live))
		}
		failed := d.Calls >= n
		d.FailAt = 0
		if err := backend.Close(); err != nil || d.Loaded != 0 {
			t.Errorf("call %d (%s) failed: Close returned %v, %d modules leaked", n, d.Failed, err, d.Loaded)
		}
		if !failed {
			if err != nil {
				t.Errorf("no call failed, but Run returned %v", err)
			}
			break
		}
		if calls = n; !errors.Is(err, device.ErrLaunch) {
			t.Errorf("call %d (%s) failed: Run returned %v", n, d.Failed, err)
		}
	}
	// Three modules are loaded, three functions looked up, and three kernels launched.
	if calls < 9 {
		t.Errorf("Run made %d device calls, want at least 9", calls)
	}
}
