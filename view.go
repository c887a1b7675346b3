package tilework

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

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

// sub returns the part that [gemm.Layout.Sub] describes, with its offset in elements.
func (v view) sub(i, j, rows, cols int) (part view, offset int) {
	if v.err != nil {
		return v, 0
	}
	l, offset, err := v.layout.Sub(i, j, rows, cols)
	return view{shape{layout: l, err: err}}, offset
}

// area returns rows·cols. The error is ErrShape.
func area(rows, cols int) (int, error) {
	if rows < 0 || cols < 0 {
		return 0, fmt.Errorf("%w: a %d×%d matrix", ErrShape, rows, cols)
	}
	hi, lo := bits.Mul(uint(rows), uint(cols))
	if hi != 0 || lo > math.MaxInt {
		return 0, fmt.Errorf("%w: a %d×%d matrix has more elements than %d bits count", ErrShape, rows, cols,
			strconv.IntSize-1)
	}
	return int(lo), nil
}
