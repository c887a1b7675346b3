package matio

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit"
)

// The fuzz targets, one per format, list and read arbitrary bytes. They check that nothing panics,
// that errors are one line, and that the memory of a read is at most a multiple of the input plus a
// constant. A matrix that can be read is written and read again. The seeds are the files in
// testdata and badFiles.

// FuzzNpy allows twice the input: once for the elements, and once for messages and for the tokens
// of the header, which become garbage immediately.
func FuzzNpy(f *testing.F) { fuzz(f, ".npy", 2) }

// FuzzNpz allows three times the limit for compressed members, because growing a buffer keeps the
// old one while it copies.
func FuzzNpz(f *testing.F) { fuzz(f, ".npz", 3*expansionRatio) }

func FuzzSafetensors(f *testing.F) { fuzz(f, ".safetensors", 2) }

// FuzzMatrixMarket allows the limit for coordinate files, expansionRatio times the file.
func FuzzMatrixMarket(f *testing.F) { fuzz(f, ".mtx", expansionRatio) }

// FuzzCSV allows four times the input, because two bytes of text can become eight bytes of float64.
func FuzzCSV(f *testing.F) { fuzz(f, ".csv", 4) }

// FuzzStream decodes arbitrary bytes from a stream, in the format of their content or of a spec. It
// allows the limit of FuzzNpz, and checks that a matrix is that of a file with the same content.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, "")
		f.Add(content, "x"+filepath.Ext(file)+"::w")
	}
	f.Fuzz(func(t *testing.T, content []byte, spec string) {
		var m *Matrix
		var err error
		s := newSource(t.Context(), parseStream(spec), ReadOptions{})
		s.floor = fuzzFloor
		testkit.CheckCost(t, len(content), 3*expansionRatio, func() { m, err = s.decode(bytes.NewReader(content)) })
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("got error %q, want one line", err)
			}
			return
		}
		want, err := readBytes(s.format.Ext, s.spooled, ReadOptions{}) // inflated, if it was compressed
		if err != nil && !errors.Is(err, ErrMember) {                  // the spec may name one of several arrays
			t.Fatal(err)
		}
		if err == nil && s.member == "" {
			checkMatrix(t, m, want.Type, want.OpRows(), want.OpCols(), func(i, j int) float64 { return at(want, i, j) })
		}
	})
}

// fuzzFloor replaces expansionFloor, which is too much memory for a fuzz target.
const fuzzFloor = 1 << 18

func fuzz(f *testing.F, ext string, most uint64) {
	files, err := filepath.Glob("testdata/*" + ext)
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, false)
		f.Add(content, true)
	}
	for _, bad := range badFiles {
		if strings.HasPrefix(bad.ext, ext) && len(bad.content) < 1<<14 {
			f.Add([]byte(bad.content), bad.o.OneD == Vector)
		}
	}
	for _, d := range textDialects() {
		if formatOf(d.ext) == formatOf(ext) || len(formatOf(ext).also) > 0 && d.ext != ".mtx" {
			f.Add([]byte(d.content), false)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, vector bool) {
		var m *Matrix
		var err error
		checkMessage := func(err error) {
			t.Helper()
			if text := err.Error(); strings.ContainsAny(text, "\n\r") ||
				!strings.HasPrefix(strings.TrimPrefix(text, `"`), "fuzzed"+ext) {
				t.Errorf("got error %q, want one line that starts with the file name", text)
			}
		}
		testkit.CheckCost(t, len(content), most, func() {
			var s *source
			if s, err = bytesSource(ext, content, ReadOptions{}); err == nil {
				_, err = s.format.list(s)
			}
		})
		if err != nil {
			checkMessage(err)
		}
		// A converted matrix takes up to 8 bytes per byte of the file.
		converted := ReadOptions{Type: dtype.F64, OneD: Column, Overflow: func(error, int) {},
			CSV: CSV{Header: 1, Missing: true}}
		testkit.CheckCost(t, len(content), 8*most, func() { _, err = readBytes(ext, content, converted) })
		if err != nil {
			checkMessage(err)
		}
		oneD := map[bool]OneD{true: Vector}[vector]
		testkit.CheckCost(t, len(content), most, func() { m, err = readBytes(ext, content, ReadOptions{OneD: oneD}) })
		if err != nil {
			checkMessage(err)
			return
		}
		if m.OpRows() == 0 || m.OpCols() == 0 || !slices.Contains(formatOf(ext).Types(), m.Type) {
			return // some formats cannot store the matrix
		}
		var written bytes.Buffer
		if err := formatOf(ext).write(&written, defaultMember, m.Layout, m.Data); err != nil {
			t.Fatal(err)
		}
		again, err := readBytes(ext, written.Bytes(), ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkMatrix(t, again, m.Type, m.OpRows(), m.OpCols(), func(i, j int) float64 { return at(m, i, j) })
	})
}

// bytesSource returns a source that reads content from memory.
func bytesSource(ext string, content []byte, o ReadOptions) (*source, error) {
	p, err := parseSpec("fuzzed" + ext)
	if err != nil {
		return nil, err
	}
	s := &source{ctx: context.Background(), place: p, r: bytes.NewReader(content), size: int64(len(content)), opt: o,
		floor: fuzzFloor}
	return s, s.checkContent()
}

// readBytes reads a matrix from content in memory.
func readBytes(ext string, content []byte, o ReadOptions) (*Matrix, error) {
	s, err := bytesSource(ext, content, o)
	if err != nil {
		return nil, err
	}
	return s.read()
}
