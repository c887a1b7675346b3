package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestWritten checks that the files in this folder are up to date.
func TestWritten(t *testing.T) {
	text, err := os.ReadFile(compiled)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := write(string(text), folder); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadDir(folder)
	if err != nil || len(written) != 6 {
		t.Fatalf("write wrote %d files, want 6: %v", len(written), err)
	}
	for _, file := range written {
		want, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file.Name()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the file of %d bytes differs from the %d bytes that write writes: run go generate (%v)",
				file.Name(), len(got), len(want), err)
		}
	}
}
