package tilework

import (
	"fmt"
	"math"
	"math/bits"

	"tilework/internal/gemm"
)

// shape is the size of an operand. All kinds of matrices embed it.
type shape struct {
	layout gemm.Layout
	err    error
}

// Rows returns the number of rows; of a batch, of each matrix.
func (s shape) Rows() int { return s.layout.OpRows() }

// Cols returns the number of columns; of a batch, of each matrix.
func (s shape) Cols() int { return s.layout.OpCols() }

// Err returns the error with which the operand was made, or nil. It wraps ErrShape, ErrOutOfMemory
// or ErrNoDevice. Every product with the operand returns it too.
func (s shape) Err() error { return s.err }

// view is the part of a matrix that does not depend on where its elements are stored.
type view struct{ shape }

// Transposed reports whether the stored rows are the columns of the matrix.
func (v view) Transposed() bool { return v.layout.Trans }

// Stride returns the number of elements from the start of one stored row to the next.
func (v view) Stride() int { return v.layout.LD }

// sub returns the rows×cols part that starts at element (i, j), and the distance of that element
// from the first element of v in memory.
func (v view) sub(i, j, rows, cols int) (part view, offset int) {
	switch {
	case v.err != nil:
		return v, 0
	case i < 0 || j < 0 || rows < 0 || cols < 0 || rows > v.Rows()-i || cols > v.Cols()-j:
		err := fmt.Errorf("%w: a %d×%d part from (%d, %d) of a %d×%d matrix", ErrShape, rows, cols, i, j, v.Rows(), v.Cols())
		return view{shape{err: err}}, 0
	}
	if rows > 0 && cols > 0 {
		offset = v.layout.Index(i, j)
	}
	if v.layout.Rows, v.layout.Cols = rows, cols; v.layout.Trans {
		v.layout.Rows, v.layout.Cols = cols, rows
	}
	return v, offset
}

// area returns rows·cols. The error is ErrShape.
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
