package emu

import (
	"fmt"

	"tilework/ptx"
)

// The metadata of tcgen05.mma.sp. A has half of the elements of each row: two of four neighbours,
// one of two for tf32, and two pairs of four pairs for 4-bit floats. Four bits of metadata give
// their places (manual: "tcgen05-sparse-matrices"). The manual shows the positions of these bits in
// tensor memory only in pictures. Those here are the layouts of CUTLASS (tmem_e_frg in
// mma_traits_sm100_frag.hpp), which has none for 64 rows in a block.

// checkSparse returns an error if the emulator does not support the shape for a sparse A.
func (s *tensorShape) checkSparse() error {
	switch {
	case s.rowsPer != tensorLanes && !s.reuses:
		return fmt.Errorf("the emulator does not support a sparse A of %d rows in a block", s.rowsPer)
	case s.selector > 1 || s.selector == 1 && !s.sharesColumns():
		return fmt.Errorf("the instruction descriptor has the sparsity selector %d: want %s", s.selector,
			choose(s.sharesColumns(), "0 or 1", "0"))
	}
	return nil
}

// sharesColumns reports whether the metadata of a product are in one of two columns, which the
// sparsity selector names.
func (s *tensorShape) sharesColumns() bool { return s.typeA.Bits() >= 16 }

// places returns the columns of the elements of A in each row of a block. The metadata start in
// column col of tensor memory.
func (s *tensorShape) places(b *block, col int) ([][]int, error) {
	chunk, unit := 4, 1 // columns of A that four bits describe, and those of an index
	switch {
	case s.typeA == ptx.TF32:
		chunk, unit = 2, 0
	case s.tensorProduct.kind.operands[1] == ptx.E2M1: // not padded to bytes
		chunk, unit = 8, 2
	}
	all := make([][]int, s.rowsPer)
	for row := range all {
		places := make([]int, 0, s.k)
		for at := 0; at < s.depth; at += chunk {
			n := at / chunk
			lane, column, bit := row, n/8, n%8*4
			if s.sharesColumns() {
				lane, column, bit = row/16*16+n/4*8+row%8, s.selector, row/8%2*16+n%4*4
			}
			index := int(*b.tensor.word(lane, col+column)>>bit) & 15
			low, high := index&3, index>>2
			switch {
			case unit == 0 && (index == 0b0100 || index == 0b1110):
				places = append(places, at+low/2)
			case unit > 0 && (low < high || index == 0b0110):
				for k := range unit {
					places = append(places, at+low*unit+k)
				}
				for k := range unit {
					places = append(places, at+high*unit+k)
				}
			default:
				return nil, fmt.Errorf("the metadata %#04b of row %d and columns %d to %d name no valid elements", index, row, at,
					at+chunk-1)
			}
		}
		all[row] = places
	}
	return all, nil
}
