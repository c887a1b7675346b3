package ptx

import (
	"fmt"
	"slices"
)

// TensorMap describes a tensor in global memory for TMA (sm_90). cp.async.bulk.tensor copies
// boxes between the tensor and shared memory. Dimensions are listed innermost first. Each device
// has its own encoding of a map into 128 bytes, the argument of a kernel's parameter of type
// .b8[128] with alignment 64.
//
// A box may extend beyond the tensor on any side. TMA fills the outside part with zeros or NaNs
// when it loads, and skips it when it stores. As measured on an H200, a store writes whole 16-byte
// units: the row of a tensor whose length is not a multiple of 16 bytes is written to the end of
// its last unit. The rows of a box must start at a multiple of 16 bytes from the start of the
// tensor's rows. A store does not support negative coordinates.
//
// A map with corners is for im2col mode, which loads the input of a convolution. Its dimensions are
// the channels, the width, the height, the depth and the images; 3-dimensional tensors have no
// height and no depth, 4-dimensional ones no depth. A load visits positions of the convolution's
// filter, those of a row first, and copies the channels of one pixel at each of them: that at the
// position plus the offsets of the instruction.
type TensorMap struct {
	// Element is U8, U16, U32, S32, U64, S64, F16, BF16, F32, F64 or TF32. TF32 rounds float32
	// elements while it copies them.
	Element Type
	Base    uint64 // address of the first element, a multiple of 16
	Dims    []int  // elements in each of 1 to 5 dimensions
	Strides []int  // bytes between consecutive indices of all dimensions but the innermost, multiples of 16
	// Box holds the elements of a box in each dimension, up to 256. Its rows are a multiple of 16
	// bytes. In im2col mode it holds the channels, up to 256, and the pixels, up to 1024, of a load.
	Box []int
	// Swizzle is the swizzle width: 32, 64 or 128 bytes, or 0 for none. With a swizzle, each row
	// of a box occupies this number of bytes in shared memory, and its 16-byte units are permuted
	// so that a column of them has no bank conflicts. Without a swizzle the rows are contiguous.
	Swizzle int
	// Steps holds the distances, 1 to 8, of the elements that are copied, in each dimension. A box
	// has 1/step as many elements then, rounded up. The innermost step has no effect. Without Steps
	// all are 1. In im2col mode they are the strides of the convolution. That of the channels has no
	// effect then, and that of the images is the distance to the next image.
	Steps []int
	// Lower and Upper are the corners of the filter's positions in im2col mode, in all dimensions but
	// the first and the last. A position is at least Lower, and less than Dims plus Upper.
	Lower, Upper []int
	// Interleave is 16 or 32 for a tensor whose channels are in slices of as many bytes, or 0.
	// Dims, Box, Steps and the coordinates of copies count slices then, as measured on a
	// Hopper GPU: the dimensions of NC/8HWC8, with 8 channels of 2 bytes in a slice, are W, H, C/8
	// and N. The tensor has at least 3 dimensions. 32 requires an address and strides that are
	// multiples of 32, and a swizzle of 32. The emulator does not support such a tensor in im2col
	// mode.
	Interleave int
	// FillNaN fills the outside part of a load with NaNs instead of zeros: with 0x7ff7 in each 2
	// bytes, as measured on a Hopper GPU. The elements are floating-point numbers.
	FillNaN bool
}

// TensorMapBytes is the size of an encoded TensorMap in bytes. TensorMapAlign is the required
// alignment of its address.
const (
	TensorMapBytes = 128
	TensorMapAlign = 64
)

// tensorElements holds the supported element types of a tensor.
var tensorElements = map[Type]bool{
	U8: true, U16: true, U32: true, S32: true, U64: true, S64: true,
	F16: true, BF16: true, F32: true, F64: true, TF32: true,
}

// Im2col reports whether the map is for im2col mode.
func (m *TensorMap) Im2col() bool { return len(m.Lower) > 0 }

// Check returns an error if m breaks a rule of cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col
// (CUDA Driver API).
func (m *TensorMap) Check() error {
	n := len(m.Dims)
	switch {
	case !tensorElements[m.Element]:
		return fmt.Errorf("tensor elements are .%v: want an integer or floating-point type that TMA supports",
			m.Element)
	case (m.Im2col() || len(m.Upper) > 0) && (n < 3 || n > 5 || len(m.Box) != 2 || len(m.Strides) != n-1 ||
		len(m.Lower) != n-2 || len(m.Upper) != n-2):
		return fmt.Errorf("im2col tensor has %d dimensions, %d strides, a box of %d dimensions and corners of %d and %d: "+
			"want 3 to 5 dimensions, one stride fewer, channels and pixels, and corners of two dimensions fewer",
			n, len(m.Strides), len(m.Box), len(m.Lower), len(m.Upper))
	case !m.Im2col() && (n < 1 || n > 5 || len(m.Box) != n || len(m.Strides) != n-1):
		return fmt.Errorf("tensor has %d dimensions, %d strides and a box of %d dimensions: "+
			"want 1 to 5 dimensions, one stride fewer, and a box of as many dimensions", n, len(m.Strides), len(m.Box))
	case len(m.Steps) != 0 && len(m.Steps) != n:
		return fmt.Errorf("tensor has %d dimensions and %d steps: want as many, or no steps", n, len(m.Steps))
	case m.FillNaN && m.Element.Class() != Float:
		return fmt.Errorf("tensor elements are .%v: want a floating-point type to fill with NaNs", m.Element)
	case m.Base%16 != 0:
		return fmt.Errorf("tensor is at address %#x: want a multiple of 16", m.Base)
	case m.Swizzle != 0 && m.Swizzle != 32 && m.Swizzle != 64 && m.Swizzle != 128:
		return fmt.Errorf("swizzle is %d bytes: want 0, 32, 64 or 128", m.Swizzle)
	case m.Interleave != 0 && m.Interleave != 16 && m.Interleave != 32:
		return fmt.Errorf("interleaved slices have %d bytes: want 0, 16 or 32", m.Interleave)
	case m.Interleave != 0 && n < 3:
		return fmt.Errorf("interleaved tensor has %d dimensions: want at least 3", n)
	case m.Interleave == 32 && (m.Base%32 != 0 || m.Swizzle != 32):
		return fmt.Errorf("tensor with interleaved slices of 32 bytes is at address %#x with swizzle %d: "+
			"want a multiple of 32 and swizzle 32", m.Base, m.Swizzle)
	case m.Interleave == 32 && slices.ContainsFunc(m.Strides, func(n int) bool { return n%32 != 0 }):
		return fmt.Errorf("strides are %v bytes: want multiples of 32 for interleaved slices of 32 bytes", m.Strides)
	}
	for i := range n {
		switch {
		case m.Dims[i] < 1 || int64(m.Dims[i]) > 1<<32:
			return fmt.Errorf("tensor has %v elements: want 1 to 2^32 in each dimension", m.Dims)
		case i > 0 && (m.Strides[i-1] < 1 || m.Strides[i-1]%16 != 0 || int64(m.Strides[i-1]) >= 1<<40):
			return fmt.Errorf("strides are %v bytes: want multiples of 16 below 2^40", m.Strides)
		case len(m.Steps) != 0 && (m.Steps[i] < 1 || m.Steps[i] > 8):
			return fmt.Errorf("steps are %v: want 1 to 8 in each dimension", m.Steps)
		}
	}
	if err := m.checkBox(); err != nil || m.Interleave != 0 {
		return err
	}
	row := m.Box[0] * m.Element.Bytes()
	if row%16 != 0 {
		return fmt.Errorf("rows of the box have %d bytes: want a multiple of 16", row)
	}
	if m.Swizzle > 0 && row > m.Swizzle {
		return fmt.Errorf("rows of the box have %d bytes: want at most the swizzle width, %d", row, m.Swizzle)
	}
	return nil
}

// maxCorners holds the magnitude of the least coordinate of a corner in im2col mode, by the number
// of dimensions.
var maxCorners = [...]int{3: 1 << 15, 4: 1 << 7, 5: 1 << 4}

// checkBox checks the sizes of the box and, in im2col mode, the corners.
func (m *TensorMap) checkBox() error {
	if !m.Im2col() {
		if slices.Min(m.Box) < 1 || slices.Max(m.Box) > 256 {
			return fmt.Errorf("box has %v elements: want 1 to 256 in each dimension", m.Box)
		}
		return nil
	}
	if m.Box[0] < 1 || m.Box[0] > 256 || m.Box[1] < 1 || m.Box[1] > 1024 {
		return fmt.Errorf("box has %d channels and %d pixels: want 1 to 256 and 1 to 1024", m.Box[0], m.Box[1])
	}
	most := maxCorners[len(m.Dims)]
	for i, lower := range m.Lower {
		upper := m.Upper[i]
		switch {
		case min(lower, upper) < -most || max(lower, upper) >= most:
			return fmt.Errorf("corners are %v and %v: want %d to %d in a tensor of %d dimensions", m.Lower, m.Upper, -most,
				most-1, len(m.Dims))
		case m.Dims[i+1]+upper <= lower:
			return fmt.Errorf("corners %v and %v leave no position of the filter in dimension %d, of %d elements", m.Lower,
				m.Upper, i+1, m.Dims[i+1])
		}
	}
	return nil
}

// ElementBytes returns the size in bytes of an element, or of a slice of channels.
func (m *TensorMap) ElementBytes() int {
	if m.Interleave != 0 {
		return m.Interleave
	}
	return m.Element.Bytes()
}

// BoxBytes returns the size of a box in bytes. A load completes this number of bytes on its
// mbarrier even if part of the box is outside the tensor.
func (m *TensorMap) BoxBytes() int {
	n := m.ElementBytes()
	for i, side := range m.Box {
		if i > 0 && len(m.Steps) > 0 && !m.Im2col() {
			side = (side + m.Steps[i] - 1) / m.Steps[i]
		}
		n *= side
	}
	return n
}
