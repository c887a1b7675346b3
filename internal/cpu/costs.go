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
	// scatter is the additional time, relative to these, of lines that hardware does not prefetch.
	// scatterMemory is a further one for lines from memory.
	scatter, scatterMemory float64
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
	name              string
	avx2, avx512, amx *costs
}

// cpuModels lists the CPUs that were measured, each on one core of a virtual machine. Other CPUs
// are taken for one of them.
var cpuModels = []cpuModel{
	{"zen4", &zen4AVX2, &zen4AVX512, nil},
	{"xeon", &xeonAVX2, &xeonAVX512, &xeonAMX},
}

var zen4AVX2 = costs{
	fma: 0.13, load: 0.162, latency: 1.23, store: 0.391, tile: 1.13, half: 0.909, embedded: 1, call: 9.1,
	direct: 54.9, packs: 0.602, axpy: 170, dot: 112, blocked: 0.128, phase: 362, swap: 264, fromL2: 0.176,
	fromL3: 0.355, fromMemory: 4.13, scatter: 0.0135, scatterMemory: 0.00789, written: 0.733, inTiles: 0.946,
	inRows: 1.02, stream: 1.1, prefetched: 0.933, ragged: 0.362, tlb: 0.438, entries: 6.11, conflict: 0.00844,
	zip: 0.0833, copyWord: 0.000546, copyRow: 2.45, zipCall: 33.4, copies: 0.0361, transpose: 0.152,
	element: 0.683, widen: 0.1, update: 1.85, broadcast: 1.34, dots: 0.945, reduce: 1.88, reduceTall: 0.422,
	rows: 0.857, exposed: 0.583, exposedDots: 0.37,
	l1: 32 << 10, l2: 1 << 20, l3: 1.38e+07,
}

var zen4AVX512 = costs{
	fma: 0.2501, load: 0.3441, latency: 1.63, store: 0.4627, tile: 0.01457, half: 0.49, embedded: 0.7483,
	call: 9.653, direct: 101.5, packs: 17.79, axpy: 291.1, dot: 158.9, blocked: 392.2, phase: 89.75, swap: 85.26,
	fromL2: 0.2466, fromL3: 0.193, fromMemory: 3.463, scatter: 0.001158, scatterMemory: 0.007057, written: 1.253,
	inTiles: 1.06, inRows: 0.7363, stream: 1.268, prefetched: 0.8633, ragged: 1.019, tlb: 0.2167, entries: 8.959,
	conflict: 0.8688, zip: 0.08773, copyWord: 0.0006623, copyRow: 4.97, zipCall: 21.1, copies: 0.1978,
	transpose: 0.2045, element: 1.134, widen: 0.0975, update: 1.42, broadcast: 1.175, dots: 0.5997,
	reduce: 3.961, reduceTall: 0.746, rows: 0.8371, exposed: 0.5799, exposedDots: 0.6451,
	l1: 32 << 10, l2: 1 << 20, l3: 2.353e+07,
}

var xeonAVX2 = costs{
	fma: 0.18, load: 0.159, latency: 1.42, store: 0.766, tile: 0.368, half: 0.822, embedded: 1, call: 6.82,
	direct: 85.3, packs: 3.62, axpy: 197, dot: 161, blocked: 7.4, phase: 468, swap: 312, fromL2: 0.211,
	fromL3: 1.02, fromMemory: 1.15, scatter: 0.00294, scatterMemory: 0.0572, written: 1.2, inTiles: 1.1,
	inRows: 2.36, stream: 2.5, prefetched: 0.975, ragged: 0.568, tlb: 0.229, entries: 0.0577, conflict: 0.0769,
	zip: 0.2, copyWord: 0.0718, copyRow: 2.34, zipCall: 40.3, copies: 0.375, transpose: 0.335, element: 0.796,
	widen: 0.102, update: 2.27, broadcast: 1.86, dots: 0.952, reduce: 2.37, reduceTall: 0.674, rows: 0.836,
	exposed: 0.741, exposedDots: 1.18,
	l1: 48 << 10, l2: 2 << 20, l3: 3.32e+07,
}

var xeonAVX512 = costs{
	fma: 0.149, load: 0.209, latency: 1.5, store: 0.803, tile: 0.0118, half: 0.77, embedded: 1, call: 11.6,
	direct: 96.6, packs: 20.1, axpy: 162, dot: 158, blocked: 79.8, phase: 398, swap: 318, fromL2: 0.399,
	fromL3: 0.532, fromMemory: 1, scatter: 0.00188, scatterMemory: 0.00399, written: 2.38, inTiles: 0.673,
	inRows: 1.82, stream: 6.96, prefetched: 0.726, ragged: 1.22, tlb: 0.729, entries: 13.5, conflict: 0.957,
	zip: 0.217, copyWord: 0.141, copyRow: 2.38, zipCall: 17.3, copies: 0.0115, transpose: 0.356, element: 1.33,
	widen: 0.178, update: 2.61, broadcast: 1.25, dots: 1.37, reduce: 2.6, reduceTall: 0.755, rows: 0.551,
	exposed: 0.566, exposedDots: 0.651,
	l1: 48 << 10, l2: 2 << 20, l3: 2.57e+06,
}

var xeonAMX = costs{
	fma: 0.0428, load: 0.0999, latency: 2.65, store: 7.33, tile: 1.1, half: 1, embedded: 1, call: 96.6,
	direct: 73, packs: 762, axpy: 863, dot: 494, blocked: 1.23, phase: 1.26e+03, swap: 459, fromL2: 0.00111,
	fromL3: 0.000522, fromMemory: 0.717, scatter: 1.09, scatterMemory: 0.3, written: 40.7, inTiles: 1,
	inRows: 1.12, stream: 2.5, prefetched: 1.08, ragged: 0.761, tlb: 0.248, entries: 9.05, conflict: 1.15,
	zip: 0.3, copyWord: 9.62e-05, copyRow: 20.8, zipCall: 140, copies: 0.431, transpose: 3.37, element: 1.98,
	widen: 0.115, update: 9.58, broadcast: 0.237, dots: 1.18, reduce: 1.04, reduceTall: 1, rows: 1,
	exposed: 0.16, exposedDots: 2.63,
	l1: 48 << 10, l2: 2 << 20, l3: 1.01e+07,
}

// thisCPU returns the model of this CPU.
var thisCPU = sync.OnceValue(func() cpuModel {
	m := cpuModels[0]
	if strings.Contains(host.CPUName(), "Intel") {
		m = cpuModels[len(cpuModels)-1]
	}
	n := host.L2Cache()
	for _, c := range []**costs{&m.avx2, &m.avx512, &m.amx} {
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

// costsOfAVX2, costsOfAVX512 and costsOfAMX return the costs of micro-kernels on this CPU.
func costsOfAVX2() *costs   { return thisCPU().avx2 }
func costsOfAVX512() *costs { return thisCPU().avx512 }
func costsOfAMX() *costs    { return thisCPU().amx }
