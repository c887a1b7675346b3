package bench

import (
	"math"
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit"
)

func TestParseSizes(t *testing.T) {
	for _, c := range []struct {
		list string
		want []int
		err  string
	}{
		{"64", []int{64}, ""},
		{"64, 128,1024", []int{64, 128, 1024}, ""},
		{"64..1024x2", []int{64, 128, 256, 512, 1024}, ""},
		{"64..1023x2", []int{64, 128, 256, 512}, ""},
		{"64..512+64", []int{64, 128, 192, 256, 320, 384, 448, 512}, ""},
		{"1..10+4", []int{1, 5, 9}, ""},
		{"5..5x2", []int{5}, ""},
		{"1..3+9223372036854775807", []int{1}, ""},
		{"7,1..4x2,9", []int{7, 1, 2, 4, 9}, ""},
		{"9223372036854775806..9223372036854775807+1", []int{math.MaxInt - 1, math.MaxInt}, ""},
		{"4611686018427387904..9223372036854775807x2", []int{math.MaxInt/2 + 1}, ""},
		{"", nil, `size "": want a number, or a range`},
		{"64,", nil, `size "": want a number, or a range`},
		{"0", nil, "size 0: want at least 1"},
		{"-4", nil, `size "-4": want a number, or a range`},
		{"+4", nil, `size "+4": want a number, or a range`},
		{"1e3", nil, `size "1e3": want a number, or a range`},
		{"99999999999999999999", nil, "size 99999999999999999999: want at most 9223372036854775807"},
		{"64:128", nil, `size "64:128": want a number, or a range such as 64..1024x2 or 64..512+64`},
		{"64:1024:*2", nil, `size "64:1024:*2": want a number, or a range such as 64..1024x2`},
		{"64..128", nil, `size "64..128": want a number, or a range`},
		{"64..128x", nil, `range "64..128x": size "": want a number`},
		{"64..128*2", nil, `size "64..128*2": want a number, or a range`},
		{"64..128x2:3", nil, `range "64..128x2:3": size "2:3": want a number`},
		{"64..128x2..256x4", nil, `range "64..128x2..256x4": size "2..256x4": want a number`},
		{"..128x2", nil, `range "..128x2": size "": want a number`},
		{"128..64x2", nil, `range "128..64x2": 128 is greater than 64`},
		{"64..128x1", nil, `range "64..128x1": factor 1: want at least 2`},
		{"64..128+0", nil, `range "64..128+0": size 0: want at least 1`},
		{"64..y+1", nil, `range "64..y+1": size "y": want a number`},
		{"1..1000000000000+1", nil, `sizes "1..1000000000000+1": want at most 10000 sizes`},
		{"1..9000+1,1..9000+1", nil, `sizes "1..9000+1,1..9000+1": want at most 10000 sizes`},
	} {
		got, err := ParseSizes(c.list)
		if !matches(err, c.err) || !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, error %v; want %v, %q", c.list, got, err, c.want, c.err)
		}
	}
	if got, err := ParseSizes("1..10000+1"); err != nil || len(got) != maxSizes {
		t.Errorf("got %d sizes, error %v; want %d", len(got), err, maxSizes)
	}
}

func TestParseShapes(t *testing.T) {
	for _, c := range []struct {
		list string
		want []Shape
		err  string
	}{
		{"1x768x3072", []Shape{{1, 768, 3072}}, ""},
		{"7x513x1025, 64", []Shape{{7, 513, 1025}, {64, 64, 64}}, ""},
		{"64x64", nil, `shape "64x64": want MxNxK, such as 64x128x256`},
		{"1x2x3x4", nil, `shape "1x2x3x4": want MxNxK`},
		{"1x0x3", nil, `shape "1x0x3": size 0: want at least 1`},
		{"1x2xy", nil, `shape "1x2xy": size "y": want a number`},
		{"1X2X3", nil, `shape "1X2X3": size "1X2X3": want a number`},
		{"", nil, `shape "": size "": want a number`},
		{strings.Repeat("1,", maxSizes) + "1", nil, "too many shapes: want at most 10000"},
	} {
		got, err := ParseShapes(c.list)
		if !matches(err, c.err) || !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, error %v; want %v, %q", c.list, got, err, c.want, c.err)
		}
		for _, s := range got {
			if back, err := ParseShapes(s.String()); err != nil || back[0] != s {
				t.Errorf("parsing %v: got %v, error %v", s, back, err)
			}
		}
	}
}

func matches(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.HasPrefix(err.Error(), want) && !strings.Contains(err.Error(), "\n")
}

// TestListsAreLinear checks for each kind of item that the bytes that parsing a list allocates grow
// with its length.
func TestListsAreLinear(t *testing.T) {
	for _, item := range []string{
		"1,", "1..2x2,", "1..9999+1,", "1x1x1,", "1x", "1", "0", "x", "+", "..", ",", " ", " 1 ,",
	} {
		input := func(n int) string { return strings.Repeat(item, n/len(item)) + "1" }
		for name, parse := range map[string]func(string) error{
			"sizes":  func(text string) error { _, err := ParseSizes(text); return err },
			"shapes": func(text string) error { _, err := ParseShapes(text); return err },
		} {
			testkit.CheckLinear(t, name+" "+item, testkit.Lengths(), 100, input, func(text string) uint64 {
				return testkit.Allocated(func() { parse(text) }) // with or without an error
			})
		}
	}
}
