package matio

import (
	"context"
	"errors"
	"fmt"

	"tilework/internal/gemm"
	"tilework/internal/mapping"
)

// Result is memory for a matrix that becomes a file. The file appears, complete, with Commit.
type Result struct {
	// Data holds the elements of the matrix, zero at first. It is a mapped temporary file, or ordinary
	// memory.
	Data []byte

	spec    string
	layout  gemm.Layout
	options WriteOptions
	out     *output // the temporary file, if it is mapped
	unmap   func() error
}

// NewResult returns memory for the matrix that [Write] would write with the same arguments: that of
// a mapped file, see [WriteOptions.Map], or ordinary memory. Before it allocates memory, it calls
// room with the number of bytes and returns its error. The caller commits or discards the result.
// The other errors are those of [Write].
func NewResult(spec string, l gemm.Layout, o WriteOptions, room func(bytes int) error) (*Result, error) {
	r := &Result{spec: spec, layout: l, options: o}
	p, err := parseOutput(spec, l.Type)
	if err != nil {
		return nil, err
	}
	if p.maps(l, o) {
		err := r.mapFile(&p)
		if err == nil {
			return r, nil
		}
		r.Discard()
		if !errors.Is(err, errors.ErrUnsupported) {
			return nil, p.writeError(err)
		}
	}
	if err := room(l.Bytes()); err != nil {
		return nil, err
	}
	r.Data = alloc(l.Bytes())
	return r, nil
}

// Maps reports whether [NewResult] maps a file if the file system supports it.
func Maps(spec string, l gemm.Layout, o WriteOptions) bool {
	p, err := parseOutput(spec, l.Type)
	return err == nil && p.maps(l, o)
}

func (p *place) maps(l gemm.Layout, o WriteOptions) bool {
	return o.Map > 0 && l.Bytes() >= o.Map && p.format.start != nil && !p.std && !bigEndian &&
		l == gemm.Dense(l.Type, l.Rows, l.Cols)
}

// mapFile creates the temporary file and writes the start of the format.
func (r *Result) mapFile(p *place) error {
	start, err := p.format.start(p.member, r.layout)
	if err != nil {
		return err
	}
	if r.out, err = p.create("", r.options.Replace); err != nil {
		return err
	}
	all, unmap, err := mapping.Write(r.out.file, len(start)+r.layout.Bytes())
	if err != nil {
		return err
	}
	r.unmap = unmap
	copy(all, start)
	r.Data = all[len(start):]
	return nil
}

// Commit writes the file, or gives the mapped file its name. The errors are those of [Write].
func (r *Result) Commit(ctx context.Context) error {
	if r.unmap == nil {
		return Write(ctx, r.spec, r.layout, r.Data, r.options)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	unmap := r.unmap
	r.unmap, r.Data = nil, nil
	if err := unmap(); err != nil {
		return fmt.Errorf("%s: %w", oneLine(r.spec), err)
	}
	p, err := parseOutput(r.spec, r.layout.Type)
	if err != nil {
		return err
	}
	return p.writeError(r.out.commit())
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
