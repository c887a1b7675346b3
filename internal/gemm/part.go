package gemm

import (
	"fmt"

	"tilework/internal/ints"
)

// Area is a part of C: Rows×Cols elements from row Row and column Col on.
type Area struct{ Row, Col, Rows, Cols int }

// String describes the area: "rows 0 to 127 and columns 0 to 63".
func (a Area) String() string {
	return fmt.Sprintf("rows %d to %d and columns %d to %d", a.Row, a.Row+a.Rows-1, a.Col, a.Col+a.Cols-1)
}

// Part returns the product that computes an area of p's C, in a dense C of its own, and the memory
// of its operands besides C, which are parts of those in b. The errors are ErrShape, if C does not
// contain the area, and ErrUnsupported for a batch and for block scales.
func (p *Problem) Part(a Area, b *Buffers) (Problem, Buffers, error) {
	if p.Batch.Kind != Single || p.BlockScaled() {
		return Problem{}, Buffers{}, fmt.Errorf("%w: a part of %v", ErrUnsupported, p)
	}
	part := *p
	part.M, part.N = a.Rows, a.Cols
	var memory Buffers
	for o := range Operands {
		if !p.Uses(o) {
			continue
		}
		i, j, rows, cols := 0, 0, 0, 0
		switch l := p.Layout(o); {
		case o == C || o == Residual:
			i, j, rows, cols = a.Row, a.Col, a.Rows, a.Cols
		case o == A:
			i, rows, cols = a.Row, a.Rows, p.K
		case o == B || o == Up:
			j, rows, cols = a.Col, p.K, a.Cols
		case p.Epilogue.VectorDim(o) == BiasRow:
			j, rows, cols = a.Row, 1, a.Rows
		case p.Epilogue.VectorDim(o) == BiasCol:
			j, rows, cols = a.Col, 1, a.Cols
		default:
			rows, cols = l.OpRows(), l.OpCols()
		}
		l, offset, err := p.Layout(o).Sub(i, j, rows, cols)
		if err != nil {
			return Problem{}, Buffers{}, fmt.Errorf("%v: %w", o.Phrase(), err)
		}
		if int(o) < len(part.Layouts) {
			part.Layouts[o] = l
		}
		if b[o] != nil && o != C {
			memory[o] = b[o][l.Type.Bytes(offset):]
		}
	}
	part.Layouts[C] = Dense(p.Out(), a.Rows, a.Cols)
	return part, memory, nil
}

// The units of shares, in rows or columns: whole tiles of most kernels, and smaller ones if there
// would be fewer than shareUnits in a share.
const (
	shareUnit      = 256
	smallShareUnit = 64
	shareUnits     = 4
)

// Shares divides C into n areas, by rows or, if C has more of them, by columns. They are as equal
// as whole tiles allow. Some are empty if C has fewer tiles than n.
func (p *Problem) Shares(n int) []Area {
	side := max(p.M, p.N)
	unit := shareUnit
	if side < shareUnits*shareUnit*n {
		unit = smallShareUnit
	}
	units := ints.CeilDiv(side, unit)
	all := make([]Area, n)
	for i := range all {
		from, to := min(units*i/n*unit, side), min(units*(i+1)/n*unit, side)
		if p.M >= p.N {
			all[i] = Area{Row: from, Rows: to - from, Cols: p.N}
		} else {
			all[i] = Area{Col: from, Rows: p.M, Cols: to - from}
		}
	}
	return all
}
