package matio

import (
	"context"
	"errors"

	"tilework/internal/gemm"
	"tilework/internal/mapping"
)

// Result is the mapped temporary file of a matrix that becomes a file. The file appears, complete,
// with Commit. Its space on the disk is reserved at once, and it can be larger than the machine's
// memory.
type Result struct {
	Data []byte // the elements of the matrix, zero at first

	place place
	out   *output
	unmap func() error
}

// Maps reports whether [NewResult] maps a file if the file system supports it: that of a dense
// matrix in a format whose elements follow row by row.
func Maps(spec string, l gemm.Layout) bool {
	p, err := parseOutput(spec, l.Type)
	return err == nil && p.format.start != nil && !p.std && !bigEndian && l == gemm.Dense(l.Type, l.Rows, l.Cols)
}

// NewResult maps a temporary file for the matrix that [Write] would write with the same arguments,
// and that [Maps] accepts. The caller commits or discards it. Errors are those of [Write], or wrap
// [errors.ErrUnsupported] if the system or the file system cannot map the file.
func NewResult(spec string, l gemm.Layout, replace bool) (*Result, error) {
	p, err := parseOutput(spec, l.Type)
	if err != nil {
		return nil, err
	}
	r := &Result{place: p}
	if err := r.mapFile(l, replace); err != nil {
		r.Discard()
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		return nil, p.writeError(err)
	}
	return r, nil
}

// mapFile creates the temporary file and writes the start of the format.
func (r *Result) mapFile(l gemm.Layout, replace bool) error {
	start, err := r.place.format.start(r.place.member, l)
	if err != nil {
		return err
	}
	if r.out, err = r.place.create("", replace); err != nil {
		return err
	}
	all, unmap, err := mapping.Write(r.out.file, len(start)+l.Bytes())
	if err != nil {
		return err
	}
	r.unmap = unmap
	copy(all, start)
	r.Data = all[len(start):]
	return nil
}

// Commit gives the file its name. The errors are those of [Write].
func (r *Result) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	unmap := r.unmap
	r.unmap, r.Data = nil, nil
	if err := unmap(); err != nil {
		return r.place.writeError(err)
	}
	return r.place.writeError(r.out.commit())
}

// Discard releases the memory, and removes the temporary file unless it was committed.
func (r *Result) Discard() {
	if r.unmap != nil {
		_ = r.unmap() // the file is removed
		r.unmap, r.Data = nil, nil
	}
	if r.out != nil {
		r.out.discard()
	}
}
