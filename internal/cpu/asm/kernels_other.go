//go:build !amd64

package asm

// There are no micro-kernels for this architecture.
var (
	F32 []*Kernels[float32]
	F64 []*Kernels[float64]
)
