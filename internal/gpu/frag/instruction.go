// Package frag holds the building blocks of tensor core kernels: fragment layouts (the elements of
// a matrix that each lane of a warp holds), the copies of tiles to shared memory, swizzles that
// avoid bank conflicts, wgmma descriptors, and the loads of fragments.
//
// A kernel with mma.sync uses an [Instruction] for its element type, [Tiles] for each operand, a
// [Reader] for each, and a [Ring] of their stages (cp.async). It adds the main loop and the tile of
// a warp. A kernel with wgmma uses [Boxes] for each operand (TMA) and a [Pipeline] of their stages.
package frag

import (
	"fmt"

	"tilework/ptx"
)

// Lanes is the number of threads of a warp. In fragments a lane is 4·g + t. In the PTX manual g is
// groupID and t is threadID_in_group: g selects rows of A and C and columns of B; t selects
// elements along K and pairs of columns of C.
const (
	Lanes = 32
	Quad  = 4            // number of values of t
	Eight = Lanes / Quad // number of values of g
)

// Instruction describes an mma.sync: a warp adds the product of an M×K and a K×N matrix to an M×N
// matrix.
type Instruction struct {
	In, Sum ptx.Type
	M, N, K int
	SM      int // minimum architecture
}

// instructions lists the candidates, the best for each type first.
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

// Best returns the best instruction for elements of type in on architecture sm, if there is one.
func Best(in ptx.Type, sm int) (best Instruction, ok bool) {
	for _, i := range instructions {
		if i.In == in && i.SM <= sm {
			return i, true
		}
	}
	return Instruction{}, false
}

// Shape returns the instruction's shape in PTX's notation: "m16n8k16".
func (i Instruction) Shape() string { return fmt.Sprintf("m%dn%dk%d", i.M, i.N, i.K) }

// Place is a row and a column of a matrix.
type Place struct{ Row, Col int }

// Register returns the type of the registers of A and B, and the number of elements along K in one
// of them, the first in the lowest bits.
func (i Instruction) Register() (t ptx.Type, each int) {
	if i.In == ptx.F64 {
		return i.In, 1
	}
	return ptx.B32, 32 / i.In.Bits()
}

// A returns the position of the first element in each of a lane's registers of A, relative to (g,
// each·t), where each is the second result of [Instruction.Register]. The PTX manual shows the
// layouts under "Matrix Fragments for mma" of each shape.
func (i Instruction) A() []Place {
	_, each := i.Register()
	places := make([]Place, i.M*i.K/Lanes/each)
	tall := i.M / Eight
	for n := range places {
		places[n] = Place{n % tall * Eight, n / tall * Quad * each}
	}
	return places
}

// B returns the position of the first element in each of a lane's registers of B, relative to
// (each·t, g).
func (i Instruction) B() []Place {
	_, each := i.Register()
	places := make([]Place, i.K*i.N/Lanes/each)
	for n := range places {
		places[n] = Place{n * Quad * each, 0}
	}
	return places
}

// C returns the positions of a lane's accumulators relative to (g, 2·t). Pairs are adjacent in a
// row.
func (i Instruction) C() []Place {
	places := make([]Place, i.M*i.N/Lanes)
	for n := range places {
		places[n] = Place{n / 2 * Eight, n % 2}
	}
	return places
}
