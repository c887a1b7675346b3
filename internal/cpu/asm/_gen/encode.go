package main

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// encoding describes the encoding of an instruction that Go's assembler lacks, as in Intel's
// manual, volume 2: VEX.128 or EVEX.512, the prefix, 0F38.W0 and the opcode.
type encoding struct {
	evex   bool
	prefix byte // noPrefix, prefixF3 or prefixF2
	opcode byte
	// fields holds the position of each operand, in Go's order with the destination last: r and m
	// are ModRM's register and register-or-memory fields, v is the prefix's vvvv.
	fields string
}

const (
	noPrefix byte = iota
	_             // 66
	prefixF3
	prefixF2
)

var encodings = map[string]encoding{
	"VDPBF16PS":   {true, prefixF3, 0x52, "mvr"},
	"LDTILECFG":   {false, noPrefix, 0x49, "m"},
	"TILERELEASE": {false, noPrefix, 0x49, ""},
	"TILEZERO":    {false, prefixF2, 0x49, "r"},
	"TILELOADD":   {false, prefixF2, 0x4b, "mr"},
	"TILESTORED":  {false, prefixF3, 0x4b, "rm"},
	"TDPBF16PS":   {false, prefixF3, 0x5c, "vmr"},
	"TDPBSSD":     {false, prefixF2, 0x5e, "vmr"},
}

// encoded returns an instruction of the table above. A tile operand is its number, an operand.U8.
func encoded(name string) instruction {
	return func(c *build.Context, ops ...operand.Op) {
		i := &ir.Instruction{Opcode: name, Operands: ops, Inputs: ops}
		if last := ops[max(len(ops)-1, 0):]; len(last) > 0 && isRegister(last[0]) {
			i.Outputs = last
		}
		c.Instruction(i)
	}
}

func isRegister(o operand.Op) bool { _, ok := o.(reg.Register); return ok }

// encode replaces these instructions by their bytes once registers are allocated.
var encode = pass.InstructionPass(func(i *ir.Instruction) error {
	e, ok := encodings[i.Opcode]
	if !ok {
		return nil
	}
	names := make([]string, len(i.Operands))
	for n, o := range i.Operands {
		names[n] = o.Asm()
		if tile, ok := o.(operand.U8); ok {
			names[n] = fmt.Sprintf("TMM%d", tile)
		}
	}
	i.Opcode = strings.TrimSpace(fmt.Sprintf("%s // %s %s", directives(e.bytes(i.Operands)), i.Opcode,
		strings.Join(names, ", ")))
	i.Operands = nil // the text contains them
	return nil
})

// directives returns the assembler directives for bytes.
func directives(b []byte) string {
	var all []string
	for len(b) > 0 {
		switch {
		case len(b) >= 4:
			all, b = append(all, fmt.Sprintf("LONG $0x%08x", binary.LittleEndian.Uint32(b))), b[4:]
		case len(b) >= 2:
			all, b = append(all, fmt.Sprintf("WORD $0x%04x", binary.LittleEndian.Uint16(b))), b[2:]
		default:
			all, b = append(all, fmt.Sprintf("BYTE $0x%02x", b[0])), b[1:]
		}
	}
	return strings.Join(all, "; ")
}

// bytes returns the encoding of the instruction with the given operands.
func (e encoding) bytes(ops []operand.Op) []byte {
	var number = map[byte]byte{} // register number by field; 0 for an unused field
	var at *operand.Mem
	for i, o := range ops {
		if m, ok := o.(operand.Mem); ok {
			at = &m
			continue
		}
		number[e.fields[i]] = registerNumber(o)
	}
	r, m, v := number['r'], number['m'], number['v']
	x, b := m>>4, m>>3
	tail := []byte{e.opcode, 0xc0 | r&7<<3 | m&7}
	if at != nil {
		base, index := registerNumber(at.Base), byte(noIndex)
		if at.Index != nil {
			index = registerNumber(at.Index)
		}
		x, b = index>>3, base>>3
		tail = append([]byte{e.opcode}, memory(r, base, index, at.Scale, at.Disp)...)
	}
	// Register number bits above the third are stored in the prefix, inverted.
	not := func(n byte, shift int) byte { return (^n & 1) << shift }
	p0 := not(r>>3, 7) | not(x, 6) | not(b, 5) | 2 // 0F38
	p1 := ^v&15<<3 | e.prefix
	if e.evex {
		return append([]byte{0x62, p0 | not(r>>4, 4), p1 | 1<<2, 2<<5 | not(v>>4, 3)}, tail...)
	}
	return append([]byte{0xc4, p0, p1}, tail...)
}

// noIndex is rsp's number, which encodes an address without an index.
const noIndex = 4

// memory returns ModRM, SIB and displacement of the address base + index·scale + disp.
func memory(r, base, index, scale byte, disp int) []byte {
	sib := byte(log2(int(max(scale, 1))))<<6 | index&7<<3 | base&7
	const direct = 5 // without a displacement, rbp and r13 as base have another meaning
	switch {
	case disp == 0 && base&7 != direct:
		return []byte{r&7<<3 | 4, sib}
	case disp == int(int8(disp)):
		return []byte{0x40 | r&7<<3 | 4, sib, byte(disp)}
	}
	return binary.LittleEndian.AppendUint32([]byte{0x80 | r&7<<3 | 4, sib}, uint32(disp))
}

// registerNumber returns the hardware number of a register or a tile.
func registerNumber(o operand.Op) byte {
	if n, ok := o.(operand.U8); ok {
		return byte(n)
	}
	return byte(reg.ToPhysical(o.(reg.Register)).PhysicalIndex())
}
