package matio

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// utf16Text returns text in UTF-16 with a byte order mark.
func utf16Text(text string, big bool) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		low, high := byte(unit), byte(unit>>8)
		if big {
			low, high = high, low
		}
		b = append(b, low, high)
	}
	return string(b)
}

// textDialect is text as spreadsheets, statistics programs, C or Fortran write it.
type textDialect struct {
	name, ext, content string
	csv                CSV
	rows, cols         int
	want               []float64 // row after row
}

// textDialects returns text in every dialect.
func textDialects() []textDialect {
	nan := math.NaN()
	mtx := "%%MatrixMarket matrix "
	missing, header := CSV{Missing: true}, func(n int) CSV { return CSV{Header: n} }
	return []textDialect{
		{"decimal commas", ".csv", "1,5;-2,25\n3;4,0e1\n", CSV{}, 2, 2, []float64{1.5, -2.25, 3, 40}},
		{"decimal commas between tabs", ".tsv", "1,5\t-2,25\n3\t4\n", CSV{}, 2, 2, []float64{1.5, -2.25, 3, 4}},
		{"decimal commas in a column", ".csv", "1,5\n2\n", CSV{Delimiter: ';'}, 2, 1, []float64{1.5, 2}},
		{"commas in a .tsv file", ".tsv", "1,5\n3,4\n", CSV{}, 2, 2, []float64{1, 5, 3, 4}},
		{"comments", ".csv", "# a, b; c\n1,2 # three\n\n  #\n3,4#\n#", CSV{}, 2, 2, []float64{1, 2, 3, 4}},
		{"comments between blanks", ".txt", " # 1\n 1 2# 3\n3  4 \t#5\n", CSV{}, 2, 2, []float64{1, 2, 3, 4}},
		{"long comment", ".csv", "1,2 #" + strings.Repeat("#x\",;", 40_000) + "\n3,4\n", CSV{}, 2, 2,
			[]float64{1, 2, 3, 4}},
		{"three header lines", ".csv", "\na\n\n# b\nc,d,e\n1,2\n", header(3), 1, 2, []float64{1, 2}},
		{"long header line", ".csv", strings.Repeat("a,", 100_000) + "\n1,2\n", header(1), 1, 2, []float64{1, 2}},
		{"quotes", ".csv", "\"1\", \"2.5\" ,3\n4,\" 5 \",\"6\"\r\n", CSV{}, 2, 3, []float64{1, 2.5, 3, 4, 5, 6}},
		{"quoted decimal commas", ".csv", "\"1,5\";\"2,5\"\n", CSV{}, 1, 2, []float64{1.5, 2.5}},
		{"quotes between blanks", ".csv", "\"1\" \"2\"\n3 4\n", CSV{}, 2, 2, []float64{1, 2, 3, 4}},
		{"trailing delimiters", ".csv", "1,2,\n3,4, \n5,6\n", CSV{}, 3, 2, []float64{1, 2, 3, 4, 5, 6}},
		{"trailing tabs", ".csv", "1\t2\t\n3\t4\t\r\n", CSV{}, 2, 2, []float64{1, 2, 3, 4}},
		{"trailing delimiter of one column", ".csv", "1;\n2;\n", CSV{}, 2, 1, []float64{1, 2}},
		{"trailing delimiter before a comment", ".csv", "1;2;#\n3;4;# x\n", CSV{}, 2, 2, []float64{1, 2, 3, 4}},
		{"missing numbers", ".csv", "1,,NA\n\"\",\"NA\",2\n ,3,\n", missing, 3, 3,
			[]float64{1, nan, nan, nan, nan, 2, nan, 3, nan}},
		{"missing numbers between tabs", ".tsv", "1\t\n\t\n\t2", missing, 3, 2, []float64{1, nan, nan, nan, nan, 2}},
		{"signs of NaN", ".csv", "-nan,+NaN,nan\n", CSV{}, 1, 3, []float64{nan, nan, nan}},
		{"exponents of Fortran", ".dat", " 0.15D+01 -2d0\n", CSV{}, 1, 2, []float64{1.5, -2}},
		{"UTF-16, little-endian", ".csv", utf16Text("é,😀\r\n1,2\r\n3,4\r\n", false), header(1), 2, 2,
			[]float64{1, 2, 3, 4}},
		{"UTF-16, big-endian", ".txt", utf16Text("1 2\n3 4", true), CSV{}, 2, 2, []float64{1, 2, 3, 4}},
		{"UTF-16", ".mtx", utf16Text(mtx+"array real general\n1 1\n5\n", false), CSV{}, 1, 1, []float64{5}},

		{"exponents of Fortran", ".mtx", mtx + "array real general\n2 1\n1.5D+00\n-2d+1\n", CSV{}, 2, 1,
			[]float64{1.5, -20}},
		{"one percent sign", ".mtx", "%MatrixMarket matrix array real general\n%c\n1 1\n5\n", CSV{}, 1, 1, []float64{5}},
		{"double", ".mtx", mtx + "array double general\n1 1\n1.5\n", CSV{}, 1, 1, []float64{1.5}},
		{"unsigned integers", ".mtx", mtx + "coordinate unsigned-integer general\n1 2 1\n1 2 7\n", CSV{}, 1, 2,
			[]float64{0, 7}},
		{"upper triangle", ".mtx", mtx + "coordinate real symmetric\n2 2 2\n1 2 3\n2 2 4\n", CSV{}, 2, 2,
			[]float64{0, 3, 3, 4}},
		{"upper triangle", ".mtx", mtx + "coordinate real skew-symmetric\n2 2 1\n1 2 3\n", CSV{}, 2, 2,
			[]float64{0, 3, -3, 0}},
	}
}

func TestTextDialects(t *testing.T) {
	for _, c := range textDialects() {
		m, err := readBytes(c.ext, []byte(c.content), ReadOptions{CSV: c.csv})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		checkMatrix(t, m, dtype.F64, c.rows, c.cols, func(i, j int) float64 { return c.want[i*c.cols+j] })
		s, err := bytesSource(c.ext, []byte(c.content), ReadOptions{CSV: c.csv})
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.format.list(s)
		if err != nil || all[0].Shape[0] != uint64(c.rows) || all[0].Shape[1] != uint64(c.cols) {
			t.Errorf("%s: listed %+v, error %v", c.name, all, err)
		}
	}
}

// TestTextNames writes and reads text under its other names, with the delimiters of those.
func TestTextNames(t *testing.T) {
	l := gemm.Dense(dtype.F32, 2, 2)
	for name, want := range map[string]string{"c.tsv": "0\t1\n2\t3\n", "c.txt": "0 1\n2 3\n", "c.DAT": "0 1\n2 3\n"} {
		path := filepath.Join(t.TempDir(), name)
		data := alloc(l.Bytes())
		for i := range l.Len() {
			l.Type.Set(data, i, float64(i))
		}
		if err := Write(t.Context(), path, l, data, replace); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds %q, error %v; want %q", name, got, err, want)
		}
		checkMatrix(t, mustRead(t, path, ReadOptions{Type: l.Type}), l.Type, 2, 2,
			func(i, j int) float64 { return float64(2*i + j) })
	}
}

// TestNpyDialects reads spellings of types that NumPy reads, and types of ml_dtypes.
func TestNpyDialects(t *testing.T) {
	for _, c := range []struct {
		descr string
		size  int
		o     ReadOptions
		typ   dtype.Type
	}{
		{"f8", 8, ReadOptions{}, dtype.F64}, {"=f8", 8, ReadOptions{}, dtype.F64},
		{"|f8", 8, ReadOptions{}, dtype.F64}, {"<d", 8, ReadOptions{}, dtype.F64},
		{"<f", 4, ReadOptions{}, dtype.F32}, {"<e", 2, ReadOptions{}, dtype.F16},
		{"b", 1, ReadOptions{}, dtype.I8}, {"=i4", 4, ReadOptions{}, dtype.I32},
		{"?", 1, ReadOptions{Type: dtype.I8}, dtype.I8}, {"<q", 8, ReadOptions{Type: dtype.F64}, dtype.F64},
		{"<V2", 2, ReadOptions{}, dtype.BF16}, {"|V2", 2, ReadOptions{}, dtype.BF16},
		{"bfloat16", 2, ReadOptions{}, dtype.BF16}, {"<f1", 1, ReadOptions{}, dtype.F8E5M2},
		{"float8_e4m3fn", 1, ReadOptions{}, dtype.F8E4M3},
		{"<V1", 1, ReadOptions{Type: dtype.F8E4M3}, dtype.F8E4M3},
		{"|V1", 1, ReadOptions{Type: dtype.F8E5M2}, dtype.F8E5M2},
	} {
		content := npy("{'descr': '"+c.descr+"', 'fortran_order': False, 'shape': (1, 1)}", 0)
		data := alloc(8)
		if c.typ.Set(data, 0, 1); strings.HasSuffix(c.descr, "q") {
			binary.NativeEndian.PutUint64(data, 1)
		}
		m, err := readBytes(".npy", append([]byte(content), data[:c.size]...), c.o)
		if err != nil {
			t.Errorf("%s: %v", c.descr, err)
			continue
		}
		checkMatrix(t, m, c.typ, 1, 1, func(int, int) float64 { return 1 })
	}
	for file, typ := range map[string]dtype.Type{"bf16": dtype.BF16, "e4m3": dtype.F8E4M3, "e5m2": dtype.F8E5M2} {
		m := mustRead(t, "testdata/"+file+".npy", ReadOptions{Type: typ})
		checkMatrix(t, m, typ, 3, 5, func(i, j int) float64 { return typ.Round(floatRule(i, j)) })
	}
	checkMatrix(t, mustRead(t, "testdata/bf16.npy", ReadOptions{}), dtype.BF16, 3, 5, floatRule)
	_, err := Read(t.Context(), "testdata/e4m3.npy", ReadOptions{Type: dtype.F32})
	checkError(t, err, gemm.ErrUnsupported, "e4m3.npy", `"<V1", which can be float8_e4m3fn or float8_e5m2`)
}

// TestUnknownKeys ignores unknown keys of a tensor with values of any kind.
func TestUnknownKeys(t *testing.T) {
	for _, value := range []string{"1", "null", `"x"`, "[]", "{}", `[{"shape":[1]},[2,"]"]]`, `{"dtype":{"a":[1]}}`} {
		header := `{"a":{"x":` + value + `,"dtype":"F32","x":true,"shape":[1,1],"data_offsets":[0,4],"y":` + value + `}}`
		if m, err := readBytes(".safetensors", []byte(safe(header, 4)), ReadOptions{}); err != nil || m.Type != dtype.F32 {
			t.Errorf("%s: got %v, error %v", header, m, err)
		}
		_, err := readBytes(".safetensors", []byte(safe(`{"a":{"x":`+value+`,"dtype":"F32"}}`, 4)), ReadOptions{})
		checkError(t, err, ErrFormat, ".safetensors", "want dtype, shape and two data_offsets")
	}
	for _, cut := range []string{`{"a":{"x":[1`, `{"a":{"x":[1}`, `{"a":{"x":`} {
		_, err := readBytes(".safetensors", []byte(safe(cut, 4)), ReadOptions{})
		checkError(t, err, ErrFormat, ".safetensors", "header at byte")
	}
}

// compress returns content as gzip compresses it.
func compress(content string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(content))
	w.Close()
	return b.String()
}

// TestGzip reads files that gzip has compressed, by any name that ends in .gz.
func TestGzip(t *testing.T) {
	checkMatrix(t, mustRead(t, "testdata/f32.npy.gz", ReadOptions{Map: 1}), dtype.F32, 3, 5, floatRule)
	checkMatrix(t, mustRead(t, "testdata/coordinate-real.mtx.gz", ReadOptions{}), dtype.F64, 3, 5, floatRule)
	if all, err := List(t.Context(), "testdata/f32.npy.gz", ReadOptions{}); err != nil || all[0].Type != "<f4" {
		t.Errorf("listed %+v, error %v", all, err)
	}
	decode := func(content string, o ReadOptions) (*Matrix, error) {
		s := newSource(t.Context(), parseStream("a.gz"), o)
		s.floor = fuzzFloor
		return s.decode(strings.NewReader(content))
	}
	for _, content := range []string{compress("1,2\n"), compress("1,") + compress("2\n")} {
		m, err := decode(content, ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkMatrix(t, m, dtype.F64, 1, 2, func(_, j int) float64 { return float64(j + 1) })
	}

	one := compress("1,2\n3,4\n")
	for n := range len(one) {
		if _, err := decode(one[:n], ReadOptions{}); !errors.Is(err, ErrFormat) && n > 1 {
			t.Errorf("%d of %d bytes: got error %v, want ErrFormat", n, len(one), err)
		}
	}
	damaged := []byte(one)
	damaged[len(damaged)-5] ^= 1 // in the checksum
	_, err := decode(string(damaged), ReadOptions{})
	checkError(t, err, ErrFormat, "a.gz", "checksum")
	_, err = decode(compress(""), ReadOptions{})
	checkError(t, err, ErrFormat, "a.gz", "empty")
	_, err = decode(compress(one), ReadOptions{})
	checkError(t, err, gemm.ErrUnsupported, "a.gz", "want .npy")
	_, err = readBytes(".csv", []byte(one), ReadOptions{})
	checkError(t, err, ErrFormat, ".csv", "compressed by gzip: want a name that ends in .gz")

	large := compress(strings.Repeat("1\n", fuzzFloor))
	took := testkit.Allocated(func() { _, err = decode(large, ReadOptions{}) })
	checkError(t, err, ErrExpansion, "a.gz", "more than 262144 bytes, compressed to")
	if took > 5*fuzzFloor {
		t.Errorf("refusing took %d bytes, want at most %d", took, 5*fuzzFloor)
	}
	if m, err := decode(large, ReadOptions{Expand: true}); err != nil || m.OpRows() != fuzzFloor {
		t.Errorf("got %v, error %v; want %d rows", m, err, fuzzFloor)
	}
	full := errors.New("full")
	_, err = decode(large, ReadOptions{Expand: true, Room: func(bytes int, _ string) error {
		if bytes > fuzzFloor {
			return full
		}
		return nil
	}})
	checkError(t, err, full, "", "")
}
