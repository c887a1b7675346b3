package frag

import (
	"fmt"

	"tilework/internal/ints"
	"tilework/ptx"
	"tilework/ptx/build"
)

// TileShape describes the tiles of an mma.sync operand in shared memory. A tile has Side rows of A
// or columns of B, and Depth elements of type Elem along K; there is one tile per stage. KMajor
// reports whether K is the contiguous dimension in memory, and then also in shared memory, so that
// copies keep the order of the elements. The operand is MN-major otherwise.
type TileShape struct {
	Elem                ptx.Type
	Side, Depth, Stages int
	KMajor              bool
}

// rows returns the number and the length of the rows of a tile in shared memory.
func (s TileShape) rows() (count, length int) {
	if s.KMajor {
		return s.Side, s.Depth
	}
	return s.Depth, s.Side
}

// Single reports whether lanes load each element of a fragment separately: for float64, and for
// MN-major float32, because ldmatrix.trans transposes only 16-bit elements.
func (s TileShape) Single() bool { return s.Elem == ptx.F64 || s.Elem == ptx.F32 && !s.KMajor }

// transposesPairs reports whether ldmatrix.trans transposes pairs of bytes, which lanes then
// separate.
func (s TileShape) transposesPairs() bool { return s.Elem.Bytes() == 1 && !s.KMajor }

// pitch returns the distance between the rows of a tile, in elements. If lanes load elements
// separately, those that shared memory serves together access 32 bytes in each of 4 rows. Padding
// rows to 32 bytes modulo 128 avoids bank conflicts. Other tiles have no padding; they are
// swizzled, see [TileShape.swizzle].
func (s TileShape) pitch() int {
	_, length := s.rows()
	if !s.Single() {
		return length
	}
	period, padding := BankBytes/s.Elem.Bytes(), 32/s.Elem.Bytes()
	return (length+period-padding-1)/period*period + padding
}

const (
	// BankBytes is the bandwidth of shared memory per cycle: a 4-byte word from each of 32 banks.
	BankBytes = 32 * 4
	// MinAsyncCopy is the minimum number of bytes that cp.async copies.
	MinAsyncCopy = 4
	chunkBytes   = 16 // of a row that ldmatrix reads
)

// swizzle returns the value to xor with the index of each 16-byte chunk of a row. It places the 8
// chunks that ldmatrix reads from 8 rows in different banks. These rows are adjacent or, for pairs
// of bytes, alternate pairs (0, 1, 4, 5 …); see [Reader].
func (s TileShape) swizzle(k *build.Kernel, line build.Reg) build.Value {
	_, length := s.rows()
	chunks := min(length*s.Elem.Bytes(), BankBytes) / chunkBytes // chunks of a row that are in different banks
	if s.Single() || chunks < 2 {
		return 0
	}
	if s.transposesPairs() {
		line = k.Or(k.And(line, 1), k.Shl(k.Shr(line, 2), 1)) // index among the 8 rows
	}
	together := BankBytes / chunkBytes / chunks // consecutive rows that together cover all banks
	return k.And(k.Div(line, together), chunks-1)
}

// swizzlePeriod returns the number of rows after which swizzle repeats.
func (s TileShape) swizzlePeriod() int {
	if s.transposesPairs() {
		return 2 * Eight
	}
	return Eight
}

// byteOffset returns the offset of an element from the start of a tile, in bytes.
func (s TileShape) byteOffset(k *build.Kernel, line, element build.Reg) build.Reg {
	size := s.Elem.Bytes()
	row, inside := k.Mul(line, s.pitch()*size), k.Mul(element, size)
	return k.Add(row, k.Xor(inside, k.Mul(s.swizzle(k, line), chunkBytes)))
}

// stageBytes returns the shared memory of one tile.
func (s TileShape) stageBytes() int {
	count, _ := s.rows()
	return count * s.pitch() * s.Elem.Bytes()
}

// Bytes returns the shared memory of all tiles.
func (s TileShape) Bytes() int {
	const align = 128 // alignment of arrays
	return ints.RoundUp(s.Stages*s.stageBytes(), align)
}

// Check returns an error if the copies of a tile, in vectors of vec elements, cannot be partitioned
// equally among the threads.
func (s TileShape) Check(vec, threads int) error {
	count, length := s.rows()
	vectors := length / vec
	if vectors < 1 || length%vec != 0 || threads%vectors != 0 || threads/vectors < count && count%(threads/vectors) != 0 {
		return fmt.Errorf("%d threads cannot share out %d rows of %d vectors: want the same number of vectors for each",
			threads, count, vectors)
	}
	return nil
}

// Tiles are the tiles of an operand in shared memory, with a thread's share of the copies.
type Tiles struct {
	k     *build.Kernel
	shape TileShape
	array build.Array

	// The thread copies vectors of vec elements, one every step rows of a tile. The first is at
	// offset bytes from source in global memory; targets are their locations in a tile. If the tile
	// has fewer vectors than there are threads, only threads for which active holds copy.
	vec, step    int
	active       build.Value
	source       build.Ptr
	targets      []tileOffset
	offset       build.Reg // bytes from the first tile to the next to copy
	stageStride  build.Reg // bytes from one tile to the next
	vectorStride build.Reg // bytes between the thread's consecutive vectors
	line         build.Reg // row of the thread's first vector in the tile
	element      build.Reg // and its position in the row
	// restK is the number of the matrix's elements along K from the start of the next tile on.
	// restSide is the number of elements along M or N from the thread's first vector on.
	restK, restSide build.Reg
}

// tileOffset is the location at+more in a tile, in bytes from its start.
type tileOffset struct {
	at   build.Reg
	more int
}

// NewTiles declares the tiles of m, a matrix with K along its columns: A, or B transposed. The
// tiles begin at row first of m and span the columns from ≤ p < to. Each of the given number of
// threads copies vectors of vec elements. Rows of m in memory must begin at multiples of a vector,
// but need not end at one.
func NewTiles(k *build.Kernel, name string, m build.Matrix, first build.Reg, from, to build.Value, s TileShape, vec,
	threads int) *Tiles {
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
	// In a variable. Otherwise the compiler would hoist the comparisons with it out of the loop,
	// and their results would take registers.
	t.restSide = k.Var("across"+name, m.Rows.Type(), rest(k, m.Rows, at))
	return t
}

// rest returns the number of n elements that remain from at on.
func rest(k *build.Kernel, n, at build.Reg) build.Reg { return k.Sub(k.Max(n, at), at) }

// copies returns functions that emit the thread's copies of the next tile to a stage. Elements
// outside the matrix become zeros. Vectors of less than [MinAsyncCopy] pass through registers, and
// arrive emits their stores.
func (t *Tiles) copies(stage build.Reg) (depart, arrive []func()) {
	k := t.k
	elem := t.shape.Elem
	var to, src build.Ptr
	var lines build.Reg // rows of the matrix from the thread's first one on; 0 if the thread's columns are outside
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
	async := t.vec*elem.Bytes() >= MinAsyncCopy
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
