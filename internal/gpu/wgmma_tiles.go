package gpu

import (
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
)

// wgmmaTiles are the tiles to choose from, the best for large products first. The larger
// the tile, the less of A and B comes from the L2 cache for each product, and a cluster's
// blocks save half of B; the smaller, the more SMs have one. 256×128, with
// 128 rows a warpgroup, and 64×256 in turns spill registers with a bias.
var wgmmaTiles = []Shape{
	{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, Stages: 4, Cluster: 2},
	{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, Stages: 4},
	{M: 128, N: 192, RowsPerThread: 2, ColsPerThread: 48, Stages: 5},
	{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6, Cluster: 2},
	{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6},
	{M: 64, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 8},
	{M: 64, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 8},
}

// wgmmaShapes are the tiles with what 128 bytes hold along K: of 8-bit types, of 32-bit ones
// and of 16-bit ones, the kernel's first.
func wgmmaShapes() (shapes []Shape) {
	for _, k := range []int{128, 32, 64} {
		for _, s := range wgmmaTiles {
			s.K = k
			shapes = append(shapes, s)
		}
	}
	return shapes
}

// A cycle of an SM as far as the choice of a tile needs it. These are derived from the
// manuals and from what is published of such kernels on an H100; they are not measured yet.
const (
	// wgmmaRate is the elements of C for which the tensor cores add the products of 128
	// bytes along K, whatever the type.
	wgmmaRate = 32.0
	// wgmmaTraffic is the bytes that the L2 cache delivers if all SMs ask, and wgmmaAlone
	// if few do.
	wgmmaTraffic, wgmmaAlone = 36.0, 60.0
	// wgmmaFill is what a block waits for its first tiles, and wgmmaStore the sums that a
	// warpgroup hands over.
	wgmmaFill, wgmmaStore = 1500.0, 16.0
	// packLaunch is a launch that packs an operand before it does anything, and packBytes
	// what it reads and writes.
	packLaunch, packBytes = 5000.0, 10.0
)

// narrowTile is how much of the rate instructions of so many columns reach: the fewer
// there are the more often the rows of A are read from shared memory.
func narrowTile(cols int) float64 {
	switch {
	case cols < 128:
		return 0.75
	case cols < 192:
		return 0.9
	}
	return 0.95
}

// predictWgmma is what p takes with tiles of that shape.
func predictWgmma(c Config, p *gemm.Problem, d *device.Info) prediction {
	s, n := c.Shape, c.Shape.cluster()
	sms := max(d.SMs/n*n, 1) // that a cluster finds a place on
	parts, depth := 1, max(p.K, 1)
	if s.Split > 1 {
		parts, depth = partsOf(p, s), min(partOf(p.K, s), depth)
	}
	x := prediction{shape: s, blocks: roundUp(ceilDiv(p.M, s.M), n) * ceilDiv(p.N, s.N) * parts}
	x.rounds = ceilDiv(x.blocks, sms)

	area := float64(s.M * s.N)
	idle := 1 - float64(min(x.blocks, sms))/float64(sms)
	deliver := wgmmaTraffic + idle*(wgmmaAlone-wgmmaTraffic)
	r, cols, products := recipeOf(p.A.Type, p.Precision), s.N, 1.0
	if len(r.rounds) > 0 {
		cols, products = roundCols(s), 0
		for _, round := range r.rounds {
			products += float64(len(round.pairs))
		}
	}
	step := max(products*area/wgmmaRate/narrowTile(cols), float64(len(r.planes)*(s.M+s.N/n)*frag.SwizzleBytes)/deliver)
	hand := area / wgmmaStore // while nothing is multiplied,
	ends := float64(x.rounds) * hand
	if inTurns(s) {
		ends = hand * consumers // or by the last tile's warpgroup alone
	}
	x.multiply = float64(x.rounds)*float64(ceilDiv(depth, s.K))*step + ends + wgmmaFill

	x.load = float64(p.A.Bytes()+p.B.Bytes()+p.C.Bytes())/loadBytes/float64(max(d.SMs, 1)) + wgmmaFill
	if parts > 1 {
		x.second = secondLaunch + float64(2*sumsBytes(p, s))/sumBytes/float64(max(d.SMs, 1)) + float64(ceilDiv(parts, sumWarps*sumAhead)*partWait)
	}
	q, packs := packing(p, Align{})
	for i, l := range [][2]gemm.Layout{{p.A, q.A}, {p.B, q.B}} {
		if packs[i] {
			x.second += packLaunch + float64(l[0].Bytes()+l[1].Bytes())/packBytes/float64(max(d.SMs, 1))
		}
	}
	return x
}

// wgmmaLimits are what accesses cost beside bulk copies, which cost nothing that they need
// not. What C held comes in pairs of neighbours, of 16-bit types half a sector for four
// lanes. Sums of 32 bits are written to patches in pairs that two rows' lanes want at the
// same time.
func wgmmaLimits(c Config) Limits {
	if c.Out.Size() == 2 {
		return Limits{Scatter: 2}
	}
	return Limits{Conflicts: 2, Scatter: 1}
}
