package matfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"tilework"
	"tilework/dtype"
	"tilework/internal/matio"
)

// numbers returns a matrix of small whole numbers.
func numbers[T dtype.Element](rows, cols int) tilework.Matrix[T] {
	m := tilework.New[T](rows, cols)
	for i := range m.Data() {
		m.Data()[i] = dtype.FromFloat64[T](float64(i%11 - 5))
	}
	return m
}

// checkEqual checks the elements of got.
func checkEqual[T, U dtype.Element](t *testing.T, what string, got tilework.Matrix[T], want tilework.Matrix[U]) {
	t.Helper()
	if got.Rows() != want.Rows() || got.Cols() != want.Cols() {
		t.Fatalf("%s: got a %d×%d matrix, want %d×%d", what, got.Rows(), got.Cols(), want.Rows(), want.Cols())
	}
	for i := range got.Rows() {
		for j := range got.Cols() {
			if g, w := dtype.ToFloat64(got.At(i, j)), dtype.ToFloat64(want.At(i, j)); g != w {
				t.Fatalf("%s: element (%d, %d) is %v, want %v", what, i, j, g, w)
			}
		}
	}
}

// TestRoundTrip writes matrices of every type and layout in every format, to files and to streams,
// and reads them as their own type and as float64.
func TestRoundTrip(t *testing.T) {
	t.Run("float64", roundTrip[float64])
	t.Run("float32", roundTrip[float32])
	t.Run("float16", roundTrip[dtype.Float16])
	t.Run("bfloat16", roundTrip[dtype.BFloat16])
	t.Run("e4m3", roundTrip[dtype.Float8E4M3])
	t.Run("e5m2", roundTrip[dtype.Float8E5M2])
	t.Run("int8", roundTrip[int8])
	t.Run("int32", roundTrip[int32])
}

func roundTrip[T dtype.Element](t *testing.T) {
	folder := t.TempDir()
	matrices := map[string]tilework.Matrix[T]{
		"dense": numbers[T](3, 5), "row": numbers[T](1, 4), "transposed": numbers[T](3, 5).T(),
		"part": numbers[T](6, 7).Sub(1, 2, 3, 4), "transposed part": numbers[T](6, 7).Sub(1, 2, 3, 4).T(),
		"without rows": numbers[T](0, 4), "zero": {},
	}
	stored := 0
	for _, f := range matio.Formats() {
		for name, want := range matrices {
			path := filepath.Join(folder, "c"+f.Ext)
			what := name + f.Ext
			err := Write(t.Context(), path, want)
			if errors.Is(err, tilework.ErrUnsupported) && (f.Ext == ".csv" && want.Rows() == 0 || f.Ext[1] == 'n') {
				continue // CSV has no empty matrices, and NumPy no bfloat16 and 8-bit floats
			}
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			stored++
			got, err := Read[T](t.Context(), path, nil)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			checkEqual(t, what, got, want)
			wide, err := Read[float64](t.Context(), path, nil)
			if err != nil {
				t.Fatalf("%s as float64: %v", what, err)
			}
			checkEqual(t, what+" as float64", wide, want)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var stream bytes.Buffer
			if err := Encode(t.Context(), &stream, "any/c"+f.Ext, want); err != nil || !bytes.Equal(stream.Bytes(), content) {
				t.Errorf("%s: Encode and Write differ, error %v", what, err)
			}
			for _, name := range []string{"upload" + f.Ext, "upload", ""} {
				if got, err = Decode[T](t.Context(), bytes.NewReader(content), name, nil); err != nil {
					t.Fatalf("%s decoded as %q: %v", what, name, err)
				}
				checkEqual(t, what+" decoded", got, want)
			}
		}
	}
	if least := 3*len(matrices) - 2; stored < least {
		t.Errorf("stored %d matrices, want at least %d", stored, least)
	}
}

// TestNames reads every array by the name that List gives it, and decodes it from a stream.
func TestNames(t *testing.T) {
	for _, ext := range []string{".npz", ".safetensors"} {
		path := filepath.Join(t.TempDir(), "w"+ext)
		want := numbers[float32](2, 3)
		if err := Write(t.Context(), path+"::a.npy", want); err != nil {
			t.Fatal(err)
		}
		arrays, err := List(t.Context(), path, nil)
		if err != nil || len(arrays) != 1 || arrays[0].Name != path+"::a.npy" || arrays[0].Type != dtype.F32 ||
			fmt.Sprint(arrays[0].Shape) != "[2 3]" || arrays[0].Err != nil {
			t.Fatalf("%s: got %+v, error %v", ext, arrays, err)
		}
		got, err := Read[float32](t.Context(), arrays[0].Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, ext, got, want)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		got, err = Decode[float32](t.Context(), file, "::a.npy", nil)
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, ext, got, want)
	}
}

// TestErrors checks that the errors of each function wrap those of the documentation and name the
// file.
func TestErrors(t *testing.T) {
	folder := t.TempDir()
	at := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	one := numbers[float32](1, 1)
	const coordinates = "%%MatrixMarket matrix coordinate real general\n"
	read := func(name string) error {
		_, err := Read[float32](t.Context(), name, nil)
		return err
	}
	decode := func(content, name string) error {
		_, err := Decode[int8](t.Context(), strings.NewReader(content), name, nil)
		return err
	}
	list := func(name string) error {
		_, err := List(t.Context(), name, nil)
		return err
	}
	var none context.Context
	for name, c := range map[string]struct{ err, want error }{
		"no file":          {read(filepath.Join(folder, "none.npy")), fs.ErrNotExist},
		"standard input":   {read("-"), tilework.ErrUnsupported},
		"malformed":        {read(at("a.npy", "1,2")), ErrFormat},
		"member of CSV":    {read(at("a.csv", "1,2") + "::x"), ErrMember},
		"too large":        {read(at("b.csv", "1e39")), ErrOverflow},
		"far too large":    {read(at("a.mtx", coordinates+"9000 9000 0\n")), ErrExpansion},
		"more than memory": {read(at("b.mtx", coordinates+"9000 9000 0\n")), tilework.ErrOutOfMemory},
		"no integer":       {decode("0.5", "x.csv"), ErrRange},
		"not text":         {decode("\x00\x01", ""), tilework.ErrUnsupported},
		"empty":            {decode("", ""), ErrFormat},
		"member of text":   {decode("1", "::x"), ErrMember},
		"list of a member": {list(at("a.npz", "PK\x03\x04") + "::x"), ErrMember},
		"unknown format":   {Write(t.Context(), filepath.Join(folder, "c.py"), one), tilework.ErrUnsupported},
		"unknown encoding": {Encode(t.Context(), io.Discard, "c", one), tilework.ErrUnsupported},
		"no folder":        {Write(t.Context(), filepath.Join(folder, "none", "c.npy"), one), fs.ErrNotExist},
		"type": {Write(t.Context(), filepath.Join(folder, "c.npy"), numbers[dtype.BFloat16](1, 1)),
			tilework.ErrUnsupported},
		"invalid matrix": {Write(t.Context(), filepath.Join(folder, "c.npy"), tilework.New[float32](-1, 1)),
			tilework.ErrShape},
		"ended":      {Write(ended, filepath.Join(folder, "c.npy"), one), context.Canceled},
		"full":       {Encode(t.Context(), failing{}, "c.csv", one), io.ErrShortWrite},
		"no context": {Write(none, filepath.Join(folder, "c.npy"), one), nil},
	} {
		if c.err == nil || c.want != nil && !errors.Is(c.err, c.want) || strings.Contains(c.err.Error(), "\n") {
			t.Errorf("%s: got error %v, want one line for %v", name, c.err, c.want)
		}
	}
	if err := Write(t.Context(), filepath.Join(folder, "x.npz::x"), one); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), filepath.Join(folder, "x.npz::y"), one); !errors.Is(err, fs.ErrExist) {
		t.Errorf("replacing an archive with another array: got error %v", err)
	}
}

// failing is a writer that fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestOptions reads with each of the options.
func TestOptions(t *testing.T) {
	count := 0
	m, err := Decode[float32](t.Context(), strings.NewReader("a|b\n1|1e39\n"), "x.csv", &ReadOptions{
		CSVHeader: 1, CSVDelimiter: '|', Overflow: func(first error, n int) {
			if count += n; !errors.Is(first, ErrOverflow) {
				t.Errorf("got error %v", first)
			}
		},
	})
	if err != nil || m.Cols() != 2 || m.At(0, 1) <= 3.4e38 || count != 1 {
		t.Errorf("got %v, %d overflows, error %v", m, count, err)
	}
	m, err = Decode[float32](t.Context(), strings.NewReader("1,,NA\n"), "x.csv", &ReadOptions{CSVMissing: true})
	if err != nil || m.Cols() != 3 || m.At(0, 1) == m.At(0, 1) || m.At(0, 2) == m.At(0, 2) {
		t.Errorf("got %v, error %v; want two NaNs", m, err)
	}
	if strconv.IntSize < 64 {
		return // no matrix that the addresses allow is certain not to fit into memory
	}
	sparse := "%%MatrixMarket matrix coordinate real general\n1000000 1000000 1\n1 1 7\n"
	_, err = Decode[int8](t.Context(), strings.NewReader(sparse), "", &ReadOptions{Expand: true})
	if !errors.Is(err, tilework.ErrOutOfMemory) || errors.Is(err, ErrExpansion) {
		t.Errorf("with Expand: got error %v, want only the limit of the free memory", err)
	}
}

// TestMap maps files, or reads those that cannot be mapped, and multiplies the matrices.
func TestMap(t *testing.T) {
	folder := t.TempDir()
	want := numbers[float32](4, 5)
	for _, ext := range []string{".npy", ".safetensors", ".npz", ".csv"} {
		path := filepath.Join(folder, "a"+ext)
		if err := Write(t.Context(), path, want); err != nil {
			t.Fatal(err)
		}
		m, err := Map[float32](t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		canMap := runtime.GOOS == "linux" && (ext == ".npy" || ext == ".safetensors")
		if m.IsMapped() != canMap {
			t.Errorf("%s: mapped %v, want %v", ext, m.IsMapped(), canMap)
		}
		checkEqual(t, ext, m.Matrix(), want)
		if c, err := tilework.Mul(t.Context(), m.Matrix(), want.T()); err != nil || c.Rows() != 4 {
			t.Errorf("%s: product with error %v", ext, err)
		}
		if err := errors.Join(m.Close(), m.Close()); err != nil || m.IsMapped() || m.Matrix().Rows() != 0 {
			t.Errorf("%s: closed with error %v", ext, err)
		}
		converted, err := Map[float64](t.Context(), path, nil)
		if err != nil || converted.IsMapped() {
			t.Fatalf("%s as float64: error %v", ext, err)
		}
		checkEqual(t, ext, converted.Matrix(), want)
	}
	if _, err := Map[float32](t.Context(), filepath.Join(folder, "none.npy"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got error %v", err)
	}
}
