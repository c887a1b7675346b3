package names

import (
	"strings"
	"testing"
)

func TestSimilar(t *testing.T) {
	known := []string{"naive", "tiled", "blocked", "mma", "avx2", "avx512", "gelu", "relu", "bash"}
	for typed, want := range map[string]string{
		"tield": "tiled", "avx521": "avx512", "blokced": "blocked", "naiv": "naive", "nmma": "mma", "wgmma": "mma",
		"Gelu": "gelu", "AVX2": "avx2", "tensor": "", "tcsh": "", "x": "", "": "",
	} {
		if got := Similar(typed, known); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

// TestSimilarLongNames checks that no table of the size of two long names is made: 100 GB here.
func TestSimilarLongNames(t *testing.T) {
	long := strings.Repeat("a", 100_000)
	if got := Similar(long, []string{long + "b"}); got != "" {
		t.Errorf("two names of %d letters resemble each other, want none so long", len(long))
	}
	if got := Similar("tield", []string{long, "tiled"}); got != "tiled" {
		t.Errorf("beside a long name: %q, want tiled", got)
	}
}

func TestFind(t *testing.T) {
	list := []struct{ name string }{{"naive"}, {"tiled"}}
	name := func(e *struct{ name string }) string { return e.name }
	if i, err := Find("kernel", "tiled", list, name); i != 1 || err != nil {
		t.Errorf("tiled: %d, %v", i, err)
	}
	for typed, want := range map[string]string{
		"tield": `unknown kernel "tield" (did you mean "tiled"?): want one of naive, tiled`,
		"wgmma": `unknown kernel "wgmma": want one of naive, tiled`,
	} {
		if i, err := Find("kernel", typed, list, name); i != 0 || err == nil || err.Error() != want {
			t.Errorf("%s: %d, %v, want %s", typed, i, err, want)
		}
	}
}
