package asm

import "golang.org/x/sys/cpu"

// The instruction sets that there are kernels for.
var (
	AVX512 = ISA{"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL}
	AVX2   = ISA{"avx2", cpu.X86.HasAVX2 && cpu.X86.HasFMA}
)

// F32AVX512 is the float32 kernels for AVX-512.
var F32AVX512 = Kernels[float32]{
	ISA: AVX512, MR: 8, NR: 32,
	Packed: PackedF32AVX512,
	Direct: []func(k int, a *float32, rsa, csa int, b *float32, ldb int, c, next *float32, ldc, n int, alpha, beta float32){
		DirectF32AVX512x1, DirectF32AVX512x2, DirectF32AVX512x3, DirectF32AVX512x4,
		DirectF32AVX512x5, DirectF32AVX512x6, DirectF32AVX512x7, DirectF32AVX512x8,
	},
	Update: [][]Update[float32]{
		{UpdateF32AVX512x1x1, UpdateF32AVX512x1x2, UpdateF32AVX512x1x4, UpdateF32AVX512x1x8},
		{UpdateF32AVX512x2x1, UpdateF32AVX512x2x2, UpdateF32AVX512x2x4, UpdateF32AVX512x2x8},
		{UpdateF32AVX512x4x1, UpdateF32AVX512x4x2, UpdateF32AVX512x4x4},
	},
	Dot:  []Dot[float32]{DotF32AVX512x1, DotF32AVX512x2, DotF32AVX512x3, DotF32AVX512x4},
	Peak: PeakF32AVX512, PeakFlops: 512,
}

// F64AVX512 is the float64 kernels for AVX-512.
var F64AVX512 = Kernels[float64]{
	ISA: AVX512, MR: 8, NR: 16,
	Packed: PackedF64AVX512,
	Direct: []func(k int, a *float64, rsa, csa int, b *float64, ldb int, c, next *float64, ldc, n int, alpha, beta float64){
		DirectF64AVX512x1, DirectF64AVX512x2, DirectF64AVX512x3, DirectF64AVX512x4,
		DirectF64AVX512x5, DirectF64AVX512x6, DirectF64AVX512x7, DirectF64AVX512x8,
	},
	Update: [][]Update[float64]{
		{UpdateF64AVX512x1x1, UpdateF64AVX512x1x2, UpdateF64AVX512x1x4, UpdateF64AVX512x1x8},
		{UpdateF64AVX512x2x1, UpdateF64AVX512x2x2, UpdateF64AVX512x2x4, UpdateF64AVX512x2x8},
		{UpdateF64AVX512x4x1, UpdateF64AVX512x4x2, UpdateF64AVX512x4x4},
	},
	Dot:  []Dot[float64]{DotF64AVX512x1, DotF64AVX512x2, DotF64AVX512x3, DotF64AVX512x4},
	Peak: PeakF64AVX512, PeakFlops: 256,
}

// F32AVX2 is the float32 kernels for AVX2 with FMA.
var F32AVX2 = Kernels[float32]{
	ISA: AVX2, MR: 6, NR: 16,
	Packed: PackedF32AVX2,
	Direct: []func(k int, a *float32, rsa, csa int, b *float32, ldb int, c, next *float32, ldc, n int, alpha, beta float32){
		DirectF32AVX2x1, DirectF32AVX2x2, DirectF32AVX2x3, DirectF32AVX2x4, DirectF32AVX2x5, DirectF32AVX2x6,
	},
	Update: [][]Update[float32]{
		{UpdateF32AVX2x1x1, UpdateF32AVX2x1x2, UpdateF32AVX2x1x4, UpdateF32AVX2x1x8},
		{UpdateF32AVX2x2x1, UpdateF32AVX2x2x2, UpdateF32AVX2x2x4},
		{UpdateF32AVX2x4x1, UpdateF32AVX2x4x2},
	},
	Dot:  []Dot[float32]{DotF32AVX2x1, DotF32AVX2x2},
	Peak: PeakF32AVX2, PeakFlops: 256,
}

// F64AVX2 is the float64 kernels for AVX2 with FMA.
var F64AVX2 = Kernels[float64]{
	ISA: AVX2, MR: 6, NR: 8,
	Packed: PackedF64AVX2,
	Direct: []func(k int, a *float64, rsa, csa int, b *float64, ldb int, c, next *float64, ldc, n int, alpha, beta float64){
		DirectF64AVX2x1, DirectF64AVX2x2, DirectF64AVX2x3, DirectF64AVX2x4, DirectF64AVX2x5, DirectF64AVX2x6,
	},
	Update: [][]Update[float64]{
		{UpdateF64AVX2x1x1, UpdateF64AVX2x1x2, UpdateF64AVX2x1x4, UpdateF64AVX2x1x8},
		{UpdateF64AVX2x2x1, UpdateF64AVX2x2x2, UpdateF64AVX2x2x4},
		{UpdateF64AVX2x4x1, UpdateF64AVX2x4x2},
	},
	Dot:  []Dot[float64]{DotF64AVX2x1, DotF64AVX2x2},
	Peak: PeakF64AVX2, PeakFlops: 128,
}
