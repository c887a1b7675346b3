package asm

import "golang.org/x/sys/cpu"

// The instruction sets that there are kernels for.
var (
	AVX512 = ISA{"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL}
	VNNI   = ISA{"vnni", AVX512.Supported && cpu.X86.HasAVX512VNNI}
	AVX2   = ISA{"avx2", cpu.X86.HasAVX2 && cpu.X86.HasFMA}
)

// F32AVX512 is the float32 kernels for AVX-512.
var F32AVX512 = Kernels[float32]{
	ISA: AVX512, MR: 8, NR: 32,
	Packed: PackedF32AVX512, Group: 1,
	Direct: []func(k int, a *float32, rsa, csa int, b *float32, ldb int, c, next *float32, ldc, n int, alpha, beta float32){
		DirectF32AVX512x1, DirectF32AVX512x2, DirectF32AVX512x3, DirectF32AVX512x4,
		DirectF32AVX512x5, DirectF32AVX512x6, DirectF32AVX512x7, DirectF32AVX512x8,
	},
	Peak: PeakF32AVX512, PeakFlops: 512,
}

// F64AVX512 is the float64 kernels for AVX-512.
var F64AVX512 = Kernels[float64]{
	ISA: AVX512, MR: 8, NR: 16,
	Packed: PackedF64AVX512, Group: 1,
	Direct: []func(k int, a *float64, rsa, csa int, b *float64, ldb int, c, next *float64, ldc, n int, alpha, beta float64){
		DirectF64AVX512x1, DirectF64AVX512x2, DirectF64AVX512x3, DirectF64AVX512x4,
		DirectF64AVX512x5, DirectF64AVX512x6, DirectF64AVX512x7, DirectF64AVX512x8,
	},
	Peak: PeakF64AVX512, PeakFlops: 256,
}

// F32AVX2 is the float32 kernels for AVX2 with FMA.
var F32AVX2 = Kernels[float32]{
	ISA: AVX2, MR: 6, NR: 16,
	Packed: PackedF32AVX2, Group: 1,
	Direct: []func(k int, a *float32, rsa, csa int, b *float32, ldb int, c, next *float32, ldc, n int, alpha, beta float32){
		DirectF32AVX2x1, DirectF32AVX2x2, DirectF32AVX2x3, DirectF32AVX2x4, DirectF32AVX2x5, DirectF32AVX2x6,
	},
	Peak: PeakF32AVX2, PeakFlops: 256,
}

// F64AVX2 is the float64 kernels for AVX2 with FMA.
var F64AVX2 = Kernels[float64]{
	ISA: AVX2, MR: 6, NR: 8,
	Packed: PackedF64AVX2, Group: 1,
	Direct: []func(k int, a *float64, rsa, csa int, b *float64, ldb int, c, next *float64, ldc, n int, alpha, beta float64){
		DirectF64AVX2x1, DirectF64AVX2x2, DirectF64AVX2x3, DirectF64AVX2x4, DirectF64AVX2x5, DirectF64AVX2x6,
	},
	Peak: PeakF64AVX2, PeakFlops: 128,
}

// I8VNNI is the int8 kernels for AVX-512 with its dot products of four bytes.
var I8VNNI = Kernels[int32]{
	ISA: VNNI, MR: 8, NR: 32,
	Packed: PackedI8VNNI, Group: 4, Start: StartI8VNNI,
	Peak: PeakI8VNNI, PeakFlops: 2048,
}

// I8AVX2 is the int8 kernels for AVX2.
var I8AVX2 = Kernels[int32]{
	ISA: AVX2, MR: 4, NR: 16,
	Packed: PackedI8AVX2, Group: 2,
	Peak: PeakI8AVX2, PeakFlops: 384,
}

// The forms.
var (
	FormF32  = form(ZipF32, LayF32)
	FormF16  = form(ZipF16, LayF16)
	FormBF16 = form(ZipBF16, LayBF16)
	FormI8x4 = form(ZipI8x4, LayI8x4) // B's words for I8VNNI
	FormU8x4 = form(ZipU8x4, LayU8x4) // A's, with 128 added to each byte
	FormI8x2 = form(ZipI8x2, LayI8x2) // both operands' for I8AVX2
)

func form(zip func(k int, dst *uint32, r int, src *byte, ld int), lay func(k, n int, dst *uint32, r int, src *byte, ld int)) Form {
	if !AVX2.Supported || !cpu.X86.HasF16C {
		return Form{}
	}
	return Form{zip, lay}
}
