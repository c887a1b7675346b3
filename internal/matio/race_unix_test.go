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

// TestOutputSwapped replaces the target by a symbolic link while the output is written. The link
// must be replaced and the file that it points to must not change. Temporary files have random
// names and are opened exclusively, so an attacker cannot create one in advance.
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
				t.Errorf("%s contains %q, want %q: %v", path, got, want, err)
			}
		}
		if info, err := os.Lstat(target); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the target has mode %v, error %v", info.Mode(), err)
		}
		if err := os.Remove(target); err != nil {
			t.Fatal(err)
		}
	}
	checkNoLitter(t, folder, "victim")
}

// TestConcurrentOutputs writes one file from several goroutines. A reader must find the complete
// file of one of them at any time.
func TestConcurrentOutputs(t *testing.T) {
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
						t.Errorf("element (%d, %d) of a matrix with %d rows is %v", i, j, m.Rows, got)
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
