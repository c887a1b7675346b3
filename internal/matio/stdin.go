package matio

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"

	"tilework/internal/gemm"
)

// openStdin reads standard input to its end. If the spec gives no format, it detects the format
// from the first bytes.
func (s *source) openStdin() error {
	if s.opt.Stdin == nil {
		return s.fail(gemm.ErrUnsupported, "want a file")
	}
	content, err := s.spool()
	if err != nil {
		return err
	}
	s.spec = strings.Replace(s.spec, stdName, "standard input", 1)
	s.r, s.size = bytes.NewReader(content), int64(len(content))
	if s.format == nil {
		s.format = recognise(content)
		if s.member != "" && !s.format.archive {
			return s.fail(ErrMember, "a %s file holds one matrix: want no member", s.format.Ext)
		}
	}
	return nil
}

// spool reads standard input until its end or until the context ends. In the second case, a
// goroutine that is blocked in a read keeps running.
func (s *source) spool() ([]byte, error) {
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		content, err := s.spoolAll()
		done <- result{content, err}
	}()
	select {
	case r := <-done:
		return r.content, r.err
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// spoolAll reads standard input to its end into a buffer that doubles as needed.
func (s *source) spoolAll() ([]byte, error) {
	content := alloc(64 << 10)
	for n := 0; ; {
		k, err := io.ReadFull(s.opt.Stdin, content[n:])
		n += k
		if isEOF(err) {
			return content[:n], nil
		}
		if err != nil {
			return nil, s.readError(err)
		}
		if err := s.opt.room(2*n, "standard input"); err != nil {
			return nil, err
		}
		more := alloc(2 * n)
		copy(more, content)
		content = more
	}
}

// recognise returns the format of a file from its first bytes. Text without a known prefix is CSV.
func recognise(content []byte) *Format {
	ext := ".csv"
	switch {
	case bytes.HasPrefix(content, []byte(npyMagic)):
		ext = ".npy"
	case bytes.HasPrefix(content, []byte("PK\x03\x04")), bytes.HasPrefix(content, []byte("PK\x05\x06")):
		ext = ".npz"
	case bytes.HasPrefix(bytes.ToLower(content[:min(len(content), 14)]), []byte("%%matrixmarket")):
		ext = ".mtx"
	case len(content) > 8 && binary.LittleEndian.Uint64(content) <= safetensorsMaxHeader && content[8] == '{':
		ext = ".safetensors"
	}
	return formatOf(ext)
}
