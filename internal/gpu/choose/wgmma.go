package choose

import (
	"fmt"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
)

// checkWgmmaSuited leaves to mma what an H200 showed it to be faster at.
func checkWgmmaSuited(p *gemm.Problem, d *device.Info) error {
	// Small products, which mma is through with before a pipe would be full: 64³ of bfloat16 takes
	// 1.96 µs instead of 2.38, and 200³ 2.93 instead of 3.16. Where rows begin within the L2 cache's lines,
	// or would be packed, that holds for some more: 257³ takes 3.54 instead of 4.30.
	const small, skewed = 256, 320
	size, most := p.In().Size(), small
	if p.A().LD*size%frag.SwizzleBytes != 0 || p.B().LD*size%frag.SwizzleBytes != 0 {
		most = skewed
	}
	// Few rows in tiles of mma's 128 columns, where these are one round and those of 64 columns are more: 16×14336×4096
	// takes 29.1 µs instead of 31.9. Few columns that are not along K, of which a box has 64: 4096×16×4096
	// takes 12.7 instead of 14.3.
	const few = 16
	even := p.M <= few && kernel.CeilDiv(p.N, 128) <= d.SMs && kernel.CeilDiv(p.N, sm90.WarpgroupRows) > d.SMs
	thin := p.N > 1 && p.N <= few && !p.B().Trans
	switch {
	case p.Batch.Kind != gemm.Single || p.Precision == gemm.F32x3 || size == 1:
		return nil
	case size == 2 && max(p.M, p.N, p.K) <= most:
		return fmt.Errorf("%w: kernel wgmma is slower than mma where no side is longer than %d", gemm.ErrUnsupported, most)
	case size == 4 && sm90.CheckSwapAB(p) == nil && (p.M <= few || max(p.M, p.N, p.K) <= sm90.WarpgroupThreads):
		// 128³ in tf32 takes 2.85 µs instead of 3.08, 16×4096×4096 20.8 instead of 21.4.
		return fmt.Errorf("%w: kernel wgmma is slower than mma for so small a product with a B that runs across K", gemm.ErrUnsupported)
	case even, size == 2 && thin:
		return fmt.Errorf("%w: kernel wgmma is slower than mma for these %d rows and %d columns", gemm.ErrUnsupported, p.M, p.N)
	}
	return nil
}

// orderWgmma is the cheapest first, but that the tall tile of 16-bit types comes last where
// it has nothing to hide: there the others are faster than is predicted of them.
func orderWgmma(r *row, p *gemm.Problem, d *device.Info) []kernel.Tile {
	list := r.cheapest(p, d)
	if p.In().Size() != 2 || p.Epilogue != (gemm.Epilogue{}) || tallPays(p, d) {
		return list
	}
	tall := func(s kernel.Tile) bool { return s.RowsPerThread > 2 }
	var last []kernel.Tile
	for _, s := range list {
		if tall(s) {
			last = append(last, s)
		}
	}
	return append(slices.DeleteFunc(list, tall), last...)
}

// tallPays says that the tall tile is as fast as predicted: where K is deep and each SM has
// several tiles, so that to hand over C is hidden, and of a group that ends within a tile
// little is lost. On an H200 4096³ and 4096×4096×1024 were 3 and 4 % faster in it than in 128×256, 32
// products of 1024³ 9 %, 64 of 768³ 15 % and groups of 8192 rows 4 %; 2048³ was 2 %, 64 products of 512³ 4 % slower.
func tallPays(p *gemm.Problem, d *device.Info) bool {
	const depth, batched, rounds = 1024, 768, 4
	if p.Batch.Kind != gemm.Single {
		return p.K >= batched
	}
	return p.K >= depth && kernel.TileCount(p, sm90.TallTiles[64]) >= rounds*d.SMs
}

// A cycle of an SM as far as the choice of a tile needs it, fitted to an H200's times of 30
// products in 12 tiles (docs/kernels/wgmma.md).
const (
	// wgmmaRate is the elements of C for which the tensor cores add the products of 128
	// bytes along K, whatever the type, and wgmmaStep what a step takes besides, half of
	// that where a warpgroup has 128 rows.
	wgmmaRate, wgmmaStep = 28.0, 40.0
	// wgmmaTraffic is the bytes that the L2 cache delivers if all SMs ask, and wgmmaAlone
	// if few do; where rows begin within its lines they come wgmmaSkewed times as slowly,
	// if they begin at whole sectors wgmmaSectors times, and in the boxes of the smallest tiles
	// wgmmaSmall times. A stage takes wgmmaLatency to
	// come, blocks of a cluster wgmmaMeet to give one back, and wgmmaMemory is the bytes of
	// memory.
	wgmmaTraffic, wgmmaAlone = 66.0, 100.0
	wgmmaSkewed, wgmmaSmall  = 2.4, 1.22
	wgmmaSectors             = 1.5
	wgmmaLatency, wgmmaMeet  = 2200.0, 460.0
	wgmmaMemory              = 16.5
	// wgmmaRound is what threads take that add a round to their sums, wgmmaPart what is not
	// hidden of adding 64 columns of 8-bit floats' products, and wgmmaTogether how much longer the steps
	// of a cluster take whose B must be along K, or comes in parts.
	wgmmaRound, wgmmaPart, wgmmaTogether = 100.0, 35.0, 1.05
	// wgmmaScales is how much longer a step takes with block scales, and wgmmaOwners with such
	// that each column has its own of.
	wgmmaScales, wgmmaOwners = 150.0, 450.0
	// wgmmaBeside is how much of the shorter of loading and multiplying is not hidden.
	wgmmaBeside = 0.03
	// wgmmaGroups is the same of groups of rows, some of which wait for memory and others for the
	// tensor cores, and wgmmaStream how much less the L2 cache delivers while it is filled.
	wgmmaGroups, wgmmaStream = 0.3, 0.25
	// wgmmaFill is what a launch takes until its first tiles are there and after its last,
	// and wgmmaEnd what a tile takes to hand over, besides its sums, wgmmaStore a cycle.
	wgmmaFill, wgmmaEnd, wgmmaStore = 5000.0, 1000.0, 32.0
	// wgmmaFunctions is how many activations are computed in a cycle, which take the unit for
	// special functions twice.
	wgmmaFunctions = 8.0
	// wgmmaSecond is what a second launch takes before it does anything, wgmmaParts what it
	// waits for every further sumWarps·sumAhead parts, and wgmmaSums the bytes of them.
	wgmmaSecond, wgmmaParts, wgmmaSums = 6500.0, 300.0, 24.0
	// Blocks that share out K take wgmmaAdd to add up, and a cycle for wgmmaAdds sums.
	wgmmaAdd, wgmmaAdds = 2000.0, 2.5
	// wgmmaOutside is what the copy engine takes for a row along K of a box that lies
	// outside of the matrix, but for the first wgmmaFew.
	wgmmaOutside, wgmmaFew = 4.5, 15
	// packLaunch is a launch that packs an operand before it does anything, and packBytes
	// what it reads and writes.
	packLaunch, packBytes = 2000.0, 18.0
)

// predictWgmma is what p takes with tiles of that shape.
func predictWgmma(c kernel.Config, p *gemm.Problem, d *device.Info) prediction {
	s := c.Tile
	n := s.BlocksM() * s.BlocksK()
	sms := max(d.SMs/n*n, 1) // that a cluster finds a place on
	parts, depth := 1, max(p.K, 1)
	switch {
	case s.SplitK > 1:
		parts, depth = kernel.SplitCount(p, s), min(kernel.SplitLen(p.K, s), depth)
	case s.ClusterK > 1:
		depth = kernel.CeilDiv(depth, s.ClusterK)
	}
	x := prediction{shape: s, blocks: kernel.TileCount(p, s) * parts * s.BlocksK()}
	x.rounds = kernel.CeilDiv(x.blocks, sms)

	rows, cols := max(s.M, sm90.WarpgroupRows), s.N // of what is loaded
	if _, along := kernel.SwapAB(s, !c.TransA, c.TransB); !along {
		cols = max(cols, sm90.WarpgroupRows)
	}
	area := float64(rows * max(s.N, sm90.WarpgroupRows)) // fewer columns take as long
	idle := 1 - float64(min(x.blocks, sms))/float64(sms)
	deliver := wgmmaTraffic + idle*(wgmmaAlone-wgmmaTraffic)
	q, packed := kernel.Repack(p, s, kernel.Align{})
	again, least, lines := turnedCosts(c, p, d, area)
	memory, steps, beside := p.Traffic()/wgmmaMemory/float64(max(d.SMs, 1))+again, float64(kernel.CeilDiv(depth, s.K)), wgmmaBeside
	if p.Batch.Kind == gemm.Grouped {
		busy := float64(x.rounds) * steps * area / wgmmaRate
		deliver *= 1 - wgmmaStream*min(1, memory/busy)
		beside = wgmmaGroups
	}
	r := sm90.ArithmeticOf(p.In(), p.Precision)
	planes := float64(len(r.Terms))
	products, adds := stepWork(r, s)
	skewA, skewB := kernel.SwapAB(s, skew(q.Layouts[gemm.A]), skew(q.Layouts[gemm.B]))
	bytes := frag.SwizzleBytes * (float64(rows)*skewA + float64(cols/s.BlocksM())*skewB)
	if sm90.PingPong(s) && s.N <= sm90.WarpgroupRows {
		deliver /= wgmmaSmall
	}
	loaded := planes * bytes / deliver
	step := max(products*area/wgmmaRate+adds+2*wgmmaStep/float64(s.RowsPerThread), loaded, planes*wgmmaLatency/float64(s.Stages), least)
	switch {
	case c.ScaleB == 1:
		step += wgmmaOwners
	case c.ScaleB > 1:
		step += wgmmaScales
	}
	if s.BlocksM() > 1 {
		step = max(step, planes*wgmmaMeet)
		if (r.Elem.Bits() != 16 || planes > 1) && !sm90.PingPong(s) {
			step *= wgmmaTogether
		}
	}
	hand := wgmmaEnd + area/wgmmaStore
	if s.N < frag.Lanes { // of 32 that hand over a row
		hand *= 4
	}
	if p.Epilogue.Activation > gemm.ActReLU {
		hand += area / wgmmaFunctions * float64(p.N) / float64(p.Columns())
	}
	hand += lines
	tile, end := steps*step+hand, 0.0
	switch {
	case sm90.PingPong(s) && x.rounds == 1: // there is nobody to take turns with, or to hand over with
		end = area / wgmmaStore
	case sm90.PingPong(s): // one warpgroup hands over while the other multiplies
		tile, end = max(steps*step, tile/float64(sm90.Consumers(s))), hand
	}
	outside := 0.0 // what the last tiles of a side take longer for rows that it does not have
	height, width := s.SizeInC()
	for _, side := range []struct {
		along         bool
		has, WorkTile int
	}{{!c.TransA, p.M, height}, {c.TransB, p.Columns(), width}} {
		if n := kernel.CeilDiv(side.has, side.WorkTile); side.along || s.SwapAB {
			missing := float64(max(n*side.WorkTile-side.has-wgmmaFew, 0))
			if n > 1 && x.rounds == 1 { // while the other SMs have as much to do with whole tiles
				missing /= 3
			}
			outside = max(outside, float64(kernel.CeilDiv(x.rounds, n))*steps*max(loaded+wgmmaOutside*missing-step, 0))
		}
	}
	multiply := float64(x.rounds)*tile + end + outside
	load := memory + outside
	x.multiply = multiply + beside*load + wgmmaFill
	x.load = load + beside*multiply + wgmmaFill
	if s.ClusterK > 1 {
		x.second += float64(x.rounds) * (wgmmaAdd + float64(s.M*s.N)/wgmmaAdds)
	}
	if parts > 1 {
		x.second += wgmmaSecond + float64(2*kernel.PartialSumBytes(p, s))/wgmmaSums/float64(max(d.SMs, 1)) + wgmmaParts*float64(kernel.CeilDiv(parts, kernel.SplitKSumWarps*kernel.SplitKSumLoads))
	}
	for _, o := range kernel.Packable {
		if !packed[o] {
			continue
		}
		matrices := 1
		if p.Batch.Stride[o] > 0 {
			matrices = p.Batch.Count
		}
		bytes := float64(matrices) * float64(p.Layouts[o].Bytes()+q.Layouts[o].Bytes())
		x.second += packLaunch + bytes/packBytes/float64(max(d.SMs, 1))
	}
	return x
}

// skew is how much longer the L2 cache takes to deliver a matrix's boxes because their rows lie
// in two lines of it.
func skew(l gemm.Layout) float64 {
	size := l.Type.Size()
	switch ld := l.LD * size; {
	case l.Cols*size <= frag.SwizzleBytes || l.Rows == 1 || ld%frag.SwizzleBytes == 0:
		return 1
	case ld%kernel.SectorBytes == 0:
		return wgmmaSectors
	}
	return wgmmaSkewed
}

const (
	// wgmmaLoads is the least that a step takes whose fragments threads load, which wait for them twice,
	// and wgmmaAgain how much longer memory takes for B where several rows of tiles read the same of it.
	wgmmaLoads, wgmmaAgain = 290.0, 0.1
	// wgmmaLines is how many elements threads finish in a cycle row by row, wgmmaWaits with a residual.
	wgmmaLines, wgmmaWaits = 4.0, 0.6
)

// turnedCosts are what turned tiles of that area take for predictWgmma, others 0: memory besides, a step at
// the least, and handing over besides.
func turnedCosts(c kernel.Config, p *gemm.Problem, d *device.Info, area float64) (again, least, lines float64) {
	s := c.Tile
	if !s.SwapAB {
		return 0, 0, 0
	}
	if p.M > s.N {
		again = wgmmaAgain * float64(p.Products()*p.B().Bytes()) / wgmmaMemory / float64(max(d.SMs, 1))
	}
	if !sm90.StoresWithTMA(c) && s.SplitK < 2 {
		lines = area / wgmmaLines
		if p.Epilogue.Residual {
			lines += area / wgmmaWaits
		}
	}
	return again, wgmmaLoads, lines
}

// stepWork is how many products of tiles a step takes of a warpgroup, and the cycles in which that
// adds what was summed up; of halves of the columns it waits a fifth longer.
func stepWork(r sm90.Arithmetic, s kernel.Tile) (products, adds float64) {
	rows, _ := sm90.WarpgroupTile(s)
	switch {
	case len(r.Promotions) == 0:
		return 1, 0
	case r.PromotesEveryStep():
		return 1, wgmmaPart * float64(rows/sm90.WarpgroupRows*max(s.N, 2*sm90.WarpgroupRows)/sm90.WarpgroupRows)
	}
	for _, round := range r.Promotions {
		products += float64(len(round.Pairs))
		adds += wgmmaRound * float64(round.Passes*rows/sm90.WarpgroupRows)
	}
	if s.N > sm90.PromotionCols(s) {
		adds *= 2 * 1.2
	}
	return products, adds
}
