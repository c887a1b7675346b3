package gemm

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/ints"
)

// ScaleBlock is the number of elements along K that share a block scale. It is also the number of
// rows or columns that share one, unless each row or column has its own scales.
const ScaleBlock = 128

// Block scales are two float32 matrices by which the elements of op(A) and op(B) are multiplied,
// with an element for each [ScaleBlock] of K. The product is
//
//	Σₖ scaleA(i, k)·op(A)(i, k) · scaleB(k, j)·op(B)(k, j)
//
// The scales of A are M×⌈K/128⌉, or ⌈M/128⌉×⌈K/128⌉, oriented like op(A), and those of B
// ⌈K/128⌉×N, or ⌈K/128⌉×⌈N/128⌉, oriented like op(B).

// checkScales checks the block scales. The errors name those of the caller, whose C is transposed
// if swapped is set.
func (p *Problem) checkScales(swapped bool) error {
	if t := p.In(); t != dtype.F8E4M3 && t != dtype.F8E5M2 {
		return fmt.Errorf("%w: block scales of %v: they are for 8-bit floats", ErrUnsupported, t)
	}
	if p.Batch.Kind != Single {
		return fmt.Errorf("%w: a batch with block scales", ErrUnsupported)
	}
	if p.Epilogue.Gated {
		return fmt.Errorf("%w: a gated product with block scales", ErrUnsupported)
	}
	m, n, steps := p.M, p.N, ScaleBlocks(p.K)
	a, b := p.Layouts[ScaleA], p.Layouts[ScaleB]
	if swapped {
		m, n, a, b = n, m, b.T(), a.T()
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
			return err
		}
		if x.l.Type != dtype.F32 {
			return fmt.Errorf("%w: %v in %v, want float32", ErrUnsupported, x.name, x.l.Type)
		}
		if is := [2]int{x.l.OpRows(), x.l.OpCols()}; is != x.fine && is != x.coarse {
			return fmt.Errorf("%w: the %v are %d×%d, want %d×%d or %d×%d", ErrShape, x.name, is[0], is[1], x.fine[0],
				x.fine[1], x.coarse[0], x.coarse[1])
		}
	}
	p.Layouts[ScaleA].Conj, p.Layouts[ScaleB].Conj = false, false
	return nil
}

// ScaleBlocks returns the number of blocks of n elements.
func ScaleBlocks(n int) int { return ints.CeilDiv(n, ScaleBlock) }

// BlockScaled reports whether the operands have block scales.
func (p *Problem) BlockScaled() bool { return p.Layouts[ScaleA].Type != dtype.Invalid }

// ScaleSides returns the number of rows of op(A), and of columns of op(B), that share a scale. Both
// are 0 without block scales.
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

// BlockScales holds the block scales of an operand. A row is a row of op(A) or a column of op(B).
type BlockScales struct {
	data []float32
	l    Layout // a row for each row or block of rows, a column for each block of K
	side int
}

// ScalesOf returns the block scales of A and of B.
func (p *Problem) ScalesOf(buf *Buffers) (a, b BlockScales) {
	sideA, sideB := p.ScaleSides()
	if sideA == 0 {
		return a, b
	}
	return BlockScales{dtype.View[float32](buf[ScaleA]), p.Layouts[ScaleA], sideA},
		BlockScales{dtype.View[float32](buf[ScaleB]), p.Layouts[ScaleB].T(), sideB}
}

// Any reports whether the operand has block scales.
func (s *BlockScales) Any() bool { return s.side > 0 }

// At returns the scale of element k of row i. The operand must have block scales.
func (s *BlockScales) At(i, k int) float32 { return s.data[s.l.Index(i/s.side, k/ScaleBlock)] }
