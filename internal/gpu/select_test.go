package gpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device/emu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/stream"
	"tilework/internal/model"
	"tilework/internal/testkit"
)

// TestPDL checks that plans use programmatic dependent launch (PDL) on the GPUs that have it.
func TestPDL(t *testing.T) {
	for name, want := range map[string]bool{"h100-sxm": true, "h200": true, "a100-sxm-80gb": false, "t4": false} {
		m, err := model.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := emu.Open(emu.Options{Model: m})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{64, 1024, 4096} {
			plan, err := stream.New(d).Plan(testkit.Product(t, dtype.F32, dtype.F32, n, n, n), exec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if plan.Config.PDL != want {
				t.Errorf("%d³ on %s with %v: PDL is %v, want %v", n, name, plan.Config, plan.Config.PDL, want)
			}
		}
	}
}
