package gpu

import (
	"cmp"
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// mmaTile is a shape of mma's tiles and what an H200 makes of it.
type mmaTile struct {
	shape Shape
	// rate is how much of the tensor cores' rate large products reach, and narrow how
	// much if both operands are copied element by element.
	rate, narrow float64
	// edge is the cycles that a block takes besides its products, for its first tiles
	// to come and its part of C to go, and that no other block of the SM uses.
	edge float64
}

// mmaWordTiles are the tiles for elements of up to four bytes, the best for large products
// first, with K in elements of two bytes: others have as many bytes. What they reach is an
// estimate by the figures of other kernels of this kind, with which the choice was studied.
var mmaWordTiles = []mmaTile{
	{Shape{M: 128, N: 256, K: 32, RowsPerThread: 8, ColsPerThread: 16, Stages: 4}, 0.95, 0.5, 5000},
	{Shape{M: 256, N: 128, K: 32, RowsPerThread: 8, ColsPerThread: 16, Stages: 4}, 0.95, 0.5, 5000},
	{Shape{M: 128, N: 128, K: 32, RowsPerThread: 8, ColsPerThread: 8, Stages: 4}, 0.85, 0.5, 3000},
	{Shape{M: 64, N: 128, K: 64, RowsPerThread: 4, ColsPerThread: 8, Stages: 4}, 0.75, 0.45, 2000},
	{Shape{M: 128, N: 64, K: 64, RowsPerThread: 4, ColsPerThread: 8, Stages: 4}, 0.75, 0.45, 2000},
	{Shape{M: 64, N: 64, K: 64, RowsPerThread: 4, ColsPerThread: 4, Stages: 4}, 0.6, 0.4, 1500},
	{Shape{M: 16, N: 128, K: 64, RowsPerThread: 2, ColsPerThread: 8, Stages: 6}, 0.4, 0.3, 1200},
	{Shape{M: 128, N: 16, K: 64, RowsPerThread: 4, ColsPerThread: 4, Stages: 6}, 0.4, 0.3, 1200},
	{Shape{M: 32, N: 32, K: 64, RowsPerThread: 2, ColsPerThread: 4, Stages: 4}, 0.4, 0.3, 1000},
}

// mmaTilesOf are the tiles for products of p's type.
func mmaTilesOf(p *gemm.Problem) []mmaTile {
	if p.A.Type == dtype.F64 {
		return mmaTiles
	}
	tiles := slices.Clone(mmaWordTiles)
	for i := range tiles {
		tiles[i].shape.K = tiles[i].shape.K * 2 / p.A.Type.Size()
	}
	return tiles
}

// mmaTiles are the tiles to choose from for float64, the best for large products first. More stages
// bear the distance to memory better where an SM has few blocks; but copies of single
// elements go through the L1 cache, which has what shared memory leaves.
var mmaTiles = []mmaTile{
	{Shape{M: 128, N: 128, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3}, 0.94, 0.885, 9000},
	{Shape{M: 128, N: 64, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3}, 0.915, 0.85, 2500},
	{Shape{M: 64, N: 128, K: 16, RowsPerThread: 8, ColsPerThread: 8, Stages: 3}, 0.91, 0.86, 2100},
	{Shape{M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 8, Stages: 4}, 0.855, 0.69, 1000},
	{Shape{M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 8, Stages: 3}, 0.85, 0.775, 1000},
	{Shape{M: 32, N: 64, K: 32, RowsPerThread: 2, ColsPerThread: 8, Stages: 4}, 0.80, 0.25, 800},
	{Shape{M: 64, N: 32, K: 32, RowsPerThread: 4, ColsPerThread: 4, Stages: 3}, 0.75, 0.60, 800},
	{Shape{M: 16, N: 64, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 6}, 0.50, 0.40, 1500},
	{Shape{M: 16, N: 32, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 8}, 0.50, 0.40, 1500},
	{Shape{M: 32, N: 16, K: 32, RowsPerThread: 4, ColsPerThread: 2, Stages: 8}, 0.50, 0.40, 1500},
	{Shape{M: 32, N: 32, K: 32, RowsPerThread: 2, ColsPerThread: 4, Stages: 4}, 0.70, 0.55, 600},
}

// A cycle of an H200's SM, as far as the choice of a tile needs it.
const (
	mmaTraffic = 28.0   // bytes that come to shared memory, with all SMs at it,
	mmaNarrow  = 24.0   // copied element by element,
	mmaAlone   = 45.0   // and with few SMs
	mmaMemory  = 16.7   // bytes of memory
	mmaLatency = 1900.0 // cycles until a step's tiles have come
	mmaLaunch  = 6000.0 // cycles before the first block has begun and behind the last
	mmaSum     = 4500.0 // cycles of a second launch, which adds the parts of K
	mmaSparse  = 0.85   // of the rate is left where an SM has less than eight warps
)

// mmaRates are the multiply-adds of an H200's SM in a cycle with mma.sync. That of float64
// is measured; the others, five eighths of wgmma's, are an estimate of what it could do: of bfloat16
// this kernel reaches 320 TFLOP/s at 4096³, two fifths of what wgmma does.
var mmaRates = map[dtype.Type]float64{
	dtype.F64: 128, dtype.F32: 640, dtype.F16: 1280, dtype.BF16: 1280, dtype.F8E4M3: 1280, dtype.F8E5M2: 1280, dtype.I8: 2560,
}

// preferMMA is the tiles, with K whole and in parts, the fastest for p first.
func preferMMA(_ *Kernel, p *gemm.Problem, d *device.Info) []Shape {
	type choice struct {
		shape  Shape
		cycles float64
	}
	var all []choice
	for _, t := range mmaTilesOf(p) {
		for _, parts := range t.parts(p, d) {
			s := t.shape
			s.Split = parts
			all = append(all, choice{s, t.cycles(p, d, parts)})
		}
	}
	slices.SortStableFunc(all, func(a, b choice) int { return cmp.Compare(a.cycles, b.cycles) })
	shapes := make([]Shape, len(all))
	for i, c := range all {
		shapes[i] = c.shape
	}
	return shapes
}

// blocks is how many p takes with K whole.
func (t mmaTile) blocks(p *gemm.Problem) float64 {
	return float64(tilesOf(p, t.shape))
}

// parts lists the numbers of parts of K that give every SM one block, two and so on,
// and every part some steps; 0 is K whole.
func (t mmaTile) parts(p *gemm.Problem, d *device.Info) []int {
	const turns, leastSteps = 4, 8
	list := []int{0}
	for n := 1; n <= turns && p.Batch.Kind == gemm.Single; n++ {
		parts := int(float64(n*d.SMs) / t.blocks(p))
		if parts > 1 && parts <= p.K/t.shape.K/leastSteps && parts != list[len(list)-1] {
			list = append(list, parts)
		}
	}
	return list
}

// cycles is about how long p takes with K in so many parts.
func (t mmaTile) cycles(p *gemm.Problem, d *device.Info, parts int) float64 {
	s, sms, size := t.shape, float64(d.SMs), float64(p.A.Type.Size())
	m, n, k := float64(p.M), float64(p.N), float64(p.K)
	blocks := t.blocks(p) * float64(max(parts, 1))
	turns := math.Ceil(blocks / sms) // blocks of the busiest SM
	steps := math.Ceil(k / float64(s.K) / float64(max(parts, 1)))

	rate, traffic := t.rate, mmaTraffic
	for _, l := range []gemm.Layout{p.A, p.B} {
		if copied16(l)*l.Type.Size() < maxVector {
			rate -= (t.rate - t.narrow) / 2
			traffic -= (mmaTraffic - mmaNarrow) / 2
		}
	}
	if turns*float64(mmaThreads(s)) < 256 {
		rate *= mmaSparse
	}
	multiply := float64(s.M*s.N*s.K) / mmaRates[p.A.Type] / rate
	load := float64((s.M+s.N)*s.K) * size / min(mmaAlone, traffic*sms/min(blocks, sms))
	through := steps * max(multiply, load)
	if turns == 1 { // nobody else works while a block waits for what its first stages were not filled with
		through = max(through, (steps-float64(s.Stages))*mmaLatency/float64(s.Stages-1))
	}
	busy := turns * (through + t.edge)
	memory := p.Traffic() / mmaMemory / sms
	total := mmaLaunch + max(busy, memory) + min(busy, memory)/4
	if parts > 1 {
		total += mmaSum + 2*float64(parts)*m*n*size/mmaMemory/sms
	}
	return total
}

func mmaShapes() []Shape {
	var shapes []Shape
	for _, t := range slices.Concat(mmaWordTiles, mmaTiles) {
		shapes = append(shapes, t.shape)
	}
	return shapes
}
