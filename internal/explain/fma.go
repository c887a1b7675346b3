package explain

import (
	"math/bits"

	"tilework/internal/gpu/frag"
	"tilework/ptx/emu"
)

// execute follows the instructions without an event of their own: multiply-adds, and moves of
// constants, which end the life of an element in a register.
func (x *recorder) execute(o emu.Origin) {
	switch o.Site.Instr.Op {
	case "mov":
		if len(registers(o.Site.Instr.Args[1])) == 0 {
			for _, r := range registers(o.Site.Instr.Args[0]) {
				x.eachLane(o, func(thread int) { delete(x.held, threadRegister{thread, r}) })
			}
		}
	case "fma":
		x.multiplyAdd(o)
	}
}

// eachLane calls do for the threads that execute an instruction.
func (x *recorder) eachLane(o emu.Origin, do func(thread int)) {
	for mask := o.Mask; mask != 0; mask &= mask - 1 {
		do(frag.Lanes*o.Warp + bits.TrailingZeros32(mask))
	}
}

// multiplyAdd adds the step of a multiply-add of a warp: for each thread an element of A, one of B,
// and the sum. It adds none for a multiplication of other numbers, such as zeros beyond the edges.
func (x *recorder) multiplyAdd(o emu.Origin) {
	args := o.Site.Instr.Args
	parts := []Part{{Matrix: "A"}, {Matrix: "B"}, {Matrix: "C"}}
	to := registers(args[0])
	factors := [2][]string{registers(args[1]), registers(args[2])}
	if len(to) != 1 || len(factors[0]) != 1 || len(factors[1]) != 1 {
		return // a factor is a constant
	}
	known := false
	x.eachLane(o, func(thread int) {
		a, _ := x.follow(threadRegister{thread, factors[0][0]}, 1)
		b, _ := x.follow(threadRegister{thread, factors[1][0]}, 1)
		if a.matrix == "B" {
			a, b = b, a
		}
		sum := cell{}
		if a.matrix == "A" && b.matrix == "B" {
			known = true
			if sum = (cell{"C", a.row, b.col}); a.col == b.row { // otherwise a fault mixes elements
				x.addTerm(thread, sum, a.col)
			} else {
				sum = cell{}
			}
		}
		x.hold(threadRegister{thread, to[0]}, sum)
		for i, c := range []cell{a, b, sum} {
			parts[i].add(thread, x.index(c))
		}
	})
	if known {
		x.add(Step{Op: "fma", Line: o.Site.Pos.Line, Warp: o.Warp, Parts: parts})
	}
}

// addTerm records that the next step adds term k to an element of C, whose sum the thread holds.
func (x *recorder) addTerm(thread int, c cell, k int) {
	i := x.index(c)
	x.out.Owner[i] = thread
	if term := &x.out.Terms[i*x.machine.problem.K+k]; *term == 0 {
		*term = len(x.out.Steps) + 1
	}
}
