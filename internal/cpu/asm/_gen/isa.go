package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// instruction appends an instruction to the current function. Its operands are in Go's order, the
// destination last.
type instruction func(c *build.Context, ops ...operand.Op)

// element is an element type with the instructions for it. An fma may multiply several values of a
// step at once.
type element struct {
	name, goType string
	size         int // bytes

	broadcast, mul, fma, move instruction
	add, max, moveScalar      instruction
	fmaBroadcast              instruction // FMA with embedded broadcast of an element in memory; nil if there is none
	fmsub, fnma               instruction // fmsub subtracts the accumulator from the product, fnma the product from it
	*maths                                // nil for integers
	moveZ, maskMove           func(c *build.Context, src, mask, dst operand.Op)
	stream                    func(c *build.Context, src, dst operand.Op) // non-temporal store

	// addScaled adds alpha·sum to t. It overwrites sum.
	addScaled func(c *build.Context, alpha, sum, t operand.Op)
	// jumpIfZero jumps to a label if the scalar at an address is zero.
	jumpIfZero func(g *generator, at operand.Mem, label string)

	group       int    // values of K that a step multiplies at once
	compensates bool   // whether panels of B start with a row of compensation, from which the sums start
	tiles       string // the instruction that multiplies AMX tiles; empty for vectors
	words       docWords
}

// docWords are the parts of a micro-kernel's doc comment that depend on the element type.
type docWords struct {
	start, step, update string
	panel               string   // the index of an element in a panel of B
	notes               []string // lines below the loop
}

var floatWords = docWords{start: "0", step: "fma", update: "fma(alpha, sum, beta*c[i*ldc+j])", panel: "p*NR+j"}

var (
	f32 = element{
		name: "F32", goType: "float32", size: 4,
		broadcast: (*build.Context).VBROADCASTSS, mul: (*build.Context).VMULPS, fma: (*build.Context).VFMADD231PS,
		move: (*build.Context).VMOVUPS, stream: (*build.Context).VMOVNTPS,
		moveZ: (*build.Context).VMOVUPS_Z, maskMove: (*build.Context).VMASKMOVPS,
		moveScalar:   (*build.Context).VMOVSS,
		fmaBroadcast: (*build.Context).VFMADD231PS_BCST,
		fmsub:        (*build.Context).VFMSUB231PS, fnma: (*build.Context).VFNMADD231PS,
		add: (*build.Context).VADDPS, max: (*build.Context).VMAXPS, maths: maths32,
		addScaled: scaledByFMA((*build.Context).VFMADD231PS), jumpIfZero: jumpIfZeroFloat((*build.Context).VUCOMISS),
		group: 1, words: floatWords,
	}
	f64 = element{
		name: "F64", goType: "float64", size: 8,
		broadcast: (*build.Context).VBROADCASTSD, mul: (*build.Context).VMULPD, fma: (*build.Context).VFMADD231PD,
		move: (*build.Context).VMOVUPD, stream: (*build.Context).VMOVNTPD,
		moveZ: (*build.Context).VMOVUPD_Z, maskMove: (*build.Context).VMASKMOVPD,
		moveScalar:   (*build.Context).VMOVSD,
		fmaBroadcast: (*build.Context).VFMADD231PD_BCST,
		fmsub:        (*build.Context).VFMSUB231PD, fnma: (*build.Context).VFNMADD231PD,
		add: (*build.Context).VADDPD, max: (*build.Context).VMAXPD, maths: maths64,
		addScaled: scaledByFMA((*build.Context).VFMADD231PD), jumpIfZero: jumpIfZeroFloat((*build.Context).VUCOMISD),
		group: 1, words: floatWords,
	}
)

func scaledByFMA(fma instruction) func(c *build.Context, alpha, sum, t operand.Op) {
	return func(c *build.Context, alpha, sum, t operand.Op) { fma(c, alpha, sum, t) }
}

// jumpIfZeroFloat returns a jumpIfZero for floating-point numbers. −0 counts as zero. A NaN does
// not: it compares as equal but sets the parity flag.
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

// isa is an instruction set: its vectors, and its masked loads and stores of the first elements of
// a vector. Elements outside the mask are not accessed, even on an unmapped page, and load as zero.
type isa struct {
	name        string
	vectorBytes int
	registers   int // number of vector registers
	vector      func(*build.Context) reg.VecVirtual
	// fetchB enables prefetching of panels of B. A panel as wide as two 512-bit vectors, with the
	// usual 256 steps, does not stay in an L1 of 32 KiB.
	fetchB bool
	// activationRows is the number of rows that an activation processes at once, as many as there
	// are registers for. lightRows is the number for all other epilogue functions.
	activationRows, lightRows int
	shortRows                 rowEnd // how direct kernels end rows of fewer than nr columns

	mask  func(g *generator, count reg.GPVirtual) reg.Register // selects the first count elements; overwrites count
	load  func(g *generator, src operand.Mem, mask, dst reg.Register)
	store func(g *generator, src, mask reg.Register, dst operand.Mem)
}

var avx512 = isa{
	name: "AVX512", vectorBytes: 64, registers: 32, vector: (*build.Context).ZMM, fetchB: true, activationRows: 4,
	lightRows: 8, shortRows: masked,
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
	name: "AVX2", vectorBytes: 32, registers: 16, vector: (*build.Context).YMM, activationRows: 1, lightRows: 4,
	shortRows: overlapping, // a masked store takes up to 30 cycles on a Zen
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

// maskTable returns a vector of ones followed by a vector of zeros. A load n elements before its
// middle selects the first n.
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
