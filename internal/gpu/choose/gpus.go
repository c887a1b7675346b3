package choose

import (
	"tilework/dtype"
)

// h200 holds the coefficients of an H200 at 1980 MHz.
var h200 = coefficients{
	machine: machine{memory: 15.3, cache: 50e6, l2: 56.1, sum: splitSum{launch: 2990, round: 429, bytes: 8.1}},
	naive: naiveCosts{
		launch: 1180, group: 2840, latency: 259, line: 0.25, convert: 6, wide: 2.5, storeBytes: 2.55,
	},
	tiled: tiledCosts{launch: 1920, block: 131, phase: 580, latency: 34.8, load: 2.54, wide: 2.27, convert: 6.27},
	blocked: blockedCosts{
		launch: 2950, multiplyAdd: 1.01, copyIssue: 18.1, kWait: 14.5, stepWait: 189, copyWait: 1620, loadWait: 331,
		convert: 16.9, fragment: 2.79, line: 1.7, storeIssue: 25.2, storeWait: 113, storeBytes: 21.5, cacheBytes: 16.9,
		memory: 1.12, shortRun: 1.17,
	},
	skinny: skinnyCosts{
		launch: 767, block: 447, issue: 3.64, latency: 496, cacheLatency: 617, hit: 45, alone: 33, sector: 0.293,
	},
	mma: mmaCosts{
		launch: 1760, block: 1030,
		rates: map[dtype.Type]float64{
			dtype.F64: 128, dtype.F32: 440, dtype.F16: 682, dtype.BF16: 682, dtype.F8E4M3: 450, dtype.F8E5M2: 450,
			dtype.I8: 1100,
		},
		fill: 26.7, copyIssue: 4.42, multiply: 166, storeIssue: 60,
		step: 259, stepExposed: 0.175, copyExposed: 0.357, copy: 10, single: 8.85, singleWait: 593, traffic: 32,
		spillStart: 48, spillStep: 45,
		memory: 1.46, narrow: 0.223, storeRate: 0.38, storeExposed: 0.767,
	},
	wgmma: wgmmaCosts{
		launch: 3080, crowd: 843, fill: 491, hidden: 0.337,
		rate: 29.8, issue: 13.9, latency: 1390, meet: 420, together: 1.02, fragments: 350, further: 63.7,
		variance: 7.78,
		promote:  183, part: 14.7, partAlone: 30.4, scales: 150, owners: 450,
		power: 0.344, sustained: 225000,
		alone: 1.15, hot: 23.8, skewed: 1.89, sectors: 1.31, outside: 4.14, memory: 1.13, missed: 0.44,
		end: 649, subtile: 554, rows: 36.9, narrowRows: 39.2, waits: 0.6, torn: 1.31, edge: 280, functions: 8,
		clusterK: 2180, clusterKs: 3.64, pair: 60.3, partials: 0.447,
		packLaunch: 3400, copied: 31.4, transposed: 9.54, transposeBatch: 2.5,
	},
}

// h100 holds the coefficients of an H100 with HBM3 at 1980 MHz: an H200 with slower memory.
var h100 = h200.with(func(c *coefficients) {
	c.machine.memory, c.machine.l2 = 11.7, 47.2
})

// ampere holds the coefficients of GPUs from sm_80 on. None was measured. They are those of an
// H200, except for the memory and the L2 cache, which are an A100's by its data sheet, and the
// rates of mma.sync, which has five eighths of the rate of an H200's wgmma.
var ampere = h200.with(func(c *coefficients) {
	c.machine.memory, c.machine.cache = 9.2, 40e6
	c.mma.rates = map[dtype.Type]float64{
		dtype.F64: 128, dtype.F32: 640, dtype.F16: 1280, dtype.BF16: 1280, dtype.F8E4M3: 1280, dtype.F8E5M2: 1280,
		dtype.I8: 2560,
	}
})

// turing holds the coefficients of older GPUs. None was measured. They are those of ampere, except
// for the memory and the L2 cache, which are a T4's by its data sheet.
var turing = ampere.with(func(c *coefficients) {
	c.machine.memory, c.machine.cache = 4.5, 4e6
})

// with returns a copy of c to which change was applied.
func (c coefficients) with(change func(*coefficients)) coefficients {
	change(&c)
	return c
}
