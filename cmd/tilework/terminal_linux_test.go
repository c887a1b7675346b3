package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMulTerminal checks that a binary result is not written to a terminal, and text is.
func TestMulTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	defer terminal.Close()
	if !isTerminal(terminal) {
		t.Skip("/dev/ptmx is no terminal")
	}
	t.Chdir(folder(t))
	for out, want := range map[string]string{
		"-": "-o -: the result is binary and standard output is a terminal: want a redirection (> c.npy), a file, " +
			"or text (-o -.csv)",
		"-.npz::c": "-o -.npz::c: the result is binary", "-.safetensors": "-o -.safetensors: the result is binary",
		"-.csv": "", "-.mtx": "",
	} {
		var stderr bytes.Buffer
		c := newCommand()
		c.SetOut(terminal)
		c.SetErr(&stderr)
		err := execute(t.Context(), c, []string{"mul", "a.npy", "b.npy", "-o", out})
		if want == "" && err != nil || want != "" && (exitCode(err) != 2 || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("-o %s: got error %v, want %q", out, err, want)
		}
	}
}
