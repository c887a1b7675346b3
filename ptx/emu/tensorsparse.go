package emu

import "fmt"

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
	sparse := sparsityOf(s.typeA, s.padded(s.typeA))
	all := make([][]int, s.rowsPer)
	for row := range all {
		places := make([]int, 0, s.k)
		for at := 0; at < s.depth; at += sparse.chunk {
			n := at / sparse.chunk
			lane, column, bit := row, n/8, n%8*4
			if s.sharesColumns() {
				lane, column, bit = row/16*16+n/4*8+row%8, s.selector, row/8%2*16+n%4*4
			}
			index := int(*b.tensor.word(lane, col+column)>>bit) & 15
			var err error
			if places, err = sparse.places(places, row, at, index, index == 0b0110); err != nil {
				return nil, err
			}
		}
		all[row] = places
	}
	return all, nil
}
