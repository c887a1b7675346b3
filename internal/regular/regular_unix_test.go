//go:build unix

package regular

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestKinds opens files of each kind. A pipe must be refused at once, although no process writes to
// it.
func TestKinds(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("file", []byte("text"), 0o644), os.Mkdir("folder", 0o755),
		syscall.Mkfifo("pipe", 0o644), os.Symlink("file", "link"), os.Symlink("pipe", "link-to-pipe"),
		os.Symlink("new", "dangling")); err != nil {
		t.Fatal(err)
	}
	const create = os.O_RDWR | os.O_CREATE
	for _, c := range []struct {
		name                   string
		open, noFollow, create string // the start of the error, or "" for none
	}{
		{"file", "", "", ""},
		{"link", "", "not a regular file", "not a regular file"},
		{"dangling", "no such file", "not a regular file", "not a regular file"},
		{"missing", "no such file", "no such file", ""},
		{"folder", "is a directory", "is a directory", "is a directory"},
		{"pipe", "not a regular file", "not a regular file", "not a regular file"},
		{"link-to-pipe", "not a regular file", "not a regular file", "not a regular file"},
		{os.DevNull, "not a regular file", "not a regular file", "not a regular file"},
	} {
		for i, open := range []func() (*os.File, error){
			func() (*os.File, error) { return Open(c.name) },
			func() (*os.File, error) { return OpenNoFollow(c.name, os.O_RDONLY, 0) },
			func() (*os.File, error) { return OpenNoFollow(c.name, create, 0o600) },
		} {
			f, err := open()
			want := []string{c.open, c.noFollow, c.create}[i]
			reason, isPathError := errors.AsType[*fs.PathError](err)
			if want == "" && err != nil || want != "" && (!isPathError || !strings.HasPrefix(reason.Err.Error(), want)) {
				t.Errorf("%s, way %d: got error %v, want %q", c.name, i, err, want)
			}
			f.Close()
		}
	}
	if _, err := os.Lstat("new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target of a link was created: %v", err)
	}
}

// TestReplacedWhileOpened replaces the file after it was checked.
func TestReplacedWhileOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, replace := range []func() error{
		func() error { return syscall.Mkfifo(path, 0o644) },
		func() error { return os.Symlink(os.DevNull, path) },
	} {
		f, err := open(path, func(path string) (fs.FileInfo, error) {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				return nil, err
			}
			info, err := os.Lstat(path)
			return info, errors.Join(err, os.Remove(path), replace())
		}, os.O_RDONLY|noFollow, 0)
		if err == nil {
			t.Error("opened another file than it checked")
			f.Close()
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
