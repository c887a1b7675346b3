package cuda

import (
	"fmt"
	"unsafe"

	"tilework/internal/device"
	"tilework/ptx"
)

// tensorElements maps element types to CUtensorMapDataType of cuda.h.
var tensorElements = map[ptx.Type]uintptr{
	ptx.U8: 0, ptx.U16: 1, ptx.U32: 2, ptx.S32: 3, ptx.U64: 4, ptx.S64: 5,
	ptx.F16: 6, ptx.F32: 7, ptx.F64: 8, ptx.BF16: 9, ptx.TF32: 11,
}

// tensorSwizzles maps swizzle widths in bytes to CUtensorMapSwizzle of cuda.h. The encoding in
// wgmma descriptors is the reverse.
var tensorSwizzles = map[int]uintptr{0: 0, 32: 1, 64: 2, 128: 3}

// tensorInterleaves maps bytes of a slice to CUtensorMapInterleave of cuda.h.
var tensorInterleaves = map[int]uintptr{0: 0, 16: 1, 32: 2}

// EncodeTensorMap encodes t. It fails with a driver before CUDA 12.0 or a GPU before sm_90.
func (g *GPU) EncodeTensorMap(t *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	if err := t.Check(); err != nil {
		return [ptx.TensorMapBytes]byte{}, fmt.Errorf("%w: %w", device.ErrLaunch, err)
	}
	var dims, strides [5]uint64
	var box, steps [5]uint32
	var lower, upper [3]int32
	for i := range t.Dims {
		dims[i], steps[i] = uint64(t.Dims[i]), 1
		if len(t.Steps) > 0 {
			steps[i] = uint32(t.Steps[i])
		}
		if i > 0 {
			strides[i-1] = uint64(t.Strides[i-1])
		}
	}
	for i, side := range t.Box {
		box[i] = uint32(side)
	}
	for i := range t.Lower {
		lower[i], upper[i] = int32(t.Lower[i]), int32(t.Upper[i])
	}
	// L2 promotion to 256 bytes would cost 4 % in memory-bound kernels, and more if rows are not
	// aligned to cache lines.
	const promoteL2To128 = 2
	var nansOutside uintptr
	if t.FillNaN {
		nansOutside = 1
	}
	// The driver requires an alignment of 64 bytes, which Go does not guarantee.
	memory := make([]byte, ptx.TensorMapBytes+ptx.TensorMapAlign)
	start := -uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % ptx.TensorMapAlign
	aligned := memory[start:][:ptx.TensorMapBytes]
	interleave, swizzle := tensorInterleaves[t.Interleave], tensorSwizzles[t.Swizzle]
	err := g.within(func() error {
		if t.Im2col() {
			return g.call(cuTensorMapEncodeIm2col, uintptr(unsafe.Pointer(unsafe.SliceData(aligned))),
				tensorElements[t.Element], uintptr(len(t.Dims)), uintptr(t.Base),
				uintptr(unsafe.Pointer(&dims)), uintptr(unsafe.Pointer(&strides)),
				uintptr(unsafe.Pointer(&lower)), uintptr(unsafe.Pointer(&upper)), uintptr(box[0]), uintptr(box[1]),
				uintptr(unsafe.Pointer(&steps)), interleave, swizzle, promoteL2To128, nansOutside)
		}
		return g.call(cuTensorMapEncodeTiled, uintptr(unsafe.Pointer(unsafe.SliceData(aligned))),
			tensorElements[t.Element], uintptr(len(t.Dims)), uintptr(t.Base),
			uintptr(unsafe.Pointer(&dims)), uintptr(unsafe.Pointer(&strides)), uintptr(unsafe.Pointer(&box)),
			uintptr(unsafe.Pointer(&steps)), interleave, swizzle, promoteL2To128, nansOutside)
	})
	return [ptx.TensorMapBytes]byte(aligned), withKind(device.ErrLaunch, err)
}
