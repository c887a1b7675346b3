package matio

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"strings"

	"tilework/internal/gemm"
)

// openStdin reads standard input to its end.
func (s *source) openStdin() error {
	if s.opt.Stdin == nil {
		return s.fail(gemm.ErrUnsupported, "want a file")
	}
	s.spec = "standard input" + strings.TrimPrefix(strings.TrimPrefix(s.spec, StdinPath), stdName)
	return s.openStream(s.opt.Stdin)
}

// openFile opens a regular file. A pipe or a terminal is read to its end.
func (s *source) openFile() error {
	info, err := os.Stat(s.path)
	switch {
	case err != nil:
		return FileError(err)
	case info.IsDir():
		return s.isFolder()
	case isStream(info):
		pipe, err := openPipe(s.ctx, s.path)
		if err != nil {
			return FileError(err)
		}
		defer pipe.Close() // ends a read that still waits
		return s.openStream(pipe)
	case !info.Mode().IsRegular():
		return s.fail(gemm.ErrUnsupported, "want a regular file, a pipe or a terminal")
	}
	if s.file, err = os.Open(s.path); err != nil {
		return FileError(err)
	}
	if s.info, err = s.file.Stat(); err != nil {
		return err
	}
	s.r, s.size = s.file, s.info.Size()
	return nil
}

// openPipe opens a named pipe, which waits for a program that writes to it. If ctx ends first,
// openPipe returns its error.
func openPipe(ctx context.Context, path string) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result, 1)
	go func() {
		f, err := os.Open(path)
		done <- result{f, err}
	}()
	select {
	case r := <-done:
		return r.file, r.err
	case <-ctx.Done():
	}
	closed := make(chan struct{})
	go func() {
		if r := <-done; r.err == nil {
			r.file.Close()
		}
		close(closed)
	}()
	// A pipe that is also open for writing does not wait. On Linux this open itself never waits.
	if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
		<-closed
		f.Close()
	}
	return nil, ctx.Err()
}

// openStream reads r to its end.
func (s *source) openStream(r io.Reader) error {
	content, err := s.spool(r)
	if err != nil {
		return err
	}
	s.setContent(content)
	return nil
}

// setContent replaces the file by its content in memory.
func (s *source) setContent(content []byte) {
	s.spooled, s.r, s.size = content, bytes.NewReader(content), int64(len(content))
}

// spool reads r until its end or until the context ends. In the second case, a goroutine that is
// blocked in a read keeps running.
func (s *source) spool(r io.Reader) ([]byte, error) {
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		content, err := s.spoolAll(r, math.MaxInt64)
		done <- result{content, err}
	}()
	select {
	case r := <-done:
		return r.content, r.err
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// spoolAll reads r to its end into a buffer that doubles as needed. More than the given number of
// bytes are an error. It reads no further if the first bytes are those of no format, as from
// /dev/zero.
func (s *source) spoolAll(r io.Reader, most int64) ([]byte, error) {
	content := alloc(64 << 10)
	for n := 0; ; {
		k, err := io.ReadFull(r, content[n:])
		n += k
		if int64(n) > most {
			return nil, s.fail(ErrExpansion, "more than %d bytes, compressed to %d: want at most %d bytes or %d times the "+
				"compressed", most, s.size, s.floor, expansionRatio)
		}
		if isEOF(err) || err == nil && recognise(content) == nil && string(content[:2]) != gzipMagic {
			return content[:n], nil
		}
		if err != nil {
			return nil, s.readError(err)
		}
		if err := s.opt.room(2*n, oneLine(s.spec)); err != nil {
			return nil, err
		}
		more := alloc(2 * n)
		copy(more, content)
		content = more
	}
}
