package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// operands says where a micro-kernel finds A and B.
type operands struct {
	a         func(u, i int) operand.Mem            // the element in row i of A, u steps of k ahead
	b         func(u, v int) operand.Mem            // vector v of the row of B, u steps of k ahead
	widen     func(b operand.Mem, dst reg.Register) // loads a vector of B that is of halves
	start     func(v int) operand.Mem               // vector v of what the sums start from; nil for zero
	begin     func()                                // goes from there to the first step
	fetch     func(u, i int)                        // may ask for what is read later, after row i of step u
	step      func()                                // ends a step
	advance   func(steps int)                       // ends a group of steps
	fetchC    func()                                // ends a group of the main loop, if there is one
	fetchNext func()                                // so does this: it has what is at next come to L2
	copyTo    reg.Register                          // where B's rows are copied to, one behind the other, if anywhere
	maskTail  bool                                  // whether B may not be read beyond its first n columns
}

// How far ahead operands are fetched into L1. On a Cascade Lake the hardware alone
// loses a tenth of the speed on panels and, as it does not look beyond a page,
// half on a B of long rows. Distances of half and twice these differ by less than
// 3 %.
const (
	panelSteps = 4   // of a panel of B
	panelBytes = 512 // of a panel of A
	matrixRows = 8   // of a matrix B; a scale that an address can have
)

const lineBytes = 64 // of a cache line

// panels are packed operands: mr values of A and nr of B follow one another for
// each step of k, so every address is a constant away from two pointers.
func (g *generator) panels(int) operands { return g.panelsOf(g.size, nil) }

// panelsOf is panels with elements of B of another size, to be widened.
func (g *generator) panelsOf(sizeB int, widen func(b operand.Mem, dst reg.Register)) operands {
	a, b, next := g.param("a"), g.param("b"), g.param("next")
	aStep, bStep := g.mr*g.size, g.nr*sizeB
	panels := operands{
		fetchNext: func() {
			g.PREFETCHT1(operand.Mem{Base: next})
			g.ADDQ(operand.I32(lineBytes), next)
		},
		widen:  widen,
		fetchC: g.fetchTile(),
		a:      func(u, i int) operand.Mem { return operand.Mem{Base: a, Disp: u*aStep + i*g.size} },
		b:      func(u, v int) operand.Mem { return operand.Mem{Base: b, Disp: u*bStep + v*g.lanes()*sizeB} },
		fetch: func(u, i int) {
			if g.fetchB {
				g.fetchRow(i, g.mr, operand.Mem{Base: b, Disp: (u + panelSteps) * bStep})
			}
			if newLine := u*aStep%lineBytes < aStep; newLine && i == g.mr-2 {
				g.PREFETCHT0(operand.Mem{Base: a, Disp: u*aStep + panelBytes})
			}
		},
		step: func() {},
		advance: func(steps int) {
			g.ADDQ(operand.I32(steps*aStep), a)
			g.ADDQ(operand.I32(steps*bStep), b)
		},
	}
	if g.starts {
		panels.start = func(v int) operand.Mem { return operand.Mem{Base: b, Disp: v * g.vectorBytes} }
		panels.begin = func() { g.ADDQ(operand.I32(bStep), b) }
	}
	return panels
}

// matrices are operands as they lie in memory: rows of A any distance apart, and
// rows of B.
func (g *generator) matrices(rows int) operands {
	a, b := g.param("a"), g.param("b")
	csa, ldb := g.stride("csa"), g.stride("ldb")
	next, ldn := g.param("next"), g.stride("ldn")

	rowOfA := g.rowsAt(a, g.stride("rsa"), rows)
	return operands{
		fetchNext: func() {
			g.PREFETCHT1(operand.Mem{Base: next})
			g.PREFETCHT1(operand.Mem{Base: next, Index: ldn, Scale: 1})
			g.LEAQ(operand.Mem{Base: next, Index: ldn, Scale: 2}, next)
		},
		a: func(_, i int) operand.Mem { return rowOfA(i) },
		b: func(_, v int) operand.Mem { return operand.Mem{Base: b, Disp: v * g.vectorBytes} },
		fetch: func(_, i int) {
			g.fetchRow(i, rows, operand.Mem{Base: b, Index: ldb, Scale: matrixRows})
		},
		step: func() {
			g.ADDQ(csa, a)
			g.ADDQ(ldb, b)
		},
		advance:  func(int) {},
		maskTail: true,
	}
}

// rowsAt is where each of a number of rows begins that are stride bytes apart. An address
// takes one index times 1, 2, 4 or 8: row i is one of these times an odd multiple of the
// stride, and only odd multiples need registers.
func (g *generator) rowsAt(base, stride reg.Register, rows int) func(i int) operand.Mem {
	odd := map[int]reg.Register{1: stride}
	for n := 3; n < rows; n += 2 {
		odd[n] = g.GP64()
		g.LEAQ(operand.Mem{Base: odd[n-2], Index: stride, Scale: 2}, odd[n])
	}
	return func(i int) operand.Mem {
		if i == 0 {
			return operand.Mem{Base: base}
		}
		scale := i & -i
		return operand.Mem{Base: base, Index: odd[i/scale], Scale: uint8(scale)}
	}
}

// fetchRow fetches B's row at the address, a line after every second row of the
// tile: between other loads, so that these need not queue.
func (g *generator) fetchRow(i, rows int, at operand.Mem) {
	for line := range g.nr * g.size / lineBytes {
		if i == min(2*line, rows-1) {
			g.PREFETCHT0(at.Offset(line * lineBytes))
		}
	}
}
