// Package matio reads matrices from files and writes them to files.
//
// A file is named by its path, and one matrix of an archive as "path::member":
// "a.npy", "w.npz::name", "model.safetensors::layer.0.weight", "m.mtx", "m.csv".
// The extension, in either case, says the format; [Formats] lists them. An
// archive needs no member when exactly one of its arrays is a matrix.
//
// What a file claims is never believed: sizes are checked, without overflow,
// against what the file holds before memory is taken. Binary formats take the
// matrix's own size, which is at most the file's, or what really came out of a
// compressed member; text takes one element for two bytes of text or more. The
// one exception is a sparse Matrix Market file, whose zeros take no text: see
// [ErrTooSparse].
//
// Large binary matrices are mapped into memory rather than read, where the
// system can. A file that someone else truncates while it is mapped kills the
// process (SIGBUS), as with every mapping. Replacing the file is safe, and so is
// [Write] to a path that is being read: it writes a new file and renames it, and
// the mapping keeps the old one.
package matio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// The sentinel errors of this package. Others are the operating system's, and
// [gemm.ErrUnsupported] for what is well formed but no matrix of ours.
var (
	ErrFormat = errors.New("malformed")
	ErrMember = errors.New("member not found")
	// ErrTooSparse refuses a coordinate file whose dense matrix would take more
	// than 1 GiB and more than 64 times the file.
	ErrTooSparse = fmt.Errorf("%w: too sparse to be made dense", gemm.ErrOutOfMemory)
)

// Matrix is a matrix from a file. What stands in column order in the file has
// Trans set: its memory is not rearranged.
type Matrix struct {
	gemm.Layout
	// Data holds the elements in the machine's byte order, aligned for the type.
	// It may be a read-only mapping of the file: writing to it can kill the process.
	Data []byte

	unmap func() error
}

// Close releases the matrix's memory; Data must not be used any more. Further
// calls do nothing.
func (m *Matrix) Close() error {
	unmap := m.unmap
	m.Data, m.unmap = nil, nil
	if unmap == nil {
		return nil
	}
	return unmap()
}

// ReadOptions says what to make of a file's matrix. The zero value takes a
// matrix as it is.
type ReadOptions struct {
	// Type is the element type wanted; Invalid keeps the file's own, which is
	// float64 for text. Each value is rounded once, to nearest with ties to even,
	// so that one too large becomes an infinity; the 16-bit types are reached from
	// text by way of float64. An integer type refuses what it cannot hold exactly.
	Type dtype.Type
	// Vector asks for a vector: a 1-D array, or a matrix of one row or one column.
	// It is returned as 1×n.
	Vector bool
	// Room, if set, is asked before memory is taken for a matrix that its file does not
	// hold as it is: one that is packed, sparse or converted, which a small file can make
	// as large as it likes. It is told the bytes and, for a message, what they are for.
	Room func(bytes int, what string) error
}

// room asks whether there is room for a matrix.
func (s *source) room(l gemm.Layout) error {
	if s.opt.Room == nil {
		return nil
	}
	return s.opt.Room(l.Bytes(), fmt.Sprintf("the %d×%d %v matrix of %s", l.OpRows(), l.OpCols(), l.Type, oneLine(s.spec)))
}

// Read reads the matrix that spec names. Errors wrap [ErrFormat], [ErrMember],
// [ErrTooSparse], [gemm.ErrUnsupported], [gemm.ErrShape] or what the operating
// system said; each is one line that names the file. When ctx ends while bytes are read, it
// is ctx's.
func Read(ctx context.Context, spec string, o ReadOptions) (*Matrix, error) {
	p, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	f, size, err := p.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return (&source{ctx: ctx, place: p, r: f, size: size, opt: o, denseFloor: denseFloor}).read()
}

// place is a parsed spec.
type place struct {
	spec, path, member string
	format             *Format
}

// open opens the file, which must be a regular one, and tells its size.
func (p *place) open() (*os.File, int64, error) {
	// Asked before opening, because opening a pipe waits for a writer.
	info, err := os.Stat(p.path)
	switch {
	case err != nil:
		return nil, 0, err
	case info.IsDir():
		return nil, 0, &fs.PathError{Op: "read", Path: p.path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return nil, 0, p.fail(gemm.ErrUnsupported, "it is no regular file")
	}
	f, err := os.Open(p.path)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// SameFile reports whether two specs are of one file, which need not be there, whatever they name
// in it.
func SameFile(spec, other string) bool {
	p, err := parseSpec(spec)
	if err != nil {
		return false
	}
	q, err := parseSpec(other)
	if err != nil {
		return false
	}
	one, errOne := os.Stat(p.path)
	two, errTwo := os.Stat(q.path)
	if errOne == nil && errTwo == nil {
		return os.SameFile(one, two)
	}
	if !errors.Is(errOne, fs.ErrNotExist) || !errors.Is(errTwo, fs.ErrNotExist) {
		return false
	}
	// Those that are not there are one if they would have one name in one folder.
	toOne, errOne := resolve(p.path)
	toTwo, errTwo := resolve(q.path)
	if errOne != nil || errTwo != nil || filepath.Base(toOne) != filepath.Base(toTwo) {
		return false
	}
	one, errOne = os.Stat(filepath.Dir(toOne))
	two, errTwo = os.Stat(filepath.Dir(toTwo))
	return errOne == nil && errTwo == nil && os.SameFile(one, two)
}

// parseSpec splits a spec at the first "::" that follows a known extension, so
// that paths and members may themselves hold colons.
func parseSpec(spec string) (place, error) {
	p := place{spec: spec}
	for at := 0; ; {
		i := strings.Index(spec[at:], "::")
		if i < 0 {
			break
		}
		if f := formatOf(spec[:at+i]); f != nil {
			p.path, p.member, p.format = spec[:at+i], spec[at+i+2:], f
			switch {
			case f.members == nil:
				return p, p.fail(ErrMember, "a %s file holds one matrix, want %s", f.Ext, oneLine(p.path))
			case p.member == "":
				return p, p.fail(ErrMember, "no name after ::")
			}
			return p, nil
		}
		at += i + 1
	}
	p.path, p.format = spec, formatOf(spec)
	if p.format == nil {
		if info, err := os.Stat(spec); err == nil && info.IsDir() {
			return p, p.fail(gemm.ErrUnsupported, "a folder, want a file")
		}
		var known []string
		for _, f := range formats {
			known = append(known, f.Ext)
		}
		return p, p.fail(gemm.ErrUnsupported, "extension %q, want one of %s", filepath.Ext(spec), strings.Join(known, ", "))
	}
	return p, nil
}

// fail is an error of one of the sentinel kinds about this file.
func (p *place) fail(kind error, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", oneLine(p.spec), kind, fmt.Sprintf(format, args...))
}

// oneLine is a name as an error shows it: as it is, or quoted where control
// characters would break the line.
func oneLine(name string) string {
	if name == "" || strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

// source is a file that is being read.
type source struct {
	ctx context.Context
	place
	r          io.ReaderAt
	size       int64
	opt        ReadOptions
	denseFloor int64 // see ErrTooSparse
}

// section is a part of the file, which can be read until the context ends.
func (s *source) section(off, n int64) *io.SectionReader {
	return io.NewSectionReader(endingReader{s.ctx, s.r}, off, n)
}

// endingReader is a reader that fails when its context has ended.
type endingReader struct {
	ctx context.Context
	io.ReaderAt
}

func (r endingReader) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.ReaderAt.ReadAt(p, off)
}

func (s *source) read() (*Matrix, error) {
	if s.size == 0 {
		return nil, s.fail(ErrFormat, "the file is empty")
	}
	m, err := s.format.read(s)
	if err != nil {
		return nil, err
	}
	if s.opt.Type != dtype.Invalid && s.opt.Type != m.Type {
		if err := s.convert(m, s.opt.Type); err != nil {
			m.Close()
			return nil, err
		}
	}
	if s.opt.Vector { // which has one row or one column
		m.Layout = gemm.Dense(m.Type, 1, m.Rows*m.Cols)
	}
	return m, nil
}

// pick finds the member to read among names: the one asked for, the only one, or
// the only usable one. Its name completes the spec that errors show.
func (s *source) pick(names []string, usable func(i int) bool) (int, error) {
	found := -1
	if s.member != "" {
		for i, name := range names {
			if name == s.member {
				return i, nil
			}
		}
		return 0, s.fail(ErrMember, "the file holds %s", list(names))
	}
	if len(names) == 1 {
		found = 0
	} else {
		var candidates []string
		for i, name := range names {
			if usable(i) {
				found = i
				candidates = append(candidates, name)
			}
		}
		switch {
		case len(names) == 0:
			return 0, s.fail(ErrMember, "the file holds no arrays")
		case len(candidates) == 0:
			return 0, s.fail(ErrMember, "none of the file's arrays is a matrix: %s", list(names))
		case len(candidates) == 1:
		default:
			return 0, s.fail(ErrMember, "none is named, and the file holds %s: want %s::NAME", list(candidates), oneLine(s.path))
		}
	}
	s.member = names[found]
	s.spec = s.path + "::" + s.member
	return found, nil
}

// list is up to ten names, quoted.
func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	var b strings.Builder
	for i, name := range names {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.60q", name)
	}
	return b.String()
}
