package frag

import (
	"fmt"

	"tilework/ptx"
	"tilework/ptx/build"
)

// Shape is the size of an operand's tiles: Side rows of A or columns of B, Depth
// elements of type Elem along K each, as many tiles as there are Stages. AlongK says that
// neighbours along K are neighbours in memory; they are in shared memory too then, so that
// what is copied keeps its order.
type TileShape struct {
	Elem                ptx.Type
	Side, Depth, Stages int
	KMajor              bool
}

// lines is how a tile stands in shared memory: count rows of length elements.
func (s TileShape) rows() (count, length int) {
	if s.KMajor {
		return s.Side, s.Depth
	}
	return s.Depth, s.Side
}

// Single says that lanes load each element of a fragment by itself: those of float64, and
// of float32 that would have to be transposed, as ldmatrix transposes 16 bits alone.
func (s TileShape) Single() bool { return s.Elem == ptx.F64 || s.Elem == ptx.F32 && !s.KMajor }

// pairs says that ldmatrix transposes pairs of bytes: lanes take the pairs apart.
func (s TileShape) transposesPairs() bool { return s.Elem.Bytes() == 1 && !s.KMajor }

// pitch is the elements from one row of a tile to the next. Lanes that load elements by
// themselves, and that shared memory serves together, take 4 rows of neighbours, 32 bytes
// of each: with rows that lie 32 bytes apart modulo its 128 each of them has banks of its
// own. Other rows stand close together; see [Shape.spread].
func (s TileShape) pitch() int {
	_, length := s.rows()
	if !s.Single() {
		return length
	}
	around, apart := bankBytes/s.Elem.Bytes(), 32/s.Elem.Bytes()
	return (length+around-apart-1)/around*around + apart
}

// What shared memory delivers at a time, and what ldmatrix reads of a row.
const (
	bankBytes  = 128
	chunkBytes = 16
)

// spread is which chunk of a row stands where its first one would: number c is at c xor
// spread. The 8 rows of which ldmatrix reads a chunk each are so in banks of their own:
// neighbours, or of pairs of bytes every other two (0, 1, 4, 5 …), see [Reader].
func (s TileShape) swizzle(k *build.Kernel, line build.Reg) build.Value {
	_, length := s.rows()
	chunks := min(length*s.Elem.Bytes(), bankBytes) / chunkBytes // in a row, as far as banks go
	if s.Single() || chunks < 2 {
		return 0
	}
	if s.transposesPairs() {
		line = k.Or(k.And(line, 1), k.Shl(k.Shr(line, 2), 1)) // their number among the 8
	}
	together := bankBytes / chunkBytes / chunks // rows that share the banks
	return k.And(k.Div(line, together), chunks-1)
}

// period is after how many rows spread is the same again.
func (s TileShape) swizzlePeriod() int {
	if s.transposesPairs() {
		return 2 * Eight
	}
	return Eight
}

// at is the bytes from the start of a tile to an element.
func (s TileShape) byteOffset(k *build.Kernel, line, element build.Reg) build.Reg {
	size := s.Elem.Bytes()
	row, inside := k.Mul(line, s.pitch()*size), k.Mul(element, size)
	return k.Add(row, k.Xor(inside, k.Mul(s.swizzle(k, line), chunkBytes)))
}

// stageBytes is the shared memory of one tile.
func (s TileShape) stageBytes() int {
	count, _ := s.rows()
	return count * s.pitch() * s.Elem.Bytes()
}

// Bytes is the shared memory that the tiles take.
func (s TileShape) Bytes() int {
	const align = 128 // of arrays
	return (s.Stages*s.stageBytes() + align - 1) / align * align
}

// Check says whether so many threads can share out the copies of a tile in vectors of vec
// elements.
func (s TileShape) Check(vec, threads int) error {
	count, length := s.rows()
	vectors := length / vec
	if vectors < 1 || length%vec != 0 || threads%vectors != 0 || threads/vectors < count && count%(threads/vectors) != 0 {
		return fmt.Errorf("%d threads cannot share out %d rows of %d vectors", threads, count, vectors)
	}
	return nil
}

// Tiles are an operand's tiles in shared memory, and a thread's part of copying them.
type Tiles struct {
	k     *build.Kernel
	shape TileShape
	array build.Array

	// The thread copies vectors of vec elements, every step rows of a tile, from from
	// on, which is so many bytes behind the start of the tile that is copied next, to
	// the places to in a tile. It has none if the tile has fewer than there are threads and
	// spare does not hold.
	vec, step    int
	active       build.Value
	source       build.Ptr
	targets      []tileOffset
	offset       build.Reg // bytes from the first tile to the next to be copied
	stageStride  build.Reg // bytes from one to the one after it
	vectorStride build.Reg // bytes from the thread's first vector to its second
	line         build.Reg // the thread's first vector in the tile: its row
	element      build.Reg // and its place in that
	// What the matrix has from there on: elements along K, from the start of the
	// tile, and elements across, from the thread's first one.
	restK, restSide build.Reg
}

// place is so many bytes behind the start of a tile.
type tileOffset struct {
	at   build.Reg
	more int
}

// NewTiles declares the tiles of m, a matrix whose columns lie along K: A, or B
// transposed. Their rows begin at m's row first and they go along K from one column to
// another; each of so many threads copies vectors of vec elements of them. Rows of m in
// memory begin at multiples of a vector; they need not end at one.
func NewTiles(k *build.Kernel, name string, m build.Matrix, first build.Reg, from, to build.Value, s TileShape, vec, threads int) *Tiles {
	count, length := s.rows()
	t := &Tiles{
		k: k, shape: s, vec: vec, stageStride: m.ByteOffset(0, s.Depth), active: true,
		array: k.SharedDynamic(name, s.Elem, s.Stages*count, s.pitch()),
		restK: k.Var("along"+name, m.Cols.Type(), k.Sub(to, from)), offset: k.Var("behind"+name, ptx.U64, 0),
	}
	tid, vectors := k.ThreadIdx(build.X), length/vec
	t.line, t.element, t.step = k.Div(tid, vectors), k.Mul(k.Rem(tid, vectors), vec), threads/vectors
	if t.step > count {
		t.active = k.Lt(t.line, count)
	}
	for n := 0; n < count; n += t.step {
		if n > 0 && (s.Single() || n%s.swizzlePeriod() == 0) {
			t.targets = append(t.targets, tileOffset{t.targets[0].at, n * s.pitch() * s.Elem.Bytes()})
			continue
		}
		t.targets = append(t.targets, tileOffset{s.byteOffset(k, k.Add(t.line, n), t.element), 0})
	}
	at, p := k.Add(first, t.line), t.element
	t.vectorStride = m.ByteOffset(t.step, 0)
	if !s.KMajor {
		at, p = k.Add(first, t.element), t.line
		t.vectorStride = m.ByteOffset(0, t.step)
	}
	t.source = m.At(at, k.Add(p, from))
	// A variable, as what it is compared with later would otherwise be compared once,
	// before the loop, and the results take registers.
	t.restSide = k.Var("across"+name, m.Rows.Type(), rest(k, m.Rows, at))
	return t
}

// rest is how many of n elements there are from at on.
func rest(k *build.Kernel, n, at build.Reg) build.Reg { return k.Sub(k.Max(n, at), at) }

// copies are the pieces of the thread's part of sending the next tile on its way to a
// stage, and of what puts it there if it comes through registers: cp.async copies no less
// than 4 bytes. What is outside of the matrix is zeros.
func (t *Tiles) copies(stage build.Reg) (depart, arrive []func()) {
	k := t.k
	elem := t.shape.Elem
	var to, src build.Ptr
	var lines build.Reg // of the matrix, from the thread's first one on; none if it has nothing in them
	var bytes build.Reg
	depart = []func(){func() {
		to, src = t.array.Ptr.Skip(k.Mul(stage, t.shape.stageBytes())), t.source.Skip(t.offset)
		first, elements := t.restSide, rest(k, t.restK, k.To(t.restK.Type(), t.element))
		if !t.shape.KMajor {
			first, elements = rest(k, t.restK, k.To(t.restK.Type(), t.line)), t.restSide
		}
		lines = k.Select(k.Gt(elements, 0), first, 0)
		if t.vec > 1 { // a row may end within a vector
			bytes = k.To(ptx.U32, k.Mul(k.Min(elements, t.vec), elem.Bytes()))
		}
	}}
	async := t.vec*elem.Bytes() >= 4
	for n, place := range t.targets {
		var held []build.Reg
		depart = append(depart, func() {
			inside := k.Gt(lines, n*t.step)
			if !async {
				held = src.LoadVecOr0(k.And(inside, t.active), t.vec)
			} else {
				valid := inside
				if t.vec > 1 {
					valid = k.Select(inside, bytes, 0)
				}
				k.When(t.active, func() { k.CopyAsync(to.Skip(place.at).Skip(place.more), src, t.vec*elem.Bytes(), valid) })
			}
			src = src.Skip(t.vectorStride)
		})
		if !async {
			arrive = append(arrive, func() {
				values := make([]build.Value, len(held))
				for i, v := range held {
					values[i] = v
				}
				k.When(t.active, func() { to.Skip(place.at).Skip(place.more).StoreVec(values...) })
			})
		}
	}
	return append(depart, func() {
		k.Set(t.offset, k.Add(t.offset, t.stageStride))
		k.Set(t.restK, k.Sub(k.Max(t.restK, t.shape.Depth), t.shape.Depth))
	}), arrive
}
