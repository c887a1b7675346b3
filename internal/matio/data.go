package matio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// alloc is n zeroed bytes, aligned for every element type.
func alloc(n int) []byte { return dtype.Bytes(make([]float64, (n+7)/8))[:n:n] }

// target returns the type that elements of the file are read as.
func (s *source) target(e element) (dtype.Type, error) {
	switch {
	case s.opt.Type != dtype.Invalid:
		return s.opt.Type, nil
	case e.native == dtype.Invalid:
		return 0, s.fail(ErrNeedsType, "elements of type %s", e.name)
	}
	return e.native, nil
}

// layout returns the layout of a matrix read from an array of the given shape. A 1-D array
// is a vector or the matrix that the options make of it.
func (s *source) layout(e element, shape []uint64, fortran bool) (gemm.Layout, error) {
	switch {
	case len(shape) == 1 && (s.opt.Vector || s.opt.OneD == Row):
		shape = []uint64{1, shape[0]}
	case len(shape) == 1 && s.opt.OneD == Column:
		shape = []uint64{shape[0], 1}
	case len(shape) == 1 && !s.opt.Vector:
		return gemm.Layout{}, s.fail(gemm.ErrUnsupported, "an array of 1 dimensions, shape %s, want 2 dimensions, as (1, n) or (n, 1) of a vector", tuple(shape))
	case len(shape) != 2:
		return gemm.Layout{}, s.fail(gemm.ErrUnsupported, "an array of %d dimensions, shape %s, want 2", len(shape), tuple(shape))
	}
	rows, cols := shape[0], shape[1]
	switch {
	case s.opt.Vector && rows != 1 && cols != 1:
		return gemm.Layout{}, s.fail(gemm.ErrShape, "a %d×%d matrix, want a vector", rows, cols)
	case max(rows, cols) > math.MaxInt:
		return gemm.Layout{}, s.fail(ErrFormat, "shape %s is beyond this machine's integers", tuple(shape))
	}
	t, err := s.target(e)
	if err != nil {
		return gemm.Layout{}, err
	}
	l := gemm.Dense(t, int(rows), int(cols))
	if fortran {
		l = gemm.Dense(t, int(cols), int(rows)).T()
	}
	if l.Check("") != nil || l.Len() > math.MaxInt/e.size {
		return gemm.Layout{}, s.fail(ErrFormat, "shape %s of %s is more bytes than 63 bits count", tuple(shape), e.name)
	}
	return l, nil
}

// rank ranks an array for [source.pick]: a matrix before a 1-D array, and each before one of
// that many dimensions that needs a conversion. An array that cannot be read has rank 0.
func (s *source) rank(e element, shape []uint64) int {
	dims := len(shape)
	if s.opt.Vector {
		dims = 1
	}
	one := *s
	one.opt.Type = dtype.F64
	if _, err := one.layout(e, shape, false); err != nil {
		return 0
	}
	if _, err := s.target(e); err != nil {
		return 2*dims - 1
	}
	return 2 * dims
}

// tuple is a shape as Python writes it.
func tuple(shape []uint64) string {
	if len(shape) == 1 {
		return fmt.Sprintf("(%d,)", shape[0])
	}
	return "(" + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(shape), "[]")), ", ") + ")"
}

// checkSize returns an error unless the elements of l fill the bytes that the file has for them.
func (s *source) checkSize(l gemm.Layout, e element, have int64) error {
	if want := int64(l.Len()) * int64(e.size); want != have {
		return s.fail(ErrFormat, "%d×%d %s takes %d bytes, the file holds %d", l.OpRows(), l.OpCols(), e.name, want, have)
	}
	return nil
}

// readError returns the error of a failed read: the operating system's error, the context's, or
// ErrFormat where a decoder did not accept the content.
func (s *source) readError(err error) error {
	var system *fs.PathError
	switch {
	case isEOF(err):
		return s.fail(ErrFormat, "the file ends too early")
	case errors.As(err, &system), s.ctx.Err() != nil && errors.Is(err, s.ctx.Err()):
		return fmt.Errorf("%s: %w", oneLine(s.spec), err)
	}
	return s.fail(ErrFormat, "%v", err)
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// swapBytes turns elements of size bytes from one byte order into the other.
func swapBytes(b []byte, size int) {
	switch size {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			b[0], b[1] = b[1], b[0]
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			binary.NativeEndian.PutUint32(b, bits.ReverseBytes32(binary.NativeEndian.Uint32(b)))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.NativeEndian.PutUint64(b, bits.ReverseBytes64(binary.NativeEndian.Uint64(b)))
		}
	}
}
