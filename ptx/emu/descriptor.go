package emu

import (
	"encoding/binary"
	"slices"

	"tilework/ptx"
)

// descriptor is the matrix descriptor of a wgmma or a tcgen05.mma, which locates an operand in
// shared memory (manual:
// "asynchronous-warpgroup-level-matrix-shared-memory-layout-matrix-descriptor"). A core matrix
// consists of 8 rows of 16 bytes.
type descriptor struct {
	start           uint64 // address in shared memory
	leading, stride uint64 // byte offsets between core matrices; their meaning depends on the layout
	base            uint64 // address modulo 1024 at which the swizzle pattern starts
	swizzle         int    // bytes of a swizzled row; 0 without a swizzle
	wide            bool   // the swizzle moves units of 32 bytes instead of 16
}

// descriptorSwizzles lists the swizzle widths in bytes by their code in a descriptor.
var descriptorSwizzles = [4]int{0, 128, 64, 32}

func unpackDescriptor(word uint64) descriptor {
	field := func(at int) uint64 { return word >> at & (1<<14 - 1) << 4 }
	return descriptor{
		start: field(0), leading: field(16), stride: field(32), base: word >> 49 & 7 << 7,
		swizzle: descriptorSwizzles[word>>62],
	}
}

// tensorSwizzles lists the swizzle widths in bytes by their code in a descriptor of a tcgen05
// instruction. Code 1 is that of 128 bytes in units of 32 bytes.
var tensorSwizzles = map[uint64]int{0: 0, 1: 128, 2: 128, 4: 64, 6: 32}

// unpackTensorDescriptor decodes the descriptor of a tcgen05 instruction (manual:
// "tcgen05-shared-memory-descriptor").
func unpackTensorDescriptor(word uint64) descriptor {
	d := unpackDescriptor(word)
	code := word >> 61
	d.swizzle, d.wide = tensorSwizzles[code], code == 1
	return d
}

// operand is a rows×k matrix in shared memory: A, or the transpose of B.
type operand struct {
	descriptor
	rows, k, size int // bytes per element; 1-bit elements are handled as bytes
	// mnMajor is set for a matrix whose elements are contiguous along M or N instead of K.
	mnMajor bool
	padding int // bytes at the end of each 16 that hold no elements
}

// at returns the address of element (row, k).
func (o *operand) at(row, k int) uint64 {
	core := choose(o.wide, 4, 8)                             // rows of a core matrix
	lineLen := choose(o.swizzle > 0, o.swizzle, 16) / o.size // contiguous elements
	var group, alongK, line, inLine int
	if o.mnMajor {
		group, line, alongK, inLine = row/lineLen, k%core, k/core, row%lineLen
	} else {
		group, line, alongK, inLine = row/core, row%core, k/lineLen, k%lineLen
	}
	stepGroup, stepK := o.stride, o.leading
	if o.mnMajor && o.swizzle > 0 {
		stepGroup, stepK = stepK, stepGroup
	}
	off := uint64(group)*stepGroup + uint64(alongK)*stepK + uint64(line*lineLen*o.size+inLine*o.size)
	if o.wide {
		addr := o.start + off
		return addr ^ (addr-o.base)>>2&(3<<5)
	}
	return swizzled(o.start+off, o.base, o.swizzle)
}

// spans returns the elements of the rows in [from, to) as a sorted list of contiguous spans.
func (o *operand) spans(from, to int) []Span {
	each, bytes := 16/o.size, 16-o.padding
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
			all[n-1].Size = int(s-all[n-1].Addr) + bytes
			continue
		}
		all = append(all, Span{s, bytes})
	}
	return all
}

// read returns the elements in row-major order, multiplied by sign.
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

// checkSharedSpans raises a fault unless all spans are in the shared memory of b.
func (w *warp) checkSharedSpans(in *inst, b *block, spans []Span) bool {
	for _, s := range spans {
		if s.Addr+uint64(s.Size) > b.shared.size {
			f := &Fault{Origin: w.origin(in), Access: AsyncRead, Space: ptx.Shared, Size: s.Size, FirstAddr: s.Addr,
				Kind: OutOfBounds}
			f.Detail = "not in the " + bytesText(b.shared.size) + " of the block's shared memory"
			w.raise(f)
			return false
		}
	}
	return true
}
