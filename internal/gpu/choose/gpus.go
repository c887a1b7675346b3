package choose

import (
	"math"

	"tilework/dtype"
	"tilework/internal/gpu/kernel"
)

// hopper holds the coefficients of an H200 at 1980 MHz.
//
// Of mma, rates and launch are fitted to the products that docs/results/study-h200.jsonl and
// selector-h200.json have for both mma and wgmma, and those of 8-bit types to 64 products of 512³
// in int8 and 32 of 1024³ in float8_e4m3fn.
var hopper = coefficients{
	naive: naiveCosts{launch: 1500, latency: 165, issue: 3.1},
	tiled: tiledCosts{launch: 1500, phase: 1000, issue: 2},
	blocked: blockedCosts{
		launch: 700, stepIssue: 40, copyIssue: 10, copyWait: 3, kWait: 30, blockWait: 1500, storeIssue: 6,
		storeBytes: 20, loadBytes: 15, batchBytes: 20,
		sum:      splitSum{launch: 10000, bytes: 16, part: 600},
		slowdown: [...]sumSlowdown{{128, 256, 1.17}, {128, 0, 1.08}, {64, 0, 1.03}, {32, 0, 1.14}, {0, 0, 1.4}},
	},
	skinny: skinnyCosts{
		launch: 0, blockWait: 1500, block: 40,
		memory: map[int][3]float64{64: {16.4, 15, 12.9}, 32: {15.7, 14.5, 11.4}, 16: {5.5, 1.4, 1.4}, 8: {2.8, 0.7, 0.7}},
		sum:    splitSum{launch: 10000, bytes: 16},
	},
	mma: mmaCosts{
		launch: 2600, sparse: 0.85, hidden: 0.05, step: 500, store: 6,
		rates: map[dtype.Type]float64{
			dtype.F64: 128, dtype.F32: 360, dtype.F16: 720, dtype.BF16: 720, dtype.F8E4M3: 550, dtype.F8E5M2: 550,
			dtype.I8: 1100,
		},
		traffic: 28, copies: 3, alone: 45, memory: 15.7, latency: 1900,
		sum: splitSum{launch: 6500, part: 300}, sumBytes: map[int]float64{64: 16.7, 32: 16.7, 16: 33.4, 8: 66.8},
		tiles: mmaEfficiencies, other: mmaEfficiency{0.4, 0.3, 1200},
	},
	wgmma: wgmmaCosts{
		launch: 3600, rate: 28, step: 40,
		traffic: 66, alone: 100, skewed: 2.4, sectors: 1.5, small: 1.22, latency: 2200, meet: 460, memory: 16.5,
		hidden: 0.03, groups: 0.3, stream: 0.25, outside: 4.5, free: 15,
		promote: 100, part: 35, together: 1.05, scales: 150, owners: 450,
		end: 1000, store: 32, functions: 8, clusterK: 2000, clusterKs: 2.5,
		sum:   splitSum{launch: 6500, bytes: 24, part: 300},
		loads: 290, again: 0.1, lines: 4, waits: 0.6,
		packLaunch: 2000, packBytes: 18, transposeBytes: 18, transposeBatch: 2.5,
	},
	corrections: hopperCorrections,
}

// ampere holds the coefficients of GPUs from sm_80 on. None was measured. They are those of an
// H200, except that mma.sync has five eighths of the rate of an H200's wgmma.
var ampere = hopper.with(func(c *coefficients) {
	c.corrections = []correction{{kernel.Skinny, 5, wideC}, {kernel.Blocked, 1.6, fewRows}}
	c.mma.copies = 24
	c.mma.memory, c.mma.hidden, c.mma.step, c.mma.store, c.mma.sum = 16.7, 0.1, 0, math.Inf(1), splitSum{launch: 4500}
	c.mma.rates = map[dtype.Type]float64{
		dtype.F64: 128, dtype.F32: 640, dtype.F16: 1280, dtype.BF16: 1280, dtype.F8E4M3: 1280, dtype.F8E5M2: 1280,
		dtype.I8: 2560,
	}
})

// turing holds the coefficients of older GPUs. None was measured. They are those of ampere, except
// that the kernel skinny reads all element types at one rate.
var turing = ampere.with(func(c *coefficients) {
	c.skinny.memory = map[int][3]float64{64: {15, 15, 15}, 32: {15, 15, 15}, 16: {15, 15, 15}, 8: {15, 15, 15}}
})

// with returns a copy of c to which change was applied.
func (c coefficients) with(change func(*coefficients)) coefficients {
	change(&c)
	return c
}

// mmaEfficiencies holds the efficiency of each tile of mma. Source: float64 was measured on an
// H200. The others are estimates from published figures of kernels of this kind.
var mmaEfficiencies = map[mmaTile]mmaEfficiency{
	{false, 128, 256, 4}: {0.95, 0.5, 5000},
	{false, 256, 128, 4}: {0.95, 0.5, 5000},
	{false, 128, 128, 4}: {0.85, 0.5, 3000},
	{false, 64, 128, 4}:  {0.75, 0.45, 2000},
	{false, 128, 64, 4}:  {0.75, 0.45, 2000},
	{false, 64, 64, 4}:   {0.6, 0.4, 1500},
	{false, 16, 128, 6}:  {0.36, 0.3, 1200},
	{false, 128, 16, 6}:  {0.4, 0.3, 1200},
	{false, 32, 32, 4}:   {0.3, 0.25, 1000},
	{true, 128, 128, 3}:  {0.94, 0.885, 9000},
	{true, 128, 64, 3}:   {0.915, 0.85, 2500},
	{true, 64, 128, 3}:   {0.91, 0.86, 2100},
	{true, 64, 64, 4}:    {0.855, 0.69, 1000},
	{true, 64, 64, 3}:    {0.85, 0.775, 1000},
	{true, 32, 64, 4}:    {0.80, 0.25, 800},
	{true, 64, 32, 3}:    {0.75, 0.60, 800},
	{true, 16, 64, 6}:    {0.50, 0.40, 1500},
	{true, 16, 32, 8}:    {0.50, 0.40, 1500},
	{true, 32, 16, 8}:    {0.50, 0.40, 1500},
	{true, 32, 32, 4}:    {0.70, 0.55, 600},
}
