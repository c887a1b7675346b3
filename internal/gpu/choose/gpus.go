package choose

import (
	"tilework/dtype"
)

// h200 holds the coefficients of an H200 at 1980 MHz. Those of serial parts are estimates, which
// deviate by 15 % on 58 products.
var h200 = coefficients{
	machine: machine{
		memory: 15.8, cache: 39.7e6, l2: 57.9, sum: splitSum{launch: 3000, round: 437, bytes: 8.62},
		serial: serialParts{add: 150, shared: 3000, drain: 250},
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
		launch: 778, block: 379, issue: 3.21, latency: 733, cacheLatency: 444, hit: 22.2,
		alone: 28.2, sector: 0.186, line: 0.399,
	},
	mma: mmaCosts{
		launch: 1720, block: 741, later: 0.406,
		rates: map[dtype.Type]float64{
			dtype.F64: 128, dtype.F32: 440, dtype.F16: 682, dtype.BF16: 682, dtype.F8E4M3: 450, dtype.F8E5M2: 450,
			dtype.I8: 1100,
		},
		fill: 43.9, copyIssue: 5.73, multiply: 158, storeIssue: 47.1, exchange: 2.15,
		step: 270, stepExposed: 0.2, copyExposed: 0.226, copy: 8.74, single: 6.61, singleWait: 661, traffic: 31,
		spillStart: 31.3, spillStep: 38,
		memory: 1.28, narrow: 0.329, storeRate: 0.43, shortRow: 27.5, storeExposed: 0.781,
	},
	wgmma: wgmmaCosts{
		launch: 3410, crowd: 704, fill: 231, restart: 2970, hidden: 0.369,
		rate: 29.9, issue: 10.1, latency: 1610, meet: 427, together: 1.06, fragments: 242, further: 50.1,
		variance: 7.01,
		promote:  163, part: 4.2, partAlone: 19.4, scales: 130, owners: 450,
		power: 0.172, sustained: 327000,
		alone: 1.14, hot: 36.8, skewed: 1.96, sectors: 1.62, outside: 4.05, memory: 1.13, missed: 0.32,
		end: 605, subtile: 544, rows: 40.7, narrowRows: 57.6, waits: 0.6, torn: 0.817, edge: 329, functions: 8,
		clusterK: 5070, clusterKs: 4.61, pair: 56.2, partials: 0.595,
		packLaunch: 3420, copied: 36.8, transposed: 13.2, transposeBatch: 10,
	},
}

// h100 holds the coefficients of an H100 with HBM3 at 1980 MHz: an H200 with slower memory.
var h100 = h200.with(func(c *coefficients) {
	c.machine.memory, c.machine.l2, c.mma.memory = 11.7, 45.7, 1.03
	c.tiled.launch, c.mma.launch = 1830, 1800
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
