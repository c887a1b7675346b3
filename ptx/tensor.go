package ptx

import "fmt"

// TensorMap is what the copy engine of sm_90 has to know of a tensor in global memory, of
// which cp.async.bulk.tensor copies boxes to and from shared memory. Dimensions stand
// innermost first. A device encodes a map into the 128 bytes that a kernel takes as a
// parameter `.align 64 .b8[128]`; how is its own affair.
//
// Outside of the tensor, which a box may reach on any side, the engine reads zeros and
// writes nothing, but for this: an H200 writes pieces of 16 bytes, so that a row of
// another length is written to the end of its last piece. The rows of a box must begin
// at a multiple of 16 bytes of the tensor's, and a box to be written at no negative
// coordinate.
type TensorMap struct {
	Element Type   // U8, U16, U32, S32, U64, S64, F16, BF16, F32, F64, or TF32: float32 that is rounded on the way
	Base    uint64 // address of the first element, a multiple of 16
	Dims    []int  // elements in each of 1 to 5 dimensions
	Strides []int  // bytes from one index to the next in each dimension but the innermost, multiples of 16
	Box     []int  // elements of a box, up to 256 in each dimension; its rows are a multiple of 16 bytes
	// Swizzle is how many bytes, 32, 64 or 128, each row of a box takes in shared memory, if
	// its 16-byte pieces are permuted so that a column of them has no bank conflicts; 0
	// leaves them in place, and the rows one behind the other.
	Swizzle int
}

// TensorMapBytes is the size of an encoded TensorMap, and TensorMapAlign what its address
// is a multiple of.
const (
	TensorMapBytes = 128
	TensorMapAlign = 64
)

// tensorElements are the types that a tensor's elements can have.
var tensorElements = map[Type]bool{
	U8: true, U16: true, U32: true, S32: true, U64: true, S64: true,
	F16: true, BF16: true, F32: true, F64: true, TF32: true,
}

// Check says what is wrong with a map (CUDA Driver API, cuTensorMapEncodeTiled).
func (m *TensorMap) Check() error {
	n := len(m.Dims)
	switch {
	case !tensorElements[m.Element]:
		return fmt.Errorf("a tensor of .%v", m.Element)
	case n < 1 || n > 5 || len(m.Box) != n || len(m.Strides) != n-1:
		return fmt.Errorf("a tensor of %d dimensions, with %d strides and a box of %d: want 1 to 5, and one stride less", n, len(m.Strides), len(m.Box))
	case m.Base%16 != 0:
		return fmt.Errorf("a tensor at %#x, which is no multiple of 16", m.Base)
	case m.Swizzle != 0 && m.Swizzle != 32 && m.Swizzle != 64 && m.Swizzle != 128:
		return fmt.Errorf("a swizzle of %d bytes: want 0, 32, 64 or 128", m.Swizzle)
	}
	for i := range n {
		switch {
		case m.Dims[i] < 1 || int64(m.Dims[i]) > 1<<32:
			return fmt.Errorf("a tensor of %v elements: want 1 to 2^32 in each dimension", m.Dims)
		case m.Box[i] < 1 || m.Box[i] > 256:
			return fmt.Errorf("a box of %v elements: want 1 to 256 in each dimension", m.Box)
		case i > 0 && (m.Strides[i-1] < 1 || m.Strides[i-1]%16 != 0 || int64(m.Strides[i-1]) >= 1<<40):
			return fmt.Errorf("strides of %v bytes: want multiples of 16 below 2^40", m.Strides)
		}
	}
	row := m.Box[0] * m.Element.Bytes()
	if row%16 != 0 {
		return fmt.Errorf("a box whose rows have %d bytes, which is no multiple of 16", row)
	}
	if m.Swizzle > 0 && row > m.Swizzle {
		return fmt.Errorf("a box whose rows have %d bytes: a swizzle of %d takes no more than that", row, m.Swizzle)
	}
	return nil
}

// BoxBytes is the size of a box, which a load's mbarrier is told in full also where the box
// reaches out of the tensor.
func (m *TensorMap) BoxBytes() int {
	n := m.Element.Bytes()
	for _, d := range m.Box {
		n *= d
	}
	return n
}
