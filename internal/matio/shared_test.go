package matio

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestShared writes a matrix in parts, by rows and by columns, from several files as from several
// processes. The file must appear with Commit, with the bytes that Write writes.
func TestShared(t *testing.T) {
	t.Chdir(t.TempDir())
	l := gemm.Dense(dtype.F32, 300, 70)
	data := make([]byte, l.Bytes())
	for i := range l.Len() {
		l.Type.Set(data, i, float64(i))
	}
	for _, spec := range []string{"c.npy", "c.safetensors", "d.safetensors::w"} {
		if err := Write(t.Context(), spec, l, data, true); err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(spec, "::")
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(path, []byte("old"), 0o640), os.Chmod(path, 0o640)); err != nil {
			t.Fatal(err)
		}
		for _, areas := range [][]gemm.Area{
			{{Rows: 100, Cols: 70}, {Row: 100, Rows: 200, Cols: 70}, {Row: 300, Cols: 70}},
			{{Rows: 300, Cols: 1}, {Col: 1, Rows: 300, Cols: 69}},
		} {
			all := make([]*Shared, len(areas))
			for i, a := range areas {
				if all[i], err = NewShared(spec, l, 1, true); err != nil {
					t.Fatal(err)
				}
				defer all[i].Discard()
				if i == 0 {
					err = all[i].Create()
				} else {
					err = all[i].Open()
				}
				if err != nil {
					t.Fatal(err)
				}
				part := make([]byte, 0, a.Rows*a.Cols*4)
				for row := a.Row; row < a.Row+a.Rows; row++ {
					part = append(part, data[4*l.Index(row, a.Col):][:4*a.Cols]...)
				}
				if err := errors.Join(all[i].Write(t.Context(), a, part), all[i].Close()); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || len(got) != 3 && !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes before Commit, error %v", spec, len(got), err)
			}
			if err := all[0].Commit(); err != nil {
				t.Error(err)
			}
			for _, s := range all {
				s.Discard()
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s in %v: other bytes than those of Write, error %v", spec, areas, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("%s: permissions %v, error %v", spec, info.Mode(), err)
			}
		}
	}
}

// TestSharedFails checks the errors of shared files, and that Discard of any process removes the
// temporary file.
func TestSharedFails(t *testing.T) {
	t.Chdir(t.TempDir())
	l := gemm.Dense(dtype.F32, 3, 4)
	for spec, want := range map[string]string{
		"c.csv": "several processes cannot write it together: want a file of .npy or .safetensors", "-": "together",
		"c.npz": "together", "c.xyz": "extension",
	} {
		if _, err := NewShared(spec, l, 1, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", spec, err, want)
		}
	}
	shared := func(spec string) *Shared {
		s, err := NewShared(spec, l, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	err := shared("c.npy").Open()
	if err == nil || !strings.Contains(err.Error(), "want a shared file system") {
		t.Errorf("not created: error %v", err)
	}
	if err := shared("none/c.npy").Create(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: error %v", err)
	}
	first, second := shared("c.npy"), shared("c.npy")
	if err := errors.Join(first.Create(), second.Open()); err != nil {
		t.Fatal(err)
	}
	if err := shared("c.npy").Create(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created twice: error %v", err)
	}
	second.Discard()
	left, err := os.ReadDir(".")
	if err != nil || len(left) > 0 {
		t.Errorf("files after Discard: %v, %v", left, err)
	}
	first.Discard()
	if err := os.WriteFile("c.npy", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := shared("c.npy").Create(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing file: error %v", err)
	}
}

// TestSharedLink puts a link and other things in the place of the temporary file that another
// process has created. Open must refuse them and leave the file alone that a link names.
func TestSharedLink(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("other", []byte("old"), 0o644), os.Mkdir("folder", 0o755)); err != nil {
		t.Fatal(err)
	}
	l := gemm.Dense(dtype.F32, 3, 4)
	for _, target := range []string{"other", "missing", "folder", "."} {
		s, err := NewShared("folder/c.npy", l, 0xabc, false)
		if err != nil {
			t.Fatal(err)
		}
		name := "folder/.tilework-0000000000000abc.tmp"
		if target == "." {
			err = os.Mkdir(name, 0o755)
		} else {
			err = os.Symlink("../"+target, name)
		}
		if err != nil {
			t.Skip(err) // a system without links
		}
		if err := s.Open(); err == nil || !strings.Contains(err.Error(), "folder/c.npy") {
			t.Errorf("%s: error %v, want one that names folder/c.npy", target, err)
			_ = s.Write(t.Context(), gemm.Area{Rows: 3, Cols: 4}, make([]byte, l.Bytes()))
		}
		if err := s.Create(); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: created, error %v", target, err)
		}
		s.Discard()
		if content, err := os.ReadFile("other"); err != nil || string(content) != "old" {
			t.Errorf("%s: the other file holds %q, error %v", target, content, err)
		}
		if _, err := os.Lstat("missing"); err == nil {
			t.Errorf("%s: the target of the link was created", target)
		}
		os.Remove(name)
	}
}
