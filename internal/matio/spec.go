package matio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"tilework/internal/gemm"
)

// stdName names standard input or output; an extension after it names the format: "-.csv".
const stdName = "-"

// place is a parsed spec.
type place struct {
	spec, path, member string
	format             *Format // nil if the format of standard input or output is not given
	std                bool    // standard input or output
}

// open opens a regular file and returns its state.
func (p *place) open() (*os.File, fs.FileInfo, error) {
	// Check the type first, because opening a named pipe would block.
	info, err := os.Stat(p.path)
	switch {
	case err != nil:
		return nil, nil, FileError(err)
	case info.IsDir():
		return nil, nil, p.isFolder()
	case !info.Mode().IsRegular():
		return nil, nil, p.fail(gemm.ErrUnsupported, "not a regular file: use - to read standard input")
	}
	f, err := os.Open(p.path)
	if err != nil {
		return nil, nil, FileError(err)
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// isFolder returns the error for a folder in place of a file.
func (p *place) isFolder() error {
	return fmt.Errorf("%s: %w: want a file", oneLine(p.spec), syscall.EISDIR)
}

// FileError returns the error of an operation on a file without the name of the operation:
// "a.npy: no such file or directory".
func FileError(err error) error {
	if system, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", oneLine(system.Path), system.Err)
	}
	return err
}

// IsStd reports whether spec names standard input or output.
func IsStd(spec string) bool {
	p, err := parseSpec(spec)
	return err == nil && p.std
}

// SameFile reports whether two specs name the same file or members of it. The file need not exist.
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
	// Files that do not exist are the same if they have the same name in the same folder.
	toOne, errOne := resolve(p.path)
	toTwo, errTwo := resolve(q.path)
	if errOne != nil || errTwo != nil || filepath.Base(toOne) != filepath.Base(toTwo) {
		return false
	}
	one, errOne = os.Stat(filepath.Dir(toOne))
	two, errTwo = os.Stat(filepath.Dir(toTwo))
	return errOne == nil && errTwo == nil && os.SameFile(one, two)
}

// parseSpec splits a spec at the first "::" after a known extension, so paths and members may
// contain colons.
func parseSpec(spec string) (place, error) {
	p := place{spec: spec}
	for at := 0; ; {
		i := strings.Index(spec[at:], "::")
		if i < 0 {
			break
		}
		if p.setPath(spec[:at+i]) {
			p.member = spec[at+i+2:]
			switch {
			case p.format != nil && !p.format.archive:
				return p, p.fail(ErrMember, "a %s file holds one matrix, want %s", p.format.Ext, oneLine(p.path))
			case p.member == "":
				return p, p.fail(ErrMember, "no name after ::")
			}
			return p, nil
		}
		at += i + 1
	}
	if p.setPath(spec) {
		return p, nil
	}
	if info, err := os.Stat(spec); err == nil && info.IsDir() {
		return p, p.isFolder()
	}
	var known []string
	for _, f := range formats {
		known = append(known, f.Ext)
	}
	return p, p.fail(gemm.ErrUnsupported, "extension %q, want one of %s", filepath.Ext(spec), strings.Join(known, ", "))
}

// setPath sets the path and the format of its extension. It reports false if the extension is
// unknown.
func (p *place) setPath(path string) bool {
	format := formatOf(path)
	std := path == stdName || format != nil && strings.EqualFold(path, stdName+format.Ext)
	if format == nil && !std {
		return false
	}
	p.path, p.format, p.std = path, format, std
	return true
}

// fail returns an error about the file that wraps the sentinel error kind.
func (p *place) fail(kind error, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", oneLine(p.spec), kind, fmt.Sprintf(format, args...))
}

// oneLine returns a file name for a message. It quotes empty names and names with control
// characters.
func oneLine(name string) string {
	if name == "" || strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}
