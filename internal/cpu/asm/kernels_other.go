//go:build !amd64

package asm

import "sync/atomic"

// There are no micro-kernels for this architecture: their instruction sets are
// not supported.
var (
	F32AVX512, F32AVX2, BF16AVX512, BF16AMX Kernels[float32]
	F64AVX512, F64AVX2                      Kernels[float64]
	I8VNNI, I8AVX2, I8AMX                   Kernels[int32]

	PackerF32, PackerF64, PackerF16, PackerBF16, PackerBF16x2, PackerI8x4, PackerU8x4, PackerI8x2 Packer
)

// Copy copies len(dst) bytes of src; next is for processors that fetch it meanwhile.
func Copy(dst, src, next []byte) { copy(dst, src) }

// Fence is for stores around the caches, which there are none of.
func Fence() {}

// FetchRows has memory come to a cache on processors that are told so.
func FetchRows(m, n int, p *byte, ld int) {}

// Pause lets some time pass, n ≥ 1 times a few nanoseconds.
func Pause(n int) {
	for i := range n {
		spin.Store(int64(i))
	}
}

var spin atomic.Int64
