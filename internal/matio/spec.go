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

// StdinPath is another name of standard input.
const StdinPath = "/dev/stdin"

// place is a parsed spec.
type place struct {
	spec, path, member string
	named              bool    // the spec names a member
	format             *Format // nil if the content decides
	std                bool    // standard input or output
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
	p, err := parseInput(spec)
	return err == nil && p.std
}

// IsStream reports whether spec names standard input, a pipe or a terminal.
func IsStream(spec string) bool {
	p, err := parseInput(spec)
	if err != nil || p.std {
		return err == nil
	}
	info, err := os.Stat(p.path)
	return err == nil && isStream(info)
}

// isStream reports whether the file is a pipe or a terminal.
func isStream(info fs.FileInfo) bool { return info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0 }

// IsText reports whether the file that spec names is written as text.
func IsText(spec string) bool {
	p, err := parseSpec(spec)
	return err == nil && p.format != nil && p.format.text
}

// parseSpec splits a spec at the first "::" after a known extension, so paths and members may
// contain colons.
func parseSpec(spec string) (place, error) {
	p := place{spec: spec}
	if p.split(p.setPath) {
		return p, p.checkMember()
	}
	if info, err := os.Stat(spec); err == nil && info.IsDir() {
		return p, p.isFolder()
	}
	return p, p.fail(gemm.ErrUnsupported, "extension %q, want one of %s", filepath.Ext(spec), extensions())
}

// parseInput parses the spec of a file that is read. The path may also be that of any existing
// file. If it has no known extension, the content decides the format.
func parseInput(spec string) (place, error) {
	p := place{spec: spec}
	set := func(path string) bool { return p.setStdin(path) || p.setPath(path) || p.setFile(path) }
	if p.split(set) {
		return p, p.checkMember()
	}
	_, err := os.Stat(spec)
	if err == nil {
		return p, p.isFolder()
	}
	return p, FileError(err)
}

// parseStream parses the spec of [Decode].
func parseStream(spec string) place {
	p := place{spec: spec}
	p.split(func(path string) bool {
		if !p.setPath(path) {
			p.path = path
		}
		return true
	})
	if p.path == "" {
		p.spec = "the stream" + spec
	}
	return p
}

// split sets the path to the first part of the spec, up to "::" or to the end, that set accepts,
// and the member to the rest. It reports false if there is none.
func (p *place) split(set func(path string) bool) bool {
	for at := 0; ; {
		i := strings.Index(p.spec[at:], "::")
		if i < 0 {
			return set(p.spec)
		}
		if set(p.spec[:at+i]) {
			p.member, p.named = p.spec[at+i+2:], true
			return true
		}
		at += i + 1
	}
}

// checkMember returns an error if the spec names a member of a format without members.
func (p *place) checkMember() error {
	if !p.named || p.format == nil || p.format.archive {
		return nil
	}
	return p.fail(ErrMember, "a %s file holds one matrix, want %s", p.format.Ext, oneLine(p.path))
}

// setStdin sets the path if it is [StdinPath], which may have an extension. It reports false for
// other files.
func (p *place) setStdin(path string) bool {
	ext, ok := strings.CutPrefix(path, StdinPath)
	ok = ok && p.setPath(stdName+ext) && p.std
	p.path = path
	return ok
}

// setFile sets the path of an existing file. It reports false if there is none.
func (p *place) setFile(path string) bool {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return false
	}
	p.path = path
	return true
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
