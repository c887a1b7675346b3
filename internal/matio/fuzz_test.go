package matio

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit"
)

// The fuzz targets, one for each format, list and read any bytes. They want no panic, an error
// of one line, at most a second and memory within a multiple of the input, plus a
// constant. A matrix that was read is written and read again. They start from the files in
// testdata and from the bad ones.

// Binary elements take their own size; the rest is for messages and for headers,
// whose tokens are garbage as soon as they are read.
func FuzzNpy(f *testing.F) { fuzz(f, ".npy", 2) }

// A deflated byte may stand for maxDeflate, and growing takes twice what came.
func FuzzNpz(f *testing.F) { fuzz(f, ".npz", 3*maxDeflate) }

func FuzzSafetensors(f *testing.F) { fuzz(f, ".safetensors", 2) }

// Coordinates may become fuzzFloor bytes, or denseRatio times the file.
func FuzzMatrixMarket(f *testing.F) { fuzz(f, ".mtx", denseRatio) }

// A digit and a comma become eight bytes.
func FuzzCSV(f *testing.F) { fuzz(f, ".csv", 4) }

// fuzzFloor stands for denseFloor, which is too much to take a thousand times a second.
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
			f.Add([]byte(bad.content), bad.o.Vector)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, vector bool) {
		var m *Matrix
		var err error
		checkMessage := func(err error) {
			t.Helper()
			if text := err.Error(); strings.ContainsAny(text, "\n\r") || !strings.HasPrefix(strings.TrimPrefix(text, `"`), "fuzzed"+ext) {
				t.Errorf("bad message %q", text)
			}
		}
		s, err := bytesSource(ext, content, ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		testkit.Cheap(t, len(content), most, func() { _, err = s.format.list(s) })
		if err != nil {
			checkMessage(err)
		}
		// A converted matrix may take 8 bytes for each of the file's.
		converted := ReadOptions{Type: dtype.F64, OneD: Column, Overflow: func(error, int) {}, CSV: CSV{Header: true}}
		testkit.Cheap(t, len(content), 8*most, func() { _, err = readBytes(ext, content, converted) })
		if err != nil {
			checkMessage(err)
		}
		testkit.Cheap(t, len(content), most, func() { m, err = readBytes(ext, content, ReadOptions{Vector: vector}) })
		if err != nil {
			checkMessage(err)
			return
		}
		if m.OpRows() == 0 || m.OpCols() == 0 {
			return // some formats cannot hold it
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

// bytesSource is a file that is only in memory.
func bytesSource(ext string, content []byte, o ReadOptions) (*source, error) {
	p, err := parseSpec("fuzzed" + ext)
	return &source{ctx: context.Background(), place: p, r: bytes.NewReader(content), size: int64(len(content)), opt: o, denseFloor: fuzzFloor}, err
}

// readBytes reads a file that is only in memory.
func readBytes(ext string, content []byte, o ReadOptions) (*Matrix, error) {
	s, err := bytesSource(ext, content, o)
	if err != nil {
		return nil, err
	}
	return s.read()
}
