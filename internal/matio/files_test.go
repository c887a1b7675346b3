package matio

import (
	"os"
	"testing"
)

// TestFiles checks which specs have the same number: those of a file by several paths and links, of
// the members of an archive, and of a file that does not exist by several paths.
func TestFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a.npy", "b.npy", "c.npz"} { // of the same size
		if err := os.WriteFile(name, []byte("content"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("folder", 0o777); err != nil {
		t.Fatal(err)
	}
	groups := [][]string{
		{"a.npy", "./a.npy", "folder/../a.npy"}, {"b.npy"}, {"c.npz", "c.npz::x", "./c.npz::y"},
		{"new.npy", "./new.npy", "folder/../new.npy"}, {"folder/new.npy"}, {"new.csv"},
	}
	if os.Link("b.npy", "hard.npy") == nil && os.Symlink("a.npy", "soft.npy") == nil &&
		os.Symlink("new.npy", "dangling.npy") == nil {
		groups[0] = append(groups[0], "soft.npy")
		groups[1] = append(groups[1], "hard.npy")
		groups[3] = append(groups[3], "dangling.npy")
	}
	var files Files
	for range 2 { // the second time, all files are known
		for i, specs := range groups {
			for _, spec := range specs {
				if n, ok := files.Number(spec); n != i || !ok {
					t.Errorf("%s has number %d, %v, want %d", spec, n, ok, i)
				}
			}
		}
	}
	for _, spec := range []string{"", "folder", "none", "a.npy/x.npy", "nowhere/new.npy"} {
		if n, ok := files.Number(spec); ok {
			t.Errorf("%q has number %d, want none", spec, n)
		}
	}
}
