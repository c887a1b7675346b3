package matio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"os"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// mapMin is the size in bytes from which a matrix is mapped and not read: below
// it, a system call and page faults cost more than a copy.
const mapMin = 1 << 20

// bigEndian tells the machine's byte order.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// alloc is n zeroed bytes, aligned for every element type.
func alloc(n int) []byte { return dtype.Bytes(make([]float64, (n+7)/8))[:n:n] }

// layout is the layout of an array of the given shape, which must be that of a
// matrix, or of a vector where one is asked for.
func (s *source) layout(t dtype.Type, shape []uint64, fortran bool) (gemm.Layout, error) {
	switch {
	case len(shape) == 1 && s.opt.Vector:
		shape = []uint64{1, shape[0]}
	case len(shape) != 2:
		return gemm.Layout{}, s.fail(gemm.ErrUnsupported, "an array of %d dimensions, shape %s, want 2 dimensions, as (1, n) or (n, 1) of a vector", len(shape), tuple(shape))
	}
	rows, cols := shape[0], shape[1]
	switch {
	case s.opt.Vector && rows != 1 && cols != 1:
		return gemm.Layout{}, s.fail(gemm.ErrShape, "a %d×%d matrix, want a vector", rows, cols)
	case max(rows, cols) > math.MaxInt:
		return gemm.Layout{}, s.fail(ErrFormat, "shape %s is beyond this machine's integers", tuple(shape))
	}
	l := gemm.Dense(t, int(rows), int(cols))
	if fortran {
		l = gemm.Dense(t, int(cols), int(rows)).T()
	}
	if l.Check("") != nil {
		return gemm.Layout{}, s.fail(ErrFormat, "shape %s of %v is more bytes than 63 bits count", tuple(shape), t)
	}
	return l, nil
}

// tuple is a shape as Python writes it.
func tuple(shape []uint64) string {
	if len(shape) == 1 {
		return fmt.Sprintf("(%d,)", shape[0])
	}
	return "(" + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(shape), "[]")), ", ") + ")"
}

// checkSize refuses a matrix that is not as large as the bytes that are there
// for it.
func (s *source) checkSize(l gemm.Layout, have int64) error {
	if int64(l.Bytes()) != have {
		return s.fail(ErrFormat, "%d×%d %v takes %d bytes, the file holds %d", l.OpRows(), l.OpCols(), l.Type, l.Bytes(), have)
	}
	return nil
}

// load maps or reads the matrix that starts off bytes into the file.
func (s *source) load(l gemm.Layout, off int64, big bool) (*Matrix, error) {
	m := &Matrix{Layout: l}
	n, size := l.Bytes(), l.Type.Size()
	swap := size > 1 && big != bigEndian
	if f, ok := s.r.(*os.File); ok && n >= mapMin && !swap && off%int64(size) == 0 {
		// A file system that cannot map a file can still read it.
		if data, unmap, err := mapFile(f, off, n); err == nil {
			m.Data, m.unmap = data, unmap
			return m, nil
		}
	}
	m.Data = alloc(n)
	if _, err := io.ReadFull(s.section(off, int64(n)), m.Data); err != nil {
		return nil, s.readError(err)
	}
	if swap {
		swapBytes(m.Data, size)
	}
	return m, nil
}

// readError is what a failed read means: the operating system's error, the context's, or
// content that a decoder did not accept.
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

// holds reports whether t takes v: the floating types round whatever comes, the
// integer types want it exactly.
func holds(t dtype.Type, v float64) bool { return !t.Info().Integer || t.Round(v) == v }

// convert replaces m's elements by ones of type t, without padding.
func (s *source) convert(m *Matrix, t dtype.Type) error {
	out := gemm.Dense(t, m.Rows, m.Cols)
	out.Trans = m.Trans
	if err := out.Check(oneLine(s.spec)); err != nil {
		return err
	}
	if err := s.room(out); err != nil {
		return err
	}
	data := alloc(out.Bytes())
	var chunk [1024]float64
	for first := 0; first < out.Len(); first += len(chunk) {
		values := chunk[:min(len(chunk), out.Len()-first)]
		m.Type.Load(values, m.Data[first*m.Type.Size():])
		if t.Info().Integer {
			for i, v := range values {
				if !holds(t, v) {
					row, col := (first+i)/m.Cols, (first+i)%m.Cols
					if m.Trans {
						row, col = col, row
					}
					return s.fail(gemm.ErrUnsupported, "element (%d, %d) is %v, which %v cannot hold exactly", row, col, v, t)
				}
			}
		}
		t.Store(data[first*t.Size():], values)
	}
	err := m.Close()
	m.Layout, m.Data = out, data
	return err
}
