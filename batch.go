package tilework

import (
	"fmt"

	"tilework/dtype"
)

// Batch is a list of matrices in the host's memory. Their sizes may differ, except where a function
// states otherwise.
type Batch[T dtype.Element] []Matrix[T]

// size returns the size that all matrices of the batch share. The error is ErrShape, or that of an
// invalid matrix.
func (b Batch[T]) size() (rows, cols int, err error) {
	for i, m := range b {
		switch {
		case m.err != nil:
			return 0, 0, fmt.Errorf("matrix %d of the batch: %w", i, m.err)
		case m.Rows() != b[0].Rows() || m.Cols() != b[0].Cols():
			return 0, 0, fmt.Errorf("%w: matrix %d of the batch is %d×%d, and the first %d×%d", ErrShape, i, m.Rows(), m.Cols(),
				b[0].Rows(), b[0].Cols())
		}
	}
	if len(b) > 0 {
		rows, cols = b[0].Rows(), b[0].Cols()
	}
	return rows, cols, nil
}

func (Batch[T]) operand(T) {}
