package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func Example() {
	if err := run(context.Background(), "emu", os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// (3, 4) is in quadrant 1
	// (-1, 2) is in quadrant 2
	// (-5, -1) is in quadrant 3
	// (2, -2) is in quadrant 4
	// (0.5, 0.25) is in quadrant 1
}

// TestWithoutGPU checks that the error on a machine without a GPU names the command that works.
func TestWithoutGPU(t *testing.T) {
	err := run(t.Context(), "gpu:99", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "go run ./examples/resident -device emu") {
		t.Errorf("got error %v, want one that names the emulated GPU", err)
	}
}
