package emu

import (
	"fmt"
	"iter"
	"slices"

	"tilework/ptx"
)

// The part of global memory that a TMA copy accesses.

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

// segments returns the parts of rows that are inside the tensor. rows yields the coordinates of the
// first element of each row of a TMA box. For a store, rows are extended to a multiple of
// tensorPiece.
func segments(m *ptx.TensorMap, rows iter.Seq[[]int], store bool) (all []segment) {
	size := m.ElementBytes()
	dim := m.Dims[0]
	if store {
		dim = (dim*size + tensorPiece - 1) / tensorPiece * tensorPiece / size
	}
	row := 0
	for at := range rows {
		from, to := clip(at[0], m.Box[0], dim)
		addr, inside := m.Base+uint64((at[0]+from)*size), from < to
		for i := 1; i < len(at); i++ {
			inside = inside && at[i] >= 0 && at[i] < m.Dims[i]
			addr += uint64(at[i]) * uint64(m.Strides[i-1])
		}
		if inside {
			all = append(all, segment{addr, (to - from) * size, (row*m.Box[0] + from) * size})
		}
		row++
	}
	return all
}

// tiledRows yields the coordinates of the rows of the box at coords.
func tiledRows(m *ptx.TensorMap, coords []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		at := slices.Clone(coords)
		for i := 0; i < len(at); {
			if !yield(at) {
				return
			}
			for i = 1; i < len(at); i++ {
				if at[i] += m.Steps[i]; at[i] < coords[i]+m.Box[i] {
					break
				}
				at[i] = coords[i]
			}
		}
	}
}

// im2colRows yields the coordinates of the pixels of an im2col load. coords is the first position
// of the filter, and offsets the distances of the pixels from its positions.
func im2colRows(m *ptx.TensorMap, coords, offsets []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		filter, at := slices.Clone(coords), make([]int, len(coords))
		for range m.Box[1] {
			copy(at, filter)
			for i, offset := range offsets {
				at[1+i] += offset
			}
			if !yield(at) {
				return
			}
			next := 1
			for ; next <= len(offsets); next++ {
				if filter[next] += m.Steps[next]; filter[next] < m.Dims[next]+m.Upper[next-1] {
					break
				}
				filter[next] = m.Lower[next-1]
			}
			if next > len(offsets) {
				filter[next] += m.Steps[next] // the next image
			}
		}
	}
}

// maxOffsets holds the largest offsets of im2col loads, by the number of dimensions of the tensor.
var maxOffsets = [...]int{3: 1<<16 - 1, 4: 1<<8 - 1, 5: 1<<5 - 1}

// checkIm2col returns an error if an im2col load has wrong coordinates or offsets.
func checkIm2col(m *ptx.TensorMap, coords, offsets []int) error {
	if most := maxOffsets[len(m.Dims)]; slices.Max(offsets) > most {
		return fmt.Errorf("the im2col load has offsets %v: want at most %d in a tensor of %d dimensions", offsets, most,
			len(m.Dims))
	}
	for i, lower := range m.Lower {
		if x, end := coords[i+1], m.Dims[i+1]+m.Upper[i]; x < lower || x >= end {
			return fmt.Errorf("the im2col load has coordinate %d in dimension %d: want %d to %d, between the corners", x, i+1,
				lower, end-1)
		}
	}
	return nil
}

// outsideNaN holds 2 bytes outside of the tensor as a TMA load with FillNaN writes them, for all
// element types, as measured on a Hopper GPU.
var outsideNaN = []byte{0xf7, 0x7f}

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
