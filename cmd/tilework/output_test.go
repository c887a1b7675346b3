package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"tilework/internal/cache"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/testkit"
)

// TestTablesFit checks that tables fit into 80 and 100 columns.
func TestTablesFit(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	for _, args := range []string{
		"kernels", "devices", "occupancy --threads 256 --smem 2KB --regs 32 --gpu h200", "selftest --kernels loop --cases 5",
		"bench --device emu --kernels naive,tiled:16,wgmma --dtypes float32,bfloat16 --sizes 4,8",
		// Smaller matrices would need millions of copies to exceed the caches.
		"bench --kernels loop,portable --peers reading --packed --cold --sizes 128,200 --threads 1 --min-time 1ms " +
			"--max-time 20ms --warmup 1ms",
		"tune --sizes 8 --time 10ms", "tune --show", "scaling --dtypes bfloat16 --hosts 128 --sizes 65536",
	} {
		for _, columns := range []string{"80", "100"} {
			if columns == "100" && !testkit.Full() {
				continue
			}
			t.Setenv("COLUMNS", columns)
			width := 80
			if columns == "100" {
				width = 100
			}
			stdout, stderr, code := run(t.Context(), strings.Fields(args)...)
			if code != 0 {
				t.Errorf("%s: exit code %d, %q", args, code, stderr)
			}
			for line := range strings.Lines(stdout) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
					t.Errorf("%s: a line of %d characters, want at most %d:\n%s", args, n, width, line)
				}
			}
		}
		wide, _, _ := run(t.Context(), append(strings.Fields(args), "--wide")...)
		if strings.Contains(wide, "Not shown") {
			t.Errorf("%s --wide omits columns:\n%s", args, wide)
		}
	}
}

func TestListWidth(t *testing.T) {
	for _, c := range []struct {
		flags   listFlags
		columns string
		want    int
	}{
		{listFlags{}, "", pipeWidth}, {listFlags{}, "80", 80}, {listFlags{}, "-1", pipeWidth}, {listFlags{}, "x", pipeWidth},
		{listFlags{wide: true}, "80", 0},
	} {
		t.Setenv("COLUMNS", c.columns)
		if got := c.flags.width(new(bytes.Buffer)); got != c.want {
			t.Errorf("%+v with COLUMNS=%q: %d, want %d", c.flags, c.columns, got, c.want)
		}
	}
}
