package emu

import (
	"encoding/binary"
	"fmt"
)

// tensorCopy decodes tcgen05.cp, which copies rows of 16 or 32 bytes from shared memory to
// consecutive lanes. It can expand 4-bit and 6-bit floats: 16 of them, at the start of 16 bytes,
// become as many bytes (manual: "tcgen05-optional-decompression").
func (d *decoder) tensorCopy() execFunc {
	i := d.i
	to, desc, pair := d.tensorOperand(0), d.source(1), i.Has("cta_group::2")
	var rows, bits int
	if _, err := fmt.Sscanf(i.Mod("shape"), "%dx%db", &rows, &bits); err != nil {
		return nil
	}
	// copies holds the first lane of each copy of rows/groups rows.
	groups, copies := 1, [][]int{{0}}
	switch i.Mod("copies") {
	case "warpx4":
		copies = [][]int{{0, 32, 64, 96}}
	case "warpx2::02_13":
		groups, copies = 2, [][]int{{0, 64}, {32, 96}}
	case "warpx2::01_23":
		groups, copies = 2, [][]int{{0, 32}, {64, 96}}
	}
	packed := map[string]int{"b4x16_p64": 4, "b6x16_p32": 6}[i.Mod("from")]
	return func(w *warp, in *inst) {
		w.eachLane(func(lane int) {
			for _, b := range w.pairOf(in, pair) {
				first, col := to.at(w, lane)
				source := operand{descriptor: unpackTensorDescriptor(reg[uint64](w, desc)[lane]), rows: rows, k: bits / 8, size: 1}
				spans := source.spans(0, rows)
				if !w.checkSharedSpans(in, b, spans) {
					return
				}
				var parts []*tensorPart
				for _, starts := range copies {
					for _, start := range starts {
						parts = append(parts, &tensorPart{block: b, lane: first + start, col: col, lanes: rows / groups, cols: bits / 32})
					}
				}
				w.issueTensor(in, lane, []sharedRead{{b, spans}}, nil, parts, func() {
					memory := b.shared.bytes()
					for g, starts := range copies {
						for row := range rows / groups {
							for c := range bits / 32 {
								piece := memory[source.at(g*rows/groups+row, c/4*tensorPiece):][:tensorPiece]
								v := binary.LittleEndian.Uint32(piece[c%4*4:])
								if packed > 0 {
									v = expandFloats(piece, packed, c%4*4)
								}
								for _, start := range starts {
									*b.tensor.word(first+start+row, col+c) = v
								}
							}
						}
					}
				})
			}
		})
	}
}

// expandFloats returns the floats n to n+3 of the given bits each, as bytes of a word.
func expandFloats(piece []byte, bits, n int) (word uint32) {
	for k := range 4 {
		at := (n + k) * bits
		v := (uint32(piece[at/8]) | uint32(piece[(at+7)/8])<<8) >> (at % 8)
		word |= v & (1<<bits - 1) << (8*k + paddingBelow(bits))
	}
	return word
}
