package kernel

import (
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/ptx"
)

// tensorOf is a matrix in memory as a tensor of which boxes are copied, of elements as elem.
func TensorMapOf(l gemm.Layout, elem ptx.Type, at device.Ptr, box []int) ptx.TensorMap {
	if elem.Bits() == 8 {
		elem = ptx.U8
	}
	unit := MaxVectorBytes / l.Type.Size()
	return ptx.TensorMap{
		Element: elem, Base: uint64(at), Dims: []int{l.Cols, l.Rows},
		Strides: []int{CeilDiv(l.LD, unit) * MaxVectorBytes}, // a single row may have any LD
		Box:     box, Swizzle: frag.SwizzleBytes,
	}
}
