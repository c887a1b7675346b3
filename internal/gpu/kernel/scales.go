package kernel

import (
	"fmt"

	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// blockScales are the block scales of op(A)'s rows or op(B)'s columns, both called rows here. A
// scale belongs to [gemm.ScaleBlock] elements along K of rowsPerScale rows.
type blockScales struct {
	k                  *build.Kernel
	ptr                build.Ptr
	rowStride, kStride build.Reg // distances between the scales of adjacent rows, and of adjacent blocks of K, in elements
	rowsPerScale       int       // 0 without block scales
	rows               build.Reg
}

// blockScaleParams returns the parameters of an operand's block scales: a pointer, the distance in
// elements between the scales of adjacent rows of op(A) or columns of op(B), and the distance
// between adjacent blocks of K.
func blockScaleParams(name string, layout func(a *Args) gemm.Layout, o gemm.Operand) []Param[Args] {
	when := func(c *Config) bool { return c.ScaleA > 0 } // both operands have scales, or neither
	return []Param[Args]{
		{Name: "scales" + name, Type: TypeF32, Pointer: true, When: when,
			Value: func(a *Args) uint64 { return uint64(a.Memory[o]) }},
		{Name: "across" + name, Type: TypeU32, When: when,
			Value: func(a *Args) uint64 { return uint64(layout(a).Index(1, 0)) }},
		{Name: "along" + name, Type: TypeU32, When: when,
			Value: func(a *Args) uint64 { return uint64(layout(a).Index(0, 1)) }},
	}
}

// declareScales declares the block scales of an operand with the given number of rows.
func (g *Writer) declareScales(d *Declarer[Args], name string, rowsPerScale int, rows build.Reg) blockScales {
	// Not read-only: the assembler would move such loads past barriers, to just before their use.
	at := d.Pointer("scales" + name)
	return blockScales{g.Kernel, at, d.Value("across" + name), d.Value("along" + name), rowsPerScale, rows}
}

// maxScaleIndex is the maximum size of an operand's block scales, whose indices have 32 bits.
const maxScaleIndex = 1<<31 - 1

// checkScales returns nil if k can address p's block scales. The error is ErrUnsupported.
func (k *Kernel) checkScales(p *gemm.Problem) error {
	switch {
	case !p.BlockScaled():
		return nil
	case !k.BlockScales:
		return fmt.Errorf("%w: kernel %s with block scales", gemm.ErrUnsupported, k.Name)
	case max(p.Layouts[gemm.ScaleA].Len(), p.Layouts[gemm.ScaleB].Len(), p.M, p.N, p.K) > maxScaleIndex:
		return fmt.Errorf("%w: block scales of %v and %v: want sizes of at most 31 bits", gemm.ErrUnsupported,
			p.Layouts[gemm.ScaleA], p.Layouts[gemm.ScaleB])
	}
	return nil
}

// At points to the scale of a row for a block of K. Rows outside the matrix are clamped to the
// last.
func (s *blockScales) At(row, block build.Reg) build.Ptr {
	row = s.k.Div(s.k.Min(row, s.k.Sub(s.rows, 1)), s.rowsPerScale)
	return s.ptr.At(s.k.Mad(row, s.rowStride, s.k.Mul(block, s.kStride)))
}

// elementA loads an element of op(A) and returns it in the type of the accumulators, multiplied by
// its block scale if there is one.
func (g *Writer) elementA(row, p build.Reg) build.Reg {
	return g.ScalesA.scaled(g.ToAccType(g.A.Load(row, p)), row, p)
}

func (g *Writer) elementB(p, col build.Reg) build.Reg {
	return g.ScalesB.scaled(g.ToAccType(g.B.Load(p, col)), col, p)
}

// scaled returns x, element p along K of a row, multiplied by its block scale if there is one.
func (s *blockScales) scaled(x, row, p build.Reg) build.Reg {
	if s.rowsPerScale == 0 {
		return x
	}
	return s.k.Mul(x, s.At(row, s.k.Div(p, gemm.ScaleBlock)).Load())
}
