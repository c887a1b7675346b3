package bench

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestCommandLine asks a shell what it makes of the command.
func TestCommandLine(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell to ask")
	}
	args := []string{"/a b/tilework", "bench", "--sizes", "64:1024:*2", "--peer-path", "cublaslt=/x y/lib's.so", "", "$HOME", `a\b"c`, "#1", "~", "a;b", "ü"}
	command := commandLine(args)
	if !strings.HasPrefix(command, "tilework bench --sizes '64:1024:*2' ") {
		t.Errorf("the command is %s", command)
	}
	_, rest, _ := strings.Cut(command, " ")
	out, err := exec.Command(sh, "-c", `printf '%s\n' `+rest).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"); !slices.Equal(got, args[1:]) {
		t.Errorf("of %q a shell makes %q", command, got)
	}
}
