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
		launch: 665, block: 569, exposed: 1.83, partExposed: 1.5, latency: 1020, memory: 1.39, cacheLatency: 255,
		l2Rate: 33.5, sector: 0.213, line: 0.358, single: 1.45, shortRow: 0.123,
	},
	mma: mmaCosts{
		launch: 1780, block: 661, later: 0.266,
		rates: map[dtype.Type]float64{
			dtype.F64: 128, dtype.F32: 440, dtype.F16: 682, dtype.BF16: 682, dtype.F8E4M3: 450, dtype.F8E5M2: 450,
			dtype.I8: 1100,
		},
		fill: 106, copyIssue: 3.07, multiply: 145, storeIssue: 34.4, rowIssue: 9.19, rowWait: 25, exchange: 8.27,
		step: 256, stepExposed: 0.269, copyExposed: 0.281, copy: 9.67, byteRun: 46.6, single: 7.86,
		singleWait: 576, l2Rate: 30.2,
		spillStart: 33.1, spillStep: 25,
		memory: 1.42, narrow: 0.189, storeRate: 0.457, shortRow: 34.2, storeExposed: 0.837, rowExposed: 0.37,
	},
	wgmma: wgmmaCosts{
		launch: 3480, crowd: 1420, fill: 97.7, restart: 5490, exposed: 0.231,
		rate: 30.3, issue: 1.31, latency: 2290, meet: 238, together: 1.1, fragments: 254, further: 60,
		promote: 119, part: 5.79, partAlone: 18.8, scales: 130, owners: 450,
		power: 0.135, sustained: 642000,
		alone: 0.878, hotRate: 77.5, skewed: 1.72, sectors: 1.29, outside: 4.72, few: 0.112, tail: 4.96,
		memory: 1.21, paired: 1.09, missed: 0.32,
		end: 404, subtile: 566, byWarps: 836, shifted: 998,
		rows: 53.2, narrowRows: 40.8, residualRate: 0.6, torn: 1.34, edge: 146, activationRate: 8,
		clusterMeet: 4170, clusterRate: 7.58, pair: 65.3, partials: 0.885,
		packLaunch: 3400, copyRate: 48.9, transposeRate: 14.2, batchRate: 10,
	},
}

// h100 holds the coefficients of an H100 with HBM3 at 1980 MHz: an H200 with slower memory.
var h100 = h200.with(func(c *coefficients) {
	c.machine.memoryRate, c.machine.l2Rate, c.mma.memory = 11.4, 48, 1.19
	c.tiled.launch, c.mma.launch = 1850, 1860
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
