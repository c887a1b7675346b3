package matio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

const replace = true

// checkNoLitter checks that a folder holds exactly these files.
func checkNoLitter(t *testing.T, folder string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("folder contains %q, want %q", got, want)
	}
}

// TestReadEnds lets the context end at each of its checks. Read must return the context's error, or
// the matrix if it was complete.
func TestReadEnds(t *testing.T) {
	folder := t.TempDir()
	l := gemm.Dense(dtype.F64, 100, 200)
	data := alloc(l.Bytes())
	for i := range l.Len() {
		l.Type.Set(data, i, float64(i)/7)
	}
	for _, f := range Formats() {
		spec := filepath.Join(folder, "m"+f.Ext)
		if err := Write(t.Context(), spec, l, data, replace); err != nil {
			t.Fatal(err)
		}
		ends, missed := 0, 0
		testkit.CancelEverywhere(20, func(ctx *testkit.CountdownContext) {
			ends++
			m, err := Read(ctx, spec, ReadOptions{})
			switch {
			case err == nil:
				if ctx.Ended() {
					missed++
				}
				checkMatrix(t, m, l.Type, l.Rows, l.Cols,
					func(i, j int) float64 { return l.Type.At(data, l.Index(i, j)) })
			case !ctx.Ended() || !errors.Is(err, context.Canceled):
				t.Errorf("%s, context ended at check %d: got error %v", f.Ext, ends, err)
			}
		})
		if ends < 2 {
			t.Errorf("%s: Read did not check the context", f.Ext)
		}
		if missed > 1 { // the check after the last block
			t.Errorf("%s: Read continued after %d of %d checks that ended the context", f.Ext, missed, ends)
		}
	}
}

// TestRoundTrip writes random bits of every type in every format and layout and checks that reading
// restores them. NaNs need only stay NaNs.
func TestRoundTrip(t *testing.T) {
	r := testrand.New(t)
	folder := t.TempDir()
	for _, f := range Formats() {
		for _, typ := range f.Types() {
			for _, size := range [][2]int{{1, 1}, {1, 7}, {7, 1}, {67, 129}, {0, 3}, {3, 0}} {
				for name, l := range layouts(typ, size[0], size[1]) {
					data := alloc(l.Bytes())
					for i := range data {
						data[i] = byte(r.Uint32())
					}
					spec := filepath.Join(folder, "m"+f.Ext)
					err := Write(t.Context(), spec, l, data, replace)
					if f.Ext == ".csv" && size[0]*size[1] == 0 {
						checkError(t, err, gemm.ErrUnsupported, spec, "CSV cannot represent")
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					written := &Matrix{Layout: l, Data: data}
					m, err := Read(t.Context(), spec, ReadOptions{Type: typ})
					if err != nil {
						t.Fatalf("%s of %v, %s: %v", f.Ext, l, name, err)
					}
					checkMatrix(t, m, typ, l.OpRows(), l.OpCols(), func(i, j int) float64 { return at(written, i, j) })
				}
			}
		}
	}
	checkNoLitter(t, folder, "m.csv", "m.mtx", "m.npy", "m.npz", "m.safetensors")
}

// TestNarrowText writes every value of the 16-bit and 8-bit types as text. Read as its type and as
// float32, the text must give the value.
func TestNarrowText(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E5M2} {
		for bits := range 1 << typ.Bits() {
			data := alloc(2)
			data[0], data[1] = byte(bits), byte(bits>>8)
			v := typ.At(data, 0)
			text := appendNumber(nil, typ, v)
			for _, as := range []dtype.Type{typ, dtype.F32} {
				back, ok := parseNumber(text, as)
				if !ok || !same(as.Round(back.float), v) {
					t.Fatalf("%v of %v is written as %s and read as %v of %v", v, typ, text, back.float, as)
				}
			}
		}
	}
}

func TestShortestText(t *testing.T) {
	for _, c := range []struct {
		typ  dtype.Type
		v    float64
		want string
	}{
		{dtype.F64, 0.1, "0.1"},
		{dtype.F32, float64(float32(0.1)), "0.1"},
		{dtype.F16, dtype.F16.Round(0.1), "0.099975586"},
		{dtype.BF16, dtype.BF16.Round(0.1), "0.100097656"},
		{dtype.F16, 65504, "65504"},
		{dtype.I32, math.MinInt32, "-2147483648"},
		{dtype.F32, math.Inf(-1), "-inf"},
		{dtype.F16, math.NaN(), "nan"},
		{dtype.F64, math.Copysign(0, -1), "-0"},
	} {
		if got := string(appendNumber(nil, c.typ, c.v)); got != c.want {
			t.Errorf("%v %v is written as %q, want %q", c.typ, c.v, got, c.want)
		}
	}
}

// TestReplacedInput checks that a matrix does not change when its file is replaced, for example by
// a product of the matrix, modified or truncated. CheckUnchanged must report the last two.
func TestReplacedInput(t *testing.T) {
	const side = 1100 // more than panelBytes
	folder := t.TempDir()
	for _, f := range []string{"m.npy", "m.safetensors", "m.npz"} {
		spec := filepath.Join(folder, f)
		l := gemm.Dense(dtype.F32, side, side)
		if err := Write(t.Context(), spec, l, fill(l), replace); err != nil {
			t.Fatal(err)
		}
		for _, change := range []struct {
			do   func() error
			want string
		}{
			{func() error {
				file, err := os.OpenFile(spec, os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				_, err = file.WriteAt(make([]byte, 4096), 2048)
				return errors.Join(err, file.Close(), os.Chtimes(spec, time.Time{}, time.Now().Add(time.Second)))
			}, "changed while it was used: modified at "},
			{func() error { return os.Truncate(spec, 100) }, "bytes and is now 100"},
			{func() error { return Write(t.Context(), spec, gemm.Dense(dtype.F32, 1, 1), alloc(4), replace) }, ""},
		} {
			if err := Write(t.Context(), spec, l, fill(l), replace); err != nil {
				t.Fatal(err)
			}
			m := mustRead(t, spec, ReadOptions{})
			if err := m.CheckUnchanged(); err != nil {
				t.Error(err)
			}
			if err := change.do(); err != nil {
				t.Fatal(err)
			}
			checkMatrix(t, m, dtype.F32, side, side, floatRule)
			if err := m.CheckUnchanged(); change.want != "" {
				checkError(t, err, ErrChanged, spec, change.want)
			} else if err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUnalignedElements reads elements whose offset is not a multiple of their size, and elements
// in the other byte order.
func TestUnalignedElements(t *testing.T) {
	const side = 600
	l := gemm.Dense(dtype.F32, side, side)
	data := fill(l)
	little := slices.Clone(data)
	if bigEndian {
		swapBytes(little, 4)
	}
	big := slices.Clone(little)
	swapBytes(big, 4)
	for _, c := range []struct {
		order    string
		spaces   int
		elements []byte
	}{{"<", 0, little}, {"<", 1, little}, {"<", 2, little}, {"<", 3, little}, {">", 0, big}, {">", 3, big}} {
		header := fmt.Sprintf("{'descr': '%sf4', 'fortran_order': True, 'shape': (%d, %d)}", c.order, side, side)
		spec := filepath.Join(t.TempDir(), "m.npy")
		if err := os.WriteFile(spec, []byte(npy(header+strings.Repeat(" ", c.spaces), 0)+string(c.elements)),
			0o600); err != nil {
			t.Fatal(err)
		}
		m := mustRead(t, spec, ReadOptions{})
		if len(dtype.View[float32](m.Data)) != side*side {
			t.Errorf("Data has %d bytes, want the bytes of the matrix only", len(m.Data))
		}
		checkMatrix(t, m, dtype.F32, side, side, func(i, j int) float64 { return floatRule(j, i) })
	}
}

func TestWriteRefuses(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "folder.npy"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec    string
		typ     dtype.Type
		kind    error
		message string
	}{
		{"c.py", dtype.F32, gemm.ErrUnsupported, "want one of .npy"},
		{"c", dtype.F32, gemm.ErrUnsupported, "want one of .npy"},
		{"c.npy", dtype.BF16, gemm.ErrUnsupported,
			"a .npy file cannot hold bfloat16, want float64, float32, float16, int8, uint8, int32 (bfloat16 goes to " +
				".safetensors, .mtx, .csv)"},
		{"c.npy.gz", dtype.F32, gemm.ErrUnsupported, "want one of .npy"},
		{"c.npz::x", dtype.BF16, gemm.ErrUnsupported, "a .npz file cannot hold bfloat16"},
		{"c.npy", dtype.F8E4M3, gemm.ErrUnsupported, "a .npy file cannot hold float8_e4m3fn"},
		{"c.npy::x", dtype.F32, ErrMember, "holds one matrix"},
		{"c.npz::", dtype.F32, ErrMember, "no name"},
		{"c.npz::\xff", dtype.F32, ErrMember, "not UTF-8"},
		{"c.safetensors::__metadata__", dtype.F32, ErrMember, "reserved"},
		{"folder.npy", dtype.F32, gemm.ErrUnsupported, "not a regular file"},
		{"none/c.npy", dtype.F32, fs.ErrNotExist, "none"},
	} {
		spec := filepath.Join(folder, c.spec)
		checkError(t, CheckOutput(spec, c.typ, replace), c.kind, folder, c.message)
		checkError(t, Write(t.Context(), spec, gemm.Dense(c.typ, 1, 1), alloc(8), replace), c.kind, folder, c.message)
	}
	spec := filepath.Join(folder, "c.npy")
	checkError(t, Write(t.Context(), spec, gemm.Dense(dtype.F32, 3, 4), alloc(47), replace), gemm.ErrShape, spec,
		"needs 48 bytes of memory, has 47")
	checkError(t, Write(t.Context(), spec, gemm.Layout{Type: dtype.F32, Rows: 3, Cols: 4, LD: 3}, alloc(48), replace),
		gemm.ErrShape, spec, "leading dimension 3")
	checkError(t, Write(t.Context(), spec, gemm.Layout{Rows: 3, Cols: 4, LD: 4}, alloc(48), replace),
		gemm.ErrUnsupported, spec, "no element type")
	checkNoLitter(t, folder, "folder.npy")
}

func TestCheckOutputLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	old := filepath.Join(folder, "old.npy")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range Formats() {
		for _, typ := range f.Types() {
			if err := CheckOutput(filepath.Join(folder, "new"+f.Ext), typ, replace); err != nil {
				t.Error(err)
			}
		}
	}
	if err := CheckOutput(old, dtype.F32, replace); err != nil {
		t.Error(err)
	}
	checkNoLitter(t, folder, "old.npy")
	if content, err := os.ReadFile(old); err != nil || string(content) != "old" {
		t.Errorf("the existing file now contains %q, error %v", content, err)
	}
}

// TestReplace checks that an existing file, even an empty one, is replaced only with Replace set.
func TestReplace(t *testing.T) {
	folder := t.TempDir()
	one := gemm.Dense(dtype.F32, 1, 1)
	for _, content := range []string{"old", ""} {
		for _, name := range []string{"c.npy", "c.npz::x", "c.safetensors", "c.mtx", "c.csv"} {
			spec := filepath.Join(folder, name)
			path, _, _ := strings.Cut(spec, "::")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			const want = "file already exists: name another file, or replace it with --force"
			checkError(t, CheckOutput(spec, dtype.Invalid, false), fs.ErrExist, path, want)
			checkError(t, Write(t.Context(), spec, one, alloc(4), false), fs.ErrExist, path, want)
			checkError(t, WriteFile(path, nil, false), fs.ErrExist, path, want)
			if now, err := os.ReadFile(path); err != nil || string(now) != content {
				t.Errorf("%s now contains %q, error %v", path, now, err)
			}
			if err := CheckOutput(spec, dtype.F32, replace); err != nil {
				t.Error(err)
			}
			if err := Write(t.Context(), spec, one, alloc(4), replace); err != nil {
				t.Error(err)
			}
		}
	}
	checkNoLitter(t, folder, "c.csv", "c.mtx", "c.npy", "c.npz", "c.safetensors")
}

// TestOtherArrays checks that an archive is replaced only if it holds no other arrays.
func TestOtherArrays(t *testing.T) {
	t.Chdir(t.TempDir())
	l := gemm.Dense(dtype.F32, 1, 1)
	for _, archive := range []string{"c.npz", "c.safetensors"} {
		for range 2 {
			if err := Write(t.Context(), archive+"::x", l, alloc(4), replace); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range []bool{false, true} {
			const want = `file already exists: it holds "x", which would be lost: name another file`
			checkError(t, CheckOutput(archive, dtype.F32, o), fs.ErrExist, archive, want)
			checkError(t, Write(t.Context(), archive+"::y", l, alloc(4), o), fs.ErrExist, archive+"::y", want)
		}
		mustRead(t, archive+"::x", ReadOptions{})
	}
	const want = `it holds "x", which would be lost`
	_, err := NewResult("c.safetensors::y", l, replace)
	checkError(t, err, fs.ErrExist, "c.safetensors", want)
	s, err := NewShared("c.safetensors::y", l, 1, replace)
	if err != nil {
		t.Fatal(err)
	}
	checkError(t, s.Create(), fs.ErrExist, "c.safetensors", want)
	checkNoLitter(t, ".", "c.npz", "c.safetensors")
}

// TestRowMajor checks the elements of matrices in all layouts, and that a context that has ended
// stops the copy. Rows without elements take no time.
func TestRowMajor(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tall := &Matrix{Layout: gemm.Dense(dtype.F32, math.MaxInt>>22, 0)}
	if l, data, err := tall.RowMajor(t.Context()); err != nil || l != tall.Layout || len(data) > 0 {
		t.Errorf("%v: got %v and %d bytes, error %v", tall.Layout, l, len(data), err)
	}
	for _, size := range [][2]int{{0, 3}, {67, 129}} {
		for name, l := range layouts(dtype.F32, size[0], size[1]) {
			m := &Matrix{Layout: l, Data: fill(l)}
			dense, data, err := m.RowMajor(t.Context())
			if want := gemm.Dense(dtype.F32, size[0], size[1]); err != nil || dense != want || len(data) != want.Bytes() {
				t.Fatalf("%v, %s: got %v and %d bytes, error %v", l, name, dense, len(data), err)
			}
			for i := range len(data) / 4 {
				if row, col := i/size[1], i%size[1]; dense.Type.At(data, i) != at(m, row, col) {
					t.Fatalf("%v, %s: element (%d, %d) is %v", l, name, row, col, dense.Type.At(data, i))
				}
			}
			if _, _, err := m.RowMajor(ended); len(data) > 0 && !errors.Is(err, context.Canceled) {
				t.Errorf("%v, %s: error %v after the context has ended", l, name, err)
			}
		}
	}
}

// TestWriteFails makes a write fail in the middle of the file. The existing file must stay
// unchanged and no other file may remain.
func TestWriteFails(t *testing.T) {
	folder := t.TempDir()
	spec := filepath.Join(folder, "c.csv")
	if err := os.WriteFile(spec, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	checkError(t, Write(t.Context(), spec, gemm.Dense(dtype.F32, 0, 3), nil, replace), gemm.ErrUnsupported, spec, "0×3")
	if content, err := os.ReadFile(spec); err != nil || string(content) != "old" {
		t.Errorf("the existing file now contains %q, error %v", content, err)
	}
	checkNoLitter(t, folder, "c.csv")

	// Every format must return the error of any of its writes.
	l := gemm.Dense(dtype.F32, 40, 40).T()
	data := fill(l)
	for _, f := range Formats() {
		whole := &limitedWriter{left: math.MaxInt}
		if err := f.write(whole, "c", l, data); err != nil {
			t.Fatal(err)
		}
		for _, left := range []int{0, 1, whole.wrote / 2, whole.wrote - 1} {
			if err := f.write(&limitedWriter{left: left}, "c", l, data); !errors.Is(err, errFull) {
				t.Errorf("%s with room for %d of %d bytes: got error %v", f.Ext, left, whole.wrote, err)
			}
		}
	}
}

var errFull = errors.New("full")

// limitedWriter fails after a number of bytes.
type limitedWriter struct{ left, wrote int }

func (w *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.left)
	w.left -= n
	w.wrote += n
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

func TestFormats(t *testing.T) {
	held := map[dtype.Type]bool{}
	for _, f := range Formats() {
		if f.Ext == "" || f.Doc == "" || strings.Contains(f.Doc, "\n") || f.read == nil || f.list == nil ||
			f.write == nil || f.size == nil || len(f.Types()) != len(f.spelling) {
			t.Errorf("%q: the Format lacks a field", f.Ext)
		}
		for _, typ := range f.Types() {
			held[typ] = true
		}
	}
	for _, typ := range dtype.All() {
		if !held[typ] {
			t.Errorf("no format can store %v", typ)
		}
	}
}

// TestWriteInterrupted checks that an interrupted write keeps the existing file and leaves no other
// file.
func TestWriteInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, f := range Formats() {
		folder := t.TempDir()
		path := filepath.Join(folder, "c"+f.Ext)
		if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
		l := gemm.Dense(dtype.F32, 200, 300)
		if err := Write(ctx, path, l, alloc(l.Bytes()), replace); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want context.Canceled", f.Ext, err)
		}
		entries, err := os.ReadDir(folder)
		if text, _ := os.ReadFile(path); err != nil || len(entries) != 1 || string(text) != "old" {
			t.Errorf("%s: folder contains %v, the file contains %q (%v)", f.Ext, entries, text, err)
		}
	}
}
