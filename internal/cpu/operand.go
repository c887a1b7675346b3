package cpu

import (
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// operand describes A or B for packing. Its element (x, p) belongs to row x of op(A) or column x of
// op(B), and p counts along K. In memory, consecutive p are adjacent (alongK: A not transposed, B
// transposed), or else consecutive x.
//
// A panel holds one word for each step of K: an element widened to T, or, for kernels that multiply
// several elements at once, the next group of them in 32 bits.
type operand[T scalar] struct {
	raw    []byte
	from   dtype.Type // the element type
	ld     int
	alongK bool
	depth  int // elements along K

	// data holds the elements if they are of type T. Otherwise widen converts len(dst) elements of
	// raw, starting with element at.
	data  []T
	widen func(dst []T, raw []byte, at int)

	scales gemm.BlockScales // multiply the elements as they are packed, if there are any

	block  int   // steps per block of a panel, or 0; see [asm.Kernels]
	group  int   // elements per word
	offset int32 // added to each element of a group
	packer asm.Packer
}

// operandA and operandB return the operands of a product. A row of op(A) is stored along K if A is
// not transposed, a column of op(B) if B is.
func operandA[T scalar](p *gemm.Problem, b *gemm.Buffers, mk *microKernel[T]) operand[T] {
	o := newOperand[T](p.Layouts[gemm.A], b[gemm.A], !p.A().Trans, p.K, mk.Group, mk.packersA)
	if mk.Compensate != nil {
		o.offset = 128
	}
	o.block = mk.Block
	o.scales, _ = p.ScalesOf(b)
	return o
}

func operandB[T scalar](p *gemm.Problem, b *gemm.Buffers, mk *microKernel[T]) operand[T] {
	o := newOperand[T](p.Layouts[gemm.B], b[gemm.B], p.B().Trans, p.K, mk.Group, mk.packersB)
	_, o.scales = p.ScalesOf(b)
	return o
}

func newOperand[T scalar](l gemm.Layout, b []byte, alongK bool, depth, group int, f packers) operand[T] {
	var o operand[T]
	o.describe(l, b, alongK, depth, group, f)
	return o
}

// describe sets up an operand, which must be zero.
func (o *operand[T]) describe(l gemm.Layout, b []byte, alongK bool, depth, group int, f packers) {
	o.raw, o.from, o.ld, o.alongK, o.depth, o.group, o.packer = b, l.Type, l.LD, alongK, depth, group, f.of(l.Type)
	if l.Type == dtype.Of[T]() {
		o.data = dtype.View[T](b)
	} else {
		o.widen = widening[T](l.Type)
	}
}

// index returns the position of element (x, p) in memory, in elements.
func (o *operand[T]) index(x, p int) int {
	if o.alongK {
		return x*o.ld + p
	}
	return p*o.ld + x
}

// at returns element (x, p).
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

// copyAlongK copies elements along K, from (x, p) on, and applies their block scales.
// copyAcrossRows does the same for the elements of consecutive rows at p.
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

// copyRun copies elements that are consecutive in memory, starting with element at.
func (o *operand[T]) copyRun(dst []T, at int) {
	if o.widen == nil {
		copy(dst, o.data[at:])
		return
	}
	if whole := len(dst) &^ 7; o.packer.CopyRows != nil && whole > 0 {
		o.packer.CopyRows(1, whole, wordAddr(dst), whole, o.addr(at), 0)
		dst, at = dst[whole:], at+whole
	}
	o.widen(dst, o.raw, at)
}

// wordAddr returns the address of dst as 32-bit words, which packers write.
func wordAddr[T scalar](dst []T) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(dst))) }

// addr returns the address of element at.
func (o *operand[T]) addr(at int) *byte { return &o.raw[o.from.Bytes(at)] }

// packWord packs the word of row x at a step: a group of elements, the first in the lowest bits.
// Elements beyond the end of K are zero.
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

// The conversions are created once, because creating one allocates memory.
var (
	fromF16    = widenWith(dtype.Float16.Float32)
	fromBF16   = widenWith(dtype.BFloat16.Float32)
	fromF8E4M3 = widenWith(dtype.Float8E4M3.Float32)
	fromF8E5M2 = widenWith(dtype.Float8E5M2.Float32)
	fromI8     = widenWith(func(v int8) int32 { return int32(v) })
	fromF32    = func(dst []float32, raw []byte, at int) { copy(dst, dtype.View[float32](raw)[at:]) }
)

// widening returns the conversion of an element type to T.
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
