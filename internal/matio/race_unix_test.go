//go:build unix

package matio

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestOutputSwapped puts a symbolic link in the target's place while the output is
// written: the link is replaced, and what it leads to is not touched. Temporary files
// have random names and are never opened if they are there, so that none can be laid
// out beforehand.
func TestOutputSwapped(t *testing.T) {
	folder := t.TempDir()
	target, victim := filepath.Join(folder, "c.npy"), filepath.Join(folder, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, old := range []bool{false, true} {
		if old {
			if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := newOutput(target, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.file.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(target); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, target); err != nil {
			t.Fatal(err)
		}
		if err := out.commit(); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{target: "new", victim: "precious"} {
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%s holds %q, want %q: %v", path, got, want, err)
			}
		}
		if info, err := os.Lstat(target); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the target is %v, %v", info.Mode(), err)
		}
		if err := os.Remove(target); err != nil {
			t.Fatal(err)
		}
	}
	checkNoLitter(t, folder, "victim")
}

// TestOutputsAtOnce: of several that write one file at once each writes all of it, and a
// reader finds the whole file of one of them at any time.
func TestOutputsAtOnce(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "c.npz")
	write := func(n int) {
		l := gemm.Dense(dtype.F32, n, n)
		data := alloc(l.Bytes())
		for i := range l.Len() {
			l.Type.Set(data, i, float64(n))
		}
		if err := Write(t.Context(), path, l, data, replace); err != nil {
			t.Error(err)
		}
	}
	write(1)
	var writers, reader sync.WaitGroup
	for n := range 8 {
		writers.Go(func() {
			for range 20 {
				write(10 * (n + 1))
			}
		})
	}
	done := make(chan struct{})
	reader.Go(func() {
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
			}
			m, err := Read(t.Context(), path, ReadOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range m.Rows {
				for j := range m.Cols {
					if got := at(m, i, j); got != float64(m.Rows) {
						t.Errorf("element (%d, %d) of a matrix of %d rows is %v", i, j, m.Rows, got)
						return
					}
				}
			}
		}
	})
	writers.Wait()
	close(done)
	reader.Wait()
	checkNoLitter(t, folder, "c.npz")
}
