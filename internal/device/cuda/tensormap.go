package cuda

import (
	"fmt"
	"unsafe"

	"tilework/internal/device"
)

// TensorMap is what Hopper's copy engine has to know of a tensor in the device's
// memory, of which it brings boxes to shared memory (PTX manual, cp.async.bulk.tensor).
// Dimensions are given innermost first.
type TensorMap struct {
	Element TensorElement
	Base    device.Ptr // a multiple of 16
	Dims    []int      // elements in each of 1 to 5 dimensions
	Strides []int      // bytes in each dimension but the innermost, multiples of 16
	Box     []int      // elements of a box, up to 256 in each dimension
	Swizzle TensorSwizzle
}

// TensorElement is the type of a tensor's elements: CUtensorMapDataType of cuda.h.
type TensorElement int

// The element types that matrices have.
const (
	TensorI8   TensorElement = 0 // as bytes
	TensorI32  TensorElement = 3
	TensorF16  TensorElement = 6
	TensorF32  TensorElement = 7
	TensorF64  TensorElement = 8
	TensorBF16 TensorElement = 9
	TensorTF32 TensorElement = 11 // float32 in memory, rounded on the way
)

// TensorSwizzle is how far a box's innermost bytes are permuted: CUtensorMapSwizzle of
// cuda.h.
type TensorSwizzle int

// The swizzles; that of wgmma's descriptors counts the other way round.
const (
	SwizzleNone TensorSwizzle = iota
	Swizzle32
	Swizzle64
	Swizzle128
)

// Encode encodes a map as a kernel's parameter `.align 64 .b8[128]` takes it. Outside
// the tensor the engine reads zeros. The error is ErrLaunch; for a driver before CUDA
// 12.0 or a GPU before sm_90 it is what the driver answers.
func (g *GPU) Encode(t TensorMap) ([128]byte, error) {
	n := len(t.Dims)
	if n < 1 || n > 5 || len(t.Box) != n || len(t.Strides) != n-1 {
		return [128]byte{}, fmt.Errorf("%w: a tensor map of %d dimensions, %d strides and a box of %d", device.ErrLaunch, n, len(t.Strides), len(t.Box))
	}
	var dims, strides [5]uint64
	var box, steps [5]uint32
	for i := range n {
		if t.Dims[i] < 1 || t.Box[i] < 1 || t.Box[i] > 256 || i > 0 && t.Strides[i-1] < 1 {
			return [128]byte{}, fmt.Errorf("%w: a tensor map of %v elements, strides %v, boxes of %v", device.ErrLaunch, t.Dims, t.Strides, t.Box)
		}
		dims[i], box[i], steps[i] = uint64(t.Dims[i]), uint32(t.Box[i]), 1
		if i > 0 {
			strides[i-1] = uint64(t.Strides[i-1])
		}
	}
	// The driver wants 64-byte alignment, which Go does not promise.
	const align, interleaveNone, promoteL2To256, zerosOutside = 64, 0, 3, 0
	memory := make([]byte, 128+align)
	start := -uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % align
	aligned := memory[start:][:128]
	err := g.within(func() error {
		return g.call(cuTensorMapEncodeTiled, uintptr(unsafe.Pointer(unsafe.SliceData(aligned))), uintptr(t.Element), uintptr(n), uintptr(t.Base),
			uintptr(unsafe.Pointer(&dims)), uintptr(unsafe.Pointer(&strides)), uintptr(unsafe.Pointer(&box)), uintptr(unsafe.Pointer(&steps)),
			interleaveNone, uintptr(t.Swizzle), promoteL2To256, zerosOutside)
	})
	return [128]byte(aligned), as(device.ErrLaunch, err)
}
