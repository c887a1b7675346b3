package tilework

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// Element is the set of types that a matrix may hold.
type Element = dtype.Element

// Float is the set of types whose products have the same type.
type Float interface {
	float64 | float32 | Float16 | BFloat16
}

// Float16 is IEEE 754 binary16, BFloat16 the upper half of a float32. Products
// of them are summed in float32 and rounded once.
type (
	Float16  = dtype.Float16
	BFloat16 = dtype.BFloat16
)

// Float8E4M3 and Float8E5M2 are the 8-bit floats of the OCP, with 4 and 5 bits of exponent.
// The first has no infinities, and larger numbers become a NaN. Products of them are
// matrices of float32, [BFloat16], [Float16] or their own type. Most kernels sum them in float32.
// On a Hopper GPU the kernel wgmma sums 128 products in the 14 bits of the tensor cores before it
// adds them in float32, and with [Fast] all of them: KernelInfo.Sums tells for each kernel.
type (
	Float8E4M3 = dtype.Float8E4M3
	Float8E5M2 = dtype.Float8E5M2
)

// Matrix is a view of rows×cols elements in a slice, row after row. Views may
// share memory; copying a Matrix copies the view and not the elements. The zero
// Matrix is 0×0.
//
// The functions that make a Matrix return no error: what is wrong with one is
// kept in it, and comes out of whatever multiplies it, or of [Matrix.Err].
type Matrix[T Element] struct {
	data       []T
	rows, cols int // as seen, that is, after transposition
	stride     int // elements between the starts of stored rows
	trans      bool
	err        error
}

// New is a rows×cols matrix of zeros.
func New[T Element](rows, cols int) Matrix[T] {
	n, err := area(rows, cols)
	if err == nil {
		var bytes int
		if bytes, err = area(n, int(unsafe.Sizeof(*new(T)))); err == nil {
			err = host.CheckMemory(bytes, fmt.Sprintf("a %d×%d %v matrix", rows, cols, dtype.Of[T]()))
		}
	}
	if err != nil {
		return Matrix[T]{err: err}
	}
	return Matrix[T]{data: make([]T, n), rows: rows, cols: cols, stride: max(cols, 1)}
}

// FromSlice is a rows×cols matrix over data, which must hold exactly rows·cols
// elements, row after row. The memory is shared.
func FromSlice[T Element](rows, cols int, data []T) Matrix[T] {
	n, err := area(rows, cols)
	if err == nil && len(data) != n {
		err = fmt.Errorf("%w: a slice of %d elements as a %d×%d matrix, want %d", ErrShape, len(data), rows, cols, n)
	}
	if err != nil {
		return Matrix[T]{err: err}
	}
	return Matrix[T]{data: data, rows: rows, cols: cols, stride: max(cols, 1)}
}

// FromStrided is a rows×cols matrix over data whose rows start stride elements
// apart; stride is at least cols, and data reaches at least to the last element.
// The memory is shared; what lies between the rows is never read or written.
func FromStrided[T Element](rows, cols, stride int, data []T) Matrix[T] {
	l := gemm.Layout{Type: dtype.Of[T](), Rows: rows, Cols: cols, LD: stride}
	err := l.Check("the matrix")
	if err == nil && len(data) < l.Len() {
		err = fmt.Errorf("%w: a slice of %d elements as a %d×%d matrix of stride %d, want at least %d", ErrShape, len(data), rows, cols, stride, l.Len())
	}
	if err != nil {
		return Matrix[T]{err: err}
	}
	return Matrix[T]{data: data[:l.Len()], rows: rows, cols: cols, stride: stride}
}

// area is rows·cols, checked.
func area(rows, cols int) (int, error) {
	if rows < 0 || cols < 0 {
		return 0, fmt.Errorf("%w: a %d×%d matrix", ErrShape, rows, cols)
	}
	hi, lo := bits.Mul(uint(rows), uint(cols))
	if hi != 0 || lo > math.MaxInt {
		return 0, fmt.Errorf("%w: a %d×%d matrix has more elements than 63 bits count", ErrShape, rows, cols)
	}
	return int(lo), nil
}

// Rows is the number of rows.
func (m Matrix[T]) Rows() int { return m.rows }

// Cols is the number of columns.
func (m Matrix[T]) Cols() int { return m.cols }

// Err is what is wrong with the matrix, nil if nothing is. It wraps ErrShape or
// ErrOutOfMemory.
func (m Matrix[T]) Err() error { return m.err }

// Data is the memory of the matrix, shared: from its first element to its last,
// with what lies between stored rows. Element (i, j) is Data()[i·Stride()+j], or
// Data()[j·Stride()+i] if Transposed.
func (m Matrix[T]) Data() []T { return m.data }

// Stride is the number of elements from the start of one stored row to the next.
func (m Matrix[T]) Stride() int { return m.stride }

// Transposed reports whether the stored rows are the matrix's columns.
func (m Matrix[T]) Transposed() bool { return m.trans }

// At is element (i, j). Like an index of a slice, it panics out of range.
func (m Matrix[T]) At(i, j int) T { return m.data[m.index(i, j)] }

// Set makes v element (i, j). Like an index of a slice, it panics out of range.
func (m Matrix[T]) Set(i, j int, v T) { m.data[m.index(i, j)] = v }

func (m Matrix[T]) index(i, j int) int {
	if uint(i) >= uint(m.rows) || uint(j) >= uint(m.cols) {
		panic(fmt.Sprintf("tilework: element (%d, %d) of a %d×%d matrix", i, j, m.rows, m.cols))
	}
	return m.layout().Index(i, j)
}

// T is the transpose: the same memory seen the other way round.
func (m Matrix[T]) T() Matrix[T] {
	m.rows, m.cols, m.trans = m.cols, m.rows, !m.trans
	return m
}

// Sub is the rows×cols matrix whose first element is element (i, j) of m. The
// memory is shared.
func (m Matrix[T]) Sub(i, j, rows, cols int) Matrix[T] {
	if m.err != nil {
		return m
	}
	if i < 0 || j < 0 || rows < 0 || cols < 0 || rows > m.rows-i || cols > m.cols-j {
		return Matrix[T]{err: notPart(i, j, rows, cols, m.rows, m.cols)}
	}
	s := m
	s.rows, s.cols = rows, cols
	s.data = nil
	if n := s.layout().Len(); n > 0 {
		at := m.layout().Index(i, j)
		s.data = m.data[at : at+n : at+n]
	}
	return s
}

func notPart(i, j, rows, cols, ofRows, ofCols int) error {
	return fmt.Errorf("%w: a %d×%d part from (%d, %d) of a %d×%d matrix", ErrShape, rows, cols, i, j, ofRows, ofCols)
}

// Clone is a copy of the matrix with memory of its own, without room between the
// rows and not transposed.
func (m Matrix[T]) Clone() Matrix[T] {
	if m.err != nil {
		return m
	}
	c := New[T](m.rows, m.cols)
	if c.err == nil {
		c.copyFrom(m)
	}
	return c
}

// copyFrom overwrites m, which is not transposed, with a matrix of its size.
func (m Matrix[T]) copyFrom(from Matrix[T]) {
	if m.cols == 0 {
		return
	}
	for i := range m.rows {
		row := m.data[i*m.stride:][:m.cols]
		if !from.trans {
			copy(row, from.data[i*from.stride:])
			continue
		}
		for j := range row {
			row[j] = from.data[j*from.stride+i]
		}
	}
}

// layout is the matrix as the backends see it.
func (m *Matrix[T]) layout() (l gemm.Layout) {
	m.describe(&l)
	return l
}

// describe writes the layout where it is to be: a small product waits for a copy of what has
// just been written.
func (m *Matrix[T]) describe(l *gemm.Layout) {
	l.Type, l.LD, l.Trans = dtype.Of[T](), max(m.stride, 1), m.trans
	if l.Rows, l.Cols = m.rows, m.cols; m.trans {
		l.Rows, l.Cols = m.cols, m.rows
	}
}

func bytesOf[T Element](m Matrix[T]) []byte { return dtype.Bytes(m.data) }
