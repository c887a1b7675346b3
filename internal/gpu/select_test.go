package gpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device/emu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

// TestWhichOverlap: products of no more blocks than there are SMs begin while others run,
// and those of wgmma, whose blocks fill one.
func TestWhichOverlap(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		elem    dtype.Type
		n       int
		overlap bool
	}{{dtype.F32, 64, true}, {dtype.F32, 512, true}, {dtype.F32, 1024, false}, {dtype.F32, 4096, false}, {dtype.F64, 1024, false}, {dtype.BF16, 4096, true}} {
		plan, err := stream.New(d).Plan(testkit.Product(t, c.elem, c.elem, c.n, c.n, c.n), exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Config.PDL != c.overlap {
			t.Errorf("%d³ in %v with %v: overlaps %v", c.n, c.elem, plan.Config, plan.Config.PDL)
		}
	}
}
