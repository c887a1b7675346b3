package emu

import "golang.org/x/sys/cpu"

// fmaLanesAVX2 is [fmaLanesGo] for processors with AVX2 and FMA.
//
//go:noescape
func fmaLanesAVX2(d, a, b, c *[lanes]float32)

// hasFMA says which of the two runs. Products are what most kernels spend their time
// on, and Go has no fused float32 instruction.
var hasFMA = cpu.X86.HasAVX2 && cpu.X86.HasFMA

func fmaLanes(d, a, b, c *[lanes]float32) {
	if hasFMA {
		fmaLanesAVX2(d, a, b, c)
		return
	}
	fmaLanesGo(d, a, b, c)
}
