package main

import (
	"bytes"
	"testing"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// TestEncode compares encodings with those of LLVM's assembler, whose operand order is Go's:
//
//	llvm-mc -show-encoding -mattr=+amx-tile,+amx-int8,+amx-bf16,+avx512bf16
func TestEncode(t *testing.T) {
	tile := func(n int) operand.Op { return operand.U8(n) }
	for _, test := range []struct {
		name string
		ops  []operand.Op
		want []byte
	}{
		{"TILEZERO", []operand.Op{tile(3)}, []byte{0xc4, 0xe2, 0x7b, 0x49, 0xd8}},
		{"TILERELEASE", nil, []byte{0xc4, 0xe2, 0x78, 0x49, 0xc0}},
		{"LDTILECFG", []operand.Op{operand.Mem{Base: reg.R12}}, []byte{0xc4, 0xc2, 0x78, 0x49, 0x04, 0x24}},
		{"TILELOADD", []operand.Op{operand.Mem{Base: reg.RAX, Index: reg.RBX, Scale: 1}, tile(4)},
			[]byte{0xc4, 0xe2, 0x7b, 0x4b, 0x24, 0x18}},
		{"TILELOADD", []operand.Op{operand.Mem{Base: reg.R9, Index: reg.R12, Scale: 2, Disp: 64}, tile(5)},
			[]byte{0xc4, 0x82, 0x7b, 0x4b, 0x6c, 0x61, 0x40}},
		{"TILELOADD", []operand.Op{operand.Mem{Base: reg.R13, Index: reg.R12, Scale: 1, Disp: 1024}, tile(7)},
			[]byte{0xc4, 0x82, 0x7b, 0x4b, 0xbc, 0x25, 0x00, 0x04, 0x00, 0x00}},
		{"TILELOADD", []operand.Op{operand.Mem{Base: reg.R13, Index: reg.RSI, Scale: 1}, tile(6)},
			[]byte{0xc4, 0xc2, 0x7b, 0x4b, 0x74, 0x35, 0x00}},
		{"TILESTORED", []operand.Op{tile(2), operand.Mem{Base: reg.RCX, Index: reg.RDX, Scale: 2, Disp: 2112}},
			[]byte{0xc4, 0xe2, 0x7a, 0x4b, 0x94, 0x51, 0x40, 0x08, 0x00, 0x00}},
		{"TDPBF16PS", []operand.Op{tile(4), tile(6), tile(0)}, []byte{0xc4, 0xe2, 0x5a, 0x5c, 0xc6}},
		{"TDPBSSD", []operand.Op{tile(5), tile(7), tile(3)}, []byte{0xc4, 0xe2, 0x53, 0x5e, 0xdf}},
		{"VDPBF16PS", []operand.Op{reg.Z30, reg.Z17, reg.Z9}, []byte{0x62, 0x12, 0x76, 0x40, 0x52, 0xce}},
		{"VDPBF16PS", []operand.Op{reg.Z1, reg.Z2, reg.Z28}, []byte{0x62, 0x62, 0x6e, 0x48, 0x52, 0xe1}},
	} {
		if got := encodings[test.name].bytes(test.ops); !bytes.Equal(got, test.want) {
			t.Errorf("%s %v = % x, want % x", test.name, test.ops, got, test.want)
		}
	}
}

func TestDirectives(t *testing.T) {
	if got, want := directives([]byte{1, 2, 3, 4, 5, 6, 7}), "LONG $0x04030201; WORD $0x0605; BYTE $0x07"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
