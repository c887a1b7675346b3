package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTextWriter writes texts in one piece and byte by byte.
func TestTextWriter(t *testing.T) {
	for text, want := range map[string]string{
		"plain text,\n\ttwo lines\n":      "plain text,\n\ttwo lines\n",
		"×, µs, 中 and 🙂":                  "×, µs, 中 and 🙂",
		"\x1b[2J\x1b]0;title\x07":         `\u001b[2J\u001b]0;title\u0007`,
		"a\rb\bc\x00d\x7f":                `a\u000db\u0008c\u0000d\u007f`,
		"\u009b31m \u0085":                `\u009b31m \u0085`,
		"\x9b31m, half a rune \xe4\xb8 !": `\x9b31m, half a rune \xe4\xb8 !`,
		"\u202egnp.exe \u2066":            `\u202egnp.exe \u2066`,
	} {
		for _, step := range []int{1, len(text)} {
			file, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			w := &textWriter{file: file}
			for rest := text; rest != ""; {
				n := min(step, len(rest))
				if wrote, err := io.WriteString(w, rest[:n]); err != nil || wrote != n {
					t.Fatalf("%d, %v; want %d", wrote, err, n)
				}
				rest = rest[n:]
			}
			got, err := os.ReadFile(file.Name())
			if err != nil || string(got) != want {
				t.Errorf("%q in pieces of %d: %q, %v; want %q", text, step, got, err, want)
			}
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	file := &textWriter{file: os.Stdout}
	if rawWriter(file) != io.Writer(os.Stdout) {
		t.Error("rawWriter does not return the file")
	}
	if b := new(strings.Builder); rawWriter(b) != io.Writer(b) {
		t.Error("rawWriter does not return another writer itself")
	}
}
