package cpu

import (
	"tilework/dtype"
	"tilework/internal/gemm"
)

// operand is a factor as packing sees it: a matrix whose element (x, p) belongs
// to row x of op(A) or column x of op(B), and p counts along K. In memory either
// consecutive p are neighbours (alongK: A as it is, B transposed) or consecutive
// x are.
type operand[T scalar] struct {
	data []T // the elements, where they are of type T already
	// Otherwise raw is their memory, of type from, and widen converts as many
	// as dst takes from the element at on.
	raw    []byte
	from   dtype.Type
	widen  func(dst []T, raw []byte, at int)
	ld     int
	alongK bool
}

// operandA and operandB make the operands of a product. A row of op(A) runs
// along K as stored; a column of op(B) does when B is transposed.
func operandA[T scalar](p *gemm.Problem, b gemm.Buffers) operand[T] {
	return newOperand[T](p.A, b.A, !p.A.Trans)
}

func operandB[T scalar](p *gemm.Problem, b gemm.Buffers) operand[T] {
	return newOperand[T](p.B, b.B, p.B.Trans)
}

func newOperand[T scalar](l gemm.Layout, b []byte, alongK bool) operand[T] {
	o := operand[T]{ld: l.LD, alongK: alongK}
	if l.Type == dtype.Of[T]() {
		o.data = dtype.View[T](b)
	} else {
		o.raw, o.from, o.widen = b, l.Type, widening[T](l.Type)
	}
	return o
}

// index is where element (x, p) stands.
func (o *operand[T]) index(x, p int) int {
	if o.alongK {
		return x*o.ld + p
	}
	return p*o.ld + x
}

// at is element (x, p).
func (o *operand[T]) at(x, p int) T {
	if o.widen != nil {
		return T(o.from.At(o.raw, o.index(x, p)))
	}
	return o.data[o.index(x, p)]
}

// run copies consecutive elements in memory, from the element at on, to dst.
func (o *operand[T]) run(dst []T, at int) {
	if o.widen != nil {
		o.widen(dst, o.raw, at)
		return
	}
	copy(dst, o.data[at:])
}

// widening is the conversion from an element type to the type it is summed in.
func widening[T scalar](from dtype.Type) func(dst []T, raw []byte, at int) {
	switch from {
	case dtype.F16:
		return widenWith[T](dtype.Float16.Float32)
	case dtype.BF16:
		return widenWith[T](dtype.BFloat16.Float32)
	case dtype.F8E4M3:
		return widenWith[T](dtype.Float8E4M3.Float32)
	case dtype.F8E5M2:
		return widenWith[T](dtype.Float8E5M2.Float32)
	default:
		return widenWith[T](func(v int8) int32 { return int32(v) })
	}
}

func widenWith[T scalar, I dtype.Element, W float32 | int32](convert func(I) W) func(dst []T, raw []byte, at int) {
	return func(dst []T, raw []byte, at int) {
		for i, v := range dtype.View[I](raw)[at : at+len(dst)] {
			dst[i] = T(convert(v))
		}
	}
}
