package exec

import (
	"sync"

	"tilework/internal/device"
	"tilework/ptx"
)

// A tensorMapCache holds encoded TMA tensor maps. An encoding depends on the description alone, so
// repeated launches on the same matrices find theirs in the cache.
type tensorMapCache struct {
	mu      sync.Mutex
	encoded map[tensorMapKey][ptx.TensorMapBytes]byte
}

// tensorMapKey identifies a tensor map, the fields of [ptx.TensorMap] as a comparable value.
type tensorMapKey struct {
	element   ptx.Type
	base      uint64
	dims, box [3]int
	strides   [2]int
}

// Info describes the backend's device.
func (b *Backend) Info() *device.Info { return b.Device.Info() }

// EncodeTensorMap encodes a tensor map of two or three dimensions, or returns it from the cache.
func (b *Backend) EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	key := tensorMapKey{element: m.Element, base: m.Base}
	copy(key.dims[:], m.Dims)
	copy(key.box[:], m.Box)
	copy(key.strides[:], m.Strides)
	t := &b.tensorMaps
	t.mu.Lock()
	defer t.mu.Unlock()
	if encoded, ok := t.encoded[key]; ok {
		return encoded, nil
	}
	encoded, err := b.Device.EncodeTensorMap(m)
	if err != nil {
		return encoded, err
	}
	const maxEntries = 1024
	if len(t.encoded) >= maxEntries || t.encoded == nil {
		t.encoded = map[tensorMapKey][ptx.TensorMapBytes]byte{}
	}
	t.encoded[key] = encoded
	return encoded, nil
}
