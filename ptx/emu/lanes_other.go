//go:build !amd64

package emu

import "unsafe"

func fmaF32(d, a, b, c *[lanes]float32) { fmaF32Go(d, a, b, c) }
func addU32(d, a, b *[lanes]uint32)     { addGo(d, a, b) }
func addU64(d, a, b *[lanes]uint64)     { addGo(d, a, b) }

func gatherU32(d *[lanes]uint32, a *[lanes]uint64, shift, span uint64, mem unsafe.Pointer) bool {
	return gather[uint32](d, a, shift, span, mem)
}

func offsets(d, a *[lanes]uint64, shift, span, bits uint64) bool {
	return offsetsGo(d, a, shift, span, bits)
}
