package gpu

import (
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
	"tilework/ptx"
)

// TestSkinnyChosen: products of few rows or columns get the kernel for them, with the
// slim side where it is, and K is split where C is short.
func TestSkinnyChosen(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		m, n, k int
		want    string // a prefix of the tile; empty for another kernel
	}{
		{1, 4096, 4096, "1x32"}, {4096, 1, 4096, "32x1"}, {1, 1024, 4096, "1x8"}, {1024, 1, 4096, "8x1"},
		{2, 4096, 4096, "4x32"}, {4096, 8, 4096, "32x8"}, {1, 28672, 4096, "1x32"}, {1, 1, 65536, "1x8"},
		{9, 4096, 4096, ""}, {64, 64, 64, ""},
	} {
		plan, err := stream.New(d).Plan(testkit.Product(t, dtype.F32, dtype.F32, x.m, x.n, x.k), exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d×%d×%d: %s %v: %s", x.m, x.n, x.k, plan.Kernel.Name, plan.Config.Tile, plan.Why)
		if (plan.Kernel == kernel.Skinny) != (x.want != "") || !strings.HasPrefix(plan.Config.Tile.String(), x.want) {
			t.Errorf("%d×%d×%d: %s with tile %v", x.m, x.n, x.k, plan.Kernel.Name, plan.Config.Tile)
		}
	}
}

// TestSkinnySuits: float64 has half as many rows or columns.
func TestSkinnySuits(t *testing.T) {
	for _, x := range []struct {
		elem dtype.Type
		most int
	}{{dtype.F32, 8}, {dtype.BF16, 8}, {dtype.F64, 4}} {
		for _, n := range []int{x.most, x.most + 1} {
			p := testkit.Product(t, x.elem, x.elem, 1000, n, 500)
			older := &device.Info{Target: ptx.Target{SM: 75}} // without tensor cores for bfloat16
			if err := choose.CheckSkinnySuited(p, older); (err == nil) != (n == x.most) {
				t.Errorf("%d columns of %v: %v", n, x.elem, err)
			}
		}
	}
}

func TestSkinnyShapes(t *testing.T) {
	for text, wrong := range map[string]string{
		"1x32x128/1x8":   "a thread has 4 elements",
		"1x32x100/1x4":   "100 is no power of two",
		"16x32x128/16x4": "slim side is 8",
		"1x32x8192/1x4":  "threads",
		"8x512x4/8x4":    "elements of C",
		"2x32x128/4x4":   "all rows of a tile, or all columns",
		"32x1x128/4x1":   "",
	} {
		_, err := kernel.Skinny.ParseTile(text)
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %v, want %q", text, err, wrong)
		}
	}
}
