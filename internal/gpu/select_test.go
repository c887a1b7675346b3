package gpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device/emu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

// TestPDL checks which plans use programmatic dependent launch (PDL): those with at most
// as many blocks as SMs, and those of wgmma, whose blocks fill an SM each.
func TestPDL(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		elem dtype.Type
		n    int
		pdl  bool
	}{{dtype.F32, 64, true}, {dtype.F32, 512, true}, {dtype.F32, 1024, false}, {dtype.F32, 4096, false},
		{dtype.F64, 1024, false}, {dtype.BF16, 4096, true}} {
		plan, err := stream.New(d).Plan(testkit.Product(t, c.elem, c.elem, c.n, c.n, c.n), exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Config.PDL != c.pdl {
			t.Errorf("%d³ in %v with %v: PDL is %v, want %v", c.n, c.elem, plan.Config, plan.Config.PDL, c.pdl)
		}
	}
}
