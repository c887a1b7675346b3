package gemm

import (
	"fmt"

	"tilework/dtype"
)

// ScaleBlock is how far along K one block scale reaches, and along the other side of an
// operand where it is not that of a single row or column.
const ScaleBlock = 128

// Scaled is p with block scales: numbers that elements of op(A) and of op(B) stand for
// multiples of, so that the product is
//
//	Σₖ scaleA(i, k)·op(A)(i, k) · scaleB(k, j)·op(B)(k, j)
//
// a and b are float32 matrices with an element for each [ScaleBlock] of K: a is
// M×⌈K/128⌉, or ⌈M/128⌉×⌈K/128⌉, as op(A) lies, and b ⌈K/128⌉×N, or ⌈K/128⌉×⌈N/128⌉, as op(B)
// does. They are those of New's A and B, which says whether it has swapped them.
//
// The errors are ErrShape, and ErrUnsupported for elements that are no 8-bit floats and for
// a batch.
func (p Problem) Scaled(a, b Layout, swapped bool) (Problem, error) {
	if t := p.In(); t != dtype.F8E4M3 && t != dtype.F8E5M2 {
		return p, fmt.Errorf("%w: block scales of %v: they are for 8-bit floats", ErrUnsupported, t)
	}
	if p.Batch.Kind != Single {
		return p, fmt.Errorf("%w: a batch with block scales", ErrUnsupported)
	}
	if p.Epilogue.Gated {
		return p, fmt.Errorf("%w: a gated product with block scales", ErrUnsupported)
	}
	m, n, steps := p.M, p.N, ScaleBlocks(p.K)
	if swapped {
		m, n = n, m
	}
	for _, x := range []struct {
		name         Operand
		l            Layout
		fine, coarse [2]int
	}{
		{ScaleA, a, [2]int{m, steps}, [2]int{ScaleBlocks(m), steps}},
		{ScaleB, b, [2]int{steps, n}, [2]int{steps, ScaleBlocks(n)}},
	} {
		if err := x.l.Check(x.name.Phrase()); err != nil {
			return p, err
		}
		if x.l.Type != dtype.F32 {
			return p, fmt.Errorf("%w: %v in %v, want float32", ErrUnsupported, x.name, x.l.Type)
		}
		if is := [2]int{x.l.OpRows(), x.l.OpCols()}; is != x.fine && is != x.coarse {
			return p, fmt.Errorf("%w: the %v are %d×%d, want %d×%d or %d×%d", ErrShape, x.name, is[0], is[1], x.fine[0], x.fine[1], x.coarse[0], x.coarse[1])
		}
	}
	if swapped {
		a, b = b.T(), a.T()
	}
	p.Layouts[ScaleA], p.Layouts[ScaleB] = a, b
	return p, nil
}

// ScaleBlocks is how many blocks n elements are.
func ScaleBlocks(n int) int { return (n + ScaleBlock - 1) / ScaleBlock }

// BlockScaled reports whether the operands have block scales.
func (p *Problem) BlockScaled() bool { return p.Layouts[ScaleA].Type != dtype.Invalid }

// ScaleSides are how many rows of op(A), and columns of op(B), share a scale; 0 without
// block scales.
func (p *Problem) ScaleSides() (a, b int) {
	if !p.BlockScaled() {
		return 0, 0
	}
	side := func(n, scales int) int {
		if n == scales {
			return 1
		}
		return ScaleBlock
	}
	return side(p.M, p.Layouts[ScaleA].OpRows()), side(p.N, p.Layouts[ScaleB].OpCols())
}

// BlockScales are one operand's, as the operand itself is read: a row is a row of op(A) or a
// column of op(B).
type BlockScales struct {
	data []float32
	l    Layout // a row for each row or block of rows, a column for each block of K
	side int
}

// ScalesOf are the block scales of A and of B.
func (p *Problem) ScalesOf(buf *Buffers) (a, b BlockScales) {
	sideA, sideB := p.ScaleSides()
	if sideA == 0 {
		return a, b
	}
	return BlockScales{dtype.View[float32](buf[ScaleA]), p.Layouts[ScaleA], sideA}, BlockScales{dtype.View[float32](buf[ScaleB]), p.Layouts[ScaleB].T(), sideB}
}

// Any reports whether there are any.
func (s *BlockScales) Any() bool { return s.side > 0 }

// At is the scale of element k of row i; there must be [BlockScales.Any].
func (s *BlockScales) At(i, k int) float32 { return s.data[s.l.Index(i/s.side, k/ScaleBlock)] }
