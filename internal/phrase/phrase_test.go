package phrase

import (
	"math"
	"testing"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{
		0: "0 blocks", 1: "1 block", 2: "2 blocks", 999: "999 blocks", 1000: "1,000 blocks", 1234567: "1,234,567 blocks",
		-1: "-1 blocks", -100: "-100 blocks", -1000: "-1,000 blocks",
	} {
		if got := Count(n, "block"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got, want := Commas(int64(math.MinInt64)), "-9,223,372,036,854,775,808"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestList(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{nil, ""}, {[]string{"a"}, "a"}, {[]string{"a", "b"}, "a and b"}, {[]string{"a", "b", "c"}, "a, b and c"},
	} {
		if got := List(c.words); got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "3×4, \"x\"": "3×4, \"x\"", "a\nb\t": `a\nb\t`, "\x1b[31mred\x07": `\x1b[31mred\a`, "\u202eabc": `\u202eabc`,
		"\x9b1m": "\ufffd1m", "0123456789": "0123456789", "0123456789a": "0123456789… (11 bytes)",
		"ééééééé": "ééééé… (14 bytes)",
	} {
		if got := Printable(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
