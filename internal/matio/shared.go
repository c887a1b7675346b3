package matio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tilework/internal/gemm"
	"tilework/internal/mapping"
)

// Shared is the file of a matrix that several processes write together, on one or several hosts
// with a shared file system. It appears under its name, complete, when the process that created it
// commits it. Until then it is a temporary file.
type Shared struct {
	place   place
	layout  gemm.Layout
	replace bool
	folder  string
	name    string   // of the temporary file
	out     *output  // of the process that created it
	file    *os.File // nil before Create or Open
	start   []byte   // the part of the file before the elements
}

// NewShared describes the file that [Write] would write for a dense matrix. All processes pass the
// same layout and id, which is part of the name of the temporary file. The id is a number because
// another host may have chosen it: no text could leave the folder. The errors are those of [Write],
// and ErrUnsupported for standard output and for formats that cannot be written in parts.
func NewShared(spec string, l gemm.Layout, id uint64, replace bool) (*Shared, error) {
	p, err := parseOutput(spec, l.Type)
	if err != nil {
		return nil, err
	}
	if p.std || p.format.start == nil || bigEndian {
		var able []string
		for _, f := range formats {
			if f.start != nil {
				able = append(able, f.Ext)
			}
		}
		return nil, p.fail(gemm.ErrUnsupported, "several processes cannot write it together: want a file of %s",
			strings.Join(able, " or "))
	}
	start, err := p.format.start(p.member, l)
	if err != nil {
		return nil, err
	}
	target, err := resolve(p.path)
	if err != nil {
		return nil, err
	}
	return &Shared{place: p, layout: l, replace: replace, folder: filepath.Dir(target), name: temporaryName(id),
		start: start}, nil
}

// Create creates the temporary file and reserves its space on the disk.
func (s *Shared) Create() (err error) {
	if s.out, err = s.place.create(s.name, s.replace); err != nil {
		return err
	}
	s.file = s.out.file
	size := len(s.start) + s.layout.Bytes()
	if err = mapping.Reserve(s.file, size); errors.Is(err, errors.ErrUnsupported) {
		err = s.file.Truncate(int64(size))
	}
	if err == nil {
		keepBytesApart(s.file, 0)
		_, err = s.file.WriteAt(s.start, 0)
	}
	return s.place.writeError(err)
}

// Open opens the temporary file that another process has created. It follows no link, and opens
// regular files only.
func (s *Shared) Open() error {
	file, err := os.OpenFile(filepath.Join(s.folder, s.name), os.O_WRONLY|openItself, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %s does not have the file that another process has created there: want a shared file system",
			oneLine(s.place.spec), s.folder)
	}
	if err != nil {
		return s.place.writeError(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = s.place.fail(gemm.ErrUnsupported, "%s in %s is no regular file", s.name, s.folder)
	}
	if err != nil {
		file.Close()
		return s.place.writeError(err)
	}
	s.file = file
	return nil
}

// Write writes an area of the matrix, whose elements data holds row by row.
func (s *Shared) Write(ctx context.Context, a gemm.Area, data []byte) error {
	if a.Rows == 0 || a.Cols == 0 {
		return ctx.Err()
	}
	at := func(i int) int64 { // of row i of the area
		return int64(len(s.start) + s.layout.Type.Bytes(s.layout.Index(a.Row+i, a.Col)))
	}
	keepBytesApart(s.file, at(0))
	width := s.layout.Type.Bytes(a.Cols)
	high := 1
	if a.Cols == s.layout.Cols { // rows follow each other
		high = max(panelBytes/width, 1)
	}
	for i := 0; i < a.Rows; i += high {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows := data[i*width : min(i+high, a.Rows)*width]
		if _, err := s.file.WriteAt(rows, at(i)); err != nil {
			return s.place.writeError(err)
		}
	}
	return nil
}

// Close ends the writing of a process that opened the file. Network file systems report the errors
// of writes here, and show the writes to other hosts afterwards.
func (s *Shared) Close() error {
	if s.out != nil || s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return s.place.writeError(file.Close())
}

// Commit gives the file its name. The process that created the file calls it after all others have
// closed it.
func (s *Shared) Commit() error { return s.place.writeError(s.out.commit()) }

// Discard closes the file and removes it unless it was committed, whichever process created it.
func (s *Shared) Discard() {
	_ = s.Close()
	if s.out != nil {
		s.out.discard()
		return
	}
	_ = os.Remove(filepath.Join(s.folder, s.name))
}
