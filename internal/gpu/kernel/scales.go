package kernel

import (
	"fmt"

	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// blockScales are those of op(A)'s rows or of op(B)'s columns, here called rows, of which each
// has one for every [gemm.ScaleBlock] of K, or as many share it.
type blockScales struct {
	*build.Kernel
	ptr                build.Ptr
	rowStride, kStride build.Reg // elements from one row's to the next one's, and along K
	rowsPerScale       int       // rows that share them
	rows               build.Reg
}

// blockScaleParams returns the parameters of an operand's block scales: a pointer, the elements
// from the scale of a row of op(A), or of a column of op(B), to that of the next, and those from
// one block of K to the next.
func blockScaleParams(name string, layout func(a *Args) gemm.Layout, o gemm.Operand) []Param[Args] {
	when := func(c *Config) bool { return c.ScaleA > 0 } // both operands have scales, or none
	return []Param[Args]{
		{Name: "scales" + name, Type: typeF32, Pointer: true, When: when, Value: func(a *Args) uint64 { return uint64(a.Memory[o]) }},
		{Name: "across" + name, Type: TypeU32, When: when, Value: func(a *Args) uint64 { return uint64(layout(a).Index(1, 0)) }},
		{Name: "along" + name, Type: TypeU32, When: when, Value: func(a *Args) uint64 { return uint64(layout(a).Index(0, 1)) }},
	}
}

// mostScales is how far apart an operand's may be: what 32 bits count.
const maxScaleIndex = 1<<31 - 1

// checkScales is nil if a kernel can address p's block scales. The error is ErrUnsupported.
func (k *Kernel) checkScales(p *gemm.Problem) error {
	switch {
	case !p.BlockScaled():
		return nil
	case !k.BlockScales:
		return fmt.Errorf("%w: kernel %s with block scales", gemm.ErrUnsupported, k.Name)
	case max(p.Layouts[gemm.ScaleA].Len(), p.Layouts[gemm.ScaleB].Len(), p.M, p.N, p.K) > maxScaleIndex:
		return fmt.Errorf("%w: block scales of %v and %v: more than 31 bits count", gemm.ErrUnsupported, p.Layouts[gemm.ScaleA], p.Layouts[gemm.ScaleB])
	}
	return nil
}

// at is where a row's scale for a block of K is; of a row that is not there, the last one's.
func (s *blockScales) At(row, block build.Reg) build.Ptr {
	row = s.Div(s.Min(row, s.Sub(s.rows, 1)), s.rowsPerScale)
	return s.ptr.At(s.Mad(row, s.rowStride, s.Mul(block, s.kStride)))
}

// elementA and elementB are elements of op(A) and op(B) in the type of the sums, with their block
// scales, if there are any.
func (g *Writer) elementA(row, p build.Reg) build.Reg {
	return g.ScalesA.scaled(g.ToAccType(g.A.Load(row, p)), row, p)
}

func (g *Writer) elementB(p, col build.Reg) build.Reg {
	return g.ScalesB.scaled(g.ToAccType(g.B.Load(p, col)), col, p)
}

// times is element p along K of a row, which is x, with its scale, if there are any.
func (s *blockScales) scaled(x, row, p build.Reg) build.Reg {
	if s.rowsPerScale == 0 {
		return x
	}
	return s.Mul(x, s.At(row, s.Div(p, gemm.ScaleBlock)).Load())
}
