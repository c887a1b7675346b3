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
	// packsFirst is set if blocked products were measured before tiles copied B, which was packed
	// first.
	packsFirst bool
	// The sizes of the caches in bytes. l3 is the part of the L3 cache that a core uses.
	l1, l2, l3 float64
}

// cpuModel holds the costs of a CPU with the micro-kernels of each instruction set.
type cpuModel struct {
	name                          string
	avx2, avx512, avx512bf16, amx *costs
}

// cpuModels lists the CPUs that were measured, each on one core of a virtual machine. Other CPUs
// are taken for one of them.
var cpuModels = []cpuModel{
	{"zen4", &zen4AVX2, &zen4AVX512, &zen4AVX512BF16, nil},
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
	fma: 0.1789, load: 0.1645, latency: 1.416, store: 0.8422, tile: 0.06314, half: 0.8785, embedded: 1.325,
	call: 6.805, direct: 84.23, packs: 2.512, axpy: 215.7, dot: 219.7, blocked: 6.264, phase: 467.6, swap: 278.7,
	fromL2: 0.2193, fromL3: 0.9471, fromMemory: 1.343, wait: 3.11, streams: 118.2, reach: 7.108e+06, fetched: 1.279,
	written: 1.169, inTiles: 1.128, inRows: 2.583, stream: 2.325, prefetched: 1.256, ragged: 0.6034, tlb: 0.2457,
	entries: 0.03808, conflict: 0.05333, zip: 0.1656, copyWord: 0.07396, copyRow: 2.381, zipCall: 40.96,
	copies: 0.3036, transpose: 0.3339, element: 0.9062, widen: 0.09177, update: 2.267, broadcast: 1.808, dots: 1.09,
	reduce: 1.963, reduceTall: 0.5732, rows: 0.8508, exposed: 0.7247, exposedDots: 1.275,
	l1: 48 << 10, l2: 2 << 20, l3: 3.305e+07, packsFirst: true,
}

var xeonAVX512 = costs{
	fma: 0.1564, load: 0.2172, latency: 1.783, store: 0.7496, tile: 0.009656, half: 0.8333, embedded: 0.9434,
	call: 11.95, direct: 91.75, packs: 15.89, axpy: 183.3, dot: 151.1, blocked: 42.86, phase: 384.7, swap: 265.7,
	fromL2: 0.3994, fromL3: 0.5673, fromMemory: 1.074, wait: 7.374, streams: 65.22, reach: 2.851e+07,
	fetched: 0.7733, written: 2.391, inTiles: 0.6689, inRows: 1.747, stream: 5.015, prefetched: 0.7421,
	ragged: 1.226, tlb: 0.7383, entries: 13.57, conflict: 0.7463, zip: 0.2168, copyWord: 0.1265, copyRow: 2.819,
	zipCall: 19.31, copies: 0.02357, transpose: 0.3725, element: 1.138, widen: 0.1836, update: 2.337,
	broadcast: 1.367, dots: 1.373, reduce: 2.606, reduceTall: 0.692, rows: 0.5954, exposed: 0.5666,
	exposedDots: 0.6342,
	l1:          48 << 10, l2: 2 << 20, l3: 2.568e+06, packsFirst: true,
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
		if *c == nil {
			continue
		}
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
