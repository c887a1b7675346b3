package matio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// defaultMember is the name of a matrix in an archive when the spec has none.
const defaultMember = "c"

// WriteOptions control how a file is written. The zero value writes new files.
type WriteOptions struct {
	// Replace allows a file that exists to be replaced. An archive is replaced as a whole.
	Replace bool
	// Stdout is the target of "-"; nil refuses it.
	Stdout io.Writer
}

// Write writes op(matrix) to the file that spec names, row after row (Matrix
// Market: column after column).
//
// The bytes go to a temporary file in the target's folder, which is then renamed to the
// target and has its permissions: after an error, the old file is untouched. A
// symbolic link stays one, and the file that it leads to is replaced; another
// hard link to that file keeps the old content.
//
// Errors wrap [fs.ErrExist], [gemm.ErrUnsupported], [gemm.ErrShape], [ErrMember], the context's
// error or the operating system's; each is one line that names the file.
func Write(ctx context.Context, spec string, l gemm.Layout, data []byte, o WriteOptions) error {
	if err := l.Check(oneLine(spec)); err != nil {
		return err
	}
	if len(data) < l.Bytes() {
		return fmt.Errorf("%w: %s: %v needs %d bytes of memory, has %d", gemm.ErrShape, oneLine(spec), l, l.Bytes(), len(data))
	}
	p, err := parseOutput(spec, l.Type)
	if err != nil {
		return err
	}
	if p.std {
		return p.writeTo(ctx, o.Stdout, l, data)
	}
	out, err := newOutput(p.path, o.Replace)
	if err != nil {
		return err
	}
	defer out.discard()
	if err := p.writeTo(ctx, out.file, l, data); err != nil {
		return err
	}
	return p.writeError(out.commit())
}

// writeTo writes the format's bytes to w.
func (p *place) writeTo(ctx context.Context, w io.Writer, l gemm.Layout, data []byte) error {
	if w == nil {
		return p.fail(gemm.ErrUnsupported, "want a file")
	}
	b := bufio.NewWriterSize(interruptible{ctx, w}, 64<<10)
	err := p.format.write(b, p.member, l, data)
	if err == nil {
		err = b.Flush()
	}
	return p.writeError(err)
}

// WriteFile writes a file that is no matrix in the same way: whole, or not at all.
func WriteFile(path string, content []byte, o WriteOptions) error {
	out, err := newOutput(path, o.Replace)
	if err != nil {
		return err
	}
	defer out.discard()
	if _, err := out.file.Write(content); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return out.commit()
}

// CheckReplace returns an error that wraps [fs.ErrExist] if the file exists and replace is
// false. It is the one rule for the files that commands write.
func CheckReplace(path string, replace bool) error {
	if _, err := os.Stat(path); err != nil || replace {
		return nil
	}
	return fmt.Errorf("%s: %w: name another file, or replace it with --force", oneLine(path), fs.ErrExist)
}

// interruptible is a writer that fails when its context has ended.
type interruptible struct {
	ctx context.Context
	io.Writer
}

func (w interruptible) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// CheckOutput returns, before there is anything to write, the error that [Write] would
// return for a matrix of type t: an unknown extension, a type that the format cannot hold, a
// folder that does not exist or is not writable (a temporary file is made in it and removed),
// a target that exists and is not to be replaced, is no regular file or not writable. While the
// type is unknown, t is Invalid.
func CheckOutput(spec string, t dtype.Type, o WriteOptions) error {
	p, err := parseOutput(spec, t)
	if err != nil || p.std {
		return err
	}
	out, err := newOutput(p.path, o.Replace)
	if err != nil {
		return err
	}
	out.discard()
	return nil
}

// OutputSize returns bounds on the size of the file that [Write] makes of a matrix, and its
// folder, which is empty for standard output.
func OutputSize(spec string, l gemm.Layout) (least, most int64, folder string, err error) {
	p, err := parseOutput(spec, l.Type)
	if err != nil {
		return 0, 0, "", err
	}
	least, most = p.format.size(l)
	if p.std {
		return least, most, "", nil
	}
	target, err := resolve(p.path)
	return least, most, filepath.Dir(target), err
}

// parseOutput parses the spec of a file to be written with elements of type t.
func parseOutput(spec string, t dtype.Type) (place, error) {
	p, err := parseSpec(spec)
	if err != nil {
		return p, err
	}
	if p.format == nil { // standard output
		p.format = formatOf(".npy")
	}
	if t != dtype.Invalid && !slices.Contains(p.format.Types(), t) {
		var others []string
		for i := range formats {
			if slices.Contains(formats[i].Types(), t) {
				others = append(others, formats[i].Ext)
			}
		}
		return p, p.fail(gemm.ErrUnsupported, "a %s file cannot hold %v, want %s (%v goes to %s)",
			p.format.Ext, t, typeNames(p.format.Types()), t, strings.Join(others, ", "))
	}
	switch {
	case p.member == "":
		p.member = defaultMember
	case !utf8.ValidString(p.member):
		return p, p.fail(ErrMember, "the name %q is not UTF-8", p.member)
	case p.member == p.format.reserved:
		return p, p.fail(ErrMember, "the name %s is reserved", p.member)
	}
	return p, nil
}

// writeError names the target where the operating system named the temporary file.
func (p *place) writeError(err error) error {
	var system *fs.PathError
	if errors.As(err, &system) {
		return &fs.PathError{Op: "write", Path: p.path, Err: system.Err}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", oneLine(p.spec), err)
	}
	return nil
}

// output is a temporary file that may take the place of the target.
type output struct {
	file   *os.File // nil when done with
	target string
}

// newOutput makes the temporary file, with the permissions that the target has
// or, being new, should have.
func newOutput(path string, replace bool) (*output, error) {
	target, err := resolve(path)
	if err != nil {
		return nil, err
	}
	old, err := os.Stat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !old.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w: it exists and is no regular file", oneLine(path), gemm.ErrUnsupported)
	default:
		if err := CheckReplace(path, replace); err != nil {
			return nil, err
		}
		// Renaming over a read-only file would work, against its owner's wish.
		f, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	folder := filepath.Dir(target)
	if _, err := os.Stat(folder); err != nil {
		return nil, err
	}
	for {
		name := filepath.Join(folder, fmt.Sprintf(".tilework-%016x.tmp", rand.Uint64()))
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			var system *fs.PathError
			errors.As(err, &system)
			return nil, &fs.PathError{Op: "create a file in", Path: folder, Err: system.Err}
		}
		out := &output{file: file, target: target}
		if old != nil {
			if err := file.Chmod(old.Mode().Perm()); err != nil {
				out.discard()
				return nil, err
			}
		}
		return out, nil
	}
}

// resolve follows the symbolic links at the end of path, to a file that need not
// exist.
func resolve(path string) (string, error) {
	for range 40 { // as many as Linux follows
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		link, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(link) {
			folder, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", err
			}
			link = filepath.Join(folder, link)
		}
		path = link
	}
	return "", fmt.Errorf("%s: %w: too many symbolic links", oneLine(path), gemm.ErrUnsupported)
}

// commit gives the file the target's name.
func (o *output) commit() error {
	if err := o.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(o.file.Name(), o.target); err != nil {
		return err
	}
	o.file = nil
	return nil
}

// discard removes the file unless it was committed.
func (o *output) discard() {
	if o.file != nil {
		o.file.Close()
		os.Remove(o.file.Name())
	}
}

// panelBytes bounds what is written at once, and so the memory that a transpose
// is gathered in; its panels are at most 64 rows, which use all elements of the
// cache lines that they read.
const panelBytes = 4 << 20

// panels yields op(matrix) without padding, some whole rows at a time.
func panels(l gemm.Layout, data []byte, yield func(rows []byte) error) error {
	rows, cols, size := l.OpRows(), l.OpCols(), l.Type.Size()
	if rows == 0 || cols == 0 {
		return nil
	}
	width := cols * size
	high := min(max(panelBytes/width, 1), rows)
	if !l.Trans {
		if l.LD != cols {
			high = 1
		}
		for top := 0; top < rows; top += high {
			at := top * l.LD * size
			if err := yield(data[at : at+min(high, rows-top)*width]); err != nil {
				return err
			}
		}
		return nil
	}
	high = min(high, 64)
	panel := alloc(high * width)
	for top := 0; top < rows; top += high {
		high := min(high, rows-top)
		for j := range cols {
			from := data[l.Index(top, j)*size:]
			for i := range high {
				copy(panel[i*width+j*size:][:size], from[i*size:])
			}
		}
		if err := yield(panel[:high*width]); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes op(matrix) row after row, in the byte order asked for.
func writeRows(w io.Writer, l gemm.Layout, data []byte, big bool) error {
	return panels(l, data, func(rows []byte) error {
		if big != bigEndian {
			rows = slices.Clone(rows)
			swapBytes(rows, l.Type.Size())
		}
		_, err := w.Write(rows)
		return err
	})
}
