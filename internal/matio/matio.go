// Package matio reads matrices from files and writes them to files.
//
// A file is named by its path, and one matrix of an archive as "path::member":
// "a.npy", "w.npz::name", "model.safetensors::layer.0.weight", "m.mtx", "m.csv".
// The extension, in either case, names the format; [Formats] lists them. An
// archive needs no member when exactly one of its arrays is a matrix.
//
// Headers are not trusted: sizes are checked, without overflow, against the size of
// the file before memory is allocated. Binary formats take the matrix's own size,
// which is at most the file's, or the size of the data in a compressed member; text
// takes one element for two bytes of text or more. The one exception is a sparse
// Matrix Market file, whose zeros take no text: see [ErrTooSparse].
//
// A file is read once, into memory of its own, so that later changes of the file do
// not change the matrix. A file that is written to while it is read is refused; see
// also [Matrix.CheckUnchanged]. "-" is standard input or output.
package matio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// The sentinel errors of this package. Others are the operating system's, and
// [gemm.ErrUnsupported] for a well-formed array that is no matrix.
var (
	ErrFormat = errors.New("malformed")
	ErrMember = errors.New("member not found")
	// ErrTooSparse refuses a coordinate file whose dense matrix would take more
	// than 1 GiB and more than 64 times the file.
	ErrTooSparse = fmt.Errorf("%w: too sparse to be made dense", gemm.ErrOutOfMemory)
	// ErrOverflow refuses a finite number that is an infinity or a NaN in the floating-point
	// type that is read; see [ReadOptions.Overflow].
	ErrOverflow = errors.New("overflow")
	// ErrRange refuses a number that the integer type that is read cannot hold: one with a
	// fraction, or out of range.
	ErrRange = errors.New("out of range")
	// ErrNeedsType refuses elements that no product takes without a conversion, such as
	// int64: [ReadOptions.Type] converts them.
	ErrNeedsType = errors.New("not supported without a conversion")
	// ErrChanged refuses a file that was written to while it was used.
	ErrChanged = errors.New("changed while it was used")
)

// Matrix is a matrix from a file. A matrix that the file stores in column order has
// Trans set: its elements are not rearranged.
type Matrix struct {
	gemm.Layout
	// Data holds the elements in the machine's byte order, aligned for the type.
	Data []byte

	path string
	info fs.FileInfo // of the file when it was opened; nil for standard input
}

// CheckUnchanged returns an error if the file has been written to or truncated since it was
// opened, as its size and its modification time tell. A file that took its place under the
// same name is another file, and no error.
func (m *Matrix) CheckUnchanged() error {
	if m.info == nil {
		return nil
	}
	now, err := os.Stat(m.path)
	if err != nil || !os.SameFile(m.info, now) {
		return nil
	}
	return checkUnchanged(m.path, m.info, now)
}

// checkUnchanged compares two states of the file at path.
func checkUnchanged(path string, before, after fs.FileInfo) error {
	switch {
	case before.Size() != after.Size():
		return fmt.Errorf("%s: %w: it had %d bytes and has %d now", oneLine(path), ErrChanged, before.Size(), after.Size())
	case !before.ModTime().Equal(after.ModTime()):
		return fmt.Errorf("%s: %w: it was written to at %s", oneLine(path), ErrChanged, after.ModTime().Format("15:04:05.000"))
	}
	return nil
}

// OneD names the matrix that a 1-D array is read as.
type OneD uint8

// A 1-D array of n elements is refused, or read as a matrix of 1×n or n×1.
const (
	NoMatrix OneD = iota
	Row
	Column
)

// ReadOptions control how a matrix is read. The zero value reads a matrix unchanged.
type ReadOptions struct {
	// Type is the element type wanted; Invalid keeps the file's own, which is float64
	// for text. Each value is rounded to nearest, with ties to even; the 16-bit and 8-bit
	// types are reached from text, and integers of 64 bits in each type, by way of float64.
	Type dtype.Type
	// Overflow, if set, accepts numbers that are too large for a floating-point type: they
	// are read as infinities, or as NaNs where the type has no infinity. It is called once,
	// after reading, with the error for the first of them and their number.
	Overflow func(first error, count int)
	// Vector accepts a vector: a 1-D array, or a matrix of one row or one column.
	// It is returned as 1×n.
	Vector bool
	// OneD is the matrix that a 1-D array becomes.
	OneD OneD
	// CSV describes .csv files.
	CSV CSV
	// Stdin is the source of "-"; nil refuses it.
	Stdin io.Reader
	// Room, if set, is called before memory is allocated for a matrix, with its bytes and,
	// for a message, its name. An error ends the reading.
	Room func(bytes int, what string) error
}

// room calls Room for a matrix of the layout.
func (s *source) room(l gemm.Layout) error {
	return s.opt.room(l.Bytes(), fmt.Sprintf("the %d×%d %v matrix of %s", l.OpRows(), l.OpCols(), l.Type, oneLine(s.spec)))
}

func (o *ReadOptions) room(bytes int, what string) error {
	if o.Room == nil {
		return nil
	}
	return o.Room(bytes, what)
}

// Read reads the matrix that spec names. Errors wrap [ErrFormat], [ErrMember], [ErrTooSparse],
// [ErrOverflow], [ErrRange], [ErrNeedsType], [ErrChanged], [gemm.ErrUnsupported], [gemm.ErrShape]
// or the operating system's error; each is one line that names the file. When ctx ends first, the
// error is ctx's.
func Read(ctx context.Context, spec string, o ReadOptions) (*Matrix, error) {
	s, err := openSource(ctx, spec, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	m, err := s.read()
	if changed := s.checkUnchanged(); changed != nil {
		return nil, changed
	}
	if err != nil {
		return nil, err
	}
	if s.overflows > 0 {
		o.Overflow(s.firstOverflow, s.overflows)
	}
	m.path, m.info = s.path, s.info
	return m, nil
}

// Entry describes an array of a file.
type Entry struct {
	Member string   `json:"member,omitempty"` // in an archive
	Type   string   `json:"type"`             // of the elements, as the file spells it
	Shape  []uint64 `json:"shape"`
	Error  string   `json:"error,omitempty"` // why it cannot be read, if the type and the shape do not tell
}

// List lists the arrays of the file that spec names, matrices or not. Its errors are those
// of [Read].
func List(ctx context.Context, spec string, o ReadOptions) ([]Entry, error) {
	s, err := openSource(ctx, spec, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.member != "" {
		return nil, s.fail(ErrMember, "want a whole file, as all of its arrays are listed")
	}
	if err := s.checkEmpty(); err != nil {
		return nil, err
	}
	return s.format.list(s)
}

// source is a file that is being read.
type source struct {
	ctx context.Context
	place
	file       *os.File    // nil where there is none
	info       fs.FileInfo // of the file when it was opened
	r          io.ReaderAt
	size       int64
	opt        ReadOptions
	denseFloor int64 // see ErrTooSparse

	overflows     int
	firstOverflow error
}

// openSource opens the file that spec names, or reads standard input to its end.
func openSource(ctx context.Context, spec string, o ReadOptions) (*source, error) {
	p, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	s := &source{ctx: ctx, place: p, opt: o, denseFloor: denseFloor}
	if p.std {
		return s, s.openStdin()
	}
	if s.file, s.info, err = p.open(); err != nil {
		return nil, err
	}
	s.r, s.size = s.file, s.info.Size()
	return s, nil
}

func (s *source) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// checkUnchanged returns an error if the file was written to since it was opened.
func (s *source) checkUnchanged() error {
	if s.file == nil || s.ctx.Err() != nil {
		return nil
	}
	now, err := s.file.Stat()
	if err != nil {
		return err
	}
	return checkUnchanged(s.path, s.info, now)
}

func (s *source) checkEmpty() error {
	if s.size == 0 {
		return s.fail(ErrFormat, "the file is empty")
	}
	return nil
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
	if err := s.checkEmpty(); err != nil {
		return nil, err
	}
	m, err := s.format.read(s)
	if err != nil {
		return nil, err
	}
	if s.opt.Vector { // which has one row or one column
		m.Layout = gemm.Dense(m.Type, 1, m.Rows*m.Cols)
	}
	return m, nil
}

// pick returns the index of the member to read: the one that the spec names, the only one, or
// the only one of the highest rank, where rank 0 is unusable. Its name completes the spec that
// errors show.
func (s *source) pick(names []string, rank func(i int) int) (int, error) {
	if s.member != "" {
		if i := slices.Index(names, s.member); i >= 0 {
			return i, nil
		}
		return 0, s.fail(ErrMember, "the file holds %s", list(names))
	}
	found := -1
	if len(names) == 1 {
		found = 0
	} else {
		best, candidates := 1, []string(nil)
		for i, name := range names {
			switch r := rank(i); {
			case r > best || r == best && candidates == nil:
				best, found, candidates = r, i, []string{name}
			case r == best:
				candidates = append(candidates, name)
			}
		}
		switch {
		case len(names) == 0:
			return 0, s.fail(ErrMember, "the file holds no arrays")
		case len(candidates) == 0:
			return 0, s.fail(ErrMember, "none of the file's arrays is a matrix: %s", list(names))
		case len(candidates) > 1:
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
