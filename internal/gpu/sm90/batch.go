package sm90

import (
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// batchCoord returns the coordinate of the current product in the third dimension of the tensor
// map of operand o. It returns nil if the tensor has two dimensions: one matrix, or the A of a
// grouped product.
func (w *writer) batchCoord(o gemm.Operand) build.Value {
	switch {
	case w.Config.Batch == gemm.Single, w.Config.Batch == gemm.Grouped && o == gemm.A:
		return nil
	}
	return w.Select(w.Ne(w.Strides[o], 0), w.batchIndex, 0)
}

// storeCoords returns the tensor coordinates, innermost first, of the TMA box of C whose first
// element is (row, col). In a grouped product the tensor map of C has overlapping rows, so that a
// box can end at the last row of its group. See [kernel.BatchTensorMaps].
func (w *writer) storeCoords(row, col build.Reg) []build.Value {
	switch w.Config.Batch {
	case gemm.Strided:
		return []build.Value{col, row, w.batchIndex}
	case gemm.Grouped:
		height := validRows(w.Config.Tile)
		n := w.Min(w.Sub(w.Max(w.C.Rows, row), row), height)
		return []build.Value{col, w.Sub(height, n), w.Add(row, n)}
	}
	return []build.Value{col, row}
}
