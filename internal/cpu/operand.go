package cpu

import (
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// operand is a factor as packing sees it: a matrix whose element (x, p) belongs
// to row x of op(A) or column x of op(B), and p counts along K. In memory either
// consecutive p are neighbours (alongK: A as it is, B transposed) or consecutive
// x are.
//
// A panel holds a word for each step along K. It is an element, widened to T, or for
// kernels that multiply several at once the next group of them, in int32.
type operand[T scalar] struct {
	raw    []byte
	from   dtype.Type // of the elements
	ld     int
	alongK bool
	depth  int // elements along K

	data  []T // the elements, where they are of type T already; otherwise
	widen func(dst []T, raw []byte, at int)
	// widen converts as many as dst takes from the element at on.

	scales gemm.BlockScales // by which elements are multiplied as they are packed, if there are any

	block  int   // steps that a panel is cut into, if it is; see [asm.Kernels]
	group  int   // elements to a word
	offset int32 // what is added to each of them, if they are more than one
	packer asm.Packer
}

// operandA and operandB make the operands of a product. A row of op(A) runs
// along K as stored; a column of op(B) does when B is transposed.
func operandA[T scalar](p *gemm.Problem, b *gemm.Buffers, mk *microKernel[T]) operand[T] {
	o := newOperand[T](p.A, b.A, !p.A.Trans, p.K, mk.Group, mk.packersA)
	if mk.Compensate != nil {
		o.offset = 128
	}
	o.block = mk.Block
	o.scales, _ = p.ScalesOf(b)
	return o
}

func operandB[T scalar](p *gemm.Problem, b *gemm.Buffers, mk *microKernel[T]) operand[T] {
	o := newOperand[T](p.B, b.B, p.B.Trans, p.K, mk.Group, mk.packersB)
	_, o.scales = p.ScalesOf(b)
	return o
}

func newOperand[T scalar](l gemm.Layout, b []byte, alongK bool, depth, group int, f packers) operand[T] {
	var o operand[T]
	o.describe(l, b, alongK, depth, group, f)
	return o
}

// describe is [newOperand] for an operand of zeros.
func (o *operand[T]) describe(l gemm.Layout, b []byte, alongK bool, depth, group int, f packers) {
	o.raw, o.from, o.ld, o.alongK, o.depth, o.group, o.packer = b, l.Type, l.LD, alongK, depth, group, f.of(l.Type)
	if l.Type == dtype.Of[T]() {
		o.data = dtype.View[T](b)
	} else {
		o.widen = widening[T](l.Type)
	}
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
	if o.widen == nil {
		return o.data[o.index(x, p)]
	}
	v := T(o.from.At(o.raw, o.index(x, p)))
	if o.scales.Any() {
		v *= T(o.scales.At(x, p))
	}
	return v
}

// runAlong is run for elements along K, from (x, p) on, runAcross for those of neighbouring rows
// at p: with their scales, if there are any.
func (o *operand[T]) copyAlongK(dst []T, x, p int) {
	o.copyRun(dst, o.index(x, p))
	if !o.scales.Any() {
		return
	}
	for at := 0; at < len(dst); {
		end := min(at+gemm.ScaleBlock-(p+at)%gemm.ScaleBlock, len(dst)) // of the block
		scale := T(o.scales.At(x, p+at))
		for ; at < end; at++ {
			dst[at] *= scale
		}
	}
}

func (o *operand[T]) copyAcrossRows(dst []T, x, p int) {
	o.copyRun(dst, o.index(x, p))
	if o.scales.Any() {
		for i := range dst {
			dst[i] *= T(o.scales.At(x+i, p))
		}
	}
}

// run copies consecutive elements in memory, from the element at on, to dst.
func (o *operand[T]) copyRun(dst []T, at int) {
	if o.widen == nil {
		copy(dst, o.data[at:])
		return
	}
	if whole := len(dst) &^ 7; o.packer.Lay != nil && whole > 0 {
		o.packer.Lay(1, whole, wordAddr(dst), whole, o.addr(at), 0)
		dst, at = dst[whole:], at+whole
	}
	o.widen(dst, o.raw, at)
}

// word is where dst starts, as the word that its elements are where there are forms.
func wordAddr[T scalar](dst []T) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(dst))) }

// bytes is where the element at stands.
func (o *operand[T]) addr(at int) *byte { return &o.raw[at*o.from.Size()] }

// grouped sets dst to the word of x at a step: the elements of the group side by side,
// the first in the lowest bits. Beyond the end of K they are zero.
func (o *operand[T]) packWord(dst *T, x, step int) {
	bits := 32 / o.group
	var w uint32
	for i := range o.group {
		v := o.offset
		if p := step*o.group + i; p < o.depth {
			if at := o.index(x, p); o.from == dtype.BF16 {
				v = int32(dtype.View[dtype.BFloat16](o.raw)[at])
			} else {
				v += int32(int8(o.raw[at]))
			}
		}
		w |= uint32(v) & (1<<bits - 1) << (i * bits)
	}
	*(*uint32)(unsafe.Pointer(dst)) = w
}

// The conversions, made once: to make a function of one costs memory.
var (
	fromF16    = widenWith(dtype.Float16.Float32)
	fromBF16   = widenWith(dtype.BFloat16.Float32)
	fromF8E4M3 = widenWith(dtype.Float8E4M3.Float32)
	fromF8E5M2 = widenWith(dtype.Float8E5M2.Float32)
	fromI8     = widenWith(func(v int8) int32 { return int32(v) })
	fromF32    = func(dst []float32, raw []byte, at int) { copy(dst, dtype.View[float32](raw)[at:]) }
)

// widening returns the conversion of an element type to T, in which it is summed or added to
// sums.
func widening[T scalar](from dtype.Type) (f func(dst []T, raw []byte, at int)) {
	switch from {
	case dtype.F32:
		f, _ = any(fromF32).(func([]T, []byte, int))
	case dtype.F16:
		f, _ = any(fromF16).(func([]T, []byte, int))
	case dtype.BF16:
		f, _ = any(fromBF16).(func([]T, []byte, int))
	case dtype.F8E4M3:
		f, _ = any(fromF8E4M3).(func([]T, []byte, int))
	case dtype.F8E5M2:
		f, _ = any(fromF8E5M2).(func([]T, []byte, int))
	default:
		f, _ = any(fromI8).(func([]T, []byte, int))
	}
	return f
}

func widenWith[I dtype.Element, T float32 | int32](convert func(I) T) func(dst []T, raw []byte, at int) {
	return func(dst []T, raw []byte, at int) {
		for i, v := range dtype.View[I](raw)[at : at+len(dst)] {
			dst[i] = convert(v)
		}
	}
}
