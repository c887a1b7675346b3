// Package frag is the building blocks that kernels for the tensor cores share: which
// elements of a matrix each lane of a warp holds, how tiles of the matrices come into
// shared memory while others are multiplied, and how lanes read them from there.
//
// A kernel takes an [Instruction] for its element type, [Tiles] for each operand, a
// [Reader] of each and a [Ring] of their stages; what it adds is the loop and the shape
// of a warp's part.
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
	{In: ptx.TF32, Sum: ptx.F32, M: 16, N: 8, K: 8, SM: 80},
	{In: ptx.F16, Sum: ptx.F32, M: 16, N: 8, K: 16, SM: 80},
	{In: ptx.BF16, Sum: ptx.F32, M: 16, N: 8, K: 16, SM: 80},
	{In: ptx.E4M3, Sum: ptx.F32, M: 16, N: 8, K: 32, SM: 89},
	{In: ptx.E5M2, Sum: ptx.F32, M: 16, N: 8, K: 32, SM: 89},
	{In: ptx.S8, Sum: ptx.S32, M: 16, N: 8, K: 32, SM: 80},
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

// Shape is the instruction's shape as PTX spells it: "m16n8k16".
func (i Instruction) Shape() string { return fmt.Sprintf("m%dn%dk%d", i.M, i.N, i.K) }

// Place is a row and a column of a matrix.
type Place struct{ Row, Col int }

// Register is the type of the registers of A and B, and each how many elements along K one
// of them holds, the first lowest.
func (i Instruction) Register() (t ptx.Type, each int) {
	if i.In == ptx.F64 {
		return i.In, 1
	}
	return ptx.B32, 32 / i.In.Bits()
}

// A lists where the first elements of a lane's registers of A are, from (g, each·t) on
// (manual: "matrix fragments for mma" of each shape).
func (i Instruction) A() []Place {
	_, each := i.Register()
	places := make([]Place, i.M*i.K/Lanes/each)
	tall := i.M / Eight
	for n := range places {
		places[n] = Place{n % tall * Eight, n / tall * Quad * each}
	}
	return places
}

// B lists where the first elements of a lane's registers of B are, from (each·t, g) on.
func (i Instruction) B() []Place {
	_, each := i.Register()
	places := make([]Place, i.K*i.N/Lanes/each)
	for n := range places {
		places[n] = Place{n * Quad * each, 0}
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
