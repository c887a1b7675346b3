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
	// A call of a micro-kernel, and the starts of the algorithms.
	call, direct, packs, axpy, dot, blocked, phase, swap float64
	// A line from the L2 cache; the additional times of one from the L3 cache and from memory.
	fromL2, fromL3, fromMemory float64
	// scatter is the additional time, relative to these, of lines that hardware does not prefetch.
	scatter float64
	// written is the time of a line of C relative to one of A and B. inTiles and inRows are those of
	// unpacked tiles and whole rows relative to packed tiles.
	written, inTiles, inRows float64
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
	// of its elements of A. dots and reduce are those of Dot kernels and their sums.
	// rows is that of whole rows of C relative to axpy.
	update, broadcast, dots, reduce, rows float64
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
	fma: 0.13, load: 0.157, latency: 1.17, store: 0.419, tile: 1.16,
	call: 9.79, direct: 78.1, packs: 34.4, axpy: 214, dot: 192, blocked: 2.06, phase: 448, swap: 339,
	fromL2: 0.283, fromL3: 0.187, fromMemory: 3.85, scatter: 0.0112, written: 0.487, inTiles: 1.07, inRows: 0.636,
	prefetched: 0.839, ragged: 0.329, tlb: 0.444, entries: 5.79, conflict: 0.0679,
	zip: 0.0894, copyWord: 0.0306, copyRow: 2.08, zipCall: 23.9, copies: 0.0404, transpose: 0.168,
	element: 0.52, widen: 0.1, update: 1.85, broadcast: 1.4, dots: 0.939, reduce: 3.2, rows: 1, exposed: 0.543,
	l1: 32 << 10, l2: 1 << 20, l3: 1.32e+07,
}

var zen4AVX512 = costs{
	fma: 0.253, load: 0.336, latency: 1.12, store: 0.855, tile: 0.0412,
	call: 10.4, direct: 74.7, packs: 42.5, axpy: 244, dot: 276, blocked: 1.08e+03, phase: 313, swap: 187,
	fromL2: 0.328, fromL3: 0.17, fromMemory: 3.71, scatter: 0.149, written: 0.797, inTiles: 1.04, inRows: 0.442,
	prefetched: 0.761, ragged: 0.516, tlb: 0.511, entries: 19.2, conflict: 0.838,
	zip: 0.114, copyWord: 0.11, copyRow: 2.58, zipCall: 17.5, copies: 0.463, transpose: 0.204,
	element: 1.12, widen: 0.0609, update: 1.5, broadcast: 1.07, dots: 0.806, reduce: 4.28, rows: 1.03, exposed: 0.5,
	l1: 32 << 10, l2: 1 << 20, l3: 1.5e+07,
}

var xeonAVX2 = costs{
	fma: 0.243, load: 0.291, latency: 2.57, store: 1.06, tile: 1.75,
	call: 27.9, direct: 150, packs: 33.2, axpy: 483, dot: 291, blocked: 9.24, phase: 893, swap: 579,
	fromL2: 0.431, fromL3: 0.914, fromMemory: 0.22, scatter: 0.00728, written: 1.52, inTiles: 1.12, inRows: 1.52,
	prefetched: 0.96, ragged: 0.363, tlb: 0.458, entries: 0.333, conflict: 0.0586,
	zip: 0.207, copyWord: 0.0637, copyRow: 3.73, zipCall: 44.8, copies: 0.23, transpose: 0.669,
	element: 1.77, widen: 0.0824, update: 2.25, broadcast: 2.26, dots: 0.934, reduce: 8.33, rows: 1, exposed: 0.764,
	l1: 48 << 10, l2: 2 << 20, l3: 8.06e+06,
}

var xeonAVX512 = costs{
	fma: 0.297, load: 0.31, latency: 2.82, store: 1.48, tile: 0.123,
	call: 15, direct: 147, packs: 87.5, axpy: 457, dot: 431, blocked: 511, phase: 573, swap: 701,
	fromL2: 0.447, fromL3: 0.611, fromMemory: 0.963, scatter: 0.12, written: 1.51, inTiles: 1.06, inRows: 1.54,
	prefetched: 0.919, ragged: 0.977, tlb: 0.545, entries: 7.91, conflict: 0.405,
	zip: 0.199, copyWord: 0.149, copyRow: 2.6, zipCall: 32.4, copies: 0.0251, transpose: 0.711,
	element: 1.1, widen: 0.192, update: 2.06, broadcast: 1.04, dots: 1.34, reduce: 7.81, rows: 0.973, exposed: 0.603,
	l1: 48 << 10, l2: 2 << 20, l3: 5.21e+06,
}

var xeonAMX = costs{
	fma: 0.0654, load: 0.155, latency: 4.09, store: 11.2, tile: 48.6,
	call: 112, direct: 73, packs: 434, axpy: 1.58e+03, dot: 2e+03, blocked: 152, phase: 2.88e+03, swap: 459,
	fromL2: 0.0056, fromL3: 0.0241, fromMemory: 2.96, scatter: 1.09, written: 20, inTiles: 1, inRows: 1.12,
	prefetched: 0.906, ragged: 0.532, tlb: 0.462, entries: 9.05, conflict: 1.15,
	zip: 0.457, copyWord: 0.109, copyRow: 22.6, zipCall: 278, copies: 0.431, transpose: 6.96,
	element: 2.36, widen: 0.193, update: 7.39, broadcast: 0.979, dots: 3.44, reduce: 8.1, rows: 1, exposed: 0.0329,
	l1: 48 << 10, l2: 2 << 20, l3: 8.41e+06,
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
