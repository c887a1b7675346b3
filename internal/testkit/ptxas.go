package testkit

import (
	"os"
	"testing"
)

// Ptxas returns the path of NVIDIA's assembler that the environment variable TILEWORK_PTXAS names.
// Without it, the test is skipped, also where an assembler is installed: releases accept different
// instructions, and assembling takes minutes.
func Ptxas(t testing.TB) string {
	t.Helper()
	path := os.Getenv("TILEWORK_PTXAS")
	if path == "" {
		t.Skip("TILEWORK_PTXAS does not name NVIDIA's assembler")
	}
	return path
}
