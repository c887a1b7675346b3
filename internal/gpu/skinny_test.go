package gpu

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
)

// TestSkinnyShapes checks which tiles ParseTile accepts for the kernel skinny, and its errors.
func TestSkinnyShapes(t *testing.T) {
	for tile, want := range map[string]string{
		"1x32x128/1x8":   "want 4 elements per thread",
		"1x32x100/1x4":   "size 100: want a power of two",
		"16x32x128/16x4": "the slim side is 16: want at most 8",
		"1x32x8192/1x4":  "threads",
		"8x512x4/8x4":    "elements of C",
		"2x32x128/4x4":   "all rows of the tile",
		"32x1x128/4x1":   "",
	} {
		_, err := kernel.Skinny.ParseTile(tile)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("ParseTile(%q): error %v, want %q", tile, err, want)
		}
	}
}

// TestSkinnyLoadsWords checks that elements of less than 4 bytes are loaded in registers of several
// elements where the rows of A and B permit it. Unpacking would wait for each load.
func TestSkinnyLoadsWords(t *testing.T) {
	for _, c := range []struct {
		in   dtype.Type
		k    int
		want []string // types of loads
	}{
		{dtype.BF16, 512, []string{"v2.u32"}},
		{dtype.F16, 510, []string{"u32"}},
		{dtype.F16, 511, []string{"b16"}},
		{dtype.I8, 512, []string{"u32"}},
		{dtype.F8E4M3, 510, []string{"u16"}},
		{dtype.F32, 512, []string{"v4.f32"}},
	} {
		p := testkit.Product(t, c.in, c.in.Info().Results[0], 1, 1000, c.k)
		p.Layouts[gemm.B] = gemm.Dense(c.in, 1000, c.k).T()
		m, err := kernel.Skinny.Emit(kernel.Skinny.Config(p, kernel.Skinny.Tiles[0]))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, load := range regexp.MustCompile(`ld\.global\.nc\.(\S+)`).FindAllStringSubmatch(m.String(), -1) {
			if !slices.Contains(got, load[1]) {
				got = append(got, load[1])
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v with K = %d: loads of %v, want %v", c.in, c.k, got, c.want)
		}
	}
}
