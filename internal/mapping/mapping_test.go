package mapping

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"tilework/internal/cpu/asm"
)

// TestReadWrite writes a file through a mapping and reads parts of it through others.
func TestReadWrite(t *testing.T) {
	f := create(t)
	defer f.Close()
	const size = 3*4096 + 100
	data, unmap, err := Write(f, size)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = byte(i * 7)
	}
	want := bytes.Clone(data)
	if err := unmap(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has %d other bytes, error %v", len(got), err)
	}
	for _, offset := range []int{0, 1, 64, 4095, 4096, 5000} {
		got, unmap, err := Read(f, int64(offset), size-offset)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[offset:]) {
			t.Errorf("offset %d: wrong bytes", offset)
		}
		if err := unmap(); err != nil {
			t.Error(err)
		}
	}
}

// TestAccess truncates a mapped file. Go's and tilework's own copies of the lost bytes must return
// ErrFault, also into the mapping, and copies of the others must work.
func TestAccess(t *testing.T) {
	f := create(t)
	defer f.Close()
	const size = 1 << 20
	data, unmap, err := Write(f, size)
	if err != nil {
		t.Fatal(err)
	}
	defer unmap()
	if err := f.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, size)
	for name, access := range map[string]func(){
		"copy":                   func() { copy(memory, data) },
		"non-temporal copy":      func() { asm.Copy(memory, data, nil) },
		"copy back":              func() { copy(data, memory) },
		"non-temporal copy back": func() { asm.Copy(data, memory, nil) },
		"element":                func() { memory[0] = data[size-1] },
	} {
		if err := Access(access); !errors.Is(err, ErrFault) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want ErrFault in one line", name, err)
		}
		if err := Access(func() { copy(memory, data[:size/2]) }); err != nil {
			t.Errorf("after %s: copying what the file still holds: %v", name, err)
		}
	}
}

// TestPanics checks that Access does not recover from other panics.
func TestPanics(t *testing.T) {
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("recovered %v", r)
		}
	}()
	t.Error(Access(func() { panic("other") }))
}

// TestNoSpace checks that Write fails at once for a file larger than its disk.
func TestNoSpace(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("a disk may hold as many bytes as an int counts")
	}
	f := create(t)
	defer f.Close()
	if _, _, err := Write(f, math.MaxInt); err == nil {
		t.Error("no error for a file of math.MaxInt bytes")
	}
}

func create(t *testing.T) *os.File {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("mappings are for Linux")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}
