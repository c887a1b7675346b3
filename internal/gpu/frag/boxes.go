package frag

import (
	"tilework/internal/ints"
	"tilework/ptx"
	"tilework/ptx/build"
)

// TMA loads boxes of rows of 128 bytes with the 128-byte swizzle: the 16-byte chunk c of row r is
// stored as chunk c ^ r%8, so that a column of chunks covers all banks. wgmma reads this layout.
const (
	SwizzleBytes  = 128 // length of a row
	swizzleRows   = 8   // rows after which the pattern repeats
	tmaChunkBytes = 16
)

// BoxShape describes the tiles of a wgmma operand. A tile has Side rows of A or columns of B, and
// 128 bytes along K.
//
// KMajor reports whether K is the contiguous dimension in memory; the operand is MN-major
// otherwise. Each of Multicast blocks of a cluster loads its part of a tile and multicasts it to
// all of them. If a K-major operand has Loaded less than Side, only Loaded rows are loaded and the
// others are never written. If Matrices is more than 1, a tile contains equally many rows or
// columns of that many matrices, one after the other.
type BoxShape struct {
	Elem                 ptx.Type
	Side, Loaded, Stages int
	KMajor               bool
	Multicast            int
	Matrices             int
}

// Depth returns the number of elements of a tile along K.
func (s BoxShape) Depth() int { return SwizzleBytes / s.Elem.Bytes() }

// StageBytes returns the shared memory of a tile.
func (s BoxShape) StageBytes() int { return s.Side * SwizzleBytes }

// LoadedBytes returns the number of bytes of a tile that are loaded.
func (s BoxShape) LoadedBytes() int { return s.loaded() * SwizzleBytes }

// loaded returns the number of rows or columns of a tile that are loaded.
func (s BoxShape) loaded() int {
	if s.KMajor {
		return s.Loaded
	}
	return s.Side
}

// loadedPerMatrix returns the part of loaded that belongs to one matrix.
func (s BoxShape) loadedPerMatrix() int { return s.loaded() / max(s.Matrices, 1) }

// maxBoxRows is the maximum number of rows of a K-major operand in a TMA box. Smaller boxes would
// load less outside of the matrix, but with 32 rows the instructions of the producer limit the
// speed: bfloat16 4096³ on an H100 took 228 µs, and 180 with 64 rows, in a version whose loads all
// had predicates.
const maxBoxRows = 64

// perBlock returns the part of a tile that one of the Multicast blocks loads of one matrix: side
// rows of A or columns of B, and depth elements along K. A box of an MN-major operand has 128 bytes
// along MN, so a tile has several boxes. If they cannot be divided among the blocks, each block
// loads a part along K instead.
func (s BoxShape) perBlock() (side, depth int) {
	if side = s.loadedPerMatrix() / s.Multicast; !s.KMajor && side%s.Depth() != 0 {
		return s.loadedPerMatrix(), s.Depth() / s.Multicast
	}
	return side, s.Depth()
}

// boxRows returns the number of rows of memory in a TMA box.
func (s BoxShape) boxRows() int {
	side, depth := s.perBlock()
	if s.KMajor {
		return BoxRows(side)
	}
	return depth
}

// BoxRows returns the number of rows of a TMA box of a K-major operand where a block loads side
// rows. It divides side, is a multiple of the swizzle's rows, and is at most maxBoxRows unless that
// takes more than twice as many boxes.
func BoxRows(side int) int {
	boxes := ints.CeilDiv(side, maxBoxRows)
	for n := boxes; n <= 2*boxes; n++ {
		if side%(n*swizzleRows) == 0 {
			return side / n
		}
	}
	for side%(boxes*swizzleRows) != 0 && boxes > 1 {
		boxes--
	}
	return side / boxes
}

// boxSide returns the size of a TMA box along M or N, which is also the number of its rows of 128
// bytes in shared memory.
func (s BoxShape) boxSide() int {
	if s.KMajor {
		return s.boxRows()
	}
	return s.Depth()
}

// boxes returns the number of boxes of a tile of one matrix, which have different rows or columns.
func (s BoxShape) boxes() int { return s.loadedPerMatrix() / s.boxSide() }

// Box returns the TMA box for the tensor map, innermost dimension first.
func (s BoxShape) Box() []int { return []int{s.Depth(), s.boxRows()} }

// Boxes are the tiles of an operand in shared memory, loaded by TMA.
type Boxes struct {
	k          *build.Kernel
	shape      BoxShape
	tensor     build.Tensor
	tiles      build.Array // rows of 128 bytes, tile after tile
	skip       build.Value // elements of each row of memory that precede the operand
	matrix     build.Value // the operand's index in a tensor of several matrices; nil for a single matrix
	sideOffset int         // rows or columns of a tile that precede those of this tensor
}

// NewBoxes declares the tiles of a tensor, which describes the operand in global memory.
func NewBoxes(k *build.Kernel, name string, t build.Tensor, s BoxShape) *Boxes {
	return &Boxes{k: k, shape: s, tensor: t, tiles: k.Tile(name, s.Elem, s.Stages*s.Side, s.Depth()), skip: 0}
}

// Offset returns the same tiles for an operand that begins skip elements into each row of memory.
func (b *Boxes) Offset(skip build.Value) *Boxes {
	other := *b
	other.skip = skip
	return &other
}

// Matrix returns the same tiles for an operand that is one of several matrices of the tensor; nil
// stands for a tensor of one matrix.
func (b *Boxes) Matrix(matrix build.Value) *Boxes {
	other := *b
	other.matrix = matrix
	return &other
}

// WithTensor returns the part of the same tiles that belongs to another tensor. It follows the part
// of the first tensor.
func (b *Boxes) WithTensor(t build.Tensor) *Boxes {
	other := *b
	other.tensor, other.sideOffset = t, b.shape.loadedPerMatrix()
	return &other
}

// Prefetch prefetches the tensor map.
func (b *Boxes) Prefetch() { b.tensor.Prefetch() }

// Span is the part of an operand that a tile of C needs: boxes that contain rows or columns of the
// operand, or all boxes of the tile.
type Span struct {
	k     *build.Kernel
	shape BoxShape
	first build.Value // the first row of A or column of B
	boxes build.Value // number of boxes
	whole bool        // all boxes of the tile belong to it
}

// Span returns the boxes of a tile that begins at row first of A, or column first of B, and that
// contain something of an operand that ends at row or column end.
func (b *Boxes) Span(first, end build.Value) Span {
	k, s := b.k, b.shape
	left := k.To(ptx.U32, k.Sub(k.Max(end, first), first))
	return Span{k: k, shape: s, first: first, boxes: k.Min(k.CeilDiv(left, s.boxSide()), s.boxes())}
}

// Whole returns all boxes of the tile.
func (x Span) Whole() Span {
	x.boxes, x.whole = x.shape.boxes(), true
	return x
}

// IsWhole returns a predicate that reports whether x has all boxes of the tile.
func (x Span) IsWhole() build.Reg { return x.k.Eq(x.boxes, x.shape.boxes()) }

// Bytes returns the number of bytes of the boxes in a step along K.
func (x Span) Bytes() build.Reg { return x.k.Mul(x.boxes, x.shape.boxSide()*SwizzleBytes) }

// Share is the share of a block in the loads of tiles that several blocks of a cluster multicast to
// each other: its rank among them, and the mask of their ranks in the cluster.
type Share struct{ Rank, Blocks build.Value }

// Load emits the TMA loads of the boxes of x to a stage, for one thread. The tile begins at element
// p along K. The loads complete on mbarrier full. The block loads its share of the boxes.
//
// TMA fills rows and columns outside of the operand with zeros. It takes about four cycles for such
// a row, more than for a row of the operand, so boxes outside are not loaded. The old elements in
// their place contribute only to elements outside of C.
func (b *Boxes) Load(stage build.Reg, full build.Ptr, x Span, p build.Value, share Share) {
	k, s := b.k, b.shape
	side, depth := s.perBlock()
	each := side / s.boxSide()                                           // boxes that this block loads
	begin, along := build.Value(k.Mul(share.Rank, each)), build.Value(0) // the first one, and its offset along K
	if depth < s.Depth() {
		begin, along = 0, k.Mul(share.Rank, depth)
	}
	load := func(number build.Reg) {
		at := k.Mul(number, s.boxSide())
		to := b.tiles.At(k.Add(k.Add(k.Mul(stage, s.Side), k.Add(at, b.sideOffset)), along), 0)
		inner, outer := build.Value(k.Add(p, along)), build.Value(k.Add(x.first, at))
		if !s.KMajor {
			inner, outer = outer, inner
		}
		from := []build.Value{k.Add(inner, b.skip), outer}
		if b.matrix != nil {
			from = append(from, b.matrix)
		}
		if s.Multicast > 1 {
			b.tensor.LoadMulticast(to, full, k.To(ptx.U16, share.Blocks), from...)
		} else {
			b.tensor.Load(to, full, from...)
		}
	}
	if !x.whole {
		k.For(begin, k.Min(k.Add(begin, each), x.boxes), load)
		return
	}
	for n := range each {
		load(k.Add(begin, n))
	}
}

// Clear emits stores of zeros, by the given number of threads, to the rows of the tiles that are
// never loaded. A [build.Kernel.ProxyFence] and a barrier must follow.
func (b *Boxes) Clear(tid build.Reg, threads int) {
	k, s := b.k, b.shape
	const words = tmaChunkBytes / 4
	rest := (s.Side - s.loaded()) * SwizzleBytes / tmaChunkBytes // 16-byte chunks per tile
	if rest == 0 {
		return
	}
	k.ForStep(tid, s.Stages*rest, threads, func(n build.Reg) {
		at := k.Add(k.Mul(k.Div(n, rest), s.StageBytes()), k.Mul(k.Rem(n, rest), tmaChunkBytes))
		zeros := make([]build.Value, words)
		for i := range zeros {
			zeros[i] = 0
		}
		b.tiles.Ptr.As(ptx.U32).Skip(s.LoadedBytes()).Skip(at).StoreVec(zeros...)
	})
}

// Descriptor returns the wgmma matrix descriptor of the first stage's tile from row first on, a
// multiple of 64.
func (b *Boxes) Descriptor(first build.Value) build.Reg {
	l := build.MatrixLayout{Stride: swizzleRows * SwizzleBytes, Swizzle: SwizzleBytes}
	if !b.shape.KMajor {
		l.Leading = b.shape.Depth() * SwizzleBytes // from one box to the next
	}
	return b.k.Descriptor(b.tiles.At(first, 0), l)
}

// DescStageOffset returns the offset to add to a descriptor of the first stage for another stage.
func (b *Boxes) DescStageOffset(stage build.Reg) build.Reg {
	return b.k.To(ptx.U64, b.k.Mul(stage, b.shape.StageBytes()/tmaChunkBytes))
}

// DescSideOffset returns the offset to add to a descriptor for row n, a multiple of 64.
func (b *Boxes) DescSideOffset(n int) int { return n * SwizzleBytes / tmaChunkBytes }

// DescKOffset returns the offset to add to a descriptor for element p along K.
func (b *Boxes) DescKOffset(p int) int {
	if b.shape.KMajor {
		return p * b.shape.Elem.Bytes() / tmaChunkBytes
	}
	return p * SwizzleBytes / tmaChunkBytes
}
