package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Hopper's copy engine brings boxes of rows of 128 bytes, in which pieces of 16 bytes have
// changed places: piece c of row r is piece c ^ r%8 then, so that a column of pieces has
// all banks. wgmma reads them as they lie there.
const (
	SwizzleBytes = 128 // of a row
	swizzleRows  = 8   // after so many rows the pattern repeats
	pieceBytes   = 16
)

// BoxShape is the size of an operand's tiles for wgmma: Side rows of A or columns of B,
// and along K what 128 bytes hold. AlongK says that neighbours along K are neighbours in
// memory. Of Shared blocks of a cluster each loads its part of a tile for all of them. If
// Loaded is less than Side only so many rows are loaded, where rows run along K: the others
// stay as they are. Of Matrices, if that is more than 1, each has as many of the rows or columns,
// one behind the other.
type BoxShape struct {
	Elem                 ptx.Type
	Side, Loaded, Stages int
	KMajor               bool
	Multicast            int
	Matrices             int
}

// Depth is how many elements along K a tile has.
func (s BoxShape) Depth() int { return SwizzleBytes / s.Elem.Bytes() }

// StageBytes is the shared memory of a tile, and LoadedBytes what comes of it.
func (s BoxShape) StageBytes() int  { return s.Side * SwizzleBytes }
func (s BoxShape) LoadedBytes() int { return s.loaded() * SwizzleBytes }

// loaded is how many rows are loaded.
func (s BoxShape) loaded() int {
	if s.KMajor {
		return s.Loaded
	}
	return s.Side
}

// each is how many a matrix has of what is loaded.
func (s BoxShape) loadedPerMatrix() int { return s.loaded() / max(s.Matrices, 1) }

// maxBox is the most elements of a box in one dimension.
const maxBox = 256

// part is what one of the blocks that share a tile loads of one matrix: so many rows of A or columns of B,
// from depth elements along K each. Where rows of memory run across K a box has 128 bytes of
// them, and a tile is several boxes: of an odd number each block loads a part along K.
func (s BoxShape) perBlock() (side, depth int) {
	if side = s.loadedPerMatrix() / s.Multicast; !s.KMajor && side%s.Depth() != 0 {
		return s.loadedPerMatrix(), s.Depth() / s.Multicast
	}
	return side, s.Depth()
}

// rows is the rows of memory of a box.
func (s BoxShape) boxRows() int {
	side, depth := s.perBlock()
	if s.KMajor {
		return min(side, maxBox)
	}
	return depth
}

// across is how far a box goes across K.
func (s BoxShape) boxSide() int {
	if s.KMajor {
		return s.boxRows()
	}
	return s.Depth()
}

// Box is the box that a tensor map must have, innermost dimension first.
func (s BoxShape) Box() []int { return []int{s.Depth(), s.boxRows()} }

// Boxes are an operand's tiles in shared memory, a tensor's boxes.
type Boxes struct {
	k          *build.Kernel
	shape      BoxShape
	tensor     build.Tensor
	tiles      build.Array // rows of 128 bytes, tile behind tile
	skip       build.Value // elements of a row of memory before the operand's first one
	matrix     build.Value // of a tensor that is several, the number of the operand's; nil if it is one
	sideOffset int         // rows or columns of a tile that are those of a matrix before
}

// NewBoxes declares the tiles of a tensor, which is the operand as it lies in memory.
func NewBoxes(k *build.Kernel, name string, t build.Tensor, s BoxShape) *Boxes {
	return &Boxes{k: k, shape: s, tensor: t, tiles: k.Tile(name, s.Elem, s.Stages*s.Side, s.Depth()), skip: 0}
}

// Behind are the same tiles for an operand that begins so many elements behind the first
// one in each row of memory.
func (b *Boxes) Offset(skip build.Value) *Boxes {
	other := *b
	other.skip = skip
	return &other
}

// Of are the same tiles for an operand that is a matrix of several; nil stands for a tensor
// that is one.
func (b *Boxes) Matrix(matrix build.Value) *Boxes {
	other := *b
	other.matrix = matrix
	return &other
}

// Second are the parts of the same tiles that are another tensor's, behind the first one's.
func (b *Boxes) WithTensor(t build.Tensor) *Boxes {
	other := *b
	other.tensor, other.sideOffset = t, b.shape.loadedPerMatrix()
	return &other
}

// Prefetch brings the tensor's map on its way.
func (b *Boxes) Prefetch() { b.tensor.Prefetch() }

// Load has one thread send the tile on its way to a stage that begins at row first of the
// operand, or column of B, and element p along K; full is told of its bytes. rank is the
// block's place among those that share the tile.
func (b *Boxes) Load(stage build.Reg, full build.Ptr, first, p build.Value, rank build.Value) {
	k, s := b.k, b.shape
	side, depth := s.perBlock()
	from, along := build.Value(0), build.Value(0) // of the block's part
	if depth < s.Depth() {
		along = k.Mul(rank, depth)
	} else {
		from = k.Mul(rank, side)
	}
	for n := 0; n < side; n += s.boxSide() {
		at := k.Add(from, n)
		to := b.tiles.At(k.Add(k.Add(k.Mul(stage, s.Side), k.Add(at, b.sideOffset)), along), 0)
		x, y := build.Value(k.Add(p, along)), build.Value(k.Add(first, at))
		if !s.KMajor {
			x, y = y, x
		}
		from := []build.Value{k.Add(x, b.skip), y}
		if b.matrix != nil {
			from = append(from, b.matrix)
		}
		if s.Multicast > 1 {
			b.tensor.LoadMulticast(to, full, k.To(ptx.U16, 1<<s.Multicast-1), from...)
		} else {
			b.tensor.Load(to, full, from...)
		}
	}
}

// Clear has so many threads write zeros to what is never loaded of the tiles. A
// [build.Kernel.ProxyFence] and a barrier follow.
func (b *Boxes) Clear(tid build.Reg, threads int) {
	k, s := b.k, b.shape
	const words = pieceBytes / 4
	rest := (s.Side - s.loaded()) * SwizzleBytes / pieceBytes // of a tile, in pieces
	if rest == 0 {
		return
	}
	k.ForStep(tid, s.Stages*rest, threads, func(n build.Reg) {
		at := k.Add(k.Mul(k.Div(n, rest), s.StageBytes()), k.Mul(k.Rem(n, rest), pieceBytes))
		zeros := make([]build.Value, words)
		for i := range zeros {
			zeros[i] = 0
		}
		b.tiles.Ptr.As(ptx.U32).Skip(s.LoadedBytes()).Skip(at).StoreVec(zeros...)
	})
}

// Descriptor describes the first stage's tile from row first on, a multiple of 64, to
// wgmma.
func (b *Boxes) Descriptor(first build.Value) build.Reg {
	l := build.MatrixLayout{Stride: swizzleRows * SwizzleBytes, Swizzle: SwizzleBytes}
	if !b.shape.KMajor {
		l.Leading = b.shape.Depth() * SwizzleBytes // from one box to the next
	}
	return b.k.Descriptor(b.tiles.At(first, 0), l)
}

// ToStage is what a descriptor of the first stage lacks to one of another stage.
func (b *Boxes) DescStageOffset(stage build.Reg) build.Reg {
	return b.k.To(ptx.U64, b.k.Mul(stage, b.shape.StageBytes()/pieceBytes))
}

// ToSide is what a descriptor lacks to one from row n on, a multiple of 64.
func (b *Boxes) DescSideOffset(n int) int { return n * SwizzleBytes / pieceBytes }

// ToStep is what a descriptor lacks to one from element p along K on.
func (b *Boxes) DescKOffset(p int) int {
	if b.shape.KMajor {
		return p * b.shape.Elem.Bytes() / pieceBytes
	}
	return p * SwizzleBytes / pieceBytes
}
