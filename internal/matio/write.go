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

// defaultMember is the name of a matrix in an archive if the spec names no member.
const defaultMember = "c"

// Write writes op(matrix) to the file that spec names, in row-major order (column-major for Matrix
// Market). It replaces an existing file only if replace is set, and no archive that holds other
// arrays.
//
// It writes a temporary file in the folder of the target, with the permissions of an existing
// target, and renames it to the target. After an error, an existing file is unchanged. If the
// target is a symbolic link, the file that it points to is replaced. Other hard links to that file
// keep the old content.
//
// Errors wrap [fs.ErrExist], [gemm.ErrUnsupported], [gemm.ErrShape], [ErrMember], the context's
// error or an error of the operating system. Each message is one line that contains the file name.
func Write(ctx context.Context, spec string, l gemm.Layout, data []byte, replace bool) error {
	p, err := checkWrite(spec, l, data)
	if err != nil {
		return err
	}
	if p.std {
		return p.fail(gemm.ErrUnsupported, "want a file")
	}
	out, err := p.create("", replace)
	if err != nil {
		return err
	}
	defer out.discard()
	if err := p.writeTo(ctx, out.file, l, data); err != nil {
		return err
	}
	return p.writeError(out.commit())
}

// Encode writes op(matrix) to w, as [Write] does to a file. The spec is that of a file that is not
// opened: its extension selects the format, and it may name a member.
func Encode(ctx context.Context, w io.Writer, spec string, l gemm.Layout, data []byte) error {
	p, err := checkWrite(spec, l, data)
	if err != nil {
		return err
	}
	return p.writeTo(ctx, w, l, data)
}

// checkWrite checks the arguments of [Write] and parses the spec.
func checkWrite(spec string, l gemm.Layout, data []byte) (place, error) {
	if err := l.Check(oneLine(spec)); err != nil {
		return place{}, err
	}
	if len(data) < l.Bytes() {
		return place{}, fmt.Errorf("%w: %s: %v needs %d bytes of memory, has %d", gemm.ErrShape, oneLine(spec), l,
			l.Bytes(), len(data))
	}
	return parseOutput(spec, l.Type)
}

// writeTo writes the file contents to w.
func (p *place) writeTo(ctx context.Context, w io.Writer, l gemm.Layout, data []byte) error {
	b := bufio.NewWriterSize(contextWriter{ctx, w}, 64<<10)
	err := p.format.write(b, p.member, l, data)
	if err == nil {
		err = b.Flush()
	}
	return p.writeError(err)
}

// WriteFile writes content to a file atomically, like [Write].
func WriteFile(path string, content []byte, replace bool) error {
	out, err := newOutput(path, replace)
	if err != nil {
		return err
	}
	defer out.discard()
	if _, err := out.file.Write(content); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return out.commit()
}

// CheckReplace returns an error that wraps [fs.ErrExist] if the file exists and replace is false.
// All commands that write files use it.
func CheckReplace(path string, replace bool) error {
	if _, err := os.Stat(path); err != nil || replace {
		return nil
	}
	return fmt.Errorf("%s: %w: name another file, or replace it with --force", oneLine(path), fs.ErrExist)
}

// contextWriter fails when its context has ended.
type contextWriter struct {
	ctx context.Context
	io.Writer
}

func (w contextWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// CheckOutput returns the error that [Write] would return for a matrix of type t, without writing
// one. It detects an unknown extension, a type that the format cannot store, a folder that does not
// exist or is not writable (it creates and removes a temporary file), and a target that is not a
// regular file, is not writable, holds other arrays, or exists and must not be replaced. Use
// Invalid if the type is not known yet.
func CheckOutput(spec string, t dtype.Type, replace bool) error {
	p, err := parseOutput(spec, t)
	if err != nil || p.std {
		return err
	}
	out, err := p.create("", replace)
	if err != nil {
		return err
	}
	out.discard()
	return nil
}

// OutputSize returns bounds on the size of the file that [Write] would write, in bytes, and its
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

// parseOutput parses the spec of an output file with elements of type t.
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
	case !p.named:
		p.member = defaultMember
	case p.member == "":
		return p, p.fail(ErrMember, "no name after ::")
	case !utf8.ValidString(p.member):
		return p, p.fail(ErrMember, "the name %q is not UTF-8", p.member)
	case p.member == p.format.reserved:
		return p, p.fail(ErrMember, "the name %s is reserved", p.member)
	}
	return p, nil
}

// writeError replaces the name of the temporary file in err by the target.
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

// output is a temporary file that commit renames to the target.
type output struct {
	file   *os.File // nil after commit
	target string
}

// create creates the temporary file for p, with a random name for "". It returns an error if the
// target is an archive with arrays besides the one that p names, which would be lost.
func (p *place) create(name string, replace bool) (*output, error) {
	if info, err := os.Stat(p.path); err == nil && info.Mode().IsRegular() && p.format.archive {
		entries, err := List(context.Background(), p.path, ReadOptions{})
		var others []string
		for _, e := range entries {
			if e.Member != p.member {
				others = append(others, e.Member)
			}
		}
		if err == nil && len(others) > 0 {
			return nil, p.fail(fs.ErrExist, "it holds %s, which would be lost: name another file", list(others))
		}
	}
	return namedOutput(p.path, name, replace)
}

// newOutput creates the temporary file with the permissions of an existing target, or with 0644
// less the umask.
func newOutput(path string, replace bool) (*output, error) { return namedOutput(path, "", replace) }

// namedOutput does the same with a name for the temporary file, or a random one for "".
func namedOutput(path, name string, replace bool) (*output, error) {
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
		return nil, fmt.Errorf("%s: %w: exists and is not a regular file", oneLine(path), gemm.ErrUnsupported)
	default:
		if err := CheckReplace(path, replace); err != nil {
			return nil, err
		}
		// A rename would replace even a read-only file, so check that it is writable.
		f, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	folder := filepath.Dir(target)
	if _, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("folder %w", FileError(err))
	}
	for random := name == ""; ; {
		if random {
			name = temporaryName(rand.Uint64())
		}
		file, err := os.OpenFile(filepath.Join(folder, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if random && errors.Is(err, fs.ErrExist) {
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

// temporaryName returns the name of a temporary file.
func temporaryName(id uint64) string { return fmt.Sprintf(".tilework-%016x.tmp", id) }

// resolve follows symbolic links in the last element of path. The resulting file need not exist.
func resolve(path string) (string, error) {
	for range 40 { // the limit on Linux
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

// commit renames the temporary file to the target.
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

// discard removes the temporary file unless it was committed.
func (o *output) discard() {
	if o.file != nil {
		o.file.Close()
		os.Remove(o.file.Name())
	}
}

// panelBytes limits the bytes that are written at once and thus the buffer for a transpose. Panels
// of a transpose have at most 64 rows, enough to use all elements of the cache lines that they
// read.
const panelBytes = 4 << 20

// panels yields op(matrix) without padding, several whole rows at a time.
func panels(l gemm.Layout, data []byte, yield func(rows []byte) error) error {
	rows, cols := l.OpRows(), l.OpCols()
	if rows == 0 || cols == 0 {
		return nil
	}
	width := l.Type.Bytes(cols)
	high := min(max(panelBytes/width, 1), rows)
	if !l.Trans {
		if l.LD != cols {
			high = 1
		}
		for top := 0; top < rows; top += high {
			at := l.Type.Bytes(top * l.LD)
			if err := yield(data[at : at+min(high, rows-top)*width]); err != nil {
				return err
			}
		}
		return nil
	}
	high = min(high, 64)
	size := l.Type.Size() // a transpose moves single elements
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

// writeRows writes op(matrix) in row-major order and the given byte order.
func writeRows(w io.Writer, l gemm.Layout, data []byte, big bool) error {
	return panels(l, data, func(rows []byte) error {
		if big != bigEndian {
			rows = slices.Clone(rows)
			swapBytes(rows, l.Type.Bytes(1))
		}
		_, err := w.Write(rows)
		return err
	})
}
