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
	// unpacked tiles and whole rows relative to packed tiles.
	// stream is the time of a line that is written with non-temporal stores.
	written, inTiles, inRows, stream float64
	// prefetched is the part of the time of A's lines that remains where tiles prefetch them.
	prefetched float64
	// ragged is the additional number of lines of a short run.
	ragged float64
	// tlb is the time of a run on a page that the first-level TLB, with that many entries, no longer
	// holds. conflict is that of a line whose set is full.
	tlb, entries, conflict float64
	// Packing: words that are transposed, words and rows that are copied, and calls.
	zip, copyWord, copyRow, zipCall float64
	// A line that algoCopy copies, an element of the transposed C, and one that is copied along K.
	copies, transpose, element float64
	// widen is the time of widening an element.
	widen float64
	// update is the time of an Update kernel relative to its instructions, and broadcast that of one
	// of its elements of A. dots is that of Dot kernels. reduce is the time of adding the lanes of one
	// of their sums, reduceTall in tall tiles.
	// rows is that of whole rows of C relative to axpy.
	update, broadcast, dots, reduce, reduceTall, rows float64
	// exposed is the part of the shorter of the times of the FMA units and of memory that the other
	// does not hide. exposedDots is that of dot products, which read memory in order.
	exposed, exposedDots float64
	// The sizes of the caches in bytes. l3 is the part of the L3 cache that a core uses.
	l1, l2, l3 float64
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
	fma: 0.1362, load: 0.1631, latency: 1.147, store: 0.3397, tile: 0.8026, half: 0.8756, embedded: 1.03,
	call: 7.435, direct: 80.22, packs: 0.6468, axpy: 146.3, dot: 77.39, blocked: 0.1587, phase: 384.8, swap: 250,
	fromL2: 0.1685, fromL3: 0.4254, fromMemory: 4.411, wait: 0.8988, streams: 37.78, reach: 1.244e+07,
	fetched: 0.4034, written: 0.8644, inTiles: 0.8046, inRows: 0.6942, stream: 1.522, prefetched: 0.9708,
	ragged: 0.443, tlb: 0.4931, entries: 6.263, conflict: 0.3784, zip: 0.08623, copyWord: 0.0007381,
	copyRow: 2.667, zipCall: 31.07, copies: 0.03402, transpose: 0.1173, element: 0.6514, widen: 0.07977,
	update: 2.067, broadcast: 1.425, dots: 1.131, reduce: 1.075, reduceTall: 0.4154, rows: 0.6743, exposed: 0.6089,
	exposedDots: 0.5197,
	l1:          32 << 10, l2: 1 << 20, l3: 1.498e+07,
}

var zen4AVX512 = costs{
	fma: 0.2622, load: 0.3568, latency: 1.53, store: 0.4811, tile: 0.02461, half: 0.5124, embedded: 0.8002,
	call: 9.352, direct: 75.53, packs: 38.95, axpy: 205.9, dot: 169.1, blocked: 396.3, phase: 99.51, swap: 136.7,
	fromL2: 0.1857, fromL3: 0.2827, fromMemory: 3.907, wait: 1.329, streams: 36.43, reach: 1.596e+07,
	fetched: 0.6752, written: 0.9259, inTiles: 1.147, inRows: 0.8921, stream: 1.509, prefetched: 0.8619,
	ragged: 0.572, tlb: 0.2304, entries: 7.71, conflict: 0.6301, zip: 0.09142, copyWord: 0.0008168,
	copyRow: 3.802, zipCall: 18.55, copies: 0.2367, transpose: 0.2138, element: 0.7727, widen: 0.1574,
	update: 1.415, broadcast: 0.7322, dots: 1.062, reduce: 3.9, reduceTall: 0.4522, rows: 0.7632, exposed: 0.5976,
	exposedDots: 0.5281,
	l1:          32 << 10, l2: 1 << 20, l3: 1.738e+07,
}

var zen4AVX512BF16 = costs{
	fma: 0.3123, load: 0.5346, latency: 7.337, store: 3.977, tile: 0.01041, half: 0.4927, embedded: 0.8089,
	call: 40.1, direct: 84.15, packs: 720, axpy: 603.6, dot: 435.8, blocked: 1203, phase: 428.6, swap: 130.1,
	fromL2: 0.01121, fromL3: 0.02748, fromMemory: 7.959, wait: 1.035, streams: 34.7, reach: 1.078e+07, fetched: 0.5,
	written: 6.131, inTiles: 1.148, inRows: 0.8714, stream: 1.345, prefetched: 0.9851, ragged: 0.8606, tlb: 0.1991,
	entries: 7.048, conflict: 0.6562, zip: 0.06834, copyWord: 0.0008063, copyRow: 13.3, zipCall: 156.4,
	copies: 0.1767, transpose: 3.13, element: 2.138, widen: 0.09213, update: 1.956, broadcast: 1.378, dots: 0.3697,
	reduce: 5.395, reduceTall: 0.6008, rows: 0.7554, exposed: 0.03785, exposedDots: 0.009897,
	l1: 32 << 10, l2: 1 << 20, l3: 5.931e+06,
}

var xeonAVX2 = costs{
	fma: 0.1265, load: 0.1221, latency: 1.221, store: 0.7585, tile: 0.00907, half: 0.7425, embedded: 1.421,
	call: 4.728, direct: 35.75, packs: 2.806, axpy: 69.71, dot: 120.1, blocked: 3.41, phase: 293.6, swap: 105.6,
	fromL2: 0.2266, fromL3: 0.9576, fromMemory: 2.005, wait: 0.2144, streams: 90.93, reach: 4.909e+06, fetched: 0.04101,
	written: 0.6935, inTiles: 1.089, inRows: 1.156, stream: 2.401, prefetched: 0.9606, ragged: 0.5991, tlb: 0.156,
	entries: 0.04834, conflict: 0.7074, zip: 0.09563, copyWord: 0.04136, copyRow: 1.376, zipCall: 21.82,
	copies: 0.2373, transpose: 0.296, element: 0.578, widen: 0.09177, update: 2.494, broadcast: 0.9378, dots: 1.3,
	reduce: 0.9561, reduceTall: 0.4375, rows: 0.8378, exposed: 0.7497, exposedDots: 0.7503,
	l1: 48 << 10, l2: 2 << 20, l3: 3.028e+07,
}

var xeonAVX512 = costs{
	fma: 0.1221, load: 0.1514, latency: 1.016, store: 0.5164, tile: 0.01382, half: 0.8905, embedded: 0.9052,
	call: 11.84, direct: 58.36, packs: 40.71, axpy: 104.3, dot: 121.3, blocked: 37.7, phase: 262, swap: 173.8,
	fromL2: 0.353, fromL3: 0.3961, fromMemory: 0.9813, wait: 2.809, streams: 76.73, reach: 7.008e+07,
	fetched: 0.8222, written: 1.651, inTiles: 0.7708, inRows: 2.191, stream: 42.31, prefetched: 0.6058,
	ragged: 1.035, tlb: 1.039, entries: 8.161, conflict: 0.7062, zip: 0.1158, copyWord: 0.07187, copyRow: 1.471,
	zipCall: 13.75, copies: 0.08645, transpose: 0.2408, element: 0.6408, widen: 0.1836, update: 2.109,
	broadcast: 0.3963, dots: 1.369, reduce: 2.006, reduceTall: 0.6214, rows: 0.6633, exposed: 0.6249,
	exposedDots: 0.518,
	l1:          48 << 10, l2: 2 << 20, l3: 1.564e+06,
}

var xeonAMX = costs{
	fma: 0.0428, load: 0.0999, latency: 2.65, store: 7.33, tile: 1.1, half: 1, embedded: 1, call: 96.6, direct: 73,
	packs: 762, axpy: 863, dot: 494, blocked: 1.23, phase: 1.26e+03, swap: 459, fromL2: 0.00111, fromL3: 0.000522,
	fromMemory: 0.717, wait: 1, streams: 40, reach: 1.2e+07, fetched: 0.5, written: 40.7, inTiles: 1, inRows: 1.12,
	stream: 2.5, prefetched: 1.08, ragged: 0.761, tlb: 0.248, entries: 9.05, conflict: 1.15, zip: 0.3,
	copyWord: 9.62e-05, copyRow: 20.8, zipCall: 140, copies: 0.431, transpose: 3.37, element: 1.98, widen: 0.115,
	update: 9.58, broadcast: 0.237, dots: 1.18, reduce: 1.04, reduceTall: 1, rows: 1, exposed: 0.16,
	exposedDots: 2.63,
	l1:          48 << 10, l2: 2 << 20, l3: 1.01e+07,
}

// thisCPU returns the model of this CPU.
var thisCPU = sync.OnceValue(func() cpuModel {
	m := cpuModels[0]
	if strings.Contains(host.CPUName(), "Intel") {
		m = cpuModels[len(cpuModels)-1]
	}
	n := host.L2Cache()
	for _, c := range []**costs{&m.avx2, &m.avx512, &m.avx512bf16, &m.amx} {
		own := **c
		if n > 0 {
			own.l2 = float64(n)
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
