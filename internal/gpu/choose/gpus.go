package choose

import (
	"tilework/dtype"
)

// h200 holds the coefficients of an H200 at 1980 MHz. Those of serial parts are estimates, which
// deviate by 15 % on 58 products. For skinny they are partExposed and single, fitted to 32 products
// of docs/results/rows-h200.tsv, on which it deviates by 14 %.
var h200 = coefficients{
	machine: machine{
		memoryRate: 15.8, ramp: 573, l2Bytes: 45e6, l2Rate: 57.9, sum: splitSum{launch: 2350, round: 435, rate: 8.88},
		serial: serialParts{add: 150, shared: 0.06, drain: 250},
	},
	naive: naiveCosts{
		launch: 1480, group: 2900, latency: 264, line: 0.0777, convert: 4.12, wide: 7.32, storeRate: 2.38,
	},
	tiled: tiledCosts{launch: 1700, block: 143, phase: 661, latency: 30.2, load: 2.56, wide: 1.99, convert: 4.66},
	blocked: blockedCosts{
		launch: 3050, multiplyAdd: 1.1, copyIssue: 12.4, kWait: 20.8, stepWait: 269, copyWait: 1460, loadWait: 214,
		convert: 22.2, fragment: 2.48, line: 1.72, storeIssue: 12.3, storeWait: 123, storeRate: 20.6, l2Rate: 15.8,
		memory: 0.97, shortRun: 0.954,
	},
	skinny: skinnyCosts{
		launch: 669, block: 574, exposed: 1.82, partExposed: 1.5, latency: 1000, memory: 1.33, cacheLatency: 257,
		l2Rate: 33.3, sector: 0.215, line: 0.354, single: 1.45, shortRow: 0.0809,
	},
	mma: mmaCosts{
		launch: 1780, block: 663, later: 0.262,
		rates: map[dtype.Type]float64{
			dtype.F64: 128, dtype.F32: 440, dtype.F16: 682, dtype.BF16: 682, dtype.F8E4M3: 450, dtype.F8E5M2: 450,
			dtype.I8: 1100,
		},
		fill: 103, copyIssue: 3.07, multiply: 145, storeIssue: 34.2, rowIssue: 9.25, rowWait: 22.7, exchange: 8.1,
		step: 260, stepExposed: 0.267, copyExposed: 0.285, copy: 9.7, byteRun: 46.7, single: 8.01,
		singleWait: 608, l2Rate: 31.1,
		spillStart: 32.9, spillStep: 25,
		memory: 1.46, narrow: 0.267, storeRate: 0.445, shortRow: 42.2, storeExposed: 0.819, rowExposed: 0.337,
	},
	wgmma: wgmmaCosts{
		launch: 3610, crowd: 1220, fill: 118, restart: 3160, exposed: 0.325,
		rate: 29.4, issue: 6.18, latency: 2500, meet: 256, together: 1.09, fragments: 192, further: 58.2,
		norm:    8.4,
		promote: 118, part: 3.75, partAlone: 19.3, scales: 130, owners: 450,
		power: 0.1, sustained: 712000,
		alone: 0.903, hotRate: 76.4, skewed: 1.68, sectors: 1.24, outside: 4.25, few: 0.185, tail: 3.35,
		memory: 1.17, missed: 0.32,
		end: 395, subtile: 552, byWarps: 621, shifted: 793,
		rows: 41.7, narrowRows: 55.8, residualRate: 0.6, torn: 0.81, edge: 194, activationRate: 8,
		clusterMeet: 3200, clusterRate: 6.81, pair: 44.5, partials: 0.66,
		packLaunch: 3440, copyRate: 48.1, transposeRate: 15.5, batchRate: 10,
	},
}

// h100 holds the coefficients of an H100 with HBM3 at 1980 MHz: an H200 with slower memory.
var h100 = h200.with(func(c *coefficients) {
	c.machine.memoryRate, c.machine.l2Rate, c.mma.memory = 11.4, 48, 1.15
	c.tiled.launch, c.mma.launch = 1850, 1840
})

// ampere holds the coefficients of GPUs from sm_80 on. None was measured. They are those of an
// H200, except for the memory and the L2 cache, which are an A100's by its data sheet, and the
// rates of mma.sync, which has five eighths of the rate of an H200's wgmma.
var ampere = h200.with(func(c *coefficients) {
	c.machine.memoryRate, c.machine.l2Bytes = 9.2, 40e6
	c.mma.rates = map[dtype.Type]float64{
		dtype.F64: 128, dtype.F32: 640, dtype.F16: 1280, dtype.BF16: 1280, dtype.F8E4M3: 1280, dtype.F8E5M2: 1280,
		dtype.I8: 2560,
	}
})

// turing holds the coefficients of older GPUs. None was measured. They are those of ampere, except
// for the memory and the L2 cache, which are a T4's by its data sheet.
var turing = ampere.with(func(c *coefficients) {
	c.machine.memoryRate, c.machine.l2Bytes = 4.5, 4e6
})

// with returns a copy of c to which change was applied.
func (c coefficients) with(change func(*coefficients)) coefficients {
	change(&c)
	return c
}
