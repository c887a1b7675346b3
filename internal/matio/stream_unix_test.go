//go:build unix

package matio

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// newPipe creates a named pipe.
func newPipe(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPipe reads matrices from named pipes, whose name or content gives the format.
func TestPipe(t *testing.T) {
	for _, c := range []struct {
		file, name, member string
		typ                dtype.Type
	}{
		{"version1.npy", "a.npy", "", dtype.F32}, {"version1.npy", "a", "", dtype.F32},
		{"several.npz", "w", "::b", dtype.F64}, {"comma.csv", "a.csv", "", dtype.F64},
		{"all.safetensors", "63", "::layer.0.bf16", dtype.BF16}, {"array-real.mtx", "m", "", dtype.F64},
	} {
		content, err := os.ReadFile("testdata/" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		path, wrote := newPipe(t, c.name), make(chan error)
		go func() { wrote <- os.WriteFile(path, content, 0) }()
		m, err := Read(t.Context(), path+c.member, ReadOptions{})
		if err := errors.Join(err, <-wrote); err != nil {
			t.Errorf("%s in a pipe named %s: %v", c.file, c.name, err)
			continue
		}
		checkMatrix(t, m, c.typ, 3, 5, floatRule)
	}
}

// TestPipeEnds ends the context while a pipe has no writer, and while its writer is silent. Read
// must return the context's error, and must have closed the pipe.
func TestPipeEnds(t *testing.T) {
	path := newPipe(t, "a.csv")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ended, path, ReadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v without a writer, want %v", err, context.Canceled)
	}
	if _, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.ENXIO) {
		t.Errorf("got error %v from opening a pipe without a reader, want %v", err, unix.ENXIO)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wrote := make(chan error)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for the reader
		if err == nil {
			_, err = io.WriteString(f, "1,2\n")
			cancel()
		}
		for err == nil { // until the reader closes the pipe
			_, err = io.WriteString(f, "\n")
		}
		wrote <- errors.Join(err, f.Close())
	}()
	if _, err := Read(ctx, path, ReadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v while the writer is silent, want %v", err, context.Canceled)
	}
	if err := <-wrote; !errors.Is(err, unix.EPIPE) {
		t.Errorf("the writer got error %v after the end of the context, want %v", err, unix.EPIPE)
	}
}

// TestPipeIsNoOutput checks that a pipe is refused as an output, without waiting for a program that
// reads or writes it.
func TestPipeIsNoOutput(t *testing.T) {
	for _, name := range []string{"c.csv", "c.npz"} {
		path := newPipe(t, name)
		checkError(t, CheckOutput(path, dtype.F32, replace), gemm.ErrUnsupported, path, "not a regular file")
	}
}

// TestEndlessFile checks that an endless file of no format is refused after its first bytes.
func TestEndlessFile(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip(err)
	}
	room := func(bytes int, what string) error {
		if bytes > 64<<10 {
			return errors.New("read on: " + what)
		}
		return nil
	}
	_, err := Read(t.Context(), "/dev/zero", ReadOptions{Room: room})
	checkError(t, err, gemm.ErrUnsupported, "/dev/zero", "the file starts with")
	for _, f := range Formats() {
		path := filepath.Join(t.TempDir(), "a"+f.Ext)
		if err := os.Symlink("/dev/zero", path); err != nil {
			t.Fatal(err)
		}
		_, err := Read(t.Context(), path, ReadOptions{Room: room})
		checkError(t, err, ErrFormat, path, "")
	}
}
