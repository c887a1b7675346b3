package matio

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestOverflow checks finite numbers that become infinities in the requested type. In every format,
// the error gives their position, and Overflow accepts them. Infinities and NaNs are kept.
func TestOverflow(t *testing.T) {
	float64s := func(values ...float64) string {
		b := []byte{}
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return string(b)
	}
	const mtx = "%%MatrixMarket matrix array real general\n"
	elements := float64s(1, math.Inf(1), math.NaN(), -1e300)
	npyFile := npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }\n", 0) + elements
	file := map[string]string{
		".npy":         npyFile,
		".npz":         archive(member{name: "a.npy", content: npyFile}),
		".safetensors": safe("{"+tensorJSON("a", "F64", "[2,2]", 0, 32)+"}", 0) + elements,
		".mtx":         mtx + "2 2\n1\nnan\ninf\n-1e300\n",
		".csv":         "\n1,inf\nnan,-1e300\n",
	}
	large := map[dtype.Type]string{
		dtype.F32: "float32: want at most 3.4028234663852886e+38", dtype.F16: "float16: want at most 65504",
		dtype.BF16: "bfloat16: want at most 3.3895313892515355e+38", dtype.F8E5M2: "float8_e5m2: want at most 57344",
	}
	for _, f := range Formats() {
		for typ, text := range large {
			_, err := readBytes(f.Ext, []byte(file[f.Ext]), ReadOptions{Type: typ})
			value := map[string]string{".mtx": "-1e300 in line 6", ".csv": "-1e300 in line 3"}[f.Ext]
			checkError(t, err, ErrOverflow, f.Ext,
				"row 2, column 2: "+cmp.Or(value, "-1e+300")+" is too large for "+text)
			s, err := bytesSource(f.Ext, []byte(file[f.Ext]), ReadOptions{Type: typ, Overflow: func(error, int) {}})
			if err != nil {
				t.Fatal(err)
			}
			m, err := s.read()
			if err != nil {
				t.Fatal(err)
			}
			want := []float64{1, math.Inf(1), math.NaN(), math.Inf(-1)}
			checkMatrix(t, m, typ, 2, 2, func(i, j int) float64 { return want[2*i+j] })
			if s.overflows != 1 {
				t.Errorf("%s as %v: counted %d overflows, want 1", f.Ext, typ, s.overflows)
			}
		}
		// The largest numbers fit, as do numbers that round to them.
		if f.Ext == ".csv" {
			for typ, text := range map[dtype.Type]string{dtype.F32: "3.4028235677e38", dtype.F16: "65519",
				dtype.F8E4M3: "463", dtype.F64: "1.7976931348623157e308"} {
				if m, err := readBytes(f.Ext, []byte(text), ReadOptions{Type: typ}); err != nil ||
					at(m, 0, 0) != typ.Info().Max {
					t.Errorf("%s as %v: %v", text, typ, err)
				}
			}
		}
	}
	for _, c := range []struct {
		ext, content, message string
		typ                   dtype.Type
	}{
		{".csv", "1,1e400\n",
			"row 1, column 2: 1e400 in line 1 is too large for float64: want at most 1.7976931348623157e+308",
			dtype.Invalid},
		{".csv", "a\n\n1\n-1e39\n", "row 2, column 1: -1e39 in line 4 is too large for float32", dtype.F32},
		{".csv", "65520", "65520 in line 1 is too large for float16", dtype.F16},
		{".csv", "465", "465 in line 1 is too large for float8_e4m3fn: want at most 448", dtype.F8E4M3},
		{".csv", "inf", "inf in line 1 is too large for float8_e4m3fn", dtype.F8E4M3}, // the type has no infinity
		{".mtx", mtx + "1 1\n-1e400\n", "row 1, column 1: -1e400 in line 3", dtype.Invalid},
		{".mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n2 1 1e308\n2 1 1e308\n",
			"row 2, column 1: +Inf in line 4", dtype.Invalid},
	} {
		_, err := readBytes(c.ext, []byte(c.content),
			ReadOptions{Type: c.typ, CSV: CSV{Header: strings.Count(c.content[:1], "a")}})
		checkError(t, err, ErrOverflow, c.ext, c.message)
	}
}

// TestOverflowReported checks that Read reports the first number that is too large and their count.
func TestOverflowReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("1,1e39,2\n-1e40,1e41,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := 0
	mustRead(t, path, ReadOptions{Type: dtype.F32, Overflow: func(first error, count int) {
		calls++
		checkError(t, first, ErrOverflow, path, "row 1, column 2: 1e39 in line 1")
		if count != 3 {
			t.Errorf("reported %d numbers, want 3", count)
		}
	}})
	if calls != 1 {
		t.Errorf("Overflow was called %d times, want 1", calls)
	}
}

// TestForeign reads element types that matrices cannot have, with and without a conversion.
func TestForeign(t *testing.T) {
	bits := func(values ...uint64) []uint64 { return values }
	minus1 := ^uint64(0)
	for _, c := range []struct {
		npy, safetensors, name string
		elements               []uint64
		want                   []float64
	}{
		{"i8", "I64", "int64", bits(0, minus1, 1<<53, 1<<63), []float64{0, -1, 1 << 53, -1 << 63}},
		{"u8", "U64", "uint64", bits(0, 1, 1<<53, 1<<63), []float64{0, 1, 1 << 53, 1 << 63}},
		{"u4", "U32", "uint32", bits(0, 1, 2, math.MaxUint32), []float64{0, 1, 2, math.MaxUint32}},
		{"i2", "I16", "int16", bits(0, minus1, 2, 1<<15), []float64{0, -1, 2, -1 << 15}},
		{"u2", "U16", "uint16", bits(0, 1, 2, math.MaxUint16), []float64{0, 1, 2, math.MaxUint16}},
		{"b1", "BOOL", "bool", bits(0, 1, 0, 1), []float64{0, 1, 0, 1}},
	} {
		size := 1
		if c.npy[0] != 'b' {
			size = int(c.npy[1] - '0')
		}
		var little, big []byte
		for _, e := range c.elements {
			little = append(little, binary.LittleEndian.AppendUint64(nil, e)[:size]...)
			big = append(big, binary.BigEndian.AppendUint64(nil, e)[8-size:]...)
		}
		array := func(order string, elements []byte) string {
			return npy(fmt.Sprintf("{'descr': '%s%s', 'fortran_order': True, 'shape': (2, 2), }\n", order, c.npy),
				0) + string(elements)
		}
		for name, content := range map[string]string{
			"little.npy":          array("<", little),
			"big.npy":             array(">", big),
			"packed.npz":          archive(member{name: "a.npy", content: array("<", little)}),
			"tensors.safetensors": safe("{"+tensorJSON("a", c.safetensors, "[2,2]", 0, 4*size)+"}", 0) + string(little),
		} {
			ext := filepath.Ext(name)
			_, err := readBytes(ext, []byte(content), ReadOptions{})
			checkError(t, err, ErrNeedsType, ext, "elements of type "+c.name)
			m, err := readBytes(ext, []byte(content), ReadOptions{Type: dtype.F64})
			if err != nil {
				t.Errorf("%s of %s: %v", name, c.name, err)
				continue
			}
			checkMatrix(t, m, dtype.F64, 2, 2, func(i, j int) float64 {
				if ext == ".safetensors" {
					i, j = j, i
				}
				return c.want[2*j+i]
			})
			_, err = readBytes(ext, []byte(content), ReadOptions{Type: dtype.I8})
			if c.name == "bool" {
				if err != nil {
					t.Error(err)
				}
				continue
			}
			checkError(t, err, ErrRange, ext, "is out of range for int8: want an integer from -128 to 127")
		}
	}
	// The only matrix that needs no conversion is preferred to others in the archive.
	both := archive(
		member{name: "ids.npy", content: npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1, 1), }", 8)},
		member{name: "w.npy", content: npy(npyHeaderOf("(1, 2)"), 8)})
	m, err := readBytes(".npz", []byte(both), ReadOptions{})
	if err != nil || m.OpCols() != 2 {
		t.Errorf("got %v, error %v; want the matrix with two columns", m, err)
	}
}

// TestOneD reads 1-D arrays as rows or columns, like NumPy's matmul.
func TestOneD(t *testing.T) {
	for _, spec := range []string{"vector.npy", "bias.npz::bias", "bias.safetensors::bias",
		"all.safetensors::layer.0.bias"} {
		spec = "testdata/" + spec
		_, err := Read(t.Context(), spec, ReadOptions{})
		checkError(t, err, gemm.ErrUnsupported, spec, "array has shape (5,)")
		checkMatrix(t, mustRead(t, spec, ReadOptions{OneD: Row, Type: dtype.F64}), dtype.F64, 1, 5, floatRule)
		checkMatrix(t, mustRead(t, spec, ReadOptions{OneD: Column, Type: dtype.F64}), dtype.F64, 5, 1,
			func(i, _ int) float64 { return floatRule(0, i) })
	}
	// In an archive with a matrix, the 1-D array must be named.
	checkMatrix(t, mustRead(t, "testdata/bias.npz", ReadOptions{OneD: Column}), dtype.F32, 3, 5, floatRule)
}

// TestStdin reads files of every format from standard input and detects the format.
func TestStdin(t *testing.T) {
	for _, c := range []struct {
		file, spec string
		typ        dtype.Type
	}{
		{"version1.npy", "-", dtype.F32}, {"stored.npz", "-", dtype.F32}, {"several.npz", "-::b",
			dtype.F64}, {"one.safetensors", "-", dtype.F32},
		{"all.safetensors", "-::layer.0.bf16", dtype.BF16}, {"array-real.mtx", "-", dtype.F64}, {"comma.csv", "-",
			dtype.F64}, {"comma.csv", "-.csv", dtype.F64},
	} {
		content, err := os.ReadFile("testdata/" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Read(t.Context(), c.spec, ReadOptions{Stdin: bytes.NewReader(content)})
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		checkMatrix(t, m, c.typ, 3, 5, floatRule)
		if err := m.CheckUnchanged(); err != nil {
			t.Error(err)
		}
	}
	large := gemm.Dense(dtype.F64, 300, 300)
	var file bytes.Buffer
	if err := Encode(t.Context(), &file, "-", large, fill(large)); err != nil {
		t.Fatal(err)
	}
	m, err := Read(t.Context(), "-", ReadOptions{Stdin: &file})
	if err != nil {
		t.Fatal(err)
	}
	checkMatrix(t, m, dtype.F64, 300, 300, floatRule)

	for _, c := range []struct {
		spec, content, message string
		kind                   error
	}{
		{"-", "", "standard input: malformed: the file is empty", ErrFormat},
		{"-", "hello", "standard input: malformed: line 1, column 1", ErrFormat},
		{"-.npy", "1,2", "standard input.npy: malformed: file starts with", ErrFormat},
		{"-::w", "1,2", "standard input::w: member not found: a .csv file holds one matrix", ErrMember},
		{"-", archive(manyMembers(2)...), "want -::NAME", ErrMember},
	} {
		_, err := Read(t.Context(), c.spec, ReadOptions{Stdin: strings.NewReader(c.content)})
		if c.kind == ErrMember && strings.HasPrefix(c.content, "PK") {
			checkError(t, err, ErrMember, "standard input", "none of the file's arrays is a matrix")
			continue
		}
		checkError(t, err, c.kind, "standard input", c.message)
	}
	_, err = Read(t.Context(), "-", ReadOptions{})
	checkError(t, err, gemm.ErrUnsupported, "-", "want a file")
	full := errors.New("full")
	_, err = Read(t.Context(), "-", ReadOptions{Stdin: endless{}, Room: func(bytes int, what string) error {
		if bytes > 1<<20 {
			return full
		}
		return nil
	}})
	checkError(t, err, full, "", "")
	// Read returns when the context ends, even if no input arrives.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	in, out := io.Pipe()
	defer out.Close()
	if _, err := Read(ctx, "-", ReadOptions{Stdin: in}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reading without input: got error %v", err)
	}
}

// endless is a reader of text without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte("1"), len(b))), nil }

// TestStdout writes to standard output: .npy, or the format of the extension.
func TestStdout(t *testing.T) {
	l := gemm.Dense(dtype.F32, 3, 5)
	for _, f := range Formats() {
		for _, spec := range []string{"-", "-" + f.Ext} {
			var out bytes.Buffer
			if err := Encode(t.Context(), &out, spec, l, fill(l)); err != nil {
				t.Fatal(err)
			}
			want := f.Ext
			if spec == "-" {
				want = ".npy"
			}
			if got := recognise(out.Bytes()).Ext; got != want {
				t.Errorf("Encode for %s wrote %s, want %s", spec, got, want)
			}
		}
	}
	checkError(t, Write(t.Context(), "-", l, fill(l), false), gemm.ErrUnsupported, "-", "want a file")
	checkError(t, CheckOutput("-", dtype.BF16, false), gemm.ErrUnsupported, "-", "cannot hold bfloat16")
}

// TestChangedWhileRead changes a file between opening and reading it.
func TestChangedWhileRead(t *testing.T) {
	folder := t.TempDir()
	l := gemm.Dense(dtype.F64, 200, 200)
	for _, f := range Formats() {
		for name, c := range map[string]struct {
			change func(path string) error
			want   string
		}{
			"truncated": {func(path string) error { return os.Truncate(path, 3000) }, "bytes and is now 3000"},
			"longer": {func(path string) error {
				file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					return err
				}
				_, err = file.WriteString("1\n")
				return errors.Join(err, file.Close())
			}, "changed while it was used: size was"},
			"written to": {func(path string) error {
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				later := time.Now().Add(time.Second)
				return errors.Join(os.WriteFile(path, content, 0), os.Chtimes(path, later, later))
			}, "changed while it was used: modified at "},
		} {
			path := filepath.Join(folder, name+f.Ext)
			if err := Write(t.Context(), path, l, fill(l), replace); err != nil {
				t.Fatal(err)
			}
			_, err := Read(t.Context(), path, ReadOptions{Room: func(int, string) error { return c.change(path) }})
			checkError(t, err, ErrChanged, path, c.want)
		}
	}
}

func TestList(t *testing.T) {
	shape := func(n ...uint64) []uint64 { return n }
	for spec, want := range map[string][]Entry{
		"vector.npy": {{Type: "<f4", Shape: shape(5), Native: dtype.F32}},
		"object.npy": {{Type: "|O", Shape: shape(1, 2)}},
		"bias.npz": {{Member: "bias", Type: "<f4", Shape: shape(5), Native: dtype.F32, archive: true},
			{Member: "w", Type: "<f4", Shape: shape(3, 5), Native: dtype.F32, archive: true},
			{Member: "names", Type: "<U1", Shape: shape(1), archive: true}},
		"array-real.mtx":       {{Type: "text", Native: dtype.F64, Shape: shape(3, 5)}},
		"coordinate-twice.mtx": {{Type: "text", Native: dtype.F64, Shape: shape(3, 5)}},
		"tab.csv":              {{Type: "text", Native: dtype.F64, Shape: shape(3, 5)}},
	} {
		got, err := List(t.Context(), "testdata/"+spec, ReadOptions{})
		byName := func(a, b Entry) int { return strings.Compare(a.Member, b.Member) }
		slices.SortFunc(got, byName)
		slices.SortFunc(want, byName)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("List(%s) = %+v, error %v; want %+v", spec, got, err, want)
		}
	}
	got, err := List(t.Context(), "testdata/all.safetensors", ReadOptions{})
	if err != nil ||
		!slices.ContainsFunc(got, func(e Entry) bool { return e.Member == "layer.0.i64" && e.Type == "I64" }) {
		t.Errorf("got %+v, error %v; want an entry layer.0.i64 of type I64", got, err)
	}
	encrypted, err := bytesSource(".npz",
		[]byte(archive(manyMembers(1)[0], member{name: "x.npy", content: npy(npyHeaderOf("(1, 1)"), 4)})),
		ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err = encrypted.format.list(encrypted); err != nil || len(got) != 2 ||
		!errors.Is(got[0].Err, ErrFormat) || got[1].Err != nil {
		t.Errorf("got %+v, error %v; want an error in the first entry only", got, err)
	}
	_, err = List(t.Context(), "testdata/bias.npz::w", ReadOptions{})
	checkError(t, err, ErrMember, "bias.npz", "cannot list a member")
}

// TestOutputSize checks that the size of a written file is within the bounds of OutputSize.
func TestOutputSize(t *testing.T) {
	folder := t.TempDir()
	for _, f := range Formats() {
		for _, typ := range f.Types() {
			for _, size := range [][2]int{{1, 1}, {40, 70}} {
				l := gemm.Dense(typ, size[0], size[1])
				data := alloc(l.Bytes())
				for i := range l.Len() {
					typ.Set(data, i, -typ.Info().Max/float64(1+i%5))
				}
				path := filepath.Join(folder, "m"+f.Ext)
				least, most, in, err := OutputSize(path, l)
				if err := errors.Join(err, Write(t.Context(), path, l, data, replace)); err != nil {
					t.Fatal(err)
				}
				info, err := os.Stat(path)
				if err != nil || info.Size() < least || info.Size() > most || in != folder {
					t.Errorf("%v in a %s file: %d bytes, want %d to %d in folder %s, error %v", l, f.Ext, info.Size(),
						least, most, in, err)
				}
			}
		}
	}
}
