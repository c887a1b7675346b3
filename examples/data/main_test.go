package main

import (
	"bytes"
	"os"
	"testing"
)

// TestWritten: the matrices that lie here are those that the command writes.
func TestWritten(t *testing.T) {
	want := map[string][]byte{}
	for _, name := range []string{"a.npy", "b.npy"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = data
	}
	t.Chdir(t.TempDir())
	main()
	for name, data := range want {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes that are others than those of the repository's %d, %v", name, len(got), len(data), err)
		}
	}
}
