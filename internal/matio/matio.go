// Package matio reads matrices from files and writes them to files.
//
// A spec names a matrix. It is the path of a file, or "path::member" for one matrix of an archive:
// "a.npy", "w.npz::name", "model.safetensors::layer.0.weight", "m.mtx", "m.csv". The extension
// selects the format, case-insensitively; [Formats] lists the formats. The member may be omitted if
// exactly one array of the archive is a matrix. "-" is standard input or output.
//
// The path of an existing file needs no extension: its first bytes select the format. They also
// identify files that are no matrix, such as an HTML page. A pipe or a terminal is read to its end,
// and a file that gzip has compressed is read into memory.
//
// Headers are not trusted. Sizes are checked against the size of the file, without overflow, before
// memory is allocated. For binary formats, memory is bounded by the size of the file or of the
// decompressed member. For text formats, it is one element per two bytes of text, or per byte if
// numbers may be missing, except in a sparse Matrix Market file. [ErrExpansion] limits such a file,
// a compressed member and a file that gzip has compressed.
//
// A file is read into separate memory, so later changes of the file do not change the matrix,
// unless [ReadOptions.Map] maps it. Reading fails if the file is modified meanwhile; see also
// [Matrix.CheckUnchanged].
package matio

import (
	"bytes"
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
	"tilework/internal/sentinel"
)

// The sentinel errors of this package. Functions also return errors of the operating system, and
// [gemm.ErrUnsupported] for a well-formed array that is not a matrix.
var (
	ErrFormat = errors.New("malformed")
	ErrMember = errors.New("member not found")
	// ErrExpansion reports a matrix that would take more than 256 MiB and more than 64 times the
	// bytes of its file. See [ReadOptions.Expand].
	ErrExpansion = fmt.Errorf("%w: far larger than its file", sentinel.ErrOutOfMemory)
	// ErrOverflow reports a finite number that would become an infinity or a NaN in the requested
	// floating-point type. See [ReadOptions.Overflow].
	ErrOverflow = errors.New("overflow")
	// ErrRange reports a number that the requested integer type cannot hold, because it is out of
	// range or has a fraction.
	ErrRange = errors.New("out of range")
	// ErrNeedsType reports elements that must be converted before use, such as int64. Set
	// [ReadOptions.Type] to convert them.
	ErrNeedsType = errors.New("not supported without a conversion")
	// ErrChanged reports a file that was modified while it was used.
	ErrChanged = errors.New("changed while it was used")
)

// Matrix is a matrix read from a file. A matrix that the file stores in column-major order keeps
// that order and has Trans set.
type Matrix struct {
	gemm.Layout
	// Data holds the elements in the machine's byte order, aligned for the type. That of a mapped file
	// is not writable, and access fails as [mapping.Access] describes if the file is truncated.
	Data []byte

	unmap func() error // nil unless the file is mapped
	path  string
	info  fs.FileInfo // state of the file when it was opened; nil for standard input
}

// Mapped reports whether Data is a mapped file.
func (m *Matrix) Mapped() bool { return m.unmap != nil }

// Close releases Data if it is a mapped file.
func (m *Matrix) Close() error {
	if m.unmap == nil {
		return nil
	}
	unmap := m.unmap
	m.unmap, m.Data = nil, nil
	return unmap()
}

// RowMajor returns the matrix with its elements row by row and without gaps. If ctx ends first, it
// returns its error.
func (m *Matrix) RowMajor(ctx context.Context) (gemm.Layout, []byte, error) {
	l := gemm.Dense(m.Type, m.OpRows(), m.OpCols())
	data := make([]byte, 0, l.Bytes())
	err := panels(m.Layout, m.Data, func(rows []byte) error {
		data = append(data, rows...)
		return ctx.Err()
	})
	return l, data, err
}

// CheckUnchanged returns an error if the size or the modification time of the file has changed
// since it was opened. It returns nil if the file was replaced by another one of the same name.
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
		return fmt.Errorf("%s: %w: size was %d bytes and is now %d", oneLine(path), ErrChanged, before.Size(),
			after.Size())
	case !before.ModTime().Equal(after.ModTime()):
		return fmt.Errorf("%s: %w: modified at %s", oneLine(path), ErrChanged, after.ModTime().Format("15:04:05.000"))
	}
	return nil
}

// OneD selects how a 1-D array is read.
type OneD uint8

// NoMatrix rejects 1-D arrays. Row and Column read n elements as a 1×n or n×1 matrix. Vector
// requires a 1-D array or a matrix with one row or one column, which is returned as 1×n.
const (
	NoMatrix OneD = iota
	Row
	Column
	Vector
)

// ReadOptions controls how a matrix is read. The zero value reads it without conversion.
type ReadOptions struct {
	// Type is the element type of the result. Invalid keeps the type of the file, which is
	// float64 for text. Each number is rounded once, to nearest, ties to even.
	Type dtype.Type
	// Overflow, if set, accepts numbers that are too large for a floating-point type. They become
	// infinities, or NaNs in types without infinity. If there are any, Overflow is called once
	// after reading, with the error for the first one and their count.
	Overflow func(first error, count int)
	// Expand accepts a matrix that is far larger than its file: a sparse Matrix Market file, which
	// does not store zeros, or a highly compressed member of an .npz file. See [ErrExpansion].
	Expand bool
	// OneD selects how a 1-D array is read.
	OneD OneD
	// CSV holds the options for .csv files.
	CSV CSV
	// Files holds the contents of files by path, which are read instead of the disk.
	Files map[string][]byte
	// Stdin is read for "-". If it is nil, "-" is an error.
	Stdin io.Reader
	// Map, if positive, is the size in bytes from which a matrix is mapped into memory instead of
	// being read, if the file is an .npy or .safetensors file whose elements need no conversion.
	// Such a matrix can be larger than the machine's memory. The caller closes it. Where files
	// cannot be mapped, they are read.
	Map int
	// Room, if set, is called before memory for a matrix is allocated, with the number of bytes
	// and a description for messages. If it returns an error, reading fails with it.
	Room func(bytes int, what string) error
}

// room calls Room for a matrix with layout l.
func (s *source) room(l gemm.Layout) error { return s.roomFor(l.Bytes(), l) }

// roomFor calls Room for a number of bytes for a matrix with layout l.
func (s *source) roomFor(bytes int, l gemm.Layout) error {
	return s.opt.room(bytes, fmt.Sprintf("the %d×%d %v matrix of %s", l.OpRows(), l.OpCols(), l.Type,
		oneLine(s.spec)))
}

// room calls Room if it is set.
func (o *ReadOptions) room(bytes int, what string) error {
	if o.Room == nil {
		return nil
	}
	return o.Room(bytes, what)
}

// Read reads the matrix that spec names. Errors wrap [ErrFormat], [ErrMember], [ErrExpansion],
// [ErrOverflow], [ErrRange], [ErrNeedsType], [ErrChanged], [gemm.ErrUnsupported], [gemm.ErrShape]
// or an error of the operating system. Each message is one line that contains the file name. If ctx
// ends first, Read returns its error.
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
	m.path, m.info = s.path, s.info
	return m, nil
}

// Decode reads a matrix from r, which it reads to its end. The spec is that of a file that is not
// opened, up to the first "::": its extension selects the format, or without a known one the
// content. The rest names a member. The errors are those of [Read]. If ctx ends while r waits,
// Decode returns, and a goroutine keeps waiting.
func Decode(ctx context.Context, r io.Reader, spec string, o ReadOptions) (*Matrix, error) {
	return newSource(ctx, parseStream(spec), o).decode(r)
}

// decode reads a matrix from r.
func (s *source) decode(r io.Reader) (*Matrix, error) {
	err := s.checkMember()
	if err == nil {
		err = s.openStream(r)
	}
	if err == nil {
		err = s.checkContent()
	}
	if err != nil {
		return nil, err
	}
	return s.read()
}

// Entry describes an array of a file.
type Entry struct {
	Member string // name in an archive
	Type   string // element type as spelled in the file
	Shape  []uint64
	Err    error // reason why the array cannot be read

	// Native is the type of the elements without a conversion, as [Read] returns them. It is
	// Invalid if they must be converted, or cannot be read.
	Native dtype.Type

	archive bool // the file is an archive
}

// Spec returns the spec of the array in a file.
func (e Entry) Spec(file string) string {
	if !e.archive {
		return file
	}
	return file + "::" + e.Member
}

// List returns all arrays of the file that spec names, including those that are not matrices. It
// returns the same errors as [Read].
func List(ctx context.Context, spec string, o ReadOptions) ([]Entry, error) {
	s, err := openSource(ctx, spec, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.named {
		return nil, s.fail(ErrMember, "cannot list a member: want a file")
	}
	entries, err := s.format.list(s)
	for i := range entries {
		entries[i].archive = s.format.archive
	}
	return entries, err
}

// source is a file that is being read.
type source struct {
	ctx context.Context
	place
	file    *os.File    // nil for a stream and in tests
	info    fs.FileInfo // state of the file when it was opened
	spooled []byte      // the content of a stream
	r       io.ReaderAt
	size    int64
	opt     ReadOptions
	floor   int64 // see expansionFloor

	overflows     int
	firstOverflow error
}

// newSource returns a source that is not open yet.
func newSource(ctx context.Context, p place, o ReadOptions) *source {
	return &source{ctx: ctx, place: p, opt: o, floor: expansionFloor}
}

// openSource opens the file that spec names, or reads a stream to its end.
func openSource(ctx context.Context, spec string, o ReadOptions) (*source, error) {
	parse := parseInput
	if o.Files != nil {
		parse = parseSpec
	}
	p, err := parse(spec)
	if err != nil {
		return nil, err
	}
	s := newSource(ctx, p, o)
	if content, ok := o.Files[p.path]; ok {
		s.r, s.size = bytes.NewReader(content), int64(len(content))
	} else if p.std && (o.Stdin != nil || !strings.HasPrefix(p.path, StdinPath)) {
		err = s.openStdin()
	} else {
		err = s.openFile()
	}
	if err == nil {
		err = s.checkContent()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close closes the file, if there is one.
func (s *source) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// checkUnchanged returns an error if the file was modified after it was opened.
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

// section returns a reader for n bytes at offset off. Reads fail once the context has ended.
func (s *source) section(off, n int64) *io.SectionReader {
	return io.NewSectionReader(contextReaderAt{s.ctx, s.r}, off, n)
}

// contextReaderAt fails when its context has ended.
type contextReaderAt struct {
	ctx context.Context
	io.ReaderAt
}

func (r contextReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.ReaderAt.ReadAt(p, off)
}

// read reads the matrix.
func (s *source) read() (*Matrix, error) {
	m, err := s.format.read(s)
	if err != nil {
		return nil, err
	}
	if s.opt.OneD == Vector { // layout has checked that there is one row or one column
		m.Layout = gemm.Dense(m.Type, 1, m.Rows*m.Cols)
	}
	if s.overflows > 0 {
		s.opt.Overflow(s.firstOverflow, s.overflows)
	}
	return m, nil
}

// pick returns the index of the member to read: the one that the spec names, the only one, or the
// only one with the highest rank, where rank 0 marks unusable members. It adds the name of the
// member to the spec that appears in errors.
func (s *source) pick(names []string, rank func(i int) int) (int, error) {
	if s.named {
		if i := slices.Index(names, s.member); i >= 0 {
			return i, nil
		}
		if s.member == "" {
			return 0, s.fail(ErrMember, "no name after ::, and the file holds %s", list(names))
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
			return 0, s.fail(ErrMember, "no member is named and the file holds %s: want %s::NAME", list(candidates),
				oneLine(s.path))
		}
	}
	s.member = names[found]
	s.spec += "::" + s.member
	return found, nil
}

// list returns up to ten quoted names.
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
