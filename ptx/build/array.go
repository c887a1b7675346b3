package build

import (
	"math"

	"tilework/internal/ints"
	"tilework/ptx"
)

// sharedAlign is the alignment of shared arrays in bytes. It suffices for the widest vector
// access, for ldmatrix and for 128-byte swizzles.
const sharedAlign = 128

// tileAlign is the alignment of swizzled tiles in bytes: 8 rows of 128 bytes, after which
// the swizzle pattern repeats.
const tileAlign = 1024

// dynamicName is the name of the variable for dynamic shared memory.
const dynamicName = "dynamic_shared"

// Array is a row-major matrix in shared memory.
type Array struct {
	Ptr
	Rows, Cols int
	pitch      int64 // bytes between consecutive rows
}

// Shared declares a matrix in static shared memory. Padding columns can prevent bank conflicts
// between rows.
func (k *Kernel) Shared(name string, elem ptx.Type, rows, cols int) Array {
	if _, ok := k.sharedBytes(name, elem, rows, cols); ok {
		k.shared = append(k.shared, &ptx.Var{Pos: k.caller(), Space: ptx.Shared, Align: sharedAlign,
			Type: bitsOf(elem), Name: name, Dims: []int{rows, cols}})
	}
	return k.array(&ptx.Name{Name: name}, elem, rows, cols, 0)
}

// SharedDynamic is like [Kernel.Shared], but uses dynamic shared memory, which can be larger than
// 48 KiB; see [Kernel.DynamicBytes].
func (k *Kernel) SharedDynamic(name string, elem ptx.Type, rows, cols int) Array {
	at := k.dynamic
	if bytes, ok := k.sharedBytes(name, elem, rows, cols); ok {
		k.dynamic += ints.RoundUp(bytes, sharedAlign)
	}
	return k.array(&ptx.Name{Name: dynamicName}, elem, rows, cols, int64(at))
}

// SharedOverlay declares a matrix that begins at the start of dynamic shared memory, and shares
// this memory with the arrays of [Kernel.SharedDynamic]. A barrier must separate accesses to
// either.
func (k *Kernel) SharedOverlay(name string, elem ptx.Type, rows, cols int) Array {
	if bytes, ok := k.sharedBytes(name, elem, rows, cols); ok {
		k.dynamic = max(k.dynamic, ints.RoundUp(bytes, sharedAlign))
	}
	return k.array(&ptx.Name{Name: dynamicName}, elem, rows, cols, 0)
}

// Tile declares a matrix in dynamic shared memory with the alignment that TMA and wgmma need for
// swizzled tiles.
func (k *Kernel) Tile(name string, elem ptx.Type, rows, cols int) Array {
	k.dynamic = ints.RoundUp(k.dynamic, tileAlign)
	k.tiles = true
	return k.SharedDynamic(name, elem, rows, cols)
}

func (k *Kernel) array(sym *ptx.Name, elem ptx.Type, rows, cols int, at int64) Array {
	p := Ptr{k: k, space: ptx.Shared, elem: elem, sym: sym, off: at}
	return Array{p, rows, cols, int64(cols) * int64(elem.Bytes())}
}

// maxSharedElements is the maximum number of elements of an array. Its size in bytes has at most
// 31 bits.
const maxSharedElements = math.MaxInt32 / 16

// sharedBytes returns the size of an array in bytes, or fails if its name or size is invalid.
func (k *Kernel) sharedBytes(name string, elem ptx.Type, rows, cols int) (n int, ok bool) {
	if !k.identifier(name) {
		return 0, false
	}
	if min(rows, cols, elem.Bytes()) < 1 || rows > maxSharedElements/cols {
		k.fail("shared array %s has %d×%d elements of type .%v: want at least 1×1, and fewer than 2^27 elements",
			name, rows, cols, elem)
		return 0, false
	}
	return rows * cols * elem.Bytes(), true
}

// At returns a pointer to element (i, j).
func (a Array) At(i, j Value) Ptr { return a.From(i, j).Ptr }

// From returns the part of a that starts at element (i, j). Accesses to it with constant indices
// need no further address arithmetic.
func (a Array) From(i, j Value) Array {
	rows := index{i, constInt(a.pitch)}
	cols := index{j, constInt(int64(a.elem.Bytes()))}
	a.Ptr = a.Ptr.displaced(rows, cols)
	return a
}

// Load loads element (i, j).
func (a Array) Load(i, j Value) Reg { return a.At(i, j).Load() }

// LoadVec loads n elements starting at (i, j).
func (a Array) LoadVec(i, j Value, n int) []Reg { return a.At(i, j).LoadVec(n) }

// Store stores v to element (i, j).
func (a Array) Store(i, j, v Value) { a.At(i, j).Store(v) }
