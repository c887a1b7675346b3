package emu

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"tilework/ptx"
)

// tensorMagic identifies an encoded tensor map. The encoding is specific to the emulator.
var tensorMagic = [16]byte([]byte("tilework tensor\n"))

// encodedTensor is the encoding of a tensor map.
type encodedTensor struct {
	Magic         [16]byte
	Element, Rank uint8
	Swizzle       uint16
	_             uint32
	Base          uint64
	Dims          [5]uint64
	Strides       [4]uint64
	Box           [5]uint16
}

// EncodeTensorMap encodes a tensor map for kernels that run in the emulator. The error wraps
// ErrLaunch.
func EncodeTensorMap(m *ptx.TensorMap) (b [ptx.TensorMapBytes]byte, err error) {
	if err := m.Check(); err != nil {
		return b, fmt.Errorf("%w: %w", ErrLaunch, err)
	}
	e := encodedTensor{Magic: tensorMagic, Element: uint8(m.Element), Rank: uint8(len(m.Dims)), Swizzle: uint16(m.Swizzle),
		Base: m.Base}
	for i := range m.Dims {
		e.Dims[i], e.Box[i] = uint64(m.Dims[i]), uint16(m.Box[i])
		if i > 0 {
			e.Strides[i-1] = uint64(m.Strides[i-1])
		}
	}
	_, err = binary.Encode(b[:], binary.LittleEndian, &e)
	return b, err
}

// decodeTensorMap decodes the result of EncodeTensorMap. ok is false for other bytes.
func decodeTensorMap(b []byte) (m ptx.TensorMap, ok bool) {
	var e encodedTensor
	if _, err := binary.Decode(b, binary.LittleEndian, &e); err != nil || !bytes.Equal(e.Magic[:], tensorMagic[:]) {
		return m, false
	}
	m = ptx.TensorMap{Element: ptx.Type(e.Element), Base: e.Base, Swizzle: int(e.Swizzle)}
	for i := range min(int(e.Rank), len(e.Dims)) {
		m.Dims, m.Box = append(m.Dims, int(e.Dims[i])), append(m.Box, int(e.Box[i]))
		if i > 0 {
			m.Strides = append(m.Strides, int(e.Strides[i-1]))
		}
	}
	return m, m.Check() == nil
}

// segment is n contiguous bytes of global memory at addr. at is their offset in the data of the
// copy.
type segment struct {
	addr uint64
	n    int
	at   int
}

// tensorPiece is the granularity of TMA writes in bytes. A store also writes the elements after the
// end of a row that share its last piece.
const tensorPiece = 16

// segments returns the part of a TMA box that is inside the tensor, row by row. coords is the first
// element of the box. For a store, rows are extended to a multiple of tensorPiece.
func segments(m *ptx.TensorMap, coords []int32, store bool) []segment {
	size := m.Element.Bytes()
	dim := m.Dims[0]
	if store {
		dim = (dim*size + tensorPiece - 1) / tensorPiece * tensorPiece / size
	}
	from, to := clip(int(coords[0]), m.Box[0], dim)
	if from >= to {
		return nil
	}
	var all []segment
	index := make([]int, len(m.Dims)) // position in the box; the innermost index stays 0
	for row := 0; ; row++ {
		addr, inside := m.Base+uint64((int(coords[0])+from)*size), true
		for i := 1; i < len(index); i++ {
			at := int(coords[i]) + index[i]
			inside = inside && at >= 0 && at < m.Dims[i]
			addr += uint64(at) * uint64(m.Strides[i-1])
		}
		if inside {
			all = append(all, segment{addr, (to - from) * size, (row*m.Box[0] + from) * size})
		}
		i := 1
		for ; i < len(index); i++ {
			if index[i]++; index[i] < m.Box[i] {
				break
			}
			index[i] = 0
		}
		if i >= len(index) {
			return all
		}
	}
}

// clip returns the elements of a range that are inside an array of dim elements. The range has n
// elements and starts at index at; the result is relative to at.
func clip(at, n, dim int) (from, to int) {
	return max(0, -at), min(n, dim-at)
}

// swizzled returns the swizzled address of a byte in shared memory. The index of the 16-byte piece
// in its row is XORed with the index, modulo 8, of the 128-byte row relative to base (manual:
// "tensor-swizzling-modes").
func swizzled(addr, base uint64, swizzle int) uint64 {
	if swizzle == 0 {
		return addr
	}
	return addr ^ (addr-base)>>3&(uint64(swizzle/16-1)<<4)
}
