package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// operands says where a micro-kernel finds A and B.
type operands struct {
	a        func(u, i int) operand.Mem // the element in row i of A, u steps of k ahead
	b        func(u, v int) operand.Mem // vector v of the row of B, u steps of k ahead
	fetch    func(u, i int)             // may ask for what is read later, after row i of step u
	step     func()                     // ends a step
	advance  func(steps int)            // ends a group of steps
	maskTail bool                       // whether B may not be read beyond its first n columns
}

// How far ahead panels are fetched into L1, where the hardware alone leaves 10 %
// of the speed of a Cascade Lake unused: distances of half and twice these make
// less than 2 % of difference.
const (
	fetchSteps = 4   // of B
	fetchBytes = 512 // of A
	lineBytes  = 64  // of a cache line
)

// panels are packed operands: mr values of A and nr of B follow one another for
// each step of k, so every address is a constant away from two pointers.
func (g *generator) panels(int) operands {
	a, b := g.param("a"), g.param("b")
	aStep, bStep := g.mr*g.size, g.nr*g.size
	return operands{
		a: func(u, i int) operand.Mem { return operand.Mem{Base: a, Disp: u*aStep + i*g.size} },
		b: func(u, v int) operand.Mem { return operand.Mem{Base: b, Disp: u*bStep + v*g.vectorBytes} },
		fetch: func(u, i int) {
			// Between other loads, so that the load ports are never behind.
			if line := i / 2 * lineBytes; g.fetchB && i%2 == 0 && line < bStep {
				g.PREFETCHT0(operand.Mem{Base: b, Disp: (u+fetchSteps)*bStep + line})
			}
			if newLine := u*aStep%lineBytes < aStep; newLine && i == g.mr-2 {
				g.PREFETCHT0(operand.Mem{Base: a, Disp: u*aStep + fetchBytes})
			}
		},
		step: func() {},
		advance: func(steps int) {
			g.ADDQ(operand.I32(steps*aStep), a)
			g.ADDQ(operand.I32(steps*bStep), b)
		},
	}
}

// matrices are operands as they lie in memory: rows of A any distance apart, and
// rows of B.
func (g *generator) matrices(rows int) operands {
	a, b := g.param("a"), g.param("b")
	csa, ldb := g.stride("csa"), g.stride("ldb")

	// An address takes one index times 1, 2, 4 or 8: row i is an odd multiple of
	// rsa, which has a register, times one of these.
	odd := map[int]reg.Register{}
	if rows > 1 {
		odd[1] = g.stride("rsa")
	}
	for n := 3; n < rows; n += 2 {
		odd[n] = g.GP64()
		from := odd[n&3]
		scale := uint8(4)
		if n == 3 {
			from, scale = odd[1], 2
		}
		g.LEAQ(operand.Mem{Base: from, Index: odd[1], Scale: scale}, odd[n])
	}
	return operands{
		a: func(_, i int) operand.Mem {
			if i == 0 {
				return operand.Mem{Base: a}
			}
			scale := i & -i
			return operand.Mem{Base: a, Index: odd[i/scale], Scale: uint8(scale)}
		},
		b: func(_, v int) operand.Mem { return operand.Mem{Base: b, Disp: v * g.vectorBytes} },
		step: func() {
			g.ADDQ(csa, a)
			g.ADDQ(ldb, b)
		},
		fetch:    func(u, i int) {},
		advance:  func(int) {},
		maskTail: true,
	}
}
