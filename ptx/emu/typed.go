package emu

import "tilework/ptx"

// typed is the functions of an instruction by its type.
type typed map[ptx.Type]execFunc

// of is the function for type t: that of the type itself, or that of the unsigned
// integer of its width where the two do the same.
func (m typed) lookup(t ptx.Type) execFunc {
	if f := m[t]; f != nil {
		return f
	}
	if t.Class() == ptx.Float {
		return nil
	}
	return m[unsignedOf(t.Bits())]
}

// byType is the decoder of an instruction whose type alone says what executes it.
func byType(m typed) decodeFunc {
	return func(d *decoder) execFunc {
		d.operands()
		return m.lookup(d.mainType())
	}
}

// mainType is the type that the instruction under way works in: that of its last
// operand, or of the first one if it has no other.
func (d *decoder) mainType() ptx.Type { return d.i.Type(min(1, len(d.i.Args)-1)) }
