//go:build !amd64

package asm

import "sync/atomic"

// No micro-kernels exist for this architecture: all instruction sets are unsupported.
var (
	F32AVX512, F32AVX2, BF16AVX512, BF16AMX Kernels[float32]
	F64AVX512, F64AVX2                      Kernels[float64]
	I8VNNI, I8AVX2, I8AMX                   Kernels[int32]

	PackerF32, PackerF64, PackerF16, PackerBF16, PackerBF16x2, PackerI8x4, PackerU8x4, PackerI8x2 Packer
)

// Copy copies len(dst) bytes from src. It ignores next.
func Copy(dst, src, next []byte) { copy(dst, src) }

// Fence does nothing: Copy has no non-temporal stores.
func Fence() {}

// FetchRows does nothing.
func FetchRows(m, n int, p *byte, ld int) {}

// Pause waits for n ≥ 1 times a few nanoseconds.
func Pause(n int) {
	for i := range n {
		spin.Store(int64(i))
	}
}

var spin atomic.Int64
