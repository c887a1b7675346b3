package matfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tilework"
	"tilework/dtype"
)

// TestAny reads matrices whose types the files decide, and writes them.
func TestAny(t *testing.T) {
	folder := t.TempDir()
	for _, c := range []struct {
		ext  string
		want dtype.Type
	}{{".safetensors", dtype.BF16}, {".mtx", dtype.F64}, {".csv", dtype.F64}} {
		want := numbers[dtype.BFloat16](3, 5)
		path, again := filepath.Join(folder, "a"+c.ext), filepath.Join(folder, "b"+c.ext)
		if err := Write(t.Context(), path, want); err != nil {
			t.Fatal(err)
		}
		m, err := ReadAny(t.Context(), path, dtype.Invalid, nil)
		if err != nil || m.Type != c.want || m.Rows != 3 || m.Cols != 5 || m.Transposed != (c.ext == ".mtx") {
			t.Fatalf("%s: got %+v, error %v", c.ext, m, err)
		}
		typed := as(t, m)
		checkEqual(t, c.ext, typed, want)
		dense, err := m.RowMajor(t.Context())
		if err != nil || dense.Transposed {
			t.Fatalf("%s row by row: got %+v, error %v", c.ext, dense, err)
		}
		checkEqual(t, c.ext+" row by row", as(t, dense), want)
		if err := m.Write(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		copied, err := Read[float64](t.Context(), again, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, c.ext+" written again", copied, want)
		content, err := os.ReadFile(again)
		var stream bytes.Buffer
		if err := errors.Join(err, m.Encode(t.Context(), &stream, "any"+c.ext)); err != nil ||
			!bytes.Equal(stream.Bytes(), content) {
			t.Errorf("%s: Encode and Write differ, error %v", c.ext, err)
		}
		converted, err := ReadAny(t.Context(), path, dtype.I8, nil)
		if err != nil || converted.Type != dtype.I8 || len(converted.Data) != 15 {
			t.Errorf("%s as int8: got %+v, error %v", c.ext, converted, err)
		}
	}
}

// as returns a matrix of float64 or bfloat16 as float64.
func as(t *testing.T, m *Any) tilework.Matrix[float64] {
	t.Helper()
	if m.Type == dtype.F64 {
		typed, err := As[float64](m)
		if err != nil {
			t.Fatal(err)
		}
		return typed
	}
	narrow, err := As[dtype.BFloat16](m)
	if err != nil {
		t.Fatal(err)
	}
	typed := tilework.New[float64](m.Rows, m.Cols)
	for i := range m.Rows {
		for j := range m.Cols {
			typed.Set(i, j, narrow.At(i, j).Float64())
		}
	}
	return typed
}

// TestAnyMapped maps the files that have at least as many bytes as MapFrom.
func TestAnyMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npy")
	if err := Write(t.Context(), path, numbers[float32](4, 5)); err != nil {
		t.Fatal(err)
	}
	for mapFrom, want := range map[int]bool{0: false, 80: runtime.GOOS == "linux", 81: false} {
		m, err := ReadAny(t.Context(), path, dtype.Invalid, &ReadOptions{MapFrom: mapFrom})
		if err != nil || m.IsMapped() != want || len(m.Data) != 80 {
			t.Fatalf("from %d bytes: got %+v, error %v", mapFrom, m, err)
		}
		if err := errors.Join(m.CheckUnchanged(), m.Close(), m.Close()); err != nil || m.IsMapped() {
			t.Errorf("from %d bytes: closed with error %v", mapFrom, err)
		}
	}
	m, err := ReadAny(t.Context(), path, dtype.Invalid, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckUnchanged(); !errors.Is(err, ErrChanged) {
		t.Errorf("of a file that became shorter: got error %v", err)
	}
}

// TestAnyRefused checks that a matrix whose fields disagree is refused and not used.
func TestAnyRefused(t *testing.T) {
	data := dtype.Bytes(make([]float64, 3))
	var none context.Context
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		m    Any
		want error
	}{
		"no type":       {Any{Rows: 1, Cols: 1, Data: data[:8]}, tilework.ErrUnsupported},
		"unknown type":  {Any{Type: 99, Rows: 1, Cols: 1, Data: data[:8]}, tilework.ErrUnsupported},
		"no rows":       {Any{Type: dtype.F64, Rows: -1, Cols: 1}, tilework.ErrShape},
		"too large":     {Any{Type: dtype.F64, Rows: math.MaxInt, Cols: math.MaxInt}, tilework.ErrShape},
		"too few bytes": {Any{Type: dtype.F64, Rows: 2, Cols: 2, Data: data}, tilework.ErrShape},
		"unaligned":     {Any{Type: dtype.F64, Rows: 1, Cols: 2, Data: data[1:17]}, tilework.ErrUnsupported},
	} {
		_, asErr := As[float64](&c.m)
		_, rowErr := c.m.RowMajor(t.Context())
		for _, err := range []error{asErr, rowErr, c.m.Encode(t.Context(), io.Discard, "c.csv"),
			c.m.Write(t.Context(), filepath.Join(t.TempDir(), "c.csv"))} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: got error %v, want %v", name, err, c.want)
			}
		}
	}
	good := Any{Type: dtype.F64, Rows: 1, Cols: 3, Data: data}
	if _, err := As[float32](&good); !errors.Is(err, tilework.ErrUnsupported) {
		t.Errorf("float64 as float32: got error %v", err)
	}
	good.Transposed = true
	if _, err := good.RowMajor(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended: got error %v", err)
	}
	_, err := ReadAny(none, "a.npy", dtype.Invalid, nil)
	for _, err := range []error{err, good.Write(none, "c.csv"), good.Encode(none, io.Discard, "c.csv")} {
		if err == nil || !strings.Contains(err.Error(), "nil Context") {
			t.Errorf("without a context: got error %v", err)
		}
	}
	if _, err := ReadAny(t.Context(), "a.npy", 99, nil); !errors.Is(err, tilework.ErrUnsupported) {
		t.Errorf("of type 99: got error %v", err)
	}
}

// TestDims reads arrays of one and two dimensions in all ways.
func TestDims(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.npz")
	vector := "\x93NUMPY\x01\x00F\x00{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }" +
		strings.Repeat(" ", 12) + "\n" + "\x01\x00\x02\x00\x03\x00"
	if err := Write(t.Context(), path, numbers[float32](3, 1)); err != nil {
		t.Fatal(err)
	}
	column, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dims    Dims
		content string
		shape   [2]int
		want    error
	}{
		{RowOrMatrix, vector, [2]int{1, 3}, nil}, {ColumnOrMatrix, vector, [2]int{3, 1}, nil},
		{OnlyMatrix, vector, [2]int{}, tilework.ErrUnsupported}, {OnlyVector, vector, [2]int{1, 3}, nil},
		{RowOrMatrix, string(column), [2]int{3, 1}, nil}, {OnlyVector, string(column), [2]int{1, 3}, nil},
		{OnlyVector, "1,2\n3,4\n", [2]int{}, tilework.ErrShape},
	} {
		m, err := ReadAny(t.Context(), "-", dtype.F32, &ReadOptions{Dims: c.dims, Stdin: strings.NewReader(c.content)})
		if !errors.Is(err, c.want) || err == nil && (m.Rows != c.shape[0] || m.Cols != c.shape[1]) {
			t.Errorf("Dims %d of %.8q: got %+v, error %v", c.dims, c.content, m, err)
		}
	}
	if _, err := ReadAny(t.Context(), path, dtype.Invalid, &ReadOptions{Dims: 4}); err == nil {
		t.Error("Dims 4 is accepted")
	}
	stdin := &ReadOptions{Stdin: strings.NewReader(vector)}
	if _, err := ReadAny(t.Context(), "-", dtype.Invalid, stdin); !errors.Is(err, ErrNeedsType) {
		t.Errorf("int16 without a type: got error %v", err)
	}
	m, err := Read[float32](t.Context(), "-::c", &ReadOptions{Stdin: bytes.NewReader(column)})
	if err != nil || m.Rows() != 3 {
		t.Errorf("member of standard input: got %v, error %v", m, err)
	}
	arrays, err := List(t.Context(), "-", &ReadOptions{Stdin: bytes.NewReader(column)})
	if err != nil || len(arrays) != 1 || arrays[0].Name != "-::c" || arrays[0].Member != "c" {
		t.Errorf("list of standard input: got %+v, error %v", arrays, err)
	}
}
