package gpu

import (
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// matrix is the number of the tile's matrix of an operand in its tensor; nil if that is no
// batch's.
func (w *wgmmaWriter) matrix(x int) build.Value {
	switch {
	case w.config.Batch == gemm.Single, w.config.Batch == gemm.Grouped && x == inA:
		return nil
	}
	return w.Select(w.Ne(w.strides[x], 0), w.number, 0)
}

// box is where a box of C begins in its tensor.
func (w *wgmmaWriter) box(row, col build.Reg) []build.Value {
	switch w.config.Batch {
	case gemm.Strided:
		return []build.Value{col, row, w.number}
	case gemm.Grouped:
		height := rowsOfTile(w.config.Shape)
		n := w.Min(w.Sub(w.Max(w.c.Rows, row), row), height)
		return []build.Value{col, w.Sub(height, n), w.Add(row, n)}
	}
	return []build.Value{col, row}
}
