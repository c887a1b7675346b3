package gpu

import (
	"strings"
	"testing"

	"tilework/internal/gpu/kernel"
)

// TestSkinnyShapes checks which tiles ParseTile accepts for the kernel skinny, and its errors.
func TestSkinnyShapes(t *testing.T) {
	for tile, want := range map[string]string{
		"1x32x128/1x8":   "a thread has 4 elements",
		"1x32x100/1x4":   "100 is no power of two",
		"16x32x128/16x4": "slim side is 8",
		"1x32x8192/1x4":  "threads",
		"8x512x4/8x4":    "elements of C",
		"2x32x128/4x4":   "all rows of a tile, or all columns",
		"32x1x128/4x1":   "",
	} {
		_, err := kernel.Skinny.ParseTile(tile)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("ParseTile(%q): error %v, want %q", tile, err, want)
		}
	}
}
