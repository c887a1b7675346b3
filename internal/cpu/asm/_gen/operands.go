package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// operands describes how a micro-kernel accesses A and B.
type operands struct {
	a          func(u, i int) operand.Mem            // the element of A in row i, u steps of k ahead
	b          func(u int) operand.Mem               // the row of B, u steps of k ahead
	sizeB      int                                   // of an element of B in bytes, if widen is not nil
	widen      func(b operand.Mem, dst reg.Register) // loads and widens a vector of B; nil if B has full width
	start      func() operand.Mem                    // the initial sums; nil for zero
	skipHeader func()                                // skips the initial sums
	fetch      func(u, i, width int)                 // may prefetch operands after row i of step u, width bytes of B
	step       func()                                // ends a step
	advance    func(steps int)                       // ends a group of steps
	fetchC     func()                                // prefetches C, once per iteration of the main loop; may be nil
	fetchNext  func()                                // prefetches from next into L2, once per iteration of the main loop
	copyTo     reg.Register                          // the destination for copied rows of B, or nil
	maskTail   bool                                  // whether B must not be read beyond its first n columns
}

// Prefetch distances into L1. Without prefetches a Cascade Lake loses a tenth of the speed on
// panels, and half on a B of long rows, because its hardware prefetcher stops at page boundaries.
// Half and twice these distances differ by less than 3 %.
const (
	panelSteps = 4   // for a panel of B
	panelBytes = 512 // for a panel of A
	matrixRows = 8   // for a matrix B; a scale that an address supports
)

const lineBytes = 64 // of a cache line

// panels returns packed operands. Each step of k takes as many values of A as the tile has rows and
// nr of B, so every address is a constant offset from one of two pointers.
func (g *generator) panels(rows int) operands {
	a, b := g.param("a"), g.param("b")
	aStep, bStep := rows*g.size, g.nr*g.size
	panels := operands{
		fetchNext: g.fetchLines(),
		fetchC:    g.fetchTile(rows),
		a:         func(u, i int) operand.Mem { return operand.Mem{Base: a, Disp: u*aStep + i*g.size} },
		b:         func(u int) operand.Mem { return operand.Mem{Base: b, Disp: u * bStep} },
		fetch: func(u, i, _ int) {
			if g.fetchB {
				g.fetchRow(i, rows, bStep, operand.Mem{Base: b, Disp: (u + panelSteps) * bStep})
			}
			g.fetchPanel(operand.Mem{Base: a, Disp: u * aStep}, u, i, rows)
		},
		step: func() {},
		advance: func(steps int) {
			g.ADDQ(operand.I32(steps*aStep), a)
			g.ADDQ(operand.I32(steps*bStep), b)
		},
	}
	if g.compensates {
		panels.start = func() operand.Mem { return operand.Mem{Base: b} }
		panels.skipHeader = func() { g.ADDQ(operand.I32(bStep), b) }
	}
	return panels
}

// panelAndMatrix returns a panel of A and rows of a B of 16-bit elements, which are widened. Each
// step of k prefetches a row of B.
func (g *generator) panelAndMatrix(rows int, widen func(b operand.Mem, dst reg.Register)) operands {
	const sizeB = 2
	a, b, next := g.param("a"), g.param("b"), g.param("next")
	lda, ldb, ldn := g.stride("lda"), g.param("ldb"), g.param("ldn")
	g.SHLQ(operand.U8(log2(sizeB)), ldb)
	g.SHLQ(operand.U8(log2(sizeB)), ldn)
	stepOfA, rowOfB, rowOfNext := g.rowsAt(a, lda, minUnroll), g.rowsAt(b, ldb, minUnroll), g.rowsAt(next, ldn, minUnroll)
	return operands{
		fetchNext: func() {},
		widen:     widen,
		sizeB:     sizeB,
		fetchC:    g.fetchTile(rows),
		a:         func(u, i int) operand.Mem { return stepOfA(u).Offset(i * g.size) },
		b:         rowOfB,
		fetch: func(u, i, _ int) {
			if i == 0 {
				g.PREFETCHT0(rowOfNext(u))
			}
			g.fetchPanel(stepOfA(u), u, i, rows)
		},
		step: func() {},
		advance: func(steps int) {
			for _, x := range []struct{ at, stride reg.Register }{{a, lda}, {b, ldb}, {next, ldn}} {
				g.LEAQ(operand.Mem{Base: x.at, Index: x.stride, Scale: uint8(steps)}, x.at)
			}
		},
	}
}

// fetchLines returns a function that prefetches the consecutive lines at next.
func (g *generator) fetchLines() func() {
	next := g.param("next")
	return func() {
		g.PREFETCHT1(operand.Mem{Base: next})
		g.ADDQ(operand.I32(lineBytes), next)
	}
}

// fetchPanel prefetches a panel of A, after row i of the step at a, which is u steps ahead.
func (g *generator) fetchPanel(a operand.Mem, u, i, rows int) {
	step := rows * g.size
	if newLine := u*step%lineBytes < step; newLine && i == rows-2 {
		g.PREFETCHT0(a.Offset(panelBytes))
	}
}

// matrices returns operands as stored: rows of A with any strides, and rows of B.
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
		b: func(int) operand.Mem { return operand.Mem{Base: b} },
		fetch: func(_, i, width int) {
			g.fetchRow(i, rows, width, operand.Mem{Base: b, Index: ldb, Scale: matrixRows})
		},
		step: func() {
			g.ADDQ(csa, a)
			g.ADDQ(ldb, b)
		},
		advance:  func(int) {},
		maskTail: true,
	}
}

// rowsAt returns the addresses of rows that are stride bytes apart. An address has one index, times
// 1, 2, 4 or 8. Row i is such a power of two times an odd multiple of the stride, so that only odd
// multiples need registers.
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

// fetchRow prefetches width bytes of a row of B, one line after every second row of the tile.
// Between other loads a prefetch delays none of them.
func (g *generator) fetchRow(i, rows, width int, at operand.Mem) {
	for line := range (width + lineBytes - 1) / lineBytes {
		if i == min(2*line, rows-1) {
			g.PREFETCHT0(at.Offset(line * lineBytes))
		}
	}
}
