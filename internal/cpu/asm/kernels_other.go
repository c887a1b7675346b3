//go:build !amd64

package asm

// There are no micro-kernels for this architecture: their instruction sets are
// not supported.
var (
	F32AVX512, F32AVX2 Kernels[float32]
	F64AVX512, F64AVX2 Kernels[float64]
)
