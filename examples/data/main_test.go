package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestWritten: the files in this folder are those that the command writes.
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
		t.Fatalf("%d files are written, want 6: %v", len(written), err)
	}
	for _, file := range written {
		want, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file.Name()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: its %d bytes differ from the %d that are written, %v", file.Name(), len(got), len(want), err)
		}
	}
}
