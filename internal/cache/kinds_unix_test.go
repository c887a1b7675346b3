//go:build unix

package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOtherKinds puts a pipe and a link in the place of an entry and of the lock. They must be
// reported as problems, without waiting for a writer, and the link's target must not be used.
func TestOtherKinds(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for kind, plant := range map[string]func(path string) error{
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link": func(path string) error { return os.Symlink(outside, path) },
	} {
		c := At(t.TempDir())
		if err := c.Put("a", value); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(c.path("a"), outside); err != nil { // a valid entry, elsewhere
			t.Fatal(err)
		}
		lock := filepath.Join(c.dir, "lock")
		if err := errors.Join(plant(c.path("a")), plant(lock)); err != nil {
			t.Fatal(err)
		}
		var got sample
		if c.Get("a", &got) {
			t.Errorf("%s: read as an entry", kind)
		}
		c.All(func(key string, _ []byte) { t.Errorf("%s: listed as the entry %s", kind, key) })
		if err := os.Remove(outside); err != nil {
			t.Fatal(err)
		}
		unlock, err := c.Lock(t.Context(), func() { t.Errorf("%s: Lock waits", kind) })
		if err != nil {
			t.Errorf("%s: Lock: %v", kind, err)
		}
		unlock()
		if _, err := os.Lstat(outside); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: Lock created the target: %v", kind, err)
		}
		problems := c.Problems()
		if len(problems) != 2 || !strings.HasPrefix(problems[0], c.path("a")+": ") ||
			!strings.HasPrefix(problems[1], lock+": ") {
			t.Errorf("%s: problems %q, want one of the entry and one of the lock", kind, problems)
		}
		if err := c.Put("a", value); err != nil || !c.Get("a", &got) {
			t.Errorf("%s: not replaced by Put: %v", kind, err)
		}
		if _, err := os.Lstat(outside); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: Put wrote to the target: %v", kind, err)
		}
	}
}

// TestFolderNames checks that entries are listed in a folder whose name is no valid pattern.
func TestFolderNames(t *testing.T) {
	c := At(filepath.Join(t.TempDir(), "cache["))
	if err := c.Put("a", value); err != nil {
		t.Fatal(err)
	}
	listed := 0
	c.All(func(string, []byte) { listed++ })
	if n, err := c.Clear(); listed != 1 || n != 1 || err != nil {
		t.Errorf("listed %d entries and removed %d, %v: want 1", listed, n, err)
	}
}
