package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// instruction appends an instruction to the function being written; operands
// are in Go's order, the destination last.
type instruction func(c *build.Context, ops ...operand.Op)

// element is an element type and its forms of the instructions used.
type element struct {
	name, goType string
	size         int // bytes

	broadcast, mul, add, fma instruction
	move, moveScalar         instruction
	moveZ, maskMove          func(c *build.Context, src, mask, dst operand.Op)
	compare                  func(c *build.Context, x, y operand.Op)
}

var (
	f32 = element{
		name: "F32", goType: "float32", size: 4,
		broadcast: (*build.Context).VBROADCASTSS, mul: (*build.Context).VMULPS, add: (*build.Context).VADDPS, fma: (*build.Context).VFMADD231PS,
		move: (*build.Context).VMOVUPS, moveScalar: (*build.Context).VMOVSS,
		moveZ: (*build.Context).VMOVUPS_Z, maskMove: (*build.Context).VMASKMOVPS, compare: (*build.Context).VUCOMISS,
	}
	f64 = element{
		name: "F64", goType: "float64", size: 8,
		broadcast: (*build.Context).VBROADCASTSD, mul: (*build.Context).VMULPD, add: (*build.Context).VADDPD, fma: (*build.Context).VFMADD231PD,
		move: (*build.Context).VMOVUPD, moveScalar: (*build.Context).VMOVSD,
		moveZ: (*build.Context).VMOVUPD_Z, maskMove: (*build.Context).VMASKMOVPD, compare: (*build.Context).VUCOMISD,
	}
)

// isa is an instruction set: its vectors, and how it moves only the first
// elements of one. Elements left out are not touched, not even where their page
// is unmapped, and read as zero.
type isa struct {
	name        string
	vectorBytes int
	registers   int // that hold a vector
	vector      func(*build.Context) reg.VecVirtual
	// fetchB says to fetch panels of B ahead: one as wide as two of the vectors,
	// times the usual 256 steps, does not stay in an L1 of 32 KiB.
	fetchB bool

	mask  func(g *generator, count reg.GPVirtual) reg.Register // of the first count elements; count is lost
	load  func(g *generator, src operand.Mem, mask, dst reg.Register)
	store func(g *generator, src, mask reg.Register, dst operand.Mem)
}

var avx512 = isa{
	name: "AVX512", vectorBytes: 64, registers: 32, vector: (*build.Context).ZMM, fetchB: true,
	mask: func(g *generator, count reg.GPVirtual) reg.Register {
		bits, mask := g.GP64(), g.K()
		g.MOVQ(count, reg.RCX)
		g.MOVQ(operand.I32(1), bits)
		g.SHLQ(reg.CL, bits)
		g.DECQ(bits)
		g.KMOVW(bits.As32(), mask)
		return mask
	},
	load:  func(g *generator, src operand.Mem, mask, dst reg.Register) { g.moveZ(g.Context, src, mask, dst) },
	store: func(g *generator, src, mask reg.Register, dst operand.Mem) { g.move(g.Context, src, mask, dst) },
}

var avx2 = isa{
	name: "AVX2", vectorBytes: 32, registers: 16, vector: (*build.Context).YMM,
	mask: func(g *generator, count reg.GPVirtual) reg.Register {
		window, mask := g.GP64(), g.YMM()
		g.LEAQ(g.maskTable().Offset(32), window)
		g.NEGQ(count)
		g.VMOVDQU(operand.Mem{Base: window, Index: count, Scale: uint8(g.size)}, mask)
		return mask
	},
	load:  func(g *generator, src operand.Mem, mask, dst reg.Register) { g.maskMove(g.Context, src, mask, dst) },
	store: func(g *generator, src, mask reg.Register, dst operand.Mem) { g.maskMove(g.Context, src, mask, dst) },
}

// maskTable is a vector of ones followed by one of zeros: what is loaded n
// elements before its middle selects the first n.
func (g *generator) maskTable() operand.Mem {
	if g.masks.Base == nil {
		g.masks = g.StaticGlobal("masks")
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for _, word := range []uint64{1<<64 - 1, 0} {
			for range 32 / 8 {
				g.AppendDatum(operand.U64(word))
			}
		}
	}
	return g.masks
}
