package matio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
)

// alloc returns n zeroed bytes, aligned for every element type.
func alloc(n int) []byte { return dtype.Bytes(make([]float64, (n+7)/8))[:n:n] }

// target returns the type to which elements of the file are converted.
func (s *source) target(e element) (dtype.Type, error) {
	switch {
	case s.opt.Type != dtype.Invalid:
		return s.opt.Type, nil
	case e.native == dtype.Invalid:
		return 0, s.fail(ErrNeedsType, "elements of type %s", e.Name)
	}
	return e.native, nil
}

// layout returns the layout of the matrix for an array of the given shape. The options determine
// how a 1-D array is read. fortran selects column-major order.
func (s *source) layout(e element, shape []uint64, fortran bool) (gemm.Layout, error) {
	switch {
	case len(shape) == 1 && (s.opt.OneD == Row || s.opt.OneD == Vector):
		shape = []uint64{1, shape[0]}
	case len(shape) == 1 && s.opt.OneD == Column:
		shape = []uint64{shape[0], 1}
	case len(shape) == 1:
		return gemm.Layout{}, s.fail(gemm.ErrUnsupported,
			"array has shape %s: want 2 dimensions, (1, n) or (n, 1) for a vector", tuple(shape))
	case len(shape) != 2:
		want := "2"
		if s.opt.OneD != NoMatrix {
			want = "1 or 2"
		}
		return gemm.Layout{}, s.fail(gemm.ErrUnsupported, "array has %d dimensions, shape %s: want %s", len(shape),
			tuple(shape), want)
	}
	rows, cols := shape[0], shape[1]
	switch {
	case s.opt.OneD == Vector && rows != 1 && cols != 1:
		return gemm.Layout{}, s.fail(gemm.ErrShape, "got a %d×%d matrix, want a vector", rows, cols)
	case max(rows, cols) > math.MaxInt:
		return gemm.Layout{}, s.fail(tooLarge(), "shape %s has a side of 2^%d or more", tuple(shape), strconv.IntSize-1)
	}
	t, err := s.target(e)
	if err != nil {
		return gemm.Layout{}, err
	}
	l := gemm.Dense(t, int(rows), int(cols))
	if fortran {
		l = gemm.Dense(t, int(cols), int(rows)).T()
	}
	if l.Check("") != nil || l.Len() > math.MaxInt/e.Bytes(1) {
		return gemm.Layout{}, s.fail(tooLarge(), "shape %s of %s has 2^%d or more bytes", tuple(shape), e.Name,
			strconv.IntSize-1)
	}
	return l, nil
}

// tooLarge returns the kind of the error for an array with more elements or bytes than an int
// counts. No file has 2^63 bytes, but some have the 2^31 that are too many for a 32-bit program.
func tooLarge() error {
	if strconv.IntSize < 64 {
		return sentinel.ErrOutOfMemory
	}
	return ErrFormat
}

// rank returns the rank of an array for [source.pick]. Matrices have a higher rank than 1-D arrays.
// Among arrays of the same dimension, those that need a conversion have a lower rank. Arrays that
// cannot be read have rank 0.
func (s *source) rank(e element, shape []uint64) int {
	dims := len(shape)
	if s.opt.OneD == Vector {
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

// tuple formats a shape like a Python tuple.
func tuple(shape []uint64) string {
	if len(shape) == 1 {
		return fmt.Sprintf("(%d,)", shape[0])
	}
	return "(" + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(shape), "[]")), ", ") + ")"
}

// checkSize returns an error unless the elements of l take exactly have bytes.
func (s *source) checkSize(l gemm.Layout, e element, have int64) error {
	if want := int64(e.Bytes(l.Len())); want != have {
		return s.fail(ErrFormat, "%d×%d %s takes %d bytes, the file holds %d", l.OpRows(), l.OpCols(), e.Name, want,
			have)
	}
	return nil
}

// A matrix may take expansionFloor bytes or expansionRatio times the bytes that a file stores for
// it, whichever is more.
const (
	expansionFloor = 256 << 20
	expansionRatio = 64
)

// checkExpansion returns an error if a matrix is far larger than the bytes that the file stores for
// it.
func (s *source) checkExpansion(l gemm.Layout, stored int64) error {
	if bytes := int64(l.Bytes()); !s.opt.Expand && bytes > s.floor && bytes/expansionRatio > stored {
		return s.fail(ErrExpansion, "%d×%d %v takes %d bytes, stored in %d: want at most %d bytes or %d times the stored",
			l.OpRows(), l.OpCols(), l.Type, bytes, stored, s.floor, expansionRatio)
	}
	return nil
}

// readError converts the error of a failed read. Errors of the operating system and of the context
// are kept; all others come from decoders and become ErrFormat.
func (s *source) readError(err error) error {
	var system *fs.PathError
	switch {
	case isEOF(err):
		return s.fail(ErrFormat, "file ends too early")
	case errors.As(err, &system), s.ctx.Err() != nil && errors.Is(err, s.ctx.Err()):
		return fmt.Errorf("%s: %w", oneLine(s.spec), err)
	}
	return s.fail(ErrFormat, "%v", err)
}

// isEOF reports whether err is io.EOF or io.ErrUnexpectedEOF.
func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// swapBytes reverses the byte order of elements of size bytes.
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
