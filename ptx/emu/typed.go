package emu

import "tilework/ptx"

// typed holds the execFuncs of an instruction by its type.
type typed map[ptx.Type]execFunc

// lookup returns the function for type t, or the function for the unsigned integer of the same
// width if t has none of its own.
func (m typed) lookup(t ptx.Type) execFunc {
	if f := m[t]; f != nil {
		return f
	}
	if t.Class() == ptx.Float {
		return nil
	}
	return m[unsignedOf(t.Bits())]
}

// byType returns a decoder that selects the execFunc by the type of the instruction.
func byType(m typed) decodeFunc {
	return func(d *decoder) execFunc {
		d.operands()
		return m.lookup(d.mainType())
	}
}

// mainType returns the type of the first source operand, or of the only operand.
func (d *decoder) mainType() ptx.Type { return d.i.Type(min(1, len(d.i.Args)-1)) }
