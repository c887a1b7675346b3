package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// Kernels for int8 multiply several values of K at a time: a panel holds 32-bit words, each with
// that many values of a row of A or a column of B.
//
// quads are four bytes. Those of A have 128 added, because VPDPBUSD multiplies unsigned bytes by
// signed ones. The sums therefore start from the compensation −128·Σb, which is the first row of
// B's panel. pairs are two 16-bit values. Neither saturates: a product of quads fits 16 bits, and a
// sum of two products of pairs fits 32. The sums wrap.
var (
	quads = integer("I8", 4, "b[j]", "dot4", "(p+1)*NR+j", (*build.Context).VPDPBUSD,
		"dot4 adds the products of the four bytes of a (unsigned) and b (signed) to the sum.")
	pairs = integer("I8", 2, "0", "dot2", "p*NR+j", multiplyPairs,
		"dot2 adds the products of the two 16-bit halves of a and b (signed) to the sum.")

	vnni = func() isa { v := avx512; v.name = "VNNI"; return v }()
)

func integer(name string, group int, start, step, panel string, dot instruction, more string) element {
	return element{
		name: name, goType: "int32", size: 4,
		broadcast: (*build.Context).VBROADCASTSS, mul: (*build.Context).VPMULLD, fma: dot, move: moveWords,
		add: (*build.Context).VPADDD, max: (*build.Context).VPMAXSD,
		moveZ: (*build.Context).VMOVDQU32_Z, maskMove: (*build.Context).VPMASKMOVD,
		addScaled: func(c *build.Context, alpha, sum, t operand.Op) {
			c.VPMULLD(alpha, sum, sum)
			c.VPADDD(sum, t, t)
		},
		jumpIfZero: func(g *generator, at operand.Mem, label string) {
			g.CMPL(at, operand.Imm(0))
			g.JEQ(operand.LabelRef(label))
		},
		group: group, compensates: start != "0",
		words: docWords{start: start, step: step, update: "alpha*sum + beta*c[i*ldc+j]", panel: panel,
			notes: []string{"", more}},
	}
}

// multiplyPairs adds the dot products of pairs to a sum.
func multiplyPairs(c *build.Context, ops ...operand.Op) {
	products := c.YMM()
	c.VPMADDWD(ops[0], ops[1], products)
	c.VPADDD(products, ops[2], ops[2])
}

// moveWords moves a vector, under a mask if there are three operands.
func moveWords(c *build.Context, ops ...operand.Op) {
	for _, o := range ops {
		if operand.IsYMM(o) {
			c.VMOVDQU(ops[0], ops[1])
			return
		}
	}
	c.VMOVDQU32(ops...)
}

// compensation writes the function that computes the first row of a panel of B.
func (g *generator) compensation() {
	name := "Start" + g.suffix()
	g.function(name, "k int, b *T",
		fmt.Sprintf("%s sets the first row of a panel of B, b[0] … b[%d], to -128 times the sum of", name, g.nr-1),
		"the bytes of each column in the k rows below it.")
	k, b := g.param("k"), g.param("b")
	at := func(v int) operand.Mem { return operand.Mem{Base: b, Disp: v * g.vectorBytes} }
	first := g.GP64()
	g.MOVQ(b, first)

	times128, word := g.vector(g.Context), g.GP32()
	g.MOVL(operand.U32(0x80808080), word)
	g.VPBROADCASTD(word, times128)
	sums := g.vectors(g.nr / g.lanes())
	for _, sum := range sums {
		g.zero(sum)
	}
	g.loop("rows", k, func() {
		g.ADDQ(operand.I32(g.nr*g.size), b)
		for v, sum := range sums {
			g.VPDPBUSD(at(v), times128, sum)
		}
	})
	zero := g.vector(g.Context)
	g.zero(zero)
	for v, sum := range sums {
		g.VPSUBD(sum, zero, sum)
		g.move(g.Context, sum, operand.Mem{Base: first, Disp: v * g.vectorBytes})
	}
	g.VZEROUPPER()
	g.RET()
}
