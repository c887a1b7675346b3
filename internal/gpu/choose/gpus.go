package choose

import (
	"tilework/dtype"
)

// h200 holds the coefficients of an H200 at 1980 MHz. Those of serial parts are estimates, which
// deviate by 15 % on 58 products. For skinny they are partExposed and single, fitted to 32 products
// of docs/results/rows-h200.jsonl, on which it deviates by 14 %.
var h200 = coefficients{
	machine: machine{
		memory: 15.8, cache: 39.7e6, l2: 57.9, sum: splitSum{launch: 3000, round: 437, bytes: 8.62},
		serial: serialParts{add: 150, shared: 0.06, drain: 250},
	},
	naive: naiveCosts{
		launch: 1350, group: 2900, latency: 256, line: 0.0777, convert: 5.86, wide: 7.32, storeBytes: 2.38,
	},
	tiled: tiledCosts{launch: 1710, block: 180, phase: 661, latency: 30.1, load: 2.55, wide: 1.99, convert: 3.33},
	blocked: blockedCosts{
		launch: 2940, multiplyAdd: 1.1, copyIssue: 11.1, kWait: 20.6, stepWait: 269, copyWait: 1490, loadWait: 224,
		convert: 22.7, fragment: 2.48, line: 1.73, storeIssue: 25.6, storeWait: 119, storeBytes: 20.6, cacheBytes: 15.7,
		memory: 0.947, shortRun: 1.04,
	},
	skinny: skinnyCosts{
		launch: 627, block: 574, exposed: 1.82, partExposed: 1.5, latency: 974, cacheLatency: 209,
		alone: 30.3, sector: 0.215, line: 0.37, single: 1.45, shortRow: 0.0573,
	},
	mma: mmaCosts{
		launch: 1900, block: 663, later: 0.292,
		rates: map[dtype.Type]float64{
			dtype.F64: 128, dtype.F32: 440, dtype.F16: 682, dtype.BF16: 682, dtype.F8E4M3: 450, dtype.F8E5M2: 450,
			dtype.I8: 1100,
		},
		fill: 99.9, copyIssue: 3.07, multiply: 144, storeIssue: 47.2, rowIssue: 13.4, rowWait: 23.1, exchange: 8.1,
		step: 263, stepExposed: 0.185, copyExposed: 0.227, copy: 8.84, single: 8.1, singleWait: 653, traffic: 31.1,
		spillStart: 33.8, spillStep: 25,
		memory: 1.33, narrow: 0.255, storeRate: 0.429, shortRow: 48.3, storeExposed: 0.816, rowExposed: 0.341,
	},
	wgmma: wgmmaCosts{
		launch: 3200, crowd: 892, fill: 136, restart: 2030, hidden: 0.335,
		rate: 29.4, issue: 7.3, latency: 2290, meet: 402, together: 1.09, fragments: 283, further: 58.2,
		variance: 8.19,
		promote:  140, part: 3.8, partAlone: 36.4, scales: 130, owners: 450,
		power: 0.128, sustained: 895000,
		alone: 0.775, hot: 71.4, skewed: 1.59, sectors: 1.25, outside: 4.33, few: 0.185, tail: 3.42,
		memory: 1.17, missed: 0.32,
		end: 440, subtile: 591, byWarps: 685, shifted: 986,
		rows: 55, narrowRows: 45.2, waits: 0.6, torn: 0.521, edge: 308, functions: 8,
		clusterK: 4370, clusterKs: 6.36, pair: 41.9, partials: 0.766,
		packLaunch: 3400, copied: 69.5, transposed: 10.9, transposeBatch: 10,
	},
}

// h100 holds the coefficients of an H100 with HBM3 at 1980 MHz: an H200 with slower memory.
var h100 = h200.with(func(c *coefficients) {
	c.machine.memory, c.machine.l2, c.mma.memory = 11.7, 45.7, 1.11
	c.tiled.launch, c.mma.launch = 1830, 1980
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
