package sm90

import (
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// matrix is the number of the tile's matrix of an operand in its tensor; nil if that is no
// batch's.
func (w *writer) matrix(o gemm.Operand) build.Value {
	switch {
	case w.Config.Batch == gemm.Single, w.Config.Batch == gemm.Grouped && o == gemm.A:
		return nil
	}
	return w.Select(w.Ne(w.Strides[o], 0), w.number, 0)
}

// box is where a box of C begins in its tensor.
func (w *writer) box(row, col build.Reg) []build.Value {
	switch w.Config.Batch {
	case gemm.Strided:
		return []build.Value{col, row, w.number}
	case gemm.Grouped:
		height := rowsOfTile(w.Config.Tile)
		n := w.Min(w.Sub(w.Max(w.C.Rows, row), row), height)
		return []build.Value{col, w.Sub(height, n), w.Add(row, n)}
	}
	return []build.Value{col, row}
}
