package main

import (
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf8"
)

// textWriter writes text to standard output or standard error. Names, messages and output of
// kernels can hold anything, so it escapes control characters except tabs and ends of lines, which
// can be commands for a terminal, and characters that change the direction of text. All output of
// the commands passes here, except matrices and progress bars.
type textWriter struct {
	file *os.File
	cut  []byte // the start of a character that the last Write ended in
}

// Write writes b. It keeps a character that b ends in for the next Write.
func (w *textWriter) Write(b []byte) (int, error) {
	rest := append(w.cut, b...)
	var out []byte
	for len(rest) > 0 && utf8.FullRune(rest) {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, rest[0])
		case r == '\t' || r == '\n' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r):
			out = append(out, rest[:size]...)
		default: // also valid in a JSON string
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	w.cut = rest
	if _, err := w.file.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// rawWriter returns a writer that writes bytes to w without escaping them.
func rawWriter(w io.Writer) io.Writer {
	if f := fileOf(w); f != nil {
		return f
	}
	return w
}

// fileOf returns the file that w writes to, or nil for a writer of another kind.
func fileOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case *textWriter:
		return w.file
	case *os.File:
		return w
	}
	return nil
}
