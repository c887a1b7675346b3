package call

import (
	"fmt"

	"tilework/internal/gemm"
)

// complete makes p the product of matrices A, B and C with these layouts and the options. It is the
// one place where operands and options become a problem. The caller may have set p's batch. swapped
// reports whether p is the product of the transposes.
func (x *Options) complete(p *gemm.Problem, layouts *[gemm.C + 1]gemm.Layout) (swapped bool, err error) {
	p.Epilogue = x.Epilogue
	p.Alpha, p.Beta, p.Precision = x.alpha, x.beta, x.Precision
	copy(p.Layouts[:], layouts[:])
	if x.RowInvariant {
		p.Invariance = gemm.InvariantRows
	}
	for s := x.given &^ matrices; s != 0; s &= s - 1 {
		if o := s.first(); int(o) < len(p.Layouts) {
			p.Layouts[o] = x.operands[o].Layout
		}
	}
	swapped, err = p.Complete()
	for s := x.given &^ (matrices | 1<<gemm.GroupEnds); s != 0 && err == nil; s &= s - 1 {
		if o := s.first(); o.IsVector() {
			err = x.checkVector(p, o, swapped)
		}
	}
	return swapped, err
}

// checkVector refuses a vector that does not fit. It converts an output scale on the host, and
// repeats a zero point.
func (x *Options) checkVector(p *gemm.Problem, o gemm.Operand, swapped bool) error {
	v := &x.operands[o]
	if o == gemm.FunctionData {
		data, _ := v.Layout.Row()
		p.DataLen = data.Cols
	}
	m, n, of := p.M, p.N, o
	if swapped {
		m, n, of = n, m, o.Transposed()
	}
	want := p.Layout(of)
	if o == gemm.OutScale || o == gemm.RowZero || o == gemm.ColZero {
		v.repeat(want)
	}
	row, _ := v.Layout.Row()
	switch l := v.Layout; {
	case l.Type != want.Type:
		return fmt.Errorf("%w: %s of %v for a product of %v as %v, want %v", gemm.ErrUnsupported, o.Phrase(), l.Type, p.In(),
			p.Out(), want.Type)
	case !l.IsVector() && want.Cols > 0:
		return fmt.Errorf("%w: %s of %d×%d, want one row or one column of %d", gemm.ErrShape, o.Phrase(), l.OpRows(),
			l.OpCols(), want.Cols)
	case row.Cols == 0 && o == gemm.FunctionData:
		return fmt.Errorf("%w: no data for a device function that reads some: want a vector", gemm.ErrShape)
	case row.Cols != want.Cols:
		return fmt.Errorf("%w: %s of length %d for a result of %d×%d, want %d", gemm.ErrShape, o.Phrase(), row.Cols, m, n,
			want.Cols)
	}
	return nil
}
