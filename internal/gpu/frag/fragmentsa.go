package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// FragmentsA are the fragments of A that a thread of a warpgroup loads into registers, for wgmma
// with A from registers. MN-major 32-bit elements need this, because wgmma transposes only 16-bit
// elements in shared memory. The register operand holds elements (g, t), (g + 8, t), (g, t + 4) and
// (g + 8, t + 4) of 16 rows and 8 columns per warp. A row of A is a column of a TMA box.
//
// The assignment of A's rows to rows of a fragment is arbitrary, as long as the store of C uses the
// same one. With rows 0 to 3 and 16 to 19 of a box for g, a warp's load accesses 8 chunks of 16
// bytes in 4 rows of memory, which the swizzle stores in different banks. Adjacent rows for g would
// cause two-way bank conflicts.
type FragmentsA struct {
	boxes *Boxes
	// at points to the thread's elements in the first stage, indexed by row (g or g + 8) and by
	// column (t or t + 4).
	at [2][2]build.Ptr
	// row is the row of A, modulo 64, that g selects. The row of g + 8 is [LowerRow] further.
	row build.Reg
}

// LowerRow is the distance between a thread's two rows of A.
const LowerRow = 4

// FragmentsA returns the fragments of the rows from first on, a multiple of 64, for a thread of a
// warpgroup.
func (b *Boxes) FragmentsA(thread build.Reg, first build.Value) *FragmentsA {
	k := b.k
	warp, lane := k.Div(thread, Lanes), k.Rem(thread, Lanes)
	g, t := k.Div(lane, Quad), k.Rem(lane, Quad)
	const apart = 16 // distance between the rows for g of 0 to 3 and of 4 to 7
	box := k.Mul(k.Div(warp, 2), b.shape.Depth())
	row := k.Add(k.Mul(k.Rem(warp, 2), 2*LowerRow), k.Add(k.Mul(k.Div(g, 4), apart), k.Rem(g, 4)))
	w := &FragmentsA{boxes: b, row: k.Named("wordRow", k.Add(box, row))}
	from := b.tiles.At(k.Add(first, box), 0).Skip(k.Mul(t, SwizzleBytes))
	elements := tmaChunkBytes / b.shape.Elem.Bytes() // elements per chunk
	piece, in := k.Div(row, elements), k.Mul(k.Rem(row, elements), b.shape.Elem.Bytes())
	for lower := range 2 {
		for right := range 2 {
			p := k.Xor(k.Xor(piece, t), lower*LowerRow/elements^right*Quad)
			w.at[lower][right] = from.Skip(k.Add(k.Mul(p, tmaChunkBytes), in)).Skip(right * Quad * SwizzleBytes)
		}
	}
	return w
}

// Row returns the first of the thread's two rows of every 64.
func (w *FragmentsA) Row() build.Reg { return w.row }

// Load loads the four registers of a fragment. It covers the rows from row on, a multiple of 64,
// and 8 elements along K from p on. stage is the offset of the tile in bytes; see
// [Boxes.StageByteOffset].
func (w *FragmentsA) Load(to []build.Reg, stage build.Reg, row, p int) {
	for i, x := range to {
		at := w.at[i%2][i/2].As(ptx.TF32).Skip(stage)
		at.Skip((row + p) * SwizzleBytes).LoadTo(x)
	}
}

// StageByteOffset returns the offset of a stage's tile from the first stage's, in bytes.
func (b *Boxes) StageByteOffset(stage build.Reg) build.Reg {
	return b.k.Mul(stage, b.shape.StageBytes())
}
