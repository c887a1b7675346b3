package explain

import (
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// words is the instruction of the tensor cores for elements of 4 bytes, the only one that
// [Machine.Steps] follows. wgmma has the same fragments for each warp and each 8 columns.
var words, _ = frag.Best(ptx.TF32, 90)

// warpSync follows the instructions mma.
func (x *recorder) warpSync(s *emu.WarpSync) {
	if s.Site.Instr.Op == "mma" {
		b, columns := x.fragment(s.Origin, 2, words.B(), func(p frag.Place, g, t int) int { return g + p.Col })
		x.multiply(s.Origin, operandB{b, columns})
	}
}

// operandB is the second operand of an instruction of tensor cores. lines holds an element of each
// of its columns.
type operandB struct {
	part  Part
	lines map[int]cell
}

// fragment returns the elements in the registers of an operand. places are the positions of the
// registers, and line returns the row or column of a register of the lane 4·g + t. The result has
// an element of each row or column.
func (x *recorder) fragment(o emu.Origin, arg int, places []frag.Place, line func(p frag.Place, g, t int) int) (
	p Part, lines map[int]cell) {
	lines = map[int]cell{}
	regs := registers(o.Site.Instr.Args[arg])
	for lane := range frag.Lanes {
		g, t := lane/frag.Quad, lane%frag.Quad
		for n, r := range regs {
			c, _ := x.follow(threadRegister{frag.Lanes*o.Warp + lane, r}, 1)
			if c.matrix != "" {
				p.Matrix = c.matrix
				lines[line(places[n], g, t)] = c
			}
			p.add(frag.Lanes*o.Warp+lane, x.index(c))
		}
	}
	return p, lines
}

// operandB returns the operand of wgmma in shared memory.
func (x *recorder) operandB(spans []emu.Span) operandB {
	b := operandB{lines: map[int]cell{}}
	across := map[int]bool{}
	for _, s := range spans {
		for addr := s.Addr; addr < s.Addr+uint64(s.Size); addr += wordBytes {
			word := int(addr / wordBytes)
			c := x.shared[word]
			if c.matrix != "" {
				b.part.Matrix = c.matrix
				across[c.across()] = true
			}
			b.part.Elements = append(b.part.Elements, x.index(c))
			b.part.Words = append(b.part.Words, word)
		}
	}
	for n, at := range sorted(across) { // the columns of a tile are adjacent, zeros at the end
		b.lines[n] = cell{b.part.Matrix, at, at}
	}
	return b
}

// across returns the position along M or N of an element of A or B.
func (c cell) across() int {
	if c.matrix == "A" {
		return c.row
	}
	return c.col
}

// multiply adds the step of a warp on tensor cores: the registers of the first operand, the second
// one, and the sums with the threads that hold them.
func (x *recorder) multiply(o emu.Origin, b operandB) {
	a, rows := x.fragment(o, 1, words.A(), func(p frag.Place, g, _ int) int { return g + p.Row })
	sums := Part{Matrix: "C"}
	each := len(words.C())
	for lane := range frag.Lanes {
		g, t := lane/frag.Quad, lane%frag.Quad
		for n, r := range registers(o.Site.Instr.Args[0]) {
			place := words.C()[n%each]
			row, ok1 := rows[g+place.Row]
			col, ok2 := b.lines[n/each*words.N+2*t+place.Col]
			if !ok1 || !ok2 {
				continue // zeros beyond the edges
			}
			c := cell{"C", row.across(), col.across()}
			if row.matrix == "B" { // the kernel computes the transpose
				c.row, c.col = c.col, c.row
			}
			thread := frag.Lanes*o.Warp + lane
			x.hold(threadRegister{thread, r}, c)
			x.out.Owner[x.index(c)] = thread
			sums.add(thread, x.index(c))
		}
	}
	x.addTerms(a, b.part)
	x.add(Step{Op: "multiply", Line: o.Site.Pos.Line, Warp: o.Warp, Parts: []Part{a, b.part, sums}})
}

// addTerms records the products of two operands as terms of the next step.
func (x *recorder) addTerms(a, b Part) {
	if a.Matrix == "B" {
		a, b = b, a
	}
	p := &x.machine.problem
	cols := map[int][]int{} // of B, by k
	for _, e := range b.Elements {
		if e >= 0 {
			cols[e/p.N] = append(cols[e/p.N], e%p.N)
		}
	}
	for _, e := range a.Elements {
		if e < 0 {
			continue
		}
		row, k := e/p.K, e%p.K
		for _, col := range cols[k] {
			if term := &x.out.Terms[(row*p.N+col)*p.K+k]; *term == 0 {
				*term = len(x.out.Steps) + 1
			}
		}
	}
}
