//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris

package matio

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tilework/dtype"
	"tilework/internal/gemm"
)

func TestPermissions(t *testing.T) {
	mask := unix.Umask(0o027)
	defer unix.Umask(mask)
	folder := t.TempDir()
	one := gemm.Dense(dtype.F32, 1, 1)
	for _, c := range []struct {
		name      string
		old, want os.FileMode // old 0 means that there is no file
	}{
		{"new.npy", 0, 0o640},
		{"private.npy", 0o600, 0o600},
		{"public.npy", 0o666, 0o666},
	} {
		path := filepath.Join(folder, c.name)
		if c.old != 0 {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.old); err != nil {
				t.Fatal(err)
			}
		}
		if err := Write(t.Context(), path, one, alloc(4), replace); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, info.Mode(), err, c.want)
		}
	}
}

func TestSymbolicLinks(t *testing.T) {
	folder := t.TempDir()
	for _, sub := range []string{"data", "links", "links/deep"} {
		if err := os.Mkdir(filepath.Join(folder, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// If up/far.npy were resolved lexically, its target would be outside the folder.
	for link, to := range map[string]string{
		"links/old.npy":      "../data/old.npy",
		"links/again.npy":    "old.npy",
		"links/new.npy":      filepath.Join(folder, "data/new.npy"),
		"up":                 "links/deep",
		"links/deep/far.npy": "../../data/far.npy",
		"loop.npy":           "loop.npy",
	} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	one := gemm.Dense(dtype.F32, 1, 1)
	for link, target := range map[string]string{
		"links/old.npy": "old.npy", "links/again.npy": "old.npy", "links/new.npy": "new.npy", "up/far.npy": "far.npy",
	} {
		os.Remove(filepath.Join(folder, "data", target))
		path := filepath.Join(folder, link)
		if err := Write(t.Context(), path, one, alloc(4), replace); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no longer a symbolic link: %v", link, err)
		}
		mustRead(t, filepath.Join(folder, "data", target), ReadOptions{})
	}
	checkNoLitter(t, filepath.Join(folder, "data"), "far.npy", "new.npy", "old.npy")
	checkError(t, CheckOutput(filepath.Join(folder, "loop.npy"), dtype.F32, replace), gemm.ErrUnsupported, "loop.npy",
		"too many symbolic links")
}

// TestDiskFull writes a file beyond the file size limit of the process, so the write fails halfway,
// as on a full disk. No partial file may remain, and the existing file must not change. The limit
// applies to a whole process, so the test uses a child process.
func TestDiskFull(t *testing.T) {
	const inner = "TILEWORK_TEST_DISK_FULL"
	if os.Getenv(inner) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDiskFull$")
		cmd.Env = append(os.Environ(), inner+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 100_000, Max: 100_000}); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	l := gemm.Dense(dtype.F64, 300, 300)
	for _, f := range Formats() {
		path := filepath.Join(folder, "c"+f.Ext)
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		checkError(t, Write(t.Context(), path, l, fill(l), replace), syscall.EFBIG, "write "+path, "")
		if content, err := os.ReadFile(path); err != nil || string(content) != "old" {
			t.Errorf("%s: the existing file now has %d bytes, error %v", f.Ext, len(content), err)
		}
	}
	checkNoLitter(t, folder, "c.csv", "c.mtx", "c.npy", "c.npz", "c.safetensors")
}

// TestSharedPipe puts a pipe without a reader in the place of the temporary file of another
// process. Open must refuse it without waiting.
func TestSharedPipe(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := NewShared("c.npy", gemm.Dense(dtype.F32, 1, 1), 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(temporaryName(1), 0o600); err != nil {
		t.Skip(err)
	}
	if err := s.Open(); err == nil {
		t.Error("opened a pipe")
	}
	reader, err := os.OpenFile(temporaryName(1), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := s.Open(); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("a pipe with a reader: error %v", err)
	}
}
