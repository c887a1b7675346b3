package emu

import "tilework/ptx"

// sparseMetadata locates the elements of a sparse A (manual: "warp-level-sparse-matrix-storage").
// Half of the elements of each chunk of a row are in the registers, with their indices in the
// metadata. The layout of the metadata is that of CUTLASS (reorder_meta in host_reorder.h).
type sparseMetadata struct {
	meta    uint32 // slot
	first   int    // first lane of a quad that holds metadata
	ordered bool   // sp::ordered_metadata
	// A chunk of elements has indices of bits bits each for units of unit elements.
	chunk, unit, bits int
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
	s := &sparseMetadata{ordered: i.Has("sp::ordered_metadata"), chunk: 4, unit: 1, bits: 2, k: columns}
	switch {
	case ta == ptx.TF32:
		s.chunk, s.bits, s.halves = 2, 4, true
	case ta.Bits() == 16:
		s.halves = true
	case ta == ptx.U4 || ta == ptx.S4:
		s.chunk, s.unit = 8, 2
	}
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
		low, high := index&3, index>>2
		switch {
		case s.bits == 4 && (index == 0b0100 || index == 0b1110):
			places = append(places, column+low/2)
			continue
		case s.bits == 2 && low != high && (low < high || !s.ordered):
			for _, n := range []int{low, high} {
				for k := range s.unit {
					places = append(places, column+n*s.unit+k)
				}
			}
			continue
		}
		w.misuse(in, "the metadata %#04b of row %d and columns %d to %d name no valid elements", index, i, column,
			column+s.chunk-1)
		return nil
	}
	return places
}
