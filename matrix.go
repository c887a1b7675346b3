package tilework

import (
	"fmt"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// Matrix is a view of rows×cols elements of a slice, stored row by row. Views may share memory;
// copying a Matrix copies the view and not the elements. The zero Matrix is 0×0.
//
// The functions that make a Matrix return no error. An invalid Matrix keeps its error and returns
// it from [Matrix.Err] and from every product.
type Matrix[T dtype.Element] struct {
	view
	data []T
}

// New returns a rows×cols matrix of zeros.
func New[T dtype.Element](rows, cols int) Matrix[T] {
	n, err := area(rows, cols)
	if err == nil {
		var bytes int
		if bytes, err = area(n, int(unsafe.Sizeof(*new(T)))); err == nil {
			err = host.CheckMemory(bytes, fmt.Sprintf("a %d×%d %v matrix", rows, cols, dtype.Of[T]()))
		}
	}
	if err != nil {
		return invalidMatrix[T](err)
	}
	return Matrix[T]{dense[T](rows, cols), make([]T, n)}
}

// FromSlice returns the rows×cols matrix stored in data, which must hold exactly rows·cols
// elements, row by row. The memory is shared.
func FromSlice[T dtype.Element](rows, cols int, data []T) Matrix[T] {
	n, err := area(rows, cols)
	if err == nil && len(data) != n {
		err = fmt.Errorf("%w: a slice of %d elements as a %d×%d matrix, want %d", ErrShape, len(data), rows, cols, n)
	}
	if err != nil {
		return invalidMatrix[T](err)
	}
	return Matrix[T]{dense[T](rows, cols), data}
}

// Vector returns the 1×n matrix of n elements. Vector(s...) shares the memory of s, and Vector(x)
// is a 1×1 matrix.
func Vector[T dtype.Element](elements ...T) Matrix[T] {
	return Matrix[T]{dense[T](1, len(elements)), elements}
}

// FromStrided returns the rows×cols matrix stored in data with stride elements from the start of
// one row to the next. The stride must be at least cols, and data must reach the last element. The
// memory is shared. Elements between the rows are never read or written.
func FromStrided[T dtype.Element](rows, cols, stride int, data []T) Matrix[T] {
	l := gemm.Layout{Type: dtype.Of[T](), Rows: rows, Cols: cols, LD: max(stride, cols, 1)}
	err := l.Check("the matrix")
	switch {
	case err != nil:
	case stride < cols:
		err = fmt.Errorf("%w: a %d×%d matrix of stride %d, want a stride of at least %d", ErrShape, rows, cols, stride, cols)
	case len(data) < l.Len():
		err = fmt.Errorf("%w: a slice of %d elements as a %d×%d matrix of stride %d, want at least %d", ErrShape, len(data),
			rows, cols, stride, l.Len())
	}
	if err != nil {
		return invalidMatrix[T](err)
	}
	return Matrix[T]{view{shape{layout: l}}, data[:l.Len()]}
}

func dense[T dtype.Element](rows, cols int) view {
	return view{shape{layout: gemm.Layout{Type: dtype.Of[T](), Rows: rows, Cols: cols, LD: max(cols, 1)}}}
}

func invalidMatrix[T dtype.Element](err error) Matrix[T] {
	return Matrix[T]{view: view{shape{err: err}}}
}

// Data returns the memory of the matrix, shared, from its first element to its last, with the
// elements between stored rows. Element (i, j) is Data()[i·Stride()+j], or Data()[j·Stride()+i] if
// Transposed.
func (m Matrix[T]) Data() []T { return m.data }

// At returns element (i, j). It panics if the index is out of range.
func (m Matrix[T]) At(i, j int) T { return m.data[m.index(i, j)] }

// Set sets element (i, j) to v. It panics if the index is out of range.
func (m Matrix[T]) Set(i, j int, v T) { m.data[m.index(i, j)] = v }

func (m *Matrix[T]) index(i, j int) int {
	l := &m.layout // its methods copy it
	row, col := i, j
	if l.Trans {
		row, col = j, i
	}
	if uint(row) >= uint(l.Rows) || uint(col) >= uint(l.Cols) {
		panic(fmt.Sprintf("tilework: element (%d, %d) of a %d×%d matrix", i, j, m.Rows(), m.Cols()))
	}
	return row*l.LD + col
}

// T returns the transpose, a view of the same memory.
func (m Matrix[T]) T() Matrix[T] {
	m.layout.Trans = !m.layout.Trans
	return m
}

// Sub returns the rows×cols part of m that starts at element (i, j), a view of the same memory.
func (m Matrix[T]) Sub(i, j, rows, cols int) Matrix[T] {
	part, offset := m.sub(i, j, rows, cols)
	s := Matrix[T]{view: part}
	if n := part.layout.Len(); n > 0 {
		s.data = m.data[offset : offset+n : offset+n]
	}
	return s
}

// clone returns a copy of the matrix in new memory, without gaps between rows and not transposed.
func (m Matrix[T]) clone() Matrix[T] {
	if m.err != nil {
		return m
	}
	c := New[T](m.Rows(), m.Cols())
	if c.err == nil {
		c.set(m)
	}
	return c
}

// set copies the elements of a matrix of the same size.
func (m Matrix[T]) set(from Matrix[T]) {
	if m.Transposed() {
		m, from = m.T(), from.T()
	}
	cols := m.Cols()
	if cols == 0 {
		return
	}
	for i := range m.Rows() {
		row := m.data[i*m.Stride():][:cols]
		if !from.Transposed() {
			copy(row, from.data[i*from.Stride():])
			continue
		}
		for j := range row {
			row[j] = from.data[j*from.Stride()+i]
		}
	}
}

// describe writes the layout of the matrix to l. A small product waits for a struct that is copied
// right after its fields were written, so that fields are written in their final place.
func (m *Matrix[T]) describe(l *gemm.Layout) {
	l.Type, l.Rows, l.Cols = dtype.Of[T](), m.layout.Rows, m.layout.Cols
	l.LD, l.Trans = max(m.layout.LD, 1), m.layout.Trans
}

func (m Matrix[T]) bytes() []byte { return dtype.Bytes(m.data) }

func (Matrix[T]) operand(T) {}
