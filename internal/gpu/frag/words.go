package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Words are the fragments of A that a thread of a warpgroup loads into registers: of 32-bit
// elements in rows of memory that run across K, which wgmma does not read from shared memory, as
// it transposes 16 bits alone. There it wants elements (g, t), (g + 8, t), (g, t + 4) and (g + 8, t + 4)
// of 16 rows and 8 columns for each warp, and a row's are in one column of a box.
//
// Which row of A a row of the fragment is does not matter, as long as C knows. With rows 0 to 3
// and 16 to 19 of a box for g, a warp's loads take 8 pieces of 16 bytes in 4 rows of memory, which the
// swizzle has in banks of their own; neighbours would take 4 banks twice.
type FragmentsA struct {
	boxes *Boxes
	// at is where the thread's elements of the first stage begin, by the row, g or g + 8, and
	// by the column, t or t + 4.
	at [2][2]build.Ptr
	// row is the row of A, of every 64, that g is; g + 8 is [LowerRow] further.
	row build.Reg
}

// LowerRow is how far apart a thread's two rows of A are.
const LowerRow = 4

// Words are the fragments of the rows from first on, a multiple of 64, for a thread of a
// warpgroup.
func (b *Boxes) FragmentsA(thread build.Reg, first build.Value) *FragmentsA {
	k := b.k
	warp, lane := k.Div(thread, Lanes), k.Rem(thread, Lanes)
	g, t := k.Div(lane, Quad), k.Rem(lane, Quad)
	const apart = 16 // rows 0 to 3 of g from 4 to 7
	box := k.Mul(k.Div(warp, 2), b.shape.Depth())
	row := k.Add(k.Mul(k.Rem(warp, 2), 2*LowerRow), k.Add(k.Mul(k.Div(g, 4), apart), k.Rem(g, 4)))
	w := &FragmentsA{boxes: b, row: k.Named("wordRow", k.Add(box, row))}
	from := b.tiles.At(k.Add(first, box), 0).Skip(k.Mul(t, SwizzleBytes))
	elements := pieceBytes / b.shape.Elem.Bytes() // of a piece
	piece, in := k.Div(row, elements), k.Mul(k.Rem(row, elements), b.shape.Elem.Bytes())
	for lower := range 2 {
		for right := range 2 {
			p := k.Xor(k.Xor(piece, t), lower*LowerRow/elements^right*Quad)
			w.at[lower][right] = from.Skip(k.Add(k.Mul(p, pieceBytes), in)).Skip(right * Quad * SwizzleBytes)
		}
	}
	return w
}

// Row is the first of the thread's two rows of every 64.
func (w *FragmentsA) Row() build.Reg { return w.row }

// Load loads a fragment's four registers: of the rows from row on, a multiple of 64, and 8
// elements from p on along K of the tile that begins so many bytes behind the first stage's.
func (w *FragmentsA) Load(to []build.Reg, stage build.Reg, row, p int) {
	for i, x := range to {
		at := w.at[i%2][i/2].As(ptx.TF32).Skip(stage)
		at.Skip((row + p) * SwizzleBytes).LoadTo(x)
	}
}

// StageSkip is how many bytes behind the first stage's a stage's tile begins.
func (b *Boxes) StageByteOffset(stage build.Reg) build.Reg {
	return b.k.Mul(stage, b.shape.StageBytes())
}
