package gemm

import (
	"fmt"

	"tilework/dtype"
)

// A product with zero points is Σ(a − za)·(b − zb), with a zero point za for each row of op(A) and
// zb for each column of op(B). It follows from the product of the stored elements and their sums
// along K (Jacob et al., "Quantization and training of neural networks for efficient
// integer-arithmetic-only inference", 2018, section 2.3):
//
//	Σ(a − za)·(b − zb) = Σa·b − za·Σb − zb·Σ(a − za)
//
// All of it is exact modulo 2^32. Kernels multiply int8 alone: uint8 with its highest bit flipped
// is int8 with a zero point that is less by [SignedOffset].

// SignedOffset is the difference between an element of uint8 and the int8 with the highest bit
// flipped.
const SignedOffset = 128

// Zeros returns the epilogue that has the zero points of e and nothing else. They belong to the
// product: unlike the rest they apply to every slice of K.
func (e Epilogue) Zeros() Epilogue { return Epilogue{RowZero: e.RowZero, ColZero: e.ColZero} }

// WithoutZeros returns e without its zero points.
func (e Epilogue) WithoutZeros() Epilogue {
	e.RowZero, e.ColZero = false, false
	return e
}

// Shifted reports whether the product has zero points or operands of uint8.
func (p *Problem) Shifted() bool {
	return p.Epilogue.RowZero || p.Epilogue.ColZero || p.A().Type != p.A().Type.Signed() ||
		p.B().Type != p.B().Type.Signed()
}

// Signed returns p with int8 for uint8, and with the zero points that this moves by [SignedOffset];
// see [Problem.SignedZeros]. A product that reads neither A nor B has no zero points.
func (p *Problem) Signed() Problem {
	q := *p
	q.A().Type, q.B().Type = p.A().Type.Signed(), p.B().Type.Signed()
	if !p.ReadsAB() {
		q.Epilogue = p.Epilogue.WithoutZeros()
		return q
	}
	q.Epilogue.RowZero = p.Epilogue.RowZero || q.A().Type != p.A().Type
	q.Epilogue.ColZero = p.Epilogue.ColZero || q.B().Type != p.B().Type
	return q
}

// SignedZeros returns the zero points of operand x, [A] or [B], of [Problem.Signed], or nil if that
// has none. b holds those of p.
func (p *Problem) SignedZeros(x Operand, b *Buffers) []int32 {
	q := p.Signed()
	o := RowZero
	if x == B {
		o = ColZero
	}
	if !q.Uses(o) {
		return nil
	}
	l := q.Layout(o)
	zeros := make([]int32, l.Cols)
	if p.Uses(o) {
		copy(zeros, dtype.View[int32](b[o]))
	}
	if p.Layouts[x].Type != q.Layouts[x].Type {
		for i := range zeros {
			zeros[i] -= SignedOffset
		}
	}
	return zeros
}

// Core returns the product of int8 matrices from which p follows: the sums Σa·b of
// [Problem.Signed], or p itself if it has neither zero points nor operands of uint8.
func (p *Problem) Core() Problem {
	if !p.Shifted() {
		return *p
	}
	q := p.Signed()
	if !q.Shifted() {
		return q
	}
	q = q.Sums()
	q.Epilogue = Epilogue{}
	return q
}

// checkZeros refuses zero points of other elements than int8 and uint8, and products of these that
// would need more sums than there are.
func (p *Problem) checkZeros() error {
	switch e := &p.Epilogue; {
	case !p.Shifted():
		return nil
	case p.In().Signed() != dtype.I8:
		return fmt.Errorf("%w: zero points of %v: they are for int8 and uint8", ErrUnsupported, p.In())
	case e.Gated:
		return fmt.Errorf("%w: a gated product with zero points or of uint8: want int8, or two products", ErrUnsupported)
	}
	return nil
}
