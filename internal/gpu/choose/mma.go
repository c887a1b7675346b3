package choose

import (
	"cmp"
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// mmaTilesOf are the tiles for products of p's type.
func mmaTilesOf(p *gemm.Problem) []kernel.MMATile {
	if p.In() == dtype.F64 {
		return kernel.MMATilesF64
	}
	tiles := slices.Clone(kernel.MMATiles)
	for i := range tiles {
		tiles[i].Tile.K = tiles[i].Tile.K * 2 / p.In().Size()
	}
	return tiles
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

// orderMMA is the tiles, with K whole and in parts, the fastest for p first.
func OrderMMA(_ *row, p *gemm.Problem, d *device.Info) []kernel.Tile {
	type choice struct {
		shape  kernel.Tile
		cycles float64
	}
	var all []choice
	for _, t := range mmaTilesOf(p) {
		for _, parts := range mmaParts(t, p, d) {
			s := t.Tile
			s.SplitK = parts
			all = append(all, choice{s, mmaCycles(t, p, d, parts)})
		}
	}
	slices.SortStableFunc(all, func(a, b choice) int { return cmp.Compare(a.cycles, b.cycles) })
	shapes := make([]kernel.Tile, len(all))
	for i, c := range all {
		shapes[i] = c.shape
	}
	return shapes
}

// mmaBlocks is how many p takes with K whole.
func mmaBlocks(t kernel.MMATile, p *gemm.Problem) float64 {
	return float64(kernel.TileCount(p, t.Tile))
}

// mmaParts lists the numbers of parts of K that give every SM one block, two and so on,
// and every part some steps; 0 is K whole.
func mmaParts(t kernel.MMATile, p *gemm.Problem, d *device.Info) []int {
	const turns, leastSteps = 4, 8
	list := []int{0}
	for n := 1; n <= turns && p.Batch.Kind == gemm.Single; n++ {
		parts := int(float64(n*d.SMs) / mmaBlocks(t, p))
		if parts > 1 && parts <= p.K/t.Tile.K/leastSteps && parts != list[len(list)-1] {
			list = append(list, parts)
		}
	}
	return list
}

// mmaCycles is about how long p takes with K in so many parts.
func mmaCycles(t kernel.MMATile, p *gemm.Problem, d *device.Info, parts int) float64 {
	s, sms, size := t.Tile, float64(d.SMs), float64(p.In().Size())
	m, n, k := float64(p.M), float64(p.N), float64(p.K)
	blocks := mmaBlocks(t, p) * float64(max(parts, 1))
	turns := math.Ceil(blocks / sms) // blocks of the busiest SM
	steps := math.Ceil(k / float64(s.K) / float64(max(parts, 1)))

	rate, traffic := t.Rate, mmaTraffic
	for _, l := range []gemm.Layout{p.Layouts[gemm.A], p.Layouts[gemm.B]} {
		if kernel.CopiedElements(l)*l.Type.Size() < kernel.MaxVectorBytes {
			rate -= (t.Rate - t.Narrow) / 2
			traffic -= (mmaTraffic - mmaNarrow) / 2
		}
	}
	if turns*float64(kernel.MMAThreads(s)) < 256 {
		rate *= mmaSparse
	}
	multiply := float64(s.M*s.N*s.K) / mmaRates[p.In()] / rate
	load := float64((s.M+s.N)*s.K) * size / min(mmaAlone, traffic*sms/min(blocks, sms))
	through := steps * max(multiply, load)
	if turns == 1 { // nobody else works while a block waits for what its first stages were not filled with
		through = max(through, (steps-float64(s.Stages))*mmaLatency/float64(s.Stages-1))
	}
	busy := turns * (through + t.Edge)
	memory := p.Traffic() / mmaMemory / sms
	total := mmaLaunch + max(busy, memory) + min(busy, memory)/4
	if parts > 1 {
		total += mmaSum + 2*float64(parts)*m*n*size/mmaMemory/sms
	}
	return total
}
