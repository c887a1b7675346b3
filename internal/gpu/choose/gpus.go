package choose

import (
	"tilework/dtype"
)

// h200 holds the coefficients of an H200 at 1980 MHz.
var h200 = coefficients{
	machine: machine{memory: 15.8, cache: 39.7e6, l2: 58, sum: splitSum{launch: 3000, round: 433, bytes: 8.33}},
	naive: naiveCosts{
		launch: 1350, group: 2900, latency: 256, line: 0.0777, convert: 5.86, wide: 7.32, storeBytes: 2.38,
	},
	tiled: tiledCosts{launch: 1730, block: 174, phase: 662, latency: 30.4, load: 2.55, wide: 1.96, convert: 3.37},
	blocked: blockedCosts{
		launch: 2860, multiplyAdd: 1.01, copyIssue: 18.8, kWait: 14.5, stepWait: 185, copyWait: 1480, loadWait: 331,
		convert: 23.7, fragment: 2.81, line: 1.7, storeIssue: 31.3, storeWait: 116, storeBytes: 23.1, cacheBytes: 15.2,
		memory: 1.02, shortRun: 1.1,
	},
	skinny: skinnyCosts{
		launch: 798, block: 436, issue: 3.64, latency: 394, cacheLatency: 1160, hit: 45, alone: 33.2, sector: 0.416,
	},
	mma: mmaCosts{
		launch: 1610, block: 792,
		rates: map[dtype.Type]float64{
			dtype.F64: 128, dtype.F32: 440, dtype.F16: 682, dtype.BF16: 682, dtype.F8E4M3: 450, dtype.F8E5M2: 450,
			dtype.I8: 1100,
		},
		fill: 37.4, copyIssue: 5.38, multiply: 171, storeIssue: 58.3, exchange: 5.22,
		step: 277, stepExposed: 0.197, copyExposed: 0.234, copy: 9.7, single: 6.42, singleWait: 593, traffic: 29.9,
		spillStart: 53.3, spillStep: 49.8,
		memory: 1.38, narrow: 0.261, storeRate: 0.415, shortRow: 41.6, storeExposed: 0.71,
	},
	wgmma: wgmmaCosts{
		launch: 3380, crowd: 623, fill: 340, hidden: 0.337,
		rate: 29.8, issue: 12.2, latency: 1540, meet: 433, together: 1.05, fragments: 347, further: 83,
		variance: 6.91,
		promote:  150, part: 6.46, partAlone: 38, scales: 130, owners: 450,
		power: 0.217, sustained: 180000,
		alone: 1.46, hot: 22.6, skewed: 2.26, sectors: 1.52, outside: 4.1, memory: 1.13, missed: 0.32,
		end: 668, subtile: 514, rows: 43.5, narrowRows: 62.9, waits: 0.6, torn: 1.11, edge: 248, functions: 8,
		clusterK: 1710, clusterKs: 3.58, pair: 53.9, partials: 0.624,
		packLaunch: 3300, copied: 32.2, transposed: 12.4, transposeBatch: 2.5,
	},
}

// h100 holds the coefficients of an H100 with HBM3 at 1980 MHz: an H200 with slower memory.
var h100 = h200.with(func(c *coefficients) {
	c.machine.memory, c.machine.l2 = 11.7, 45.7
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
