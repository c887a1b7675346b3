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
	// half is the time of the FMAs of half a vector relative to a whole one.
	half float64
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
	// does not hide.
	exposed float64
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
	fma: 0.13, load: 0.173, latency: 1.28, store: 0.408, tile: 1.19, half: 0.896, call: 9.11, direct: 49.8,
	packs: 1.2, axpy: 185, dot: 98.4, blocked: 0.183, phase: 371, swap: 243, fromL2: 0.182, fromL3: 0.341,
	fromMemory: 4.26, scatter: 0.0148, scatterMemory: 0.00788, written: 0.746, inTiles: 0.957, inRows: 1.04,
	stream: 1.17, prefetched: 0.839, ragged: 0.338, tlb: 0.457, entries: 5.74, conflict: 0.0148, zip: 0.0917,
	copyWord: 0.000472, copyRow: 2.48, zipCall: 35.3, copies: 0.0387, transpose: 0.162, element: 0.683, widen: 0.1,
	update: 1.85, broadcast: 1.11, dots: 0.909, reduce: 2.19, reduceTall: 0.723, rows: 0.865, exposed: 0.583,
	l1: 32 << 10, l2: 1 << 20, l3: 1.39e+07,
}

var zen4AVX512 = costs{
	fma: 0.256, load: 0.344, latency: 1.08, store: 0.576, tile: 0.0321, half: 0.417, call: 10.2, direct: 59.9,
	packs: 40.4, axpy: 384, dot: 163, blocked: 1.52e+03, phase: 258, swap: 186, fromL2: 0.363, fromL3: 0.236,
	fromMemory: 3.14, scatter: 0.00512, scatterMemory: 0.0107, written: 1.13, inTiles: 1.06, inRows: 0.813,
	stream: 1.25, prefetched: 0.38, ragged: 0.608, tlb: 0.302, entries: 20.8, conflict: 0.824, zip: 0.0934,
	copyWord: 0.000918, copyRow: 3.14, zipCall: 23.1, copies: 0.404, transpose: 0.174, element: 0.961,
	widen: 0.141, update: 1.38, broadcast: 1.24, dots: 0.463, reduce: 3.48, reduceTall: 1.54, rows: 0.881,
	exposed: 0.507,
	l1:      32 << 10, l2: 1 << 20, l3: 1.86e+07,
}

var xeonAVX2 = costs{
	fma: 0.18, load: 0.174, latency: 1.42, store: 0.711, tile: 0.662, half: 0.932, call: 6.38, direct: 73.5,
	packs: 5.34, axpy: 223, dot: 153, blocked: 6.64, phase: 442, swap: 301, fromL2: 0.205, fromL3: 1.1,
	fromMemory: 1.02, scatter: 0.00737, scatterMemory: 0.296, written: 1.2, inTiles: 1.14, inRows: 2.44,
	stream: 2.5, prefetched: 0.709, ragged: 0.531, tlb: 0.199, entries: 0.112, conflict: 0.0368, zip: 0.191,
	copyWord: 0.0614, copyRow: 2.42, zipCall: 42.4, copies: 0.206, transpose: 0.407, element: 0.788, widen: 0.0824,
	update: 2.08, broadcast: 1.83, dots: 1.14, reduce: 2.31, reduceTall: 1.03, rows: 1.05, exposed: 0.741,
	l1: 48 << 10, l2: 2 << 20, l3: 3.32e+07,
}

var xeonAVX512 = costs{
	fma: 0.166, load: 0.209, latency: 1.6, store: 0.892, tile: 0.0163, half: 0.784, call: 11.4, direct: 92.9,
	packs: 13.6, axpy: 200, dot: 97.7, blocked: 117, phase: 375, swap: 303, fromL2: 0.389, fromL3: 0.59,
	fromMemory: 0.794, scatter: 0.00459, scatterMemory: 0.00406, written: 2.16, inTiles: 0.87, inRows: 2.2,
	stream: 4.25, prefetched: 0.551, ragged: 1.22, tlb: 0.628, entries: 13.3, conflict: 0.572, zip: 0.202,
	copyWord: 0.136, copyRow: 2.16, zipCall: 20.1, copies: 0.0226, transpose: 0.331, element: 1.52, widen: 0.173,
	update: 2.42, broadcast: 1.06, dots: 1.48, reduce: 2.2, reduceTall: 1.15, rows: 0.729, exposed: 0.611,
	l1: 48 << 10, l2: 2 << 20, l3: 2.66e+06,
}

var xeonAMX = costs{
	fma: 0.0413, load: 0.0979, latency: 2.57, store: 7.51, tile: 1.98, half: 1, call: 90.7, direct: 73, packs: 872,
	axpy: 873, dot: 419, blocked: 5.93, phase: 1.26e+03, swap: 459, fromL2: 0.00184, fromL3: 0.00228,
	fromMemory: 0.95, scatter: 1.09, scatterMemory: 0.3, written: 31.6, inTiles: 1, inRows: 1.12, stream: 2.5,
	prefetched: 0.906, ragged: 0.532, tlb: 0.462, entries: 9.05, conflict: 1.15, zip: 0.309, copyWord: 0.000161,
	copyRow: 20.6, zipCall: 140, copies: 0.431, transpose: 3.27, element: 1.94, widen: 0.128, update: 9.32,
	broadcast: 0.463, dots: 0.83, reduce: 1.88, reduceTall: 1, rows: 1, exposed: 0.131,
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
