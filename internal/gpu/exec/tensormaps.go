package exec

import (
	"tilework/internal/device"
	"tilework/ptx"
)

// tensorMapKey identifies a tensor map: the fields of [ptx.TensorMap] as a comparable value. The
// encoding depends on nothing else.
type tensorMapKey struct {
	element    ptx.Type
	base       uint64
	dims, box  [3]int
	steps      [3]int
	strides    [2]int
	swizzle    int
	interleave int
	fillNaN    bool
	corners    [2]int
}

// Info describes the backend's device.
func (b *Backend) Info() *device.Info { return b.Device.Info() }

// EncodeTensorMap encodes a tensor map of two or three dimensions, once for repeated launches on
// the same matrices.
func (b *Backend) EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	key := tensorMapKey{element: m.Element, base: m.Base, swizzle: m.Swizzle, interleave: m.Interleave,
		fillNaN: m.FillNaN}
	copy(key.dims[:], m.Dims)
	copy(key.box[:], m.Box)
	copy(key.steps[:], m.Steps)
	copy(key.strides[:], m.Strides)
	if m.Im2col() {
		key.corners = [2]int{m.Lower[0], m.Upper[0]}
	}
	return b.tensorMaps.Get(key, func() ([ptx.TensorMapBytes]byte, error) { return b.Device.EncodeTensorMap(m) })
}
