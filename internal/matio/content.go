package matio

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"

	"tilework/internal/gemm"
)

// headBytes is the number of bytes at the start of a file that identify its content.
const headBytes = 512

const gzipMagic = "\x1f\x8b"

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
	head, err := s.head()
	if err == nil && strings.HasPrefix(string(head), gzipMagic) {
		if s.format != nil {
			return s.fail(ErrFormat, "the content is compressed by gzip: want a name that ends in .gz")
		}
		if err = s.inflate(); err == nil {
			head, err = s.head()
		}
	}
	if err != nil {
		return err
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

// head returns the first bytes of the file.
func (s *source) head() ([]byte, error) {
	if s.size == 0 {
		return nil, s.fail(ErrFormat, "the file is empty")
	}
	head := make([]byte, min(headBytes, s.size))
	if _, err := io.ReadFull(s.section(0, s.size), head); err != nil {
		return nil, s.readError(err)
	}
	return head, nil
}

// inflate replaces a file that gzip has compressed by its content in memory.
func (s *source) inflate() error {
	r, err := gzip.NewReader(s.section(0, s.size))
	if err != nil {
		return s.readError(err)
	}
	most := int64(math.MaxInt64)
	if !s.opt.Expand {
		most = max(s.floor, s.size*expansionRatio)
	}
	content, err := s.spoolAll(gzipReader{r}, most)
	if err == nil {
		s.setContent(content)
	}
	return err
}

// gzipReader distinguishes a compressed file that is cut off from the end of its content.
type gzipReader struct{ *gzip.Reader }

func (r gzipReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.ErrUnexpectedEOF {
		err = errors.New("the compressed content is cut off")
	}
	return n, err
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
	case isMtxBanner(string(head)):
		ext = ".mtx"
	case len(head) > 8 && binary.LittleEndian.Uint64(head) <= safetensorsMaxHeader && head[8] == '{':
		ext = ".safetensors"
	case bytes.IndexByte(head, 0) >= 0 && !bytes.HasPrefix(head, []byte("\xff\xfe")) &&
		!bytes.HasPrefix(head, []byte("\xfe\xff")): // text in UTF-16 has zeros too
		return nil
	}
	return formatOf(ext)
}
