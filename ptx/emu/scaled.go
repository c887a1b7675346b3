package emu

import (
	"tilework/ptx/emu/internal/number"
)

// scaleOperands holds the scales of an mma with block scales (manual:
// "warp-level-block-scaling"). Each scale is a byte of a register. Lanes 4g to 4g+3 hold those of
// rows g and g+8 of A and of column g of B.
type scaleOperands struct {
	a, b         uint32   // slots of the registers
	partA, partB []uint32 // slots of the first byte and of the lanes that hold the scales
	n            int      // scales of a row
	format       *number.Format
}

// scaleOperands decodes the scales of the current instruction.
func (d *decoder) scaleOperands() *scaleOperands {
	i := d.i
	s := &scaleOperands{n: kindOf(i).perRow, format: number.UE8M0}
	if i.Has("scale_vec::4X") {
		s.n = 4
	}
	if i.Has("ue4m3") {
		s.format = number.UE4M3
	}
	for k := range i.Args {
		switch i.Operand(k).Name {
		case "scale-a":
			s.a = d.vector(k)[0]
		case "scale-b":
			s.b = d.vector(k)[0]
		case "part-a":
			s.partA = d.vector(k)
		case "part-b":
			s.partB = d.vector(k)
		}
	}
	return s
}

// ofRow returns the scales of row i of A: two lanes of a quad hold those of two rows.
func (s *scaleOperands) ofRow(w *warp, i int) []float64 {
	lane := i % 8 * 4
	part := reg[uint16](w, s.partA[1])[lane]
	return s.read(reg[uint32](w, s.a)[lane+int(part&1)*2+i/8], reg[uint16](w, s.partA[0])[lane])
}

// ofColumn returns the scales of column j of B.
func (s *scaleOperands) ofColumn(w *warp, j int) []float64 {
	lane := j * 4
	part := reg[uint16](w, s.partB[1])[lane]
	return s.read(reg[uint32](w, s.b)[lane+int(part&3)], reg[uint16](w, s.partB[0])[lane])
}

func (s *scaleOperands) read(word uint32, first uint16) []float64 {
	values := make([]float64, s.n)
	for k := range values {
		values[k] = s.format.Decode(uint64(word >> (8 * (int(first&3) + k)) & 0xff))
	}
	return values
}
