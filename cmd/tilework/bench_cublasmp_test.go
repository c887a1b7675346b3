package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"tilework/internal/peers"
)

// TestUnlessStuck checks, in a process of its own, that a call of cuBLASMp that does not return
// ends the program with an error. Other errors are returned.
func TestUnlessStuck(t *testing.T) {
	const stuck = "TILEWORK_TEST_STUCK"
	if os.Getenv(stuck) != "" {
		t.Fatal(unlessStuck(fmt.Errorf("cublasmp: %w", peers.ErrStuck)))
	}
	if err := unlessStuck(os.ErrInvalid); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("error %v", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestUnlessStuck$")
	cmd.Env = append(os.Environ(), stuck+"=1")
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 2 || !strings.HasPrefix(string(out), "tilework: cublasmp: a call ") {
		t.Errorf("error %v, output %s", err, out)
	}
}
