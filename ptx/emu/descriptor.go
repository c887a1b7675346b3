package emu

import (
	"encoding/binary"
	"slices"
)

// descriptor says where an operand of wgmma lies in shared memory (manual:
// "asynchronous-warpgroup-level-matrix-shared-memory-layout-matrix-descriptor"). A core
// matrix is 8 rows of 16 bytes.
type descriptor struct {
	start           uint64 // address in shared memory
	leading, stride uint64 // bytes; what they lead from and to depends on the layout
	base            uint64 // address, modulo the swizzle's 1024, at which its pattern begins
	swizzle         int    // bytes of a swizzled row; 0 for none
}

// descriptorSwizzles is the swizzles by the number that a descriptor has.
var descriptorSwizzles = [4]int{0, 128, 64, 32}

func unpackDescriptor(word uint64) descriptor {
	field := func(at int) uint64 { return word >> at & (1<<14 - 1) << 4 }
	return descriptor{
		start: field(0), leading: field(16), stride: field(32), base: word >> 49 & 7 << 7, swizzle: descriptorSwizzles[word>>62],
	}
}

// operand is a matrix of rows × k elements of size bytes that a descriptor leads to: A, or
// the transpose of B.
type operand struct {
	descriptor
	rows, k, size int // single bits are counted by the byte
	// across says that neighbours in memory are of one column, not of one row: of a
	// matrix that is stored "MN-major".
	mnMajor bool
}

// at is where element (row, k) is.
func (o *operand) at(row, k int) uint64 {
	const core = 8                                        // rows of a core matrix
	each := choose(o.swizzle > 0, o.swizzle, 16) / o.size // elements that lie side by side
	var group, along, line, slot int
	if o.mnMajor {
		group, line, along, slot = row/each, k%core, k/core, row%each
	} else {
		group, line, along, slot = row/core, row%core, k/each, k%each
	}
	next, further := o.stride, o.leading
	if o.mnMajor && o.swizzle > 0 {
		next, further = further, next
	}
	off := uint64(group)*next + uint64(along)*further + uint64(line*each*o.size+slot*o.size)
	return swizzled(o.start+off, o.base, o.swizzle)
}

// spans is the memory that rows from to to-1 take, in order, in as few pieces as there are.
func (o *operand) spans(from, to int) []Span {
	each := 16 / o.size
	var starts []uint64
	if o.mnMajor {
		for k := range o.k {
			for row := from; row < to; row += each {
				starts = append(starts, o.at(row, k))
			}
		}
	} else {
		for row := from; row < to; row++ {
			for k := 0; k < o.k; k += each {
				starts = append(starts, o.at(row, k))
			}
		}
	}
	slices.Sort(starts)
	var all []Span
	for _, s := range starts {
		if n := len(all); n > 0 && all[n-1].Addr+uint64(all[n-1].Size) >= s {
			all[n-1].Size = int(s + 16 - all[n-1].Addr)
			continue
		}
		all = append(all, Span{s, 16})
	}
	return all
}

// read is the elements, row after row, times sign.
func (o *operand) read(memory []byte, e *elementType, sign float64) []float64 {
	m := make([]float64, 0, o.rows*o.k)
	for row := range o.rows {
		for k := range o.k {
			var word [8]byte
			copy(word[:o.size], memory[o.at(row, k):])
			bits := binary.LittleEndian.Uint64(word[:])
			for n := 0; n < 8*o.size; n += e.bits {
				m = append(m, sign*e.decode(bits>>n))
			}
		}
	}
	return m
}
