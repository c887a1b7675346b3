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

// element is an element type and its forms of the instructions used. What the
// kernels of floating-point types call fma may take several values of a step at once.
type element struct {
	name, goType string
	size         int // bytes

	broadcast, mul, fma, move instruction
	add, max, moveScalar      instruction
	*maths                    // nil for integers
	moveZ, maskMove           func(c *build.Context, src, mask, dst operand.Op)
	stream                    func(c *build.Context, src, dst operand.Op) // stores around the caches

	// addScaled adds alpha·sum to t; sum is lost.
	addScaled func(c *build.Context, alpha, sum, t operand.Op)
	// jumpIfZero goes to a label where the scalar at an address is zero.
	jumpIfZero func(g *generator, at operand.Mem, label string)

	group  int    // values of K that a step multiplies at once
	starts bool   // whether sums start from the first row of B's panel, not from zero
	tiles  string // the instruction that multiplies AMX's tiles, if that is what multiplies
	words  words
}

// words are what a micro-kernel's doc comment says of an element type.
type words struct {
	start, step, update string
	panel               string   // where a panel of B has its element
	more                []string // below the loop
}

var floatWords = words{start: "0", step: "fma", update: "fma(alpha, sum, beta*c[i*ldc+j])", panel: "p*NR+j"}

var (
	f32 = element{
		name: "F32", goType: "float32", size: 4,
		broadcast: (*build.Context).VBROADCASTSS, mul: (*build.Context).VMULPS, fma: (*build.Context).VFMADD231PS, move: (*build.Context).VMOVUPS, stream: (*build.Context).VMOVNTPS,
		moveZ: (*build.Context).VMOVUPS_Z, maskMove: (*build.Context).VMASKMOVPS,
		moveScalar: (*build.Context).VMOVSS,
		add:        (*build.Context).VADDPS, max: (*build.Context).VMAXPS, maths: maths32,
		addScaled: scaledByFMA((*build.Context).VFMADD231PS), jumpIfZero: jumpIfZeroFloat((*build.Context).VUCOMISS), group: 1, words: floatWords,
	}
	f64 = element{
		name: "F64", goType: "float64", size: 8,
		broadcast: (*build.Context).VBROADCASTSD, mul: (*build.Context).VMULPD, fma: (*build.Context).VFMADD231PD, move: (*build.Context).VMOVUPD, stream: (*build.Context).VMOVNTPD,
		moveZ: (*build.Context).VMOVUPD_Z, maskMove: (*build.Context).VMASKMOVPD,
		moveScalar: (*build.Context).VMOVSD,
		add:        (*build.Context).VADDPD, max: (*build.Context).VMAXPD, maths: maths64,
		addScaled: scaledByFMA((*build.Context).VFMADD231PD), jumpIfZero: jumpIfZeroFloat((*build.Context).VUCOMISD), group: 1, words: floatWords,
	}
)

func scaledByFMA(fma instruction) func(c *build.Context, alpha, sum, t operand.Op) {
	return func(c *build.Context, alpha, sum, t operand.Op) { fma(c, alpha, sum, t) }
}

// jumpIfZeroFloat: −0 equals zero too; a NaN, which compares as equal with the parity
// flag set, does not.
func jumpIfZeroFloat(compare func(c *build.Context, x, y operand.Op)) func(g *generator, at operand.Mem, label string) {
	return func(g *generator, at operand.Mem, label string) {
		zero, not := g.XMM(), label+"_not"
		g.VXORPS(zero, zero, zero)
		compare(g.Context, at, zero)
		g.JNE(operand.LabelRef(not))
		g.JPC(operand.LabelRef(label))
		g.Label(not)
	}
}

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
	// abreast is how many rows an activation is computed of at once, as many as there are
	// registers for, and light how many of them are finished otherwise.
	abreast, light int

	mask  func(g *generator, count reg.GPVirtual) reg.Register // of the first count elements; count is lost
	load  func(g *generator, src operand.Mem, mask, dst reg.Register)
	store func(g *generator, src, mask reg.Register, dst operand.Mem)
}

var avx512 = isa{
	name: "AVX512", vectorBytes: 64, registers: 32, vector: (*build.Context).ZMM, fetchB: true, abreast: 4, light: 8,
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
	name: "AVX2", vectorBytes: 32, registers: 16, vector: (*build.Context).YMM, abreast: 1, light: 4,
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
