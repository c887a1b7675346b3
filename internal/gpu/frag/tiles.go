package frag

import (
	"fmt"

	"tilework/ptx"
	"tilework/ptx/build"
)

// Shape is the size of an operand's tiles: Side rows of A or columns of B, Depth
// elements along K each, as many tiles as there are Stages. AlongK says that neighbours
// along K are neighbours in memory; they are in shared memory too then, so that what
// is copied keeps its order.
type Shape struct {
	Side, Depth, Stages int
	AlongK              bool
}

// lines is how a tile stands in shared memory: count rows of length elements.
func (s Shape) lines() (count, length int) {
	if s.AlongK {
		return s.Side, s.Depth
	}
	return s.Depth, s.Side
}

// pitch is the elements from one row of a tile to the next. The lanes that shared memory
// serves together load 4 rows of 4 neighbours, of 8 bytes each: with rows that lie 4
// elements apart modulo its 128 bytes each of them has banks of its own.
func (s Shape) pitch(elem ptx.Type) int {
	_, length := s.lines()
	around := bankBytes / elem.Bytes()
	return (length+around-Quad-1)/around*around + Quad
}

// bankBytes is what shared memory delivers at a time.
const bankBytes = 128

// Bytes is the shared memory that the tiles take.
func (s Shape) Bytes(elem ptx.Type) int {
	count, _ := s.lines()
	return s.Stages * count * s.pitch(elem) * elem.Bytes()
}

// Tiles are an operand's tiles in shared memory, and a thread's part of copying them.
type Tiles struct {
	k     *build.Kernel
	shape Shape
	array build.Array

	// The thread copies vectors of vec elements, every step rows of a tile, from from
	// on, which is so many bytes behind the start of the tile that is copied next, to
	// to, in the first of the tiles.
	vec, step int
	from      build.Ptr
	to        build.Array
	behind    build.Reg // bytes from the first tile to the next to be copied
	ahead     build.Reg // bytes from one to the one after it
	apart     build.Reg // bytes from the thread's first vector to its second
	line      build.Reg // the thread's first vector in the tile: its row
	element   build.Reg // and its place in that
	// What the matrix has from there on: elements along K, from the start of the
	// tile, and elements across, from the thread's first one.
	along, across build.Reg
}

// NewTiles declares the tiles of m, a matrix whose columns lie along K: A, or B
// transposed. Their rows begin at m's row first and they go along K from one column to
// another; each of so many threads copies vectors of vec elements of them.
func NewTiles(k *build.Kernel, name string, m build.Matrix, first build.Reg, from, to build.Value, s Shape, vec, threads int) *Tiles {
	count, length := s.lines()
	t := &Tiles{
		k: k, shape: s, vec: vec, ahead: m.Apart(0, s.Depth),
		array: k.SharedDynamic(name, m.Elem(), s.Stages*count, s.pitch(m.Elem())),
		along: k.Var("along"+name, m.Cols.Type(), k.Sub(to, from)), behind: k.Var("behind"+name, ptx.U64, 0),
	}
	tid, vectors := k.ThreadIdx(build.X), length/vec
	t.line, t.element, t.step = k.Div(tid, vectors), k.Mul(k.Rem(tid, vectors), vec), threads/vectors
	t.to = t.array.From(t.line, t.element)
	at, p := k.Add(first, t.line), t.element
	t.apart = m.Apart(t.step, 0)
	if !s.AlongK {
		at, p = k.Add(first, t.element), t.line
		t.apart = m.Apart(0, t.step)
	}
	t.from = m.At(at, k.Add(p, from))
	// A variable, as what it is compared with later would otherwise be compared once,
	// before the loop, and the results take registers.
	t.across = k.Var("across"+name, m.Rows.Type(), rest(k, m.Rows, at))
	return t
}

// rest is how many of n elements there are from at on.
func rest(k *build.Kernel, n, at build.Reg) build.Reg { return k.Sub(k.Max(n, at), at) }

// Check says whether so many threads can share out the copies of a tile.
func (s Shape) Check(vec, threads int) error {
	count, length := s.lines()
	vectors := length / vec
	if length%vec != 0 || threads%vectors != 0 || count%(threads/vectors) != 0 {
		return fmt.Errorf("%d threads cannot share out %d rows of %d vectors", threads, count, vectors)
	}
	return nil
}

// copies are the pieces of the thread's part of sending the next tile on its way to a
// stage. What is outside of the matrix is zeros.
func (t *Tiles) copies(stage build.Reg) []func() {
	k := t.k
	count, _ := t.shape.lines()
	var to build.Array
	var src build.Ptr
	var lines build.Reg // of the matrix, from the thread's first one on; none if it has nothing in them
	pieces := []func(){func() {
		to, src = t.to.From(k.Mul(stage, count), 0), t.from.Skip(t.behind)
		first, elements := t.across, rest(k, t.along, k.To(t.along.Type(), t.element))
		if !t.shape.AlongK {
			first, elements = rest(k, t.along, k.To(t.along.Type(), t.line)), t.across
		}
		lines = k.Select(k.Gt(elements, 0), first, 0)
	}}
	for n := 0; n < count; n += t.step {
		pieces = append(pieces, func() {
			k.CopyAsync(to.At(n, 0), src, t.vec*src.Elem().Bytes(), k.Gt(lines, n))
			src = src.Skip(t.apart)
		})
	}
	return append(pieces, func() {
		k.Set(t.behind, k.Add(t.behind, t.ahead))
		k.Set(t.along, k.Sub(k.Max(t.along, t.shape.Depth), t.shape.Depth))
	})
}

// Tile is a view of the tile of one stage, from some element on.
type Tile struct {
	from   build.Array
	alongK bool
}

// In is the tile that a stage holds, from element p along K of row i on.
func (t *Tiles) In(stage build.Reg, i, p build.Value) Tile {
	count, _ := t.shape.lines()
	if !t.shape.AlongK {
		i, p = p, i
	}
	return Tile{t.array.From(i, p).From(t.k.Mul(stage, count), 0), t.shape.AlongK}
}

// At points to element p along K of row i.
func (t Tile) At(i, p int) build.Ptr {
	if t.alongK {
		return t.from.At(i, p)
	}
	return t.from.At(p, i)
}
