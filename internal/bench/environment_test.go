package bench

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestCommandLine checks the quoting with a real shell.
func TestCommandLine(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	args := []string{"/a b/tilework", "bench", "--sizes", "64:1024:*2", "--peer-path", "cublaslt=/x y/lib's.so", "",
		"$HOME", `a\b"c`, "#1", "~", "a;b", "ü"}
	command := commandLine(args)
	if !strings.HasPrefix(command, "tilework bench --sizes '64:1024:*2' ") {
		t.Errorf("got command %s", command)
	}
	_, rest, _ := strings.Cut(command, " ")
	out, err := exec.Command(sh, "-c", `printf '%s\n' `+rest).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"); !slices.Equal(got, args[1:]) {
		t.Errorf("the shell parses %q as %q, want %q", command, got, args[1:])
	}
}
