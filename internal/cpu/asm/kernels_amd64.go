package asm

import "golang.org/x/sys/cpu"

// The instruction sets with kernels.
var (
	AVX512 = ISA{"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL}
	VNNI   = ISA{"vnni", AVX512.Supported && cpu.X86.HasAVX512VNNI}
	AVX2   = ISA{"avx2", cpu.X86.HasAVX2 && cpu.X86.HasFMA}
	BF16   = ISA{"avx512bf16", AVX512.Supported && cpu.X86.HasAVX512BF16}
	AMX    = ISA{"amx", AVX512.Supported && cpu.X86.HasAMXTile && cpu.X86.HasAMXInt8 && cpu.X86.HasAMXBF16}
)

// columnsF32 and columnsF64 serve all kernels of an element type.
var (
	columnsF32 = []func(n int, dst *float32, ldd int, src *float32, lds int){
		ColumnsF32x1, ColumnsF32x2, ColumnsF32x3, ColumnsF32x4, ColumnsF32x5, ColumnsF32x6, ColumnsF32x7, ColumnsF32x8,
	}
	columnsF64 = []func(n int, dst *float64, ldd int, src *float64, lds int){
		ColumnsF64x1, ColumnsF64x2, ColumnsF64x3, ColumnsF64x4,
	}
)

// F32AVX512 holds the float32 kernels for AVX-512.
var F32AVX512 = Kernels[float32]{
	ISA: AVX512, MR: 12, NR: 32,
	Packed: PackedF32AVX512, Group: 1,
	WidenF16: []Widening[float32]{
		WidenF16F32AVX512x2, WidenF16F32AVX512x4, WidenF16F32AVX512x6,
		WidenF16F32AVX512x8, WidenF16F32AVX512x10, WidenF16F32AVX512x12,
	},
	WidenBF16: []Widening[float32]{
		WidenBF16F32AVX512x2, WidenBF16F32AVX512x4, WidenBF16F32AVX512x6,
		WidenBF16F32AVX512x8, WidenBF16F32AVX512x10, WidenBF16F32AVX512x12,
	},
	Direct: []Direct[float32]{
		DirectF32AVX512x1, DirectF32AVX512x2, DirectF32AVX512x3, DirectF32AVX512x4,
		DirectF32AVX512x5, DirectF32AVX512x6, DirectF32AVX512x7, DirectF32AVX512x8,
		DirectF32AVX512x9, DirectF32AVX512x10, DirectF32AVX512x11, DirectF32AVX512x12,
	},
	Deep: []Direct[float32]{
		DeepF32AVX512x1, DeepF32AVX512x2, DeepF32AVX512x3, DeepF32AVX512x4,
		DeepF32AVX512x5, DeepF32AVX512x6, DeepF32AVX512x7,
	},
	Narrow: []Narrow[float32]{
		NarrowF32AVX512x1, NarrowF32AVX512x2, NarrowF32AVX512x3, NarrowF32AVX512x4,
		NarrowF32AVX512x5, NarrowF32AVX512x6, NarrowF32AVX512x7, NarrowF32AVX512x8,
	},
	AlignedRow: []Update[float32]{
		AlignedRowF32AVX512x1, AlignedRowF32AVX512x2,
		AlignedRowF32AVX512x3, AlignedRowF32AVX512x4,
	},
	StreamRow: []Update[float32]{StreamRowF32AVX512x1, StreamRowF32AVX512x2, StreamRowF32AVX512x3, StreamRowF32AVX512x4},
	Copy:      CopyF32AVX512, Stream: StreamF32AVX512, Columns: columnsF32, Largest: LargestF32,
	Update: [][]Update[float32]{
		{UpdateF32AVX512x1x1, UpdateF32AVX512x1x2, UpdateF32AVX512x1x4, UpdateF32AVX512x1x8},
		{UpdateF32AVX512x2x1, UpdateF32AVX512x2x2, UpdateF32AVX512x2x4, UpdateF32AVX512x2x8},
		{UpdateF32AVX512x4x1, UpdateF32AVX512x4x2, UpdateF32AVX512x4x4},
	},
	Solve: []Triangle[float32]{
		SolveF32AVX512x1, SolveF32AVX512x2, SolveF32AVX512x4, SolveF32AVX512x8, SolveF32AVX512x12,
	},
	Multiply: []Triangle[float32]{
		MultiplyF32AVX512x1, MultiplyF32AVX512x2, MultiplyF32AVX512x4, MultiplyF32AVX512x8, MultiplyF32AVX512x12,
	},
	Dot: [][]Dot[float32]{
		{DotF32AVX512x1x1, DotF32AVX512x1x2, DotF32AVX512x1x3, DotF32AVX512x1x4},
		{DotF32AVX512x2x1, DotF32AVX512x2x2, DotF32AVX512x2x3, DotF32AVX512x2x4},
		{DotF32AVX512x3x1, DotF32AVX512x3x2, DotF32AVX512x3x3, DotF32AVX512x3x4},
		{DotF32AVX512x4x1, DotF32AVX512x4x2, DotF32AVX512x4x3, DotF32AVX512x4x4},
	},
	Tall: []Dot[float32]{DotF32AVX512x16x1},
	DotF16: []WideningDot[float32]{
		DotF16F32AVX512x4x1, DotF16F32AVX512x4x2, DotF16F32AVX512x4x3, DotF16F32AVX512x4x4,
	},
	DotBF16: []WideningDot[float32]{
		DotBF16F32AVX512x4x1, DotBF16F32AVX512x4x2, DotBF16F32AVX512x4x3, DotBF16F32AVX512x4x4,
	},
	Epilogue: Epilogue[float32]{
		BiasRow: BiasRowF32AVX512, BiasCol: BiasColF32AVX512, ScaleRow: ScaleRowF32AVX512, ScaleCol: ScaleColF32AVX512,
		Scale: ScaleF32AVX512, FromInt32: FromInt32F32AVX512, Add: AddF32AVX512, Times: TimesF32AVX512,
		ReLU: ReLUF32AVX512, GELU: GELUF32AVX512, GELUTanh: GELUTanhF32AVX512, SiLU: SiLUF32AVX512,
	},
	Peak: PeakF32AVX512, PeakFlops: 512,
}

// F64AVX512 holds the float64 kernels for AVX-512.
var F64AVX512 = Kernels[float64]{
	ISA: AVX512, MR: 12, NR: 16,
	Packed: PackedF64AVX512, Group: 1,
	Direct: []Direct[float64]{
		DirectF64AVX512x1, DirectF64AVX512x2, DirectF64AVX512x3, DirectF64AVX512x4,
		DirectF64AVX512x5, DirectF64AVX512x6, DirectF64AVX512x7, DirectF64AVX512x8,
		DirectF64AVX512x9, DirectF64AVX512x10, DirectF64AVX512x11, DirectF64AVX512x12,
	},
	Deep: []Direct[float64]{
		DeepF64AVX512x1, DeepF64AVX512x2, DeepF64AVX512x3, DeepF64AVX512x4,
		DeepF64AVX512x5, DeepF64AVX512x6, DeepF64AVX512x7,
	},
	Narrow: []Narrow[float64]{
		NarrowF64AVX512x1, NarrowF64AVX512x2, NarrowF64AVX512x3, NarrowF64AVX512x4,
		NarrowF64AVX512x5, NarrowF64AVX512x6, NarrowF64AVX512x7, NarrowF64AVX512x8,
	},
	AlignedRow: []Update[float64]{
		AlignedRowF64AVX512x1, AlignedRowF64AVX512x2,
		AlignedRowF64AVX512x3, AlignedRowF64AVX512x4,
	},
	StreamRow: []Update[float64]{StreamRowF64AVX512x1, StreamRowF64AVX512x2, StreamRowF64AVX512x3, StreamRowF64AVX512x4},
	Copy:      CopyF64AVX512, Stream: StreamF64AVX512, Columns: columnsF64, Largest: LargestF64,
	Update: [][]Update[float64]{
		{UpdateF64AVX512x1x1, UpdateF64AVX512x1x2, UpdateF64AVX512x1x4, UpdateF64AVX512x1x8},
		{UpdateF64AVX512x2x1, UpdateF64AVX512x2x2, UpdateF64AVX512x2x4, UpdateF64AVX512x2x8},
		{UpdateF64AVX512x4x1, UpdateF64AVX512x4x2, UpdateF64AVX512x4x4},
	},
	Solve: []Triangle[float64]{
		SolveF64AVX512x1, SolveF64AVX512x2, SolveF64AVX512x4, SolveF64AVX512x8, SolveF64AVX512x12,
	},
	Multiply: []Triangle[float64]{
		MultiplyF64AVX512x1, MultiplyF64AVX512x2, MultiplyF64AVX512x4, MultiplyF64AVX512x8, MultiplyF64AVX512x12,
	},
	Dot: [][]Dot[float64]{
		{DotF64AVX512x1x1, DotF64AVX512x1x2, DotF64AVX512x1x3, DotF64AVX512x1x4},
		{DotF64AVX512x2x1, DotF64AVX512x2x2, DotF64AVX512x2x3, DotF64AVX512x2x4},
		{DotF64AVX512x3x1, DotF64AVX512x3x2, DotF64AVX512x3x3, DotF64AVX512x3x4},
		{DotF64AVX512x4x1, DotF64AVX512x4x2, DotF64AVX512x4x3, DotF64AVX512x4x4},
	},
	Tall: []Dot[float64]{DotF64AVX512x8x1},
	Epilogue: Epilogue[float64]{
		BiasRow: BiasRowF64AVX512, BiasCol: BiasColF64AVX512, ScaleRow: ScaleRowF64AVX512, ScaleCol: ScaleColF64AVX512,
		Scale: ScaleF64AVX512, Add: AddF64AVX512, Times: TimesF64AVX512,
		ReLU: ReLUF64AVX512, GELU: GELUF64AVX512, GELUTanh: GELUTanhF64AVX512, SiLU: SiLUF64AVX512,
	},
	Peak: PeakF64AVX512, PeakFlops: 256,
}

// F32AVX2 holds the float32 kernels for AVX2 with FMA.
var F32AVX2 = Kernels[float32]{
	ISA: AVX2, MR: 6, NR: 16,
	Packed: PackedF32AVX2, Group: 1,
	WidenF16: []Widening[float32]{
		WidenF16F32AVX2x2, WidenF16F32AVX2x4, WidenF16F32AVX2x6,
	},
	WidenBF16: []Widening[float32]{
		WidenBF16F32AVX2x2, WidenBF16F32AVX2x4, WidenBF16F32AVX2x6,
	},
	Direct: []Direct[float32]{
		DirectF32AVX2x1, DirectF32AVX2x2, DirectF32AVX2x3, DirectF32AVX2x4, DirectF32AVX2x5, DirectF32AVX2x6,
	},
	Deep: []Direct[float32]{
		DeepF32AVX2x1, DeepF32AVX2x2, DeepF32AVX2x3, DeepF32AVX2x4, DeepF32AVX2x5, DeepF32AVX2x6,
	},
	AlignedRow: []Update[float32]{
		AlignedRowF32AVX2x1, AlignedRowF32AVX2x2,
		AlignedRowF32AVX2x3, AlignedRowF32AVX2x4,
	},
	StreamRow: []Update[float32]{StreamRowF32AVX2x1, StreamRowF32AVX2x2, StreamRowF32AVX2x3, StreamRowF32AVX2x4},
	Copy:      CopyF32AVX2, Stream: StreamF32AVX2, Columns: columnsF32, Largest: LargestF32,
	Update: [][]Update[float32]{
		{UpdateF32AVX2x1x1, UpdateF32AVX2x1x2, UpdateF32AVX2x1x4, UpdateF32AVX2x1x8},
		{UpdateF32AVX2x2x1, UpdateF32AVX2x2x2, UpdateF32AVX2x2x4},
		{UpdateF32AVX2x4x1, UpdateF32AVX2x4x2},
	},
	Solve: []Triangle[float32]{
		SolveF32AVX2x1, SolveF32AVX2x2, SolveF32AVX2x4, SolveF32AVX2x6,
	},
	Multiply: []Triangle[float32]{
		MultiplyF32AVX2x1, MultiplyF32AVX2x2, MultiplyF32AVX2x4, MultiplyF32AVX2x6,
	},
	Dot: [][]Dot[float32]{
		{DotF32AVX2x1x1, DotF32AVX2x1x2},
		{DotF32AVX2x2x1, DotF32AVX2x2x2},
		{DotF32AVX2x3x1, DotF32AVX2x3x2},
		{DotF32AVX2x4x1, DotF32AVX2x4x2},
	},
	Tall:    []Dot[float32]{DotF32AVX2x8x1},
	DotF16:  []WideningDot[float32]{DotF16F32AVX2x4x1, DotF16F32AVX2x4x2},
	DotBF16: []WideningDot[float32]{DotBF16F32AVX2x4x1, DotBF16F32AVX2x4x2},
	Epilogue: Epilogue[float32]{
		BiasRow: BiasRowF32AVX2, BiasCol: BiasColF32AVX2, ScaleRow: ScaleRowF32AVX2, ScaleCol: ScaleColF32AVX2,
		Scale: ScaleF32AVX2, FromInt32: FromInt32F32AVX2, Add: AddF32AVX2, Times: TimesF32AVX2,
		ReLU: ReLUF32AVX2, GELU: GELUF32AVX2, GELUTanh: GELUTanhF32AVX2, SiLU: SiLUF32AVX2,
	},
	Peak: PeakF32AVX2, PeakFlops: 256,
}

// F64AVX2 holds the float64 kernels for AVX2 with FMA.
var F64AVX2 = Kernels[float64]{
	ISA: AVX2, MR: 6, NR: 8,
	Packed: PackedF64AVX2, Group: 1,
	Direct: []Direct[float64]{
		DirectF64AVX2x1, DirectF64AVX2x2, DirectF64AVX2x3, DirectF64AVX2x4, DirectF64AVX2x5, DirectF64AVX2x6,
	},
	Deep: []Direct[float64]{
		DeepF64AVX2x1, DeepF64AVX2x2, DeepF64AVX2x3, DeepF64AVX2x4, DeepF64AVX2x5, DeepF64AVX2x6,
	},
	AlignedRow: []Update[float64]{
		AlignedRowF64AVX2x1, AlignedRowF64AVX2x2,
		AlignedRowF64AVX2x3, AlignedRowF64AVX2x4,
	},
	StreamRow: []Update[float64]{StreamRowF64AVX2x1, StreamRowF64AVX2x2, StreamRowF64AVX2x3, StreamRowF64AVX2x4},
	Copy:      CopyF64AVX2, Stream: StreamF64AVX2, Columns: columnsF64, Largest: LargestF64,
	Update: [][]Update[float64]{
		{UpdateF64AVX2x1x1, UpdateF64AVX2x1x2, UpdateF64AVX2x1x4, UpdateF64AVX2x1x8},
		{UpdateF64AVX2x2x1, UpdateF64AVX2x2x2, UpdateF64AVX2x2x4},
		{UpdateF64AVX2x4x1, UpdateF64AVX2x4x2},
	},
	Solve: []Triangle[float64]{
		SolveF64AVX2x1, SolveF64AVX2x2, SolveF64AVX2x4, SolveF64AVX2x6,
	},
	Multiply: []Triangle[float64]{
		MultiplyF64AVX2x1, MultiplyF64AVX2x2, MultiplyF64AVX2x4, MultiplyF64AVX2x6,
	},
	Dot: [][]Dot[float64]{
		{DotF64AVX2x1x1, DotF64AVX2x1x2},
		{DotF64AVX2x2x1, DotF64AVX2x2x2},
		{DotF64AVX2x3x1, DotF64AVX2x3x2},
		{DotF64AVX2x4x1, DotF64AVX2x4x2},
	},
	Epilogue: Epilogue[float64]{
		BiasRow: BiasRowF64AVX2, BiasCol: BiasColF64AVX2, ScaleRow: ScaleRowF64AVX2, ScaleCol: ScaleColF64AVX2,
		Scale: ScaleF64AVX2, Add: AddF64AVX2, Times: TimesF64AVX2,
		ReLU: ReLUF64AVX2, GELU: GELUF64AVX2, GELUTanh: GELUTanhF64AVX2, SiLU: SiLUF64AVX2,
	},
	Peak: PeakF64AVX2, PeakFlops: 128,
}

// I8VNNI holds the int8 kernels for AVX-512 VNNI.
var I8VNNI = Kernels[int32]{
	ISA: VNNI, MR: 8, NR: 32,
	Packed: PackedI8VNNI, Group: 4, Compensate: StartI8VNNI,
	Epilogue: Epilogue[int32]{BiasRow: BiasRowI8VNNI, BiasCol: BiasColI8VNNI, Add: AddI8VNNI, ReLU: ReLUI8VNNI},
	Peak:     PeakI8VNNI, PeakFlops: 2048,
}

// I8AVX2 holds the int8 kernels for AVX2.
var I8AVX2 = Kernels[int32]{
	ISA: AVX2, MR: 4, NR: 16,
	Packed: PackedI8AVX2, Group: 2,
	Epilogue: Epilogue[int32]{BiasRow: BiasRowI8AVX2, BiasCol: BiasColI8AVX2, Add: AddI8AVX2, ReLU: ReLUI8AVX2},
	Peak:     PeakI8AVX2, PeakFlops: 384,
}

// BF16AVX512 holds the bfloat16 kernels for AVX-512 BF16.
var BF16AVX512 = Kernels[float32]{
	ISA: BF16, MR: 12, NR: 32,
	Packed: PackedBF16AVX512, Group: 2,
	Update: F32AVX512.Update, Dot: F32AVX512.Dot, Tall: F32AVX512.Tall, // for widened elements
	Epilogue: F32AVX512.Epilogue,
	Peak:     PeakBF16AVX512, PeakFlops: 1024,
}

// BF16AMX holds the bfloat16 kernels for AMX.
var BF16AMX = Kernels[float32]{
	ISA: AMX, MR: 32, NR: 32,
	Packed: PackedBF16AMX, Group: 2, Block: 16,
	Update: F32AVX512.Update, Dot: F32AVX512.Dot, Tall: F32AVX512.Tall, // for widened elements
	Epilogue: F32AVX512.Epilogue,
	Peak:     PeakBF16AMX, PeakFlops: 65536,
}

// I8AMX holds the int8 kernels for AMX.
var I8AMX = Kernels[int32]{
	ISA: AMX, MR: 32, NR: 32,
	Packed: PackedI8AMX, Group: 4, Block: 16,
	Epilogue: I8VNNI.Epilogue,
	Peak:     PeakI8AMX, PeakFlops: 131072,
}

// The packers.
var (
	PackerF32    = packer(Packer{Zip: ZipF32, CopyRows: CopyRowsF32})
	PackerF64    = packer(Packer{Zip: ZipF64, CopyRows: CopyRowsF32}) // an element takes two words
	PackerF16    = packer(Packer{ZipF16, CopyRowsF16, NarrowF16, AddOldF16})
	PackerBF16   = packer(Packer{ZipBF16, CopyRowsBF16, NarrowBF16, AddOldBF16})
	PackerBF16x2 = packer(Packer{Zip: ZipBF16x2, CopyRows: CopyRowsBF16x2})
	PackerI8x4   = packer(Packer{Zip: ZipI8x4, CopyRows: CopyRowsI8x4}) // for B of I8VNNI
	PackerU8x4   = packer(Packer{Zip: ZipU8x4, CopyRows: CopyRowsU8x4}) // for A of I8VNNI, with 128 added to each byte
	PackerI8x2   = packer(Packer{Zip: ZipI8x2, CopyRows: CopyRowsI8x2}) // for both operands of I8AVX2
)

// packer returns f if the CPU has the instructions that all packers need.
func packer(f Packer) Packer {
	if !AVX2.Supported || !cpu.X86.HasF16C {
		return Packer{}
	}
	return f
}
