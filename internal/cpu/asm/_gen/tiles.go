package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AMX has eight tile registers of 16 rows of 64 bytes. One instruction adds the product of two
// tiles to a third: 16×16 words of A, stored by rows, times 16×16 words of B, stored by steps of K.
// The micro-kernel uses 2×2 tiles for sums, and two tiles each for A and B.
//
// One call configures and releases the tiles. No goroutine is preempted within it, so the scheduler
// never has to save them.
const (
	tileSide  = 16                   // rows of a tile, and words in a row
	tileBytes = tileSide * lineBytes // size of a whole tile
	tilesA    = 4                    // the first tile of A; the sums come before
	tilesB    = 6
)

var amx = func() isa { v := avx512; v.name = "AMX"; return v }()

const int8TileDoc = "dot4 adds the products of the four bytes of a and b (signed) to the sum."

// tiled returns e with an instruction that multiplies tiles of it, and its description.
func tiled(e element, multiply, says string) element {
	e.tiles, e.compensates = multiply, false
	e.words.start, e.words.panel = "0", "p*NR+j"
	e.words.notes = append([]string{""}, strings.Split(says, "\n")...)
	return e
}

// packedTiles writes the micro-kernel. Unlike others it has a frame, in which the sums move from
// tiles to vectors. It also loops over the panels of A, because configuring the tiles takes as long
// as a few tile products.
func (g *generator) packedTiles() {
	name := "Packed" + g.suffix()
	g.Function(name)
	g.SignatureExpr(strings.ReplaceAll("func(k int, a, b, c, next *T, ldc, m, n int, alpha, beta T)", "T", g.goType))
	g.Pragma("noescape")
	g.Doc(g.docLoop(name, "m×n elements of C, n ≤ NR, from packed panels. k is a multiple of 16",
		"i < m", "p < k", "i/MR*MR*k+p/16*MR*16+i%MR*16+p%16", g.words.panel)...)

	sums, line := g.GP64(), g.GP64()
	g.LEAQ(g.AllocLocal(g.mr*g.nr*g.size+lineBytes).Offset(lineBytes-1), sums)
	g.ANDQ(operand.I32(-lineBytes), sums)
	g.MOVQ(operand.I32(lineBytes), line)
	masks := g.rowMasks()
	a, next, c, ldc, m := g.param("a"), g.param("next"), g.param("c"), g.stride("ldc"), g.param("m")

	g.configureTiles()
	g.Label("panel")
	g.multiplyTiles(a, next, line, g.fetchTileAt(c, ldc, g.mr))
	rowOfSums := g.nr * g.size
	for i := range 2 {
		for j := range 2 {
			encoded("TILESTORED")(g.Context, operand.U8(2*i+j),
				operand.Mem{Base: sums, Index: line, Scale: uint8(rowOfSums / lineBytes),
					Disp: i*tileSide*rowOfSums + j*lineBytes})
		}
	}
	g.updateRows(sums, c, ldc, m, masks)
	g.SUBQ(operand.I32(g.mr), m)
	g.JGT(operand.LabelRef("panel"))
	encoded("TILERELEASE")(g.Context)
	g.VZEROUPPER()
	g.RET()
}

// multiplyTiles sums the products of one panel of A and one of B. It advances a and next past the
// data that it reads and prefetches.
func (g *generator) multiplyTiles(a, next, line reg.Register, fetchC func()) {
	for i := range tilesA {
		encoded("TILEZERO")(g.Context, operand.U8(i))
	}
	b, blocks := g.param("b"), g.param("k")
	g.SHRQ(operand.U8(log2(tileSide)), blocks)
	g.loop("blocks", blocks, func() {
		load := func(at operand.Mem, tile int) { encoded("TILELOADD")(g.Context, at, operand.U8(tile)) }
		loadA := func(i int) { load(operand.Mem{Base: a, Index: line, Scale: 1, Disp: i * tileBytes}, tilesA+i) }
		loadB := func(j int) {
			load(operand.Mem{Base: b, Index: line, Scale: uint8(g.nr / tileSide), Disp: j * lineBytes}, tilesB+j)
		}
		// After each product, prefetch a quarter of the next block into L1. The hardware prefetcher
		// does not follow tile loads.
		fetched := 0
		multiply := func(i, j int) {
			encoded(g.tiles)(g.Context, operand.U8(tilesB+j), operand.U8(tilesA+i), operand.U8(2*i+j))
			for range tileSide / 2 {
				g.PREFETCHT0(operand.Mem{Base: a, Disp: g.mr*lineBytes + fetched})
				g.PREFETCHT0(operand.Mem{Base: b, Disp: g.nr/tileSide*tileBytes + fetched})
				fetched += lineBytes
			}
		}
		loadB(0)
		loadA(0)
		multiply(0, 0)
		loadB(1)
		multiply(0, 1)
		loadA(1)
		multiply(1, 0)
		multiply(1, 1)
		for at := 0; at < tileSide/minUnroll; at++ { // as many lines as other kernels prefetch
			g.PREFETCHT1(operand.Mem{Base: next, Disp: at * lineBytes})
		}
		g.ADDQ(operand.I32(tileSide/minUnroll*lineBytes), next)
		for range 2 {
			fetchC()
		}
		g.ADDQ(operand.I32(g.mr*lineBytes), a)
		g.ADDQ(operand.I32(g.nr/tileSide*tileBytes), b)
	})
}

// rowMasks returns masks that select the first n elements of two vectors.
func (g *generator) rowMasks() []reg.Register {
	masks := make([]reg.Register, 2)
	bound, left := g.GP64(), g.param("n")
	for v := range masks {
		count := g.GP64()
		g.MOVQ(left, count)
		g.XORQ(bound, bound)
		g.CMPQ(count, bound)
		g.CMOVQLT(bound, count)
		g.MOVQ(operand.I32(g.lanes()), bound)
		g.CMPQ(count, bound)
		g.CMOVQGT(bound, count)
		masks[v] = g.mask(g, count)
		g.SUBQ(operand.I32(g.lanes()), left)
	}
	return masks
}

// updateRows writes α·sums + β·C to at most m rows of the panel's rows of C and advances c past the
// last one.
func (g *generator) updateRows(sums, c, ldc, m reg.Register, masks []reg.Register) {
	from, count := g.GP64(), g.GP64()
	g.MOVQ(sums, from)
	g.MOVQ(operand.I32(g.mr), count)
	g.CMPQ(count, m)
	g.CMOVQGT(m, count)
	alpha, beta, sum, t := g.vector(g.Context), g.vector(g.Context), g.vector(g.Context), g.vector(g.Context)
	rows := func(label string, update func(at operand.Mem, mask reg.Register)) {
		g.loop(label, count, func() {
			for v, mask := range masks {
				g.move(g.Context, operand.Mem{Base: from, Disp: v * g.vectorBytes}, sum)
				update(operand.Mem{Base: c, Disp: v * g.vectorBytes}, mask)
			}
			g.ADDQ(operand.I32(g.nr*g.size), from)
			g.ADDQ(ldc, c)
		})
	}
	g.broadcast(g.Context, g.address("alpha"), alpha)
	g.jumpIfZero(g, g.address("beta"), "overwrite")
	g.broadcast(g.Context, g.address("beta"), beta)
	rows("accumulate", func(at operand.Mem, mask reg.Register) {
		g.load(g, at, mask, t)
		g.mul(g.Context, beta, t, t)
		g.addScaled(g.Context, alpha, sum, t)
		g.store(g, t, mask, at)
	})
	g.JMP(operand.LabelRef("updated"))
	g.Label("overwrite")
	rows("overwriting", func(at operand.Mem, mask reg.Register) {
		g.mul(g.Context, alpha, sum, sum)
		g.store(g, sum, mask, at)
	})
	g.Label("updated")
}

// configureTiles configures all tiles with 16 rows of 64 bytes.
func (g *generator) configureTiles() {
	if g.masks.Base == nil {
		g.masks = g.StaticGlobal("wholeTiles")
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		words := [8]uint64{0: 1} // the palette
		for i := 2; i < 4; i++ { // bytes per row, 16 bits each
			words[i] = lineBytes * (1<<48 + 1<<32 + 1<<16 + 1)
		}
		words[6] = tileSide * 0x0101010101010101 // rows
		for _, w := range words {
			g.AppendDatum(operand.U64(w))
		}
	}
	at := g.GP64()
	g.LEAQ(g.masks, at)
	encoded("LDTILECFG")(g.Context, operand.Mem{Base: at})
}

// peakTiles writes a loop that only multiplies tiles.
func (g *generator) peakTiles() {
	name := "Peak" + g.suffix()
	g.function(name, "n int",
		fmt.Sprintf("%s runs n rounds of %d independent tile products (%d operations) on registers.", name, tilesA,
			tilesA*2*tileSide*tileSide*tileSide*g.group))
	n := g.param("n")
	g.configureTiles()
	for i := range tilesB + 2 {
		encoded("TILEZERO")(g.Context, operand.U8(i))
	}
	g.loop("products", n, func() {
		for i := range tilesA {
			encoded(g.tiles)(g.Context, operand.U8(tilesB), operand.U8(tilesA), operand.U8(i))
		}
	})
	encoded("TILERELEASE")(g.Context)
	g.RET()
}
