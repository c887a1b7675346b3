// Package frag is the building blocks that kernels for the tensor cores share: which
// elements of a matrix each lane of a warp holds, and how tiles of the matrices come
// into shared memory while others are multiplied.
//
// A kernel takes an [Instruction] for its element type, [Tiles] for each operand and a
// [Ring] of their stages; what it adds is the loop and the shape of a warp's part.
package frag

import (
	"fmt"

	"tilework/ptx"
)

// Lanes are the threads of a warp. A fragment's lane is 4·g + t: g counts rows of A and
// C and columns of B, t counts along K and pairs of columns of C.
const (
	Lanes = 32
	Quad  = 4            // the values of t
	Eight = Lanes / Quad // the values of g
)

// Instruction is an mma.sync: a warp adds the product of an M×K and a K×N matrix to
// one of M×N.
type Instruction struct {
	In, Sum ptx.Type
	M, N, K int
	SM      int // the least architecture that has it
}

// instructions are the ones to choose from, the best of each type first.
var instructions = []Instruction{
	{In: ptx.F64, Sum: ptx.F64, M: 16, N: 8, K: 8, SM: 90},
	{In: ptx.F64, Sum: ptx.F64, M: 8, N: 8, K: 4, SM: 80},
}

// Best is the best instruction for elements of type in on architecture sm. ok is false
// if there is none.
func Best(in ptx.Type, sm int) (best Instruction, ok bool) {
	for _, i := range instructions {
		if i.In == in && i.SM <= sm {
			return i, true
		}
	}
	return Instruction{}, false
}

// Shape is the instruction's shape as PTX spells it: "m16n8k8".
func (i Instruction) Shape() string { return fmt.Sprintf("m%dn%dk%d", i.M, i.N, i.K) }

// Place is a row and a column of a matrix.
type Place struct{ Row, Col int }

// A lists where a lane's elements of A are, from (g, t) on (manual: "matrix fragments
// for mma" of each shape).
func (i Instruction) A() []Place {
	places := make([]Place, i.M*i.K/Lanes)
	tall := i.M / Eight
	for n := range places {
		places[n] = Place{n % tall * Eight, n / tall * Quad}
	}
	return places
}

// B lists where a lane's elements of B are, from (t, g) on.
func (i Instruction) B() []Place {
	places := make([]Place, i.K*i.N/Lanes)
	for n := range places {
		places[n] = Place{n * Quad, 0}
	}
	return places
}

// C lists where a lane's sums are, from (g, 2·t) on: pairs side by side.
func (i Instruction) C() []Place {
	places := make([]Place, i.M*i.N/Lanes)
	for n := range places {
		places[n] = Place{n / 2 * Eight, n % 2}
	}
	return places
}
