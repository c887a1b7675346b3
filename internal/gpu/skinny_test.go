package gpu

import (
	"strings"
	"testing"

	"tilework/internal/gpu/kernel"
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
