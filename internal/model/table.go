package model

const (
	mhz = 1e6
	gbs = 1e9
	tf  = 1e12
	mib = 1 << 20
	gib = 1 << 30
)

// GPUs that differ in their memory only have the same peaks.
var (
	a100 = Peaks{FP64: 9.7 * tf, FP64Tensor: 19.5 * tf, FP32: 19.5 * tf, TF32: 156 * tf, BF16: 312 * tf, FP16: 312 * tf,
		INT8: 624 * tf}
	gh100 = Peaks{FP64: 33.5 * tf, FP64Tensor: 66.9 * tf, FP32: 66.9 * tf, TF32: 494.7 * tf, BF16: 989.4 * tf,
		FP16: 989.4 * tf, FP8: 1978.9 * tf, INT8: 1978.9 * tf}
)

// models is the table of GPUs. Each row states its source. If a data sheet has the rate with
// sparsity only, the dense rate is half of it.
var models = []Model{
	// NVIDIA Turing GPU Architecture whitepaper, appendix on Tesla T4; T4 data sheet.
	{Name: "t4", Device: "Tesla T4", Arch: sm(75), SMs: 40, ClockHz: 1590 * mhz,
		MemBytes: 16 * gib, MemBandwidth: 320 * gbs, L2Bytes: 4 * mib,
		Peak: Peaks{FP64: 0.254 * tf, FP32: 8.1 * tf, FP16: 65 * tf, INT8: 130 * tf}},
	// Turing whitepaper, table of the GeForce RTX 2080 Ti (reference clocks).
	{Name: "rtx2080ti", Device: "NVIDIA GeForce RTX 2080 Ti", Arch: sm(75), SMs: 68, ClockHz: 1545 * mhz,
		MemBytes: 11 * gib, MemBandwidth: 616 * gbs, L2Bytes: 5632 << 10,
		Peak: Peaks{FP64: 0.42 * tf, FP32: 13.4 * tf, FP16: 53.8 * tf, INT8: 215.2 * tf}},

	// NVIDIA A100 data sheet; NVIDIA A100 Tensor Core GPU Architecture whitepaper.
	{Name: "a100-sxm-40gb", Device: "NVIDIA A100-SXM4-40GB", Arch: sm(80), SMs: 108, ClockHz: 1410 * mhz,
		MemBytes: 40 * gib, MemBandwidth: 1555 * gbs, L2Bytes: 40 * mib, Peak: a100},
	{Name: "a100-sxm-80gb", Device: "NVIDIA A100-SXM4-80GB", Arch: sm(80), SMs: 108, ClockHz: 1410 * mhz,
		MemBytes: 80 * gib, MemBandwidth: 2039 * gbs, L2Bytes: 40 * mib, Peak: a100},
	{Name: "a100-pcie-40gb", Device: "NVIDIA A100-PCIE-40GB", Arch: sm(80), SMs: 108, ClockHz: 1410 * mhz,
		MemBytes: 40 * gib, MemBandwidth: 1555 * gbs, L2Bytes: 40 * mib, Peak: a100},
	{Name: "a100-pcie-80gb", Device: "NVIDIA A100 80GB PCIe", Arch: sm(80), SMs: 108, ClockHz: 1410 * mhz,
		MemBytes: 80 * gib, MemBandwidth: 1935 * gbs, L2Bytes: 40 * mib, Peak: a100},
	// NVIDIA A30 data sheet and product brief.
	{Name: "a30", Device: "NVIDIA A30", Arch: sm(80), SMs: 56, ClockHz: 1440 * mhz,
		MemBytes: 24 * gib, MemBandwidth: 933 * gbs, L2Bytes: 24 * mib,
		Peak: Peaks{FP64: 5.2 * tf, FP64Tensor: 10.3 * tf, FP32: 10.3 * tf, TF32: 82 * tf, BF16: 165 * tf, FP16: 165 * tf,
			INT8: 330 * tf}},

	// NVIDIA A10 data sheet; the fp64 rate is 1/64 of fp32 (Ampere GA102 GPU Architecture whitepaper).
	{Name: "a10", Device: "NVIDIA A10", Arch: sm(86), SMs: 72, ClockHz: 1695 * mhz,
		MemBytes: 24 * gib, MemBandwidth: 600 * gbs, L2Bytes: 6 * mib,
		Peak: Peaks{FP64: 0.488 * tf, FP32: 31.2 * tf, TF32: 62.5 * tf, BF16: 125 * tf, FP16: 125 * tf, INT8: 250 * tf}},
	// Ampere GA102 whitepaper, table of the RTX A6000 and of the GeForce RTX 3090.
	{Name: "rtxa6000", Device: "NVIDIA RTX A6000", Arch: sm(86), SMs: 84, ClockHz: 1800 * mhz,
		MemBytes: 48 * gib, MemBandwidth: 768 * gbs, L2Bytes: 6 * mib,
		Peak: Peaks{FP64: 0.605 * tf, FP32: 38.7 * tf, TF32: 77.4 * tf, BF16: 154.8 * tf, FP16: 154.8 * tf,
			INT8: 309.7 * tf}},
	{Name: "rtx3090", Device: "NVIDIA GeForce RTX 3090", Arch: sm(86), SMs: 82, ClockHz: 1695 * mhz,
		MemBytes: 24 * gib, MemBandwidth: 936 * gbs, L2Bytes: 6 * mib,
		Peak: Peaks{FP64: 0.556 * tf, FP32: 35.6 * tf, TF32: 35.6 * tf, BF16: 71 * tf, FP16: 71 * tf, INT8: 284 * tf}},

	// NVIDIA L4 and L40S data sheets; SMs, clocks, fp64 and L2: Ada GPU Architecture whitepaper.
	{Name: "l4", Device: "NVIDIA L4", Arch: sm(89), SMs: 58, ClockHz: 2040 * mhz,
		MemBytes: 24 * gib, MemBandwidth: 300 * gbs, L2Bytes: 48 * mib,
		Peak: Peaks{FP64: 0.473 * tf, FP32: 30.3 * tf, TF32: 60 * tf, BF16: 121 * tf, FP16: 121 * tf, FP8: 242.5 * tf,
			INT8: 242.5 * tf}},
	{Name: "l40s", Device: "NVIDIA L40S", Arch: sm(89), SMs: 142, ClockHz: 2520 * mhz,
		MemBytes: 48 * gib, MemBandwidth: 864 * gbs, L2Bytes: 96 * mib,
		Peak: Peaks{FP64: 1.43 * tf, FP32: 91.6 * tf, TF32: 183 * tf, BF16: 362 * tf, FP16: 362 * tf, FP8: 733 * tf,
			INT8: 733 * tf}},
	// Ada GPU Architecture whitepaper, appendix on the GeForce RTX 4090.
	{Name: "rtx4090", Device: "NVIDIA GeForce RTX 4090", Arch: sm(89), SMs: 128, ClockHz: 2520 * mhz,
		MemBytes: 24 * gib, MemBandwidth: 1008 * gbs, L2Bytes: 72 * mib,
		Peak: Peaks{FP64: 1.29 * tf, FP32: 82.6 * tf, TF32: 82.6 * tf, BF16: 165.2 * tf, FP16: 165.2 * tf, FP8: 330.3 * tf,
			INT8: 660.6 * tf}},

	// NVIDIA H100 Tensor Core GPU Architecture whitepaper (tensor rates at 1,830 MHz
	// for SXM, 1,620 MHz for PCIe); H100 and H200 data sheets. The H200's L2 size is the
	// driver's. Its rate of peer copies was measured between two of one host; an SXM H100 has the
	// same 18 links.
	{Name: "h100-sxm", Device: "NVIDIA H100 80GB HBM3", Arch: sm(90), SMs: 132, ClockHz: 1980 * mhz,
		MemBytes: 80 * gib, MemBandwidth: 3350 * gbs, L2Bytes: 50 * mib, PeerBandwidth: 396 * gbs, Peak: gh100},
	{Name: "h100-pcie", Device: "NVIDIA H100 PCIe", Arch: sm(90), SMs: 114, ClockHz: 1755 * mhz,
		MemBytes: 80 * gib, MemBandwidth: 2000 * gbs, L2Bytes: 50 * mib,
		Peak: Peaks{FP64: 25.6 * tf, FP64Tensor: 51.2 * tf, FP32: 51.2 * tf, TF32: 378 * tf, BF16: 756 * tf, FP16: 756 * tf,
			FP8: 1513 * tf, INT8: 1513 * tf}},
	{Name: "h100-nvl", Device: "NVIDIA H100 NVL", Arch: sm(90), SMs: 132, ClockHz: 1785 * mhz,
		MemBytes: 94 * gib, MemBandwidth: 3900 * gbs, L2Bytes: 50 * mib,
		Peak: Peaks{FP64: 30 * tf, FP64Tensor: 60 * tf, FP32: 60 * tf, TF32: 417.5 * tf, BF16: 835.5 * tf, FP16: 835.5 * tf,
			FP8: 1670.5 * tf, INT8: 1670.5 * tf}},
	{Name: "h200", Device: "NVIDIA H200", Arch: sm(90), SMs: 132, ClockHz: 1980 * mhz,
		MemBytes: 141 * gib, MemBandwidth: 4800 * gbs, L2Bytes: 60 * mib, PeerBandwidth: 396 * gbs, Peak: gh100},

	// NVIDIA HGX B200 data sheet, one eighth of the board. It does not state the SMs,
	// the clock and the L2, which are the commonly reported values.
	{Name: "b200", Device: "NVIDIA B200", Arch: sm(100), SMs: 148, ClockHz: 1965 * mhz,
		MemBytes: 180 * gib, MemBandwidth: 8000 * gbs, L2Bytes: 126 * mib,
		Peak: Peaks{FP64: 37 * tf, FP64Tensor: 37 * tf, FP32: 75 * tf, TF32: 1125 * tf, BF16: 2250 * tf, FP16: 2250 * tf,
			FP8: 4500 * tf, INT8: 4500 * tf}},

	// NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix on the GeForce RTX 5090.
	{Name: "rtx5090", Device: "NVIDIA GeForce RTX 5090", Arch: sm(120), SMs: 170, ClockHz: 2407 * mhz,
		MemBytes: 32 * gib, MemBandwidth: 1792 * gbs, L2Bytes: 96 * mib,
		Peak: Peaks{FP64: 1.64 * tf, FP32: 104.8 * tf, TF32: 104.8 * tf, BF16: 209.5 * tf, FP16: 209.5 * tf, FP8: 419 * tf,
			INT8: 838 * tf}},
}

// sm returns the row of arches for a compute capability. A test checks that each exists.
func sm(n int) *Arch {
	for _, a := range arches {
		if a.SM == n {
			return a
		}
	}
	return nil
}
