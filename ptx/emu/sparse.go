package emu

import (
	"fmt"

	"tilework/ptx"
)

// sparsity describes the rows of a sparse A: half of the elements of each chunk of columns, with
// four bits of metadata. These are two indices of units, or for a unit of 0 the place of a single
// element.
type sparsity struct{ chunk, unit int }

// sparsityOf returns the sparsity for elements of type t, or for such elements padded to bytes.
func sparsityOf(t ptx.Type, padded bool) sparsity {
	switch {
	case t == ptx.TF32:
		return sparsity{2, 0}
	case t.Bits() == 4 && !padded:
		return sparsity{8, 2}
	}
	return sparsity{4, 1}
}

// places appends the columns of the elements of the chunk that starts at column. With anyOrder set,
// the first index can be the larger one.
func (s sparsity) places(list []int, row, column, index int, anyOrder bool) ([]int, error) {
	low, high := index&3, index>>2
	switch {
	case s.unit == 0 && (index == 0b0100 || index == 0b1110):
		return append(list, column+low/2), nil
	case s.unit > 0 && (low < high || anyOrder && low > high):
		for _, n := range []int{low, high} {
			for k := range s.unit {
				list = append(list, column+n*s.unit+k)
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("the metadata %#04b of row %d and columns %d to %d name no valid elements", index, row, column,
		column+s.chunk-1)
}

// sparseMetadata locates the elements of a sparse A (manual: "warp-level-sparse-matrix-storage").
// Half of the elements of each chunk of a row are in the registers, with their indices in the
// metadata. The layout of the metadata is that of CUTLASS (reorder_meta in host_reorder.h).
type sparseMetadata struct {
	sparsity
	meta    uint32 // slot
	first   int    // first lane of a quad that holds metadata
	ordered bool   // sp::ordered_metadata
	// perWord is the number of columns of A whose metadata are in a word, or in half a word if
	// halves is set: the lower half then belongs to row g and the upper half to row g+8.
	perWord int
	halves  bool
	k       int
}

// sparseMetadata decodes the metadata of the current instruction.
func (d *decoder) sparseMetadata(columns int) *sparseMetadata {
	i := d.i
	_, ta, _, _ := elementsOf(i)
	kind := kindOf(i)
	s := &sparseMetadata{sparsity: sparsityOf(ta, kind != nil && kind.padded), ordered: i.Has("sp::ordered_metadata"),
		halves: ta.Bits() >= 16, k: columns}
	bits := choose(s.halves, 16, 32)
	s.perWord = bits / 4 * s.chunk
	words := columns / s.perWord // of a row
	lanes := choose(s.halves, words, 2*words)
	for k := range i.Args {
		switch i.Operand(k).Name {
		case "meta":
			s.meta = d.vector(k)[0]
		case "sel":
			s.first = int(d.constInt(k)) * lanes % 4
		}
	}
	return s
}

// row returns the columns of the elements of row i of A, in places if that is large enough. It
// returns nil after a misuse.
func (s *sparseMetadata) row(w *warp, in *inst, i int, places []int) []int {
	places = places[:0]
	for column := 0; column < s.k; column += s.chunk {
		word, at := column/s.perWord, column%s.perWord/s.chunk*4
		lane := i%8*4 + s.first
		if s.halves {
			lane += word
			at += i / 8 * 16
		} else {
			lane += 2*word + i/8
		}
		index := int(reg[uint32](w, s.meta)[lane]>>at) & 15
		var err error
		if places, err = s.places(places, i, column, index, !s.ordered); err != nil {
			w.misuse(in, "%v", err)
			return nil
		}
	}
	return places
}
