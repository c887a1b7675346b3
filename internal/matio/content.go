package matio

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"

	"tilework/internal/gemm"
)

// headBytes is the number of bytes at the start of a file that identify its content.
const headBytes = 512

// mistaken lists files that take the place of a matrix after a failed download, by the text that
// they start with, in lower case.
var mistaken = []struct{ start, what string }{
	{"version https://git-lfs.github.com/spec/", "a Git LFS pointer to the matrix: get the matrix with git lfs pull"},
	{"<!doctype html", "an HTML page: want the file to which the page may link"},
	{"<html", "an HTML page: want the file to which the page may link"},
	{"<?xml", "an XML document, such as the error of a download: want a matrix"},
}

// checkContent selects the format by the first bytes of the file unless the name does. It returns
// an error if they show that the file is no matrix, or one of another format.
func (s *source) checkContent() error {
	if s.size == 0 {
		return s.fail(ErrFormat, "the file is empty")
	}
	head := make([]byte, min(headBytes, s.size))
	if _, err := io.ReadFull(s.section(0, s.size), head); err != nil {
		return s.readError(err)
	}
	text := strings.ToLower(string(bytes.TrimLeft(bytes.TrimPrefix(head, []byte(utf8Mark)), blanks)))
	for _, m := range mistaken {
		if strings.HasPrefix(text, m.start) {
			return s.fail(ErrFormat, "the file is %s", m.what)
		}
	}
	found := recognise(head)
	switch {
	case s.format == nil && found == nil:
		return s.fail(gemm.ErrUnsupported, "the file starts with %s: want %s", shorten(head), extensions())
	case s.format == nil:
		s.format = found
		return s.checkMember()
	case found != nil && found.signed && found != s.format:
		return s.fail(ErrFormat, "the content is that of a %s file: want a name that ends in %s", found.Ext, found.Ext)
	}
	return nil
}

// recognise returns the format of a file from its first bytes. It returns nil for bytes that no
// format starts with. Text without a known prefix is CSV.
func recognise(content []byte) *Format {
	head := content[:min(headBytes, len(content))]
	ext := ".csv"
	switch {
	case bytes.HasPrefix(head, []byte(npyMagic)):
		ext = ".npy"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		ext = ".npz"
	case bytes.HasPrefix(bytes.ToLower(head), []byte("%%matrixmarket")):
		ext = ".mtx"
	case len(head) > 8 && binary.LittleEndian.Uint64(head) <= safetensorsMaxHeader && head[8] == '{':
		ext = ".safetensors"
	case bytes.IndexByte(head, 0) >= 0 && !bytes.HasPrefix(head, []byte("\xff\xfe")) &&
		!bytes.HasPrefix(head, []byte("\xfe\xff")): // text in UTF-16 has zeros too
		return nil
	}
	return formatOf(ext)
}
