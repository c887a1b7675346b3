package matio

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tilework/dtype"
)

// TestVariants reads files that are valid but differ from those of common writers.
func TestVariants(t *testing.T) {
	small := float64(math.Float32frombits(0x01010101)) // the elements that npy and safe write
	mtx := "%%MatrixMarket matrix "
	for _, c := range []struct {
		name, ext, content string
		rows, cols         int
		want               []float64 // row after row
	}{
		{"keys in another order", ".npy", npy("{'shape': (1, 2), 'fortran_order': False, 'descr': '<f4'}", 8), 1, 2,
			[]float64{small, small}},
		{"much white space", ".npy",
			npy("\n{ \"descr\" :\t\"<f4\" ,\r\n'shape':( 1 , 2 , ) ,'fortran_order' : True }  ", 8), 1, 2,
			[]float64{small, small}},
		{"no white space", ".npy", npy("{'descr':'<f4','fortran_order':False,'shape':(1,2),}", 8), 1, 2,
			[]float64{small, small}},
		{"numbers of Python 2", ".npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 2L)}", 8), 1, 2,
			[]float64{small, small}},
		{"an array and a text file", ".npz",
			archive(member{name: "x.npy", content: npy(npyHeaderOf("(1, 2)"), 8)},
				member{name: "readme.txt", content: "x"}), 1, 2, []float64{small, small}},
		{"keys in another order, escaped name", ".safetensors",
			safe(`{"\u0061":{"data_offsets":[0,8],"shape":[1,2],"dtype":"F32"},"__metadata__":{"a":"b"}}   `, 8), 1, 2,
			[]float64{small, small}},
		{"capitals, comments, blank lines, tabs", ".mtx",
			strings.ToUpper(mtx+"coordinate real "+
				"general\n") + "% a\n\n%b\n 2\t2  2 \r\n\n1 \t1  +1.5e0\r\n%c\n2 2 -INFINITY", 2, 2,
			[]float64{1.5, 0, 0, math.Inf(-1)}},
		{"symmetric sums", ".mtx", mtx + "coordinate integer symmetric\n2 2 3\n2 1 3\n2 1 4\n1 1 1\n", 2, 2,
			[]float64{1, 7, 7, 0}},
		{"skew-symmetric and all zero", ".mtx", mtx + "array real skew-symmetric\n1 1\n", 1, 1, []float64{0}},
		{"integers beyond float64 are rounded", ".mtx", mtx + "array integer general\n1 1\n9007199254740993\n", 1, 1,
			[]float64{1 << 53}},
		{"no newline at the end", ".csv", "1,2\n3,4", 2, 2, []float64{1, 2, 3, 4}},
		{"blanks everywhere", ".csv", "\n \t \n 1 ,\t2\t\r\n\r\n\n3,4\n \n", 2, 2, []float64{1, 2, 3, 4}},
		{"tabs", ".csv", "1\t 2 \n\n3\t4\r\n", 2, 2, []float64{1, 2, 3, 4}},
		{"semicolons", ".csv", "1; 2 ;3\n4;5;6\n", 2, 3, []float64{1, 2, 3, 4, 5, 6}},
		{"blanks between numbers, as numpy.savetxt writes them", ".csv", "\n 1.0e+00  2 3 \r\n\n4 5 6  \n", 2, 3,
			[]float64{1, 2, 3, 4, 5, 6}},
		{"a blank between two numbers", ".csv", "1 2\n3 4\n", 2, 2, []float64{1, 2, 3, 4}},
		{"a column", ".csv", "1\n2 \n 3", 3, 1, []float64{1, 2, 3}},
		{"blank lines of tabs", ".csv", "\t\n1,2\n\t\t\n3,4\n", 2, 2, []float64{1, 2, 3, 4}},
		{"one number", ".csv", "5", 1, 1, []float64{5}},
		{"spellings", ".csv", "\xef\xbb\xbfNaN,+inf,-Infinity,1e308,.5,5.,-0,1E-400", 1, 8,
			[]float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e308, .5, 5, math.Copysign(0, -1), 0}},
	} {
		m, err := readBytes(c.ext, []byte(c.content), ReadOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		checkMatrix(t, m, m.Type, c.rows, c.cols, func(i, j int) float64 { return c.want[i*c.cols+j] })
	}
}

// TestLongLine reads a first line that is longer than the reader's buffer.
func TestLongLine(t *testing.T) {
	const cols = 50_000
	line := strings.Repeat("7,", cols-1) + "7\n"
	m, err := readBytes(".csv", []byte(line+line), ReadOptions{Type: dtype.I8})
	if err != nil {
		t.Fatal(err)
	}
	checkMatrix(t, m, dtype.I8, 2, cols, func(int, int) float64 { return 7 })
}

// TestGrowth reads a member with such a high compression ratio that its memory must grow.
func TestGrowth(t *testing.T) {
	const side = 1000
	content := archive(member{name: "a.npy", content: npy(npyHeaderOf("(1000, 1000)"), 4*side*side)})
	if len(content) > side*side/10 {
		t.Fatalf("member has %d compressed bytes, want fewer", len(content))
	}
	m, err := readBytes(".npz", []byte(content), ReadOptions{Expand: true})
	if err != nil {
		t.Fatal(err)
	}
	checkMatrix(t, m, dtype.F32, side, side,
		func(int, int) float64 { return float64(math.Float32frombits(0x01010101)) })
}

// TestTruncated truncates every file at every byte. Text can still be valid without the last digits
// or the last newline. Every truncated binary file must be rejected.
func TestTruncated(t *testing.T) {
	for _, f := range Formats() {
		files, err := filepath.Glob("testdata/*" + f.Ext)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s files: %v", f.Ext, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for n := range content {
				err := errOf(f.Ext, content[:n])
				if err == nil && f.Ext != ".csv" && f.Ext != ".mtx" {
					t.Errorf("reading the first %d bytes of %s succeeded, want an error", n, file)
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("the first %d bytes of %s: got error %q, want one line", n, file, err)
				}
			}
		}
	}
}

// failingReader fails at and after an offset, like a defective disk.
type failingReader struct {
	*bytes.Reader
	from int64
}

func (r failingReader) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > r.from {
		return 0, &fs.PathError{Op: "read", Path: "disk", Err: syscall.EIO}
	}
	return r.Reader.ReadAt(b, off)
}

// TestFailingReads checks that a read error at any offset is returned unchanged, not as ErrFormat.
func TestFailingReads(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string]int{}
	for _, file := range files {
		f := formatOf(file)
		if f == nil {
			continue // not a matrix file
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for from := range int64(len(content)) {
			s := &source{ctx: t.Context(), place: place{spec: file, path: file, format: f},
				r: failingReader{bytes.NewReader(content), from}, size: int64(len(content)), floor: fuzzFloor}
			if _, err := s.read(); errors.Is(err, syscall.EIO) {
				failed[f.Ext]++
			} else if errors.Is(err, ErrFormat) && !errors.Is(errOf(f.Ext, content), ErrFormat) {
				t.Fatalf("%s failing from byte %d: got error %v", file, from, err)
			}
		}
	}
	for _, f := range Formats() {
		if failed[f.Ext] == 0 {
			t.Errorf("no read of a %s file failed", f.Ext)
		}
	}
}

// errOf returns the error of reading content.
func errOf(ext string, content []byte) error {
	_, err := readBytes(ext, content, ReadOptions{})
	return err
}
