package matio

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestNotAllowed accesses files without permission. If it runs as root, its thread switches to the
// file access identity of another user.
func TestNotAllowed(t *testing.T) {
	folder := t.TempDir()
	locked := filepath.Join(folder, "locked")
	if err := os.Mkdir(locked, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(locked, "c.npy"), filepath.Join(folder, "c.npy")} {
		if err := os.WriteFile(path, []byte("old"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(folder, "secret.npy")
	if err := os.WriteFile(secret, []byte("old"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(locked, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(locked, 0o755)
	if os.Getuid() == 0 {
		for dir := folder; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer unix.Setfsuid(0)
	}

	one := gemm.Dense(dtype.F32, 1, 1)
	for _, c := range []struct{ spec, message string }{
		{filepath.Join(locked, "new.npy"), "create a file in " + locked + ": permission denied"},
		{filepath.Join(locked, "c.npy"), "permission denied"},
		{filepath.Join(folder, "c.npy"), "permission denied"}, // the folder itself is writable
	} {
		checkError(t, CheckOutput(c.spec, dtype.F32, replace), fs.ErrPermission, filepath.Dir(c.spec), c.message)
		checkError(t, Write(t.Context(), c.spec, one, alloc(4), replace), fs.ErrPermission, filepath.Dir(c.spec), c.message)
	}
	_, err := Read(t.Context(), secret, ReadOptions{})
	checkError(t, err, fs.ErrPermission, secret, "permission denied")
	checkNoLitter(t, locked, "c.npy")
	checkNoLitter(t, folder, "c.npy", "locked", "secret.npy")
}
