package kernel

import (
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/ints"
	"tilework/ptx"
)

// TensorMapOf returns the tensor map of a matrix in device memory, with elements of type elem and
// TMA boxes of the given size.
func TensorMapOf(l gemm.Layout, elem ptx.Type, at device.Ptr, box []int) ptx.TensorMap {
	if elem.Bits() == 8 {
		elem = ptx.U8
	}
	unit, swizzle := l.Type.Elements(MaxVectorBytes), frag.SwizzleBytes
	if elem.Bytes()*box[0] != swizzle {
		swizzle = 0
	}
	return ptx.TensorMap{
		Element: elem, Base: uint64(at), Dims: []int{l.Cols, l.Rows},
		Strides: []int{ints.CeilDiv(l.LD, unit) * MaxVectorBytes}, // the LD of a single row is arbitrary
		Box:     box, Swizzle: swizzle,
	}
}
