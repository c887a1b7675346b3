package emu

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasAVX2 reports whether to use the loops in lanes_amd64.s instead of those in hot.go.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasFMA

//go:noescape
func fmaF32AVX2(d, a, b, c *[lanes]float32)

func fmaF32(d, a, b, c *[lanes]float32) {
	if hasAVX2 {
		fmaF32AVX2(d, a, b, c)
	} else {
		fmaF32Go(d, a, b, c)
	}
}

//go:noescape
func addU32AVX2(d, a, b *[lanes]uint32)

func addU32(d, a, b *[lanes]uint32) {
	if hasAVX2 {
		addU32AVX2(d, a, b)
	} else {
		addGo(d, a, b)
	}
}

//go:noescape
func addU64AVX2(d, a, b *[lanes]uint64)

func addU64(d, a, b *[lanes]uint64) {
	if hasAVX2 {
		addU64AVX2(d, a, b)
	} else {
		addGo(d, a, b)
	}
}

// gatherU32AVX2 does the same as gather but loads nothing if an offset is invalid.
//
//go:noescape
func gatherU32AVX2(d *[lanes]uint32, a *[lanes]uint64, shift, span uint64, mem unsafe.Pointer) bool

func gatherU32(d *[lanes]uint32, a *[lanes]uint64, shift, span uint64, mem unsafe.Pointer) bool {
	if hasAVX2 {
		return gatherU32AVX2(d, a, shift, span, mem)
	}
	return gather[uint32](d, a, shift, span, mem)
}

//go:noescape
func offsetsAVX2(d, a *[lanes]uint64, shift, span, bits uint64) bool

func offsets(d, a *[lanes]uint64, shift, span, bits uint64) bool {
	if hasAVX2 {
		return offsetsAVX2(d, a, shift, span, bits|1<<63)
	}
	return offsetsGo(d, a, shift, span, bits)
}
