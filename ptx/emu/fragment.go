package emu

import (
	"slices"
	"unsafe"

	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// fragment maps the registers of a warp to the elements of a matrix. Element n of a lane is stored
// in register n/perRegister of the operand, lowest bits first.
type fragment struct {
	rows, cols int
	at         [lanes][]coordinate
}

// coordinate is a position in a matrix.
type coordinate struct{ row, col uint16 }

// newFragment returns a fragment with n elements per lane at the positions that at returns.
func newFragment(rows, cols, n int, at func(lane, n int) (row, col int)) *fragment {
	f := &fragment{rows: rows, cols: cols}
	for lane := range f.at {
		f.at[lane] = make([]coordinate, n)
		for k := range f.at[lane] {
			row, col := at(lane, k)
			f.at[lane][k] = coordinate{uint16(row), uint16(col)}
		}
	}
	return f
}

// The fragments of mma (manual: "warp-level-matrix-fragment-mma-…"). Except in m8n8k4 with f16,
// lane 4g+t holds elements of rows or columns g and g+8. With p elements per register, the first
// register holds the p elements from k = p·t, and each following register along K holds elements 4p
// further on.

// fragmentA returns the fragment of A, which is m×k.
func fragmentA(m, k, each int) *fragment {
	tall := m / 8
	return newFragment(m, k, m*k/lanes, func(lane, n int) (int, int) {
		r := n / each
		return lane/4 + 8*(r%tall), lane%4*each + n%each + 4*each*(r/tall)
	})
}

// fragmentB returns the fragment of B, which is k×cols.
func fragmentB(k, cols, each int) *fragment {
	return newFragment(k, cols, k*cols/lanes, func(lane, n int) (int, int) {
		return lane%4*each + n%each + 4*each*(n/each), lane / 4
	})
}

// fragmentC returns the fragment of the m×n accumulators and results.
func fragmentC(m, n int) *fragment {
	return newFragment(m, n, m*n/lanes, func(lane, k int) (int, int) {
		return lane/4 + 8*(k/2), lane%4*2 + k%2
	})
}

// In m8n8k4 with f16, each quadrant of the warp computes a separate product. Quadrant q consists of
// lanes 4q to 4q+3 and 16+4q to 16+4q+3. The fragments stack the matrices of the four products
// vertically.

func quadrant(lane int) int { return lane % 16 / 4 }

// within returns the index of a lane in its quadrant, from 0 to 7.
func within(lane int) int { return lane%4 + lane/16*4 }

func quadrantA(rowMajor bool) *fragment {
	return newFragment(32, 4, 4, func(lane, n int) (int, int) {
		if rowMajor {
			return 8*quadrant(lane) + within(lane), n
		}
		return 8*quadrant(lane) + n + lane/16*4, lane % 4
	})
}

func quadrantB(rowMajor bool) *fragment {
	return newFragment(16, 8, 4, func(lane, n int) (int, int) {
		if rowMajor {
			return 4*quadrant(lane) + lane%4, n + lane/16*4
		}
		return 4*quadrant(lane) + n, within(lane)
	})
}

func quadrantC(t ptx.Type) *fragment {
	return newFragment(32, 8, 8, func(lane, n int) (int, int) {
		if t == ptx.F16 {
			return 8*quadrant(lane) + within(lane), n
		}
		return 8*quadrant(lane) + lane&1 + n&2 + lane/16*4, n&4 + lane&2 + n&1
	})
}

// plainFragment returns the fragment of wmma, for which PTX does not define a layout. The elements
// are distributed over the lanes in row-major order, and surplus registers repeat them.
func plainFragment(rows, cols, n int) *fragment {
	return newFragment(rows, cols, n, func(lane, k int) (int, int) {
		e := (k*lanes + lane) % (rows * cols)
		return e / cols, e % cols
	})
}

// elementType encodes and decodes matrix elements in registers.
type elementType struct {
	bits   int
	decode func(bits uint64) float64 // represents the small integers exactly as well
	encode func(v float64) uint64    // nil for integers that cannot be results
}

// integerElements lists the integer types of matrix elements.
var integerElements = map[ptx.Type]*elementType{
	ptx.U8: {8, func(b uint64) float64 { return float64(uint8(b)) }, nil},
	ptx.S8: {8, func(b uint64) float64 { return float64(int8(b)) }, nil},
	ptx.U4: {4, func(b uint64) float64 { return float64(b & 15) }, nil},
	ptx.S4: {4, func(b uint64) float64 { return float64(int8(b<<4) >> 4) }, nil},
	ptx.B1: {1, func(b uint64) float64 { return float64(b & 1) }, nil},
	ptx.S32: {32, func(b uint64) float64 { return float64(int32(b)) },
		func(v float64) uint64 { return uint64(uint32(int64(v))) }},
}

// elementOf returns the matrix elements of type t, or nil if there are none.
func elementOf(t ptx.Type) *elementType {
	if f := number.Of(t); f != nil {
		return &elementType{f.Bits, f.Decode, f.Encode}
	}
	return integerElements[t]
}

// paddedType returns the encoding of a type in bytes of registers: 4-bit floats are in the middle
// of the byte, 6-bit floats in its low bits.
func paddedType(t ptx.Type) *elementType {
	e := elementOf(t)
	if e == nil || e.bits == 8 {
		return e
	}
	shift := choose(e.bits == 4, 2, 0)
	return &elementType{8, func(b uint64) float64 { return e.decode(b >> shift) }, nil}
}

// registerBytes returns the size of the registers that hold elements.
func (e *elementType) registerBytes() int { return max(e.bits/8, 4) }

// perRegister returns the number of elements in a register.
func (e *elementType) perRegister() int { return e.registerBytes() * 8 / e.bits }

// matrixMemory is memory for a matrix, which the next matrix overwrites.
type matrixMemory []float64

// grow returns memory for n elements.
func (m *matrixMemory) grow(n int) []float64 {
	*m = slices.Grow((*m)[:0], n)[:n]
	return *m
}

// gatherMatrix reads a matrix from registers in row-major order.
func (w *warp) gatherMatrix(memory *matrixMemory, f *fragment, e *elementType, slots []uint32) []float64 {
	m := memory.grow(f.rows * f.cols)
	each, size := e.perRegister(), e.registerBytes()
	for lane := range f.at {
		for n, at := range f.at[lane] {
			b := bitsAt(w, slots[n/each], lane, size) >> (n % each * e.bits)
			m[int(at.row)*f.cols+int(at.col)] = e.decode(b)
		}
	}
	return m
}

// scatterMatrix writes the row-major matrix m to registers.
func (w *warp) scatterMatrix(m []float64, f *fragment, e *elementType, slots []uint32) {
	each, size := e.perRegister(), e.registerBytes()
	for lane := range f.at {
		var word uint64
		for n, at := range f.at[lane] {
			word |= e.encode(m[int(at.row)*f.cols+int(at.col)]) << (n % each * e.bits)
			if n%each == each-1 {
				setBits(w, slots[n/each], lane, size, word)
				word = 0
			}
		}
	}
}

// bytesOf returns the bytes of a lane of a register.
func bytesOf(w *warp, slot uint32, lane, size int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(w.base, uintptr(slot)+uintptr(lane*size))), size)
}
