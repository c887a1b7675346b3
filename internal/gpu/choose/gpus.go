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
		serial: serialParts{add: 150, shared: 0.08, drain: 250},
	},
	naive: naiveCosts{
		launch: 1350, group: 2900, latency: 256, line: 0.0777, convert: 5.86, wide: 7.32, storeBytes: 2.38,
	},
	tiled: tiledCosts{launch: 1710, block: 180, phase: 661, latency: 30.1, load: 2.55, wide: 1.99, convert: 3.33},
	blocked: blockedCosts{
		launch: 2860, multiplyAdd: 1.01, copyIssue: 19.4, kWait: 14.5, stepWait: 188, copyWait: 1570, loadWait: 232,
		convert: 23.9, fragment: 2.81, line: 1.7, storeIssue: 31.3, storeWait: 116, storeBytes: 22.4, cacheBytes: 14.8,
		memory: 1.03, shortRun: 1.11,
	},
	skinny: skinnyCosts{
		launch: 574, block: 560, exposed: 2.05, partExposed: 1.5, latency: 912, cacheLatency: 582,
		alone: 30.8, sector: 0.123, line: 0.445, single: 1.45,
	},
	mma: mmaCosts{
		launch: 1900, block: 701, later: 0.33,
		rates: map[dtype.Type]float64{
			dtype.F64: 128, dtype.F32: 440, dtype.F16: 682, dtype.BF16: 682, dtype.F8E4M3: 450, dtype.F8E5M2: 450,
			dtype.I8: 1100,
		},
		fill: 62.6, copyIssue: 4.32, multiply: 168, storeIssue: 49.1, rowIssue: 17, rowWait: 22.6, exchange: 7.24,
		step: 266, stepExposed: 0.179, copyExposed: 0.214, copy: 8.81, single: 8.23, singleWait: 663, traffic: 31,
		spillStart: 30.4, spillStep: 40.4,
		memory: 1.28, narrow: 0.391, storeRate: 0.428, shortRow: 47, storeExposed: 0.774, rowExposed: 0.227,
	},
	wgmma: wgmmaCosts{
		launch: 3100, crowd: 981, fill: 191, restart: 2610, hidden: 0.335,
		rate: 29.7, issue: 10, latency: 2140, meet: 474, together: 1.06, fragments: 293, further: 70,
		variance: 7.6,
		promote:  163, part: 4.04, partAlone: 32.5, scales: 130, owners: 450,
		power: 0.172, sustained: 327000,
		alone: 0.888, hot: 64.4, skewed: 1.73, sectors: 1.46, outside: 3.91, few: 0.184, tail: 5.68,
		memory: 1.16, missed: 0.32,
		end: 569, subtile: 598, rows: 51.9, narrowRows: 55, waits: 0.6, torn: 0.701, edge: 327, functions: 8,
		clusterK: 5070, clusterKs: 6.2, pair: 58.6, partials: 0.567,
		packLaunch: 3320, copied: 72.7, transposed: 14.5, transposeBatch: 10,
	},
}

// h100 holds the coefficients of an H100 with HBM3 at 1980 MHz: an H200 with slower memory.
var h100 = h200.with(func(c *coefficients) {
	c.machine.memory, c.machine.l2, c.mma.memory = 11.7, 45.7, 1.05
	c.tiled.launch, c.mma.launch = 1830, 1830
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
