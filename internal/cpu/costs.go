package cpu

import (
	"strings"
	"sync"

	"tilework/internal/host"
)

// costs holds the times, in nanoseconds, from which the models predict the times of the methods on
// one CPU with the micro-kernels of one instruction set. TestFit fits them to measured times.
type costs struct {
	// The FMA units: a vector FMA, a vector that a tile loads or broadcasts, a step of K at least, a
	// vector of C that a tile reads and writes, and each tile.
	fma, load, latency, store, tile float64
	// half is the time of the FMAs of half a vector relative to a whole one. embedded is the time of
	// an embedded broadcast of an element of A, in a tile of one vector, relative to a broadcast to a
	// register.
	half, embedded float64
	// A call of a micro-kernel, and the starts of the algorithms.
	call, direct, packs, axpy, dot, blocked, phase, swap float64
	// A line from the L2 cache; the additional times of one from the L3 cache and from memory.
	fromL2, fromL3, fromMemory float64
	// wait is the additional time, for each row of a tile, of a step that reads from another page
	// than the one before it. Reads at up to as many places as streams, and of matrices of up to
	// reach bytes, have none. fetched is the part of it that a prefetch saves.
	wait, streams, reach, fetched float64
	// written is the time of a line of C relative to one of A and B. inTiles and inRows are those of
	// unpacked tiles and whole rows relative to packed tiles, and aligned that of whole rows that are
	// written in aligned vectors. stream is the time of a line that is written with non-temporal
	// stores.
	written, inTiles, inRows, aligned, stream float64
	// late is the part of the time of A's lines that remains where tiles prefetch them.
	late float64
	// torn is the additional time of storing a vector that is in two lines, relative to store.
	torn float64
	// ragged is the additional number of lines of a short run.
	ragged float64
	// tlb is the time of a run on a page that the first-level TLB, with that many entries, no longer
	// holds. conflict is that of a line whose set is full.
	tlb, entries, conflict float64
	// Packing: words that are transposed, words and rows that are copied, and calls.
	zip, copyWord, copyRow, zipCall float64
	// A line that algoCopy copies, an element of the transposed C, and one that is copied along K.
	copies, transpose, element float64
	// widen is the time of widening an element. widening is the number of FMAs that take as long as
	// widening a vector in a register, in two instructions. A Xeon has a unit of its own for one of
	// them with 256-bit vectors and for none with 512 bits. A Zen 4 took 0.7 to 0.8 FMAs with 512
	// bits, for float16 and bfloat16 6×768·768×3072 and 8×768·768×3072.
	widen, widening float64
	// update is the time of an Update kernel relative to its instructions, and broadcast that of one
	// of its elements of A. dots is that of Dot kernels. reduce is the time of adding the lanes of one
	// of their sums, reduceTall in tall tiles.
	// rows is that of whole rows of C relative to axpy.
	update, broadcast, dots, reduce, reduceTall, rows float64
	// exposed is the part of the shorter of the times of the FMA units and of memory that the other
	// does not hide. exposedDots is that of dot products, which read memory in order.
	exposed, exposedDots float64
	// The sizes of the caches in bytes. l3 is the part of the L3 cache that a core uses. cached is the
	// size of C up to which a cache still holds it when it is used next.
	l1, l2, l3, cached float64
}

// cpuModel holds the costs of a CPU with the micro-kernels of each instruction set.
type cpuModel struct {
	name                          string
	avx2, avx512, avx512bf16, amx *costs
}

// cpuModels lists the CPUs that were measured, each on one core of a virtual machine. Other CPUs
// are taken for one of them. No Zen 4 has AMX, and a later one that has it is taken for a Xeon.
var cpuModels = []cpuModel{
	{"zen4", &zen4AVX2, &zen4AVX512, &zen4AVX512BF16, &xeonAMX},
	{"xeon", &xeonAVX2, &xeonAVX512, &xeonAVX512, &xeonAMX},
}

var zen4AVX2 = costs{
	fma: 0.1355, load: 0.1489, latency: 1.101, store: 0.3705, tile: 0.8553, half: 0.9265, embedded: 1.091,
	call: 7.702, direct: 89.8, packs: 0.4886, axpy: 144.2, dot: 88.75, blocked: 0.1737, phase: 407.4,
	swap: 299.1, fromL2: 0.1595, fromL3: 0.4386, fromMemory: 4.29, wait: 0.7499, streams: 35.6,
	reach: 1.123e+07, fetched: 0.5998, written: 0.8663, inTiles: 0.7836, inRows: 0.6815, aligned: 0.6815,
	stream: 1.587, late: 0.971, torn: 1, ragged: 0.4556, tlb: 0.5029, entries: 6.111, conflict: 0.7373,
	zip: 0.08694, copyWord: 0.0005898, copyRow: 2.44, zipCall: 32.8, copies: 0.03784, transpose: 0.1178,
	element: 0.6956, widen: 0.07971, widening: 1, update: 2.048, broadcast: 1.596, dots: 1.15, reduce: 1.053,
	reduceTall: 0.418, rows: 0.682, exposed: 0.5678, exposedDots: 0.5221,
	l1: 32 << 10, l2: 1 << 20, l3: 1.499e+07, cached: 8 << 20,
}

var zen4AVX512 = costs{
	fma: 0.2627, load: 0.3679, latency: 1.575, store: 0.4575, tile: 0.02178, half: 0.5855, embedded: 0.6821,
	call: 8.044, direct: 72.5, packs: 39.4, axpy: 193.3, dot: 164, blocked: 521.5, phase: 110.1, swap: 120.3,
	fromL2: 0.1724, fromL3: 0.07873, fromMemory: 3.457, wait: 0.6477, streams: 35.38, reach: 1.107e+07,
	fetched: 0.949, written: 1.045, inTiles: 0.9009, inRows: 0.7638, aligned: 0.7638, stream: 1.304,
	late: 0.7991, torn: 0, ragged: 0.5833, tlb: 0.2106, entries: 12.38, conflict: 0.6662, zip: 0.08367,
	copyWord: 0.0009364, copyRow: 3.568, zipCall: 19.39, copies: 0.2969, transpose: 0.1908, element: 0.7748,
	widen: 0.1448, widening: 0.75, update: 1.454, broadcast: 0.7367, dots: 1.021, reduce: 3.912, reduceTall: 0.5033,
	rows: 0.8653, exposed: 0.5973, exposedDots: 0.4216,
	l1: 32 << 10, l2: 1 << 20, l3: 1.455e+07, cached: 8 << 20,
}

var zen4AVX512BF16 = costs{
	fma: 0.3123, load: 0.5346, latency: 7.337, store: 3.977, tile: 0.01041, half: 0.4927, embedded: 0.8089,
	call: 40.1, direct: 84.15, packs: 720, axpy: 603.6, dot: 435.8, blocked: 1203, phase: 428.6, swap: 130.1,
	fromL2: 0.01121, fromL3: 0.02748, fromMemory: 7.959, wait: 1.035, streams: 34.7, reach: 1.078e+07,
	fetched: 0.5, written: 6.131, inTiles: 1.148, inRows: 0.8714, aligned: 0.8714, stream: 1.345,
	late: 0.9851, torn: 0, ragged: 0.8606, tlb: 0.1991, entries: 7.048, conflict: 0.6562, zip: 0.06834,
	copyWord: 0.0008063, copyRow: 13.3, zipCall: 156.4, copies: 0.1767, transpose: 3.13, element: 2.138,
	widen: 0.09213, widening: 2, update: 1.956, broadcast: 1.378, dots: 0.3697, reduce: 5.395, reduceTall: 0.6008,
	rows: 0.7554, exposed: 0.03785, exposedDots: 0.009897,
	l1: 32 << 10, l2: 1 << 20, l3: 5.931e+06, cached: 8 << 20,
}

var xeonAVX2 = costs{
	fma: 0.1275, load: 0.1012, latency: 1.19, store: 0.7382, tile: 0.007682, half: 0.8479, embedded: 1.799,
	call: 4.929, direct: 43, packs: 11.19, axpy: 91.44, dot: 123.4, blocked: 1.877, phase: 310,
	swap: 69.19, fromL2: 0.1581, fromL3: 1.012, fromMemory: 2.898, wait: 0.295, streams: 116.4,
	reach: 2.117e+06, fetched: 0.001064, written: 0.6894, inTiles: 0.9178, inRows: 1.561, aligned: 0.5508,
	stream: 1.941, late: 1.075, torn: 0, ragged: 0.9039, tlb: 0.1199, entries: 0.08467,
	conflict: 0.516, zip: 0.08614, copyWord: 0.02212, copyRow: 1.841, zipCall: 20.93, copies: 0.1726,
	transpose: 0.7213, element: 0.5528, widen: 0.07422, widening: 1, update: 2.266, broadcast: 1.164, dots: 1.311,
	reduce: 0.9132, reduceTall: 0.4836, rows: 0.8203, exposed: 0.7487, exposedDots: 0.7027,
	l1: 48 << 10, l2: 2 << 20, l3: 4.207e+07, cached: 120 << 20,
}

var xeonAVX512 = costs{
	fma: 0.1266, load: 0.1443, latency: 0.9727, store: 0.4994, tile: 0.01025, half: 0.9066, embedded: 0.899,
	call: 10.93, direct: 55.43, packs: 44.91, axpy: 112.3, dot: 140.7, blocked: 23.41, phase: 286.2,
	swap: 162, fromL2: 0.3376, fromL3: 0.4998, fromMemory: 1.036, wait: 1.091, streams: 79.47,
	reach: 4.031e+07, fetched: 0.513, written: 1.347, inTiles: 0.6939, inRows: 1.587, aligned: 0.7288,
	stream: 56.74, late: 0.627, torn: 0.6467, ragged: 0.8175, tlb: 0.9093, entries: 12.33, conflict: 0.5389,
	zip: 0.1092, copyWord: 0.1011, copyRow: 0.7898, zipCall: 10.52, copies: 0.0639, transpose: 0.2413,
	element: 0.6092, widen: 0.1836, widening: 2, update: 2.355, broadcast: 0.4056, dots: 1.444, reduce: 1.79,
	reduceTall: 0.5795, rows: 0.6641, exposed: 0.7019, exposedDots: 0.4582,
	l1: 48 << 10, l2: 2 << 20, l3: 1.427e+06, cached: 120 << 20,
}

var xeonAMX = costs{
	fma: 0.0428, load: 0.0999, latency: 2.65, store: 7.33, tile: 1.1, half: 1, embedded: 1, call: 96.6,
	direct: 73, packs: 762, axpy: 863, dot: 494, blocked: 1.23, phase: 1.26e+03, swap: 459, fromL2: 0.00111,
	fromL3: 0.000522, fromMemory: 0.717, wait: 1, streams: 40, reach: 1.2e+07, fetched: 0.5, written: 40.7,
	inTiles: 1, inRows: 1.12, aligned: 1.12, stream: 2.5, late: 1.08, torn: 0, ragged: 0.761, tlb: 0.248,
	entries: 9.05, conflict: 1.15, zip: 0.3, copyWord: 9.62e-05, copyRow: 20.8, zipCall: 140, copies: 0.431,
	transpose: 3.37, element: 1.98, widen: 0.115, widening: 2, update: 9.58, broadcast: 0.237, dots: 1.18, reduce: 1.04,
	reduceTall: 1, rows: 1, exposed: 0.16, exposedDots: 2.63,
	l1: 48 << 10, l2: 2 << 20, l3: 1.01e+07, cached: 120 << 20,
}

// thisCPU returns the model of this CPU.
var thisCPU = sync.OnceValue(func() cpuModel {
	m := cpuModels[0]
	if strings.Contains(host.CPUName(), "Intel") {
		m = cpuModels[len(cpuModels)-1]
	}
	l2, last := host.L2Cache(), host.LastLevelCache()
	for _, c := range []**costs{&m.avx2, &m.avx512, &m.avx512bf16, &m.amx} {
		own := **c
		if l2 > 0 {
			own.l2 = float64(l2)
		}
		if last > 0 { // other matrices and programs use the cache too
			own.cached = max(float64(last/4), 8<<20)
		}
		*c = &own
	}
	return m
})

// costsOfAVX2 and the functions that follow it return the costs of micro-kernels on this CPU.
func costsOfAVX2() *costs       { return thisCPU().avx2 }
func costsOfAVX512() *costs     { return thisCPU().avx512 }
func costsOfAVX512BF16() *costs { return thisCPU().avx512bf16 }
func costsOfAMX() *costs        { return thisCPU().amx }
