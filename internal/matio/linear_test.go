package matio

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"tilework/internal/testkit"
)

// countingReader counts the bytes that are read.
type countingReader struct {
	io.ReaderAt
	read uint64
}

func (r *countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, off)
	r.read += uint64(n)
	return n, err
}

// work lists and reads content, whether it is valid or not. It returns the sum of the bytes that
// this reads and allocates.
func work(t *testing.T, ext, content string, o ReadOptions) uint64 {
	r := &countingReader{ReaderAt: strings.NewReader(content)}
	allocated := testkit.Allocated(func() {
		p := parseStream("x" + ext)
		s := newSource(t.Context(), p, o)
		s.r, s.size, s.floor = r, int64(len(content)), fuzzFloor
		if s.checkContent() != nil {
			return
		}
		s.format.list(s)
		s.read()
	})
	return r.read + allocated
}

// repeat returns a function that returns about n bytes: start, then copies of token, then end.
func repeat(start, token, end string) func(n int) string {
	return func(n int) string { return start + strings.Repeat(token, n/len(token)) + end }
}

// TestLinear checks for each kind of token that the bytes that are read and allocated grow with the
// length of the input. They would grow with its square if a parser went back, or copied its input,
// at each token.
func TestLinear(t *testing.T) {
	const mtx = "%%MatrixMarket matrix "
	header := func(start, token, end string) func(n int) string {
		text := repeat(start, token, end)
		return func(n int) string { return safe(text(n), 0) }
	}
	dict := func(start, token, end string) func(n int) string {
		text := repeat(start, token, end)
		return func(n int) string { return npy(text(min(n/32, npyMaxHeader-128)), 0) }
	}
	for _, c := range []struct {
		name, ext string
		content   func(n int) string
		o         ReadOptions
	}{
		{"numbers in a line", ".csv", repeat("", "1,", "1\n"), ReadOptions{}},
		{"lines", ".csv", repeat("", "1\n", ""), ReadOptions{}},
		{"long numbers", ".csv", repeat("", strings.Repeat("1", 4000)+"\n", ""), ReadOptions{}},
		{"empty fields", ".csv", repeat("1", ",", "\n"), ReadOptions{CSV: CSV{Missing: true}}},
		{"blank lines", ".csv", repeat("", "\n", "1"), ReadOptions{}},
		{"blanks", ".csv", repeat("", " ", "1"), ReadOptions{}},
		{"blanks between numbers", ".csv", repeat("1", " ", "1"), ReadOptions{}},
		{"numbers between blanks", ".csv", repeat("", "1 ", "\n"), ReadOptions{}},
		{"comments", ".csv", repeat("1\n", "#\n", "1"), ReadOptions{}},
		{"one comment", ".csv", repeat("1", "#", "\n1"), ReadOptions{}},
		{"quotes", ".csv", repeat("", `"`, ""), ReadOptions{}},
		{"quoted numbers", ".csv", repeat("", `"1",`, "1"), ReadOptions{}},
		{"decimal commas", ".csv", repeat("", "1,5;", "1"), ReadOptions{}},
		{"header lines", ".csv", repeat("", "x\n", "1"), ReadOptions{CSV: CSV{Header: 1 << 30}}},
		{"letters", ".csv", repeat("", "x", ""), ReadOptions{}},
		{"UTF-16", ".csv", repeat("\xff\xfe", "1\x00\n\x00", ""), ReadOptions{}},

		{"comments", ".mtx", repeat(mtx+"array real general\n", "%\n", "1 1\n1\n"), ReadOptions{}},
		{"blank lines", ".mtx", repeat(mtx+"array real general\n", "\n", "1 1\n1\n"), ReadOptions{}},
		{"numbers", ".mtx", func(n int) string {
			return fmt.Sprintf("%sarray real general\n%d 1\n", mtx, n/2) + strings.Repeat("1\n", n/2)
		}, ReadOptions{}},
		{"entries", ".mtx", func(n int) string {
			return fmt.Sprintf("%scoordinate real general\n2 2 %d\n", mtx, n/6) + strings.Repeat("1 1 1\n", n/6)
		}, ReadOptions{}},
		{"words", ".mtx", repeat(mtx, "x ", ""), ReadOptions{}},

		{"dimensions", ".npy", dict("{'descr': '<f4', 'fortran_order': False, 'shape': (", "1, ", ")}"), ReadOptions{}},
		{"blanks", ".npy", dict("{", " ", "'descr': '<f4'}"), ReadOptions{}},
		{"letters", ".npy", dict("{'", "x", "': 1}"), ReadOptions{}},
		{"keys", ".npy", dict("{", "'descr': '<f4', ", "}"), ReadOptions{}},
		{"open quotes", ".npy", dict("{", `"`, ""), ReadOptions{}},

		{"members", ".npz", func(n int) string {
			return zipOf(n/200, "%d.npy", npy(npyHeaderOf("(1, 1)"), 4))
		}, ReadOptions{}},
		{"other members", ".npz", func(n int) string { return zipOf(n/200, "%d.txt", "x") }, ReadOptions{}},
		{"members that share bytes", ".npz", func(n int) string {
			return sharedZip(min(n/60, math.MaxUint16))
		}, ReadOptions{}},

		{"tensors", ".safetensors", func(n int) string {
			var all []string
			for i := range n / 60 {
				all = append(all, tensorJSON(fmt.Sprint(i), "F32", "[0,1]", 0, 0))
			}
			return safe("{"+strings.Join(all, ",")+"}", 0)
		}, ReadOptions{}},
		{"dimensions", ".safetensors", header(`{"a":{"shape":[`, "1,", "1]}}"), ReadOptions{}},
		{"letters", ".safetensors", header(`{"`, "x", `":{}}`), ReadOptions{}},
		{"escapes", ".safetensors", header(`{"`, `\u0061`, `":{}}`), ReadOptions{}},
		{"blanks", ".safetensors", header(`{`, " ", `}`), ReadOptions{}},
		{"digits", ".safetensors", header(`{"a":{"shape":[`, "1", "]}}"), ReadOptions{}},
		{"metadata", ".safetensors", func(n int) string {
			var all []string
			for i := range n / 12 {
				all = append(all, fmt.Sprintf(`"%d":"x"`, i))
			}
			return safe(`{"__metadata__":{`+strings.Join(all, ",")+"}}", 0)
		}, ReadOptions{}},
		{"nested arrays", ".safetensors", header(`{"a":{"x":`, "[", ""), ReadOptions{}},
		{"nested objects", ".safetensors", header(`{"a":{"x":`, `{"":`, ""), ReadOptions{}},
		{"unknown keys", ".safetensors", header(`{"a":{`, `"x":1,`, `"y":2}}`), ReadOptions{}},

		{"streams of gzip", ".gz", func(n int) string { return strings.Repeat(compress("1\n"), n/26) }, ReadOptions{}},
	} {
		testkit.CheckLinear(t, c.ext+", "+c.name, testkit.Lengths(), 400, c.content,
			func(content string) uint64 { return work(t, c.ext, content, c.o) })
	}
}

// zipOf returns an archive of n members.
func zipOf(n int, name, content string) string {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := range n {
		f, err := w.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf(name, i), Method: zip.Store})
		if err != nil {
			panic(err)
		}
		io.WriteString(f, content)
	}
	w.Close()
	return b.String()
}

// sharedZip returns an archive whose directory has n entries for the same compressed bytes, those
// of an array with a long header.
func sharedZip(n int) string {
	header := npyHeaderOf("(1, 1)")
	one := archive(member{name: "000000.npy", content: npy(strings.Repeat(" ", 60_000)+header, 4)})
	start, end := strings.Index(one, "PK\x01\x02"), strings.LastIndex(one, "PK\x05\x06")
	entry, tail := one[start:end], []byte(one[end:])
	b := []byte(one[:start])
	for i := range n {
		b = append(b, strings.Replace(entry, "000000", fmt.Sprintf("%06d", i), 1)...)
	}
	binary.LittleEndian.PutUint16(tail[8:], uint16(n)) // entries, and the size of the directory
	binary.LittleEndian.PutUint16(tail[10:], uint16(n))
	binary.LittleEndian.PutUint32(tail[12:], uint32(len(b)-start))
	return string(append(b, tail...))
}
