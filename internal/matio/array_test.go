package matio

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tilework/internal/gemm"
)

func TestArray(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npy")
	for _, want := range []Array{
		{"i8", []int{3}, []byte("abcdefghijklmnopqrstuvwx")},
		{"u2", []int{1, 2, 2}, []byte("abcdefgh")},
		{"b1", nil, []byte{1}},
		{"f4", []int{0, 7}, []byte{}},
	} {
		if err := os.WriteFile(path, want.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := ReadArray(t.Context(), path, ReadOptions{})
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("read %+v, %v, want %+v", got, err, want)
		}
	}
	for shape := "1, "; len(shape) < 150; shape += "1, " {
		if n := len(npyStart("<u2", shape)); n%64 != 0 {
			t.Errorf("elements of shape (%s) start at byte %d, want a multiple of 64", shape, n)
		}
	}
	for _, c := range []struct {
		text string
		says string
		err  error
	}{
		{string(npyStart("<u2", "2, ")) + "abc", "needs 4 bytes, the file has 3", ErrFormat},
		{string(npyStart("|O", "1, ")), `elements of type "|O"`, gemm.ErrUnsupported},
		{strings.Replace(string(npyStart("<u2", "2, 1, ")), "False", "True ", 1) + "abcd", "Fortran", gemm.ErrUnsupported},
		{string(npyStart("<f8", "4294967296, 4294967296, ")), "or more bytes", tooLarge()},
		{string(npyStart("<f8", "281474976710656, 4096, ")), "or more bytes", tooLarge()},
		{"text", "file starts with", ErrFormat},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := ReadArray(t.Context(), path, ReadOptions{})
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.40q: error %v, want %q", c.text, err, c.says)
		}
	}
	big := strings.Replace(string(npyStart("<u2", "2, ")), "<u2", ">u2", 1) + "badc"
	if err := os.WriteFile(path, []byte(big), 0o644); err != nil {
		t.Fatal(err)
	}
	if a, err := ReadArray(t.Context(), path, ReadOptions{}); err != nil || string(a.Data) != "abcd" {
		t.Errorf("a big-endian array is %v, %v", a, err)
	}
}
