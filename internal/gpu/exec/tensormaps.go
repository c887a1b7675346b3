package exec

import (
	"sync"

	"tilework/internal/device"
	"tilework/ptx"
)

// tensors are encoded maps, which depend on nothing but what they say: a launch of what
// was launched before finds its maps here.
type tensors struct {
	mu      sync.Mutex
	encoded map[tensorKey][ptx.TensorMapBytes]byte
}

// tensorKey is a map of tensorOf's.
type tensorKey struct {
	element   ptx.Type
	base      uint64
	dims, box [3]int
	strides   [2]int
}

// Info describes the backend's device.
func (b *Backend) Info() *device.Info { return b.Device.Info() }

// EncodeTensorMap is the device's, for two dimensions or three, with a memory.
func (b *Backend) EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	key := tensorKey{element: m.Element, base: m.Base}
	copy(key.dims[:], m.Dims)
	copy(key.box[:], m.Box)
	copy(key.strides[:], m.Strides)
	t := &b.tensors
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.encoded[key]; ok {
		return known, nil
	}
	encoded, err := b.Device.EncodeTensorMap(m)
	if err != nil {
		return encoded, err
	}
	const most = 1024
	if len(t.encoded) >= most || t.encoded == nil {
		t.encoded = map[tensorKey][ptx.TensorMapBytes]byte{}
	}
	t.encoded[key] = encoded
	return encoded, nil
}
