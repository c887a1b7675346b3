package matio

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tilework/dtype"
)

// TestMistakenFiles reads files that take the place of a matrix, in every format and without one,
// from the disk and from standard input. The error must name the content.
func TestMistakenFiles(t *testing.T) {
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("4d", 32) + "\nsize 12345\n"
	for content, want := range map[string]string{
		pointer: "the file is a Git LFS pointer to the matrix: get the matrix with git lfs pull",
		"\ufeff\r\n <!DOCTYPE HTML>\n<html><head>": "the file is an HTML page",
		"<html lang=en>": "the file is an HTML page",
		"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>": "the file is an XML document",
	} {
		for _, ext := range append(strings.Split(extensions(), ", "), "") {
			path := filepath.Join(t.TempDir(), "a"+ext)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Read(t.Context(), path, ReadOptions{CSV: CSV{Header: 1}})
			checkError(t, err, ErrFormat, path, want)
			_, err = List(t.Context(), path, ReadOptions{})
			checkError(t, err, ErrFormat, path, want)
			_, err = Read(t.Context(), "-"+ext, ReadOptions{Stdin: strings.NewReader(content)})
			checkError(t, err, ErrFormat, "standard input", want)
		}
	}
}

// TestContent reads files of every format without an extension, and refuses those with the
// extension of another format.
func TestContent(t *testing.T) {
	folder := t.TempDir()
	for _, c := range []struct {
		file, member string
		typ          dtype.Type
	}{
		{"version1.npy", "", dtype.F32}, {"several.npz", "::b", dtype.F64}, {"one.safetensors", "", dtype.F32},
		{"all.safetensors", "::layer.0.bf16", dtype.BF16}, {"array-real.mtx", "", dtype.F64}, {"comma.csv", "", dtype.F64},
	} {
		content, err := os.ReadFile("testdata/" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"matrix", "matrix.0", "dir::matrix"} {
			path := filepath.Join(folder, name)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			checkMatrix(t, mustRead(t, path+c.member, ReadOptions{}), c.typ, 3, 5, floatRule)
		}
		for _, f := range Formats() {
			path := filepath.Join(folder, "other"+f.Ext)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if ext := filepath.Ext(c.file); ext != ".csv" && ext != f.Ext {
				_, err := Read(t.Context(), path, ReadOptions{})
				checkError(t, err, ErrFormat, path, "the content is that of a "+ext+" file")
			}
		}
	}
}

// TestListedNames reads every array by the name that List gives it.
func TestListedNames(t *testing.T) {
	names := []string{"a", "a.npy", "", ".npy", "x::y", "w.npz::z", "new\nline", "b.npy"}
	var members []member
	var tensors []string
	for i, name := range names {
		content := npy("{'descr': '|i1', 'fortran_order': False, 'shape': (1, 1)}", 0) + string(rune(i))
		members = append(members, member{name: name + ".npy", content: content})
		tensors = append(tensors, tensorJSON(strings.ReplaceAll(name, "\n", `\n`), "I8", "[1,1]", i, i+1))
	}
	elements := "\x00\x01\x02\x03\x04\x05\x06\x07"
	for ext, content := range map[string]string{
		".npz":         archive(members...),
		".safetensors": safe("{"+strings.Join(tensors, ",")+"}", 0) + elements,
	} {
		path := filepath.Join(t.TempDir(), "all"+ext)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		entries, err := List(t.Context(), path, ReadOptions{})
		if err != nil || len(entries) != len(names) {
			t.Fatalf("%s: got %d entries, error %v", ext, len(entries), err)
		}
		for i, e := range entries {
			m := mustRead(t, e.Spec(path), ReadOptions{})
			if got := at(m, 0, 0); e.Member != names[i] || got != float64(i) {
				t.Errorf("%s: member %d is %q with the element %v, want %q", ext, i, e.Member, got, names[i])
			}
			m, err := Read(t.Context(), e.Spec("-"), ReadOptions{Stdin: strings.NewReader(content)})
			if err != nil || at(m, 0, 0) != float64(i) {
				t.Errorf("%s: member %q of standard input: error %v", ext, e.Member, err)
			}
		}
	}
	// The name of the file in the archive is accepted too.
	content := archive(member{name: "a.npy", content: npy(npyHeaderOf("(1, 1)"), 4)})
	if _, err := readBytes(".npz::a.npy", []byte(content), ReadOptions{}); err != nil {
		t.Error(err)
	}
}

// TestWrittenNames writes an array under each name and reads it by that name.
func TestWrittenNames(t *testing.T) {
	m := mustRead(t, "testdata/version1.npy", ReadOptions{})
	for _, ext := range []string{".npz", ".safetensors"} {
		for _, name := range []string{"a", "a.npy", "x::y"} {
			path := filepath.Join(t.TempDir(), "c"+ext)
			for range 2 { // the second replaces the same array
				if err := Write(t.Context(), path+"::"+name, m.Layout, m.Data, replace); err != nil {
					t.Fatal(err)
				}
			}
			entries, err := List(t.Context(), path, ReadOptions{})
			if err != nil || len(entries) != 1 || entries[0].Member != name {
				t.Errorf("%s::%s: got entries %v, error %v", path, name, entries, err)
			}
		}
	}
}

// TestExpansion reads matrices that are far larger than their files, with and without the option.
func TestExpansion(t *testing.T) {
	const side = 300 // float64 takes 720000 bytes, more than fuzzFloor
	zeros := npy("{'descr': '|i1', 'fortran_order': False, 'shape': (300, 300)}", 0) + strings.Repeat("\x00", side*side)
	for ext, content := range map[string]string{
		".npz": archive(member{name: "a.npy", content: zeros}),
		".mtx": "%%MatrixMarket matrix coordinate real general\n300 300 0\n",
	} {
		_, err := readBytes(ext, []byte(content), ReadOptions{Type: dtype.F64})
		checkError(t, err, ErrExpansion, "fuzzed"+ext, "300×300 float64 takes 720000 bytes, stored in ")
		m, err := readBytes(ext, []byte(content), ReadOptions{Type: dtype.F64, Expand: true})
		if err != nil {
			t.Fatal(err)
		}
		checkMatrix(t, m, dtype.F64, side, side, func(int, int) float64 { return 0 })
	}
	// Without the option, the floor of files is expansionFloor.
	_, err := Read(t.Context(), "-", ReadOptions{
		Stdin: strings.NewReader("%%MatrixMarket matrix coordinate real general\n5793 5793 0\n")})
	checkError(t, err, ErrExpansion, "standard input", "want at most 268435456 bytes or 64 times")
}

// TestExpandedInPieces checks that Room is asked again as a compressed member grows in memory.
func TestExpandedInPieces(t *testing.T) {
	content := archive(member{name: "a.npy", content: npy(npyHeaderOf("(1000, 1000)"), 4000000)})
	var asked []int
	s, err := bytesSource(".npz", []byte(content), ReadOptions{Expand: true, Room: func(bytes int, _ string) error {
		asked = append(asked, bytes)
		return nil
	}})
	if err == nil {
		_, err = s.read()
	}
	if err != nil || len(asked) < 3 || asked[0] != 4000000 || asked[len(asked)-1] != 4000000 || asked[1] > 1<<20 {
		t.Errorf("Room was asked for %v bytes, error %v", asked, err)
	}
}
