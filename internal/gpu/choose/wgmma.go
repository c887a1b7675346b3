package choose

import (
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
)

// wgmmaTiles returns the tiles of wgmma with 128 bytes of the job's element type along K.
func wgmmaTiles(j *job) []kernel.Tile {
	k := frag.SwizzleBytes / j.arithmetic.Elem.Bytes()
	return slices.DeleteFunc(slices.Clone(sm90.WGMMA.Tiles), func(s kernel.Tile) bool { return s.K != k })
}

// wgmmaTile is the work of one tile of C in the kernel wgmma.
type wgmmaTile struct {
	*job
	n *wgmmaCosts
	c *kernel.Config
	s kernel.Tile
	q *gemm.Problem // as it is launched, with packed operands
	// steps is the number of steps along K, and rounds that of tiles per SM.
	steps  float64
	rounds int
	// idle is the part of the SMs without a tile.
	idle float64
	// area is the number of elements that the tensor cores multiply; few columns take as long as
	// many.
	area float64
	// terms is the number of terms of an operand split.
	terms float64
}

// predictWGMMA: TMA loads the stages of a pipeline while two or three warpgroups multiply, and
// memory delivers each matrix once.
func predictWGMMA(j *job, c *kernel.Config) prediction {
	n, s := &j.costs.wgmma, c.Tile
	cluster := s.BlocksM() * s.BlocksK()
	sms := max(j.device.SMs/cluster*cluster, 1) // that have room for whole clusters
	parts, depth := j.parts(s)
	if s.ClusterK > 1 {
		depth = kernel.CeilDiv(depth, s.ClusterK)
	}
	x := prediction{blocks: kernel.TileCount(j.Problem, s) * parts * s.BlocksK(), launch: n.launch}
	x.rounds = kernel.CeilDiv(x.blocks, sms)
	pack := j.packing(s)
	t := &wgmmaTile{
		job: j, n: n, c: c, s: s, q: &pack.product,
		steps: float64(kernel.CeilDiv(depth, s.K)), rounds: x.rounds,
		idle:  1 - float64(min(x.blocks, sms))/float64(sms),
		area:  float64(max(s.M, sm90.WarpgroupRows) * max(s.N, sm90.WarpgroupRows)),
		terms: float64(len(j.arithmetic.Terms)),
	}
	memory, hidden := j.perSM(j.traffic, n.memory), n.hidden
	if s.SwapAB && j.M > s.N { // several rows of tiles read B
		memory += n.again * j.perSM(float64(j.Products()*j.B().Bytes()), n.memory)
	}
	if j.Batch.Kind == gemm.Grouped {
		hidden = n.groups
	}
	load := t.load(memory)
	step := t.step(load)
	outside := t.outside(load, step)
	multiply, last := t.multiply(step)
	multiply = float64(x.rounds)*multiply + last + outside
	memory += outside
	x.multiply, x.load = multiply+hidden*memory, memory+hidden*multiply
	x.sum = n.sum.cycles(j, parts)
	if s.ClusterK > 1 {
		x.sum = float64(x.rounds) * (n.clusterK + float64(s.M*s.N)/n.clusterKs)
	}
	x.pack = t.pack(pack)
	return x
}

// load returns the cycles in which the L2 cache delivers the operands of a step, where memory
// takes the given time for the whole product.
func (t *wgmmaTile) load(memory float64) float64 {
	n, s := t.n, t.s
	rate := n.traffic + t.idle*(n.alone-n.traffic)
	if t.Batch.Kind == gemm.Grouped {
		busy := float64(t.rounds) * t.steps * t.area / n.rate
		rate *= 1 - n.stream*min(1, memory/busy)
	}
	if sm90.PingPong(s) && s.N <= sm90.WarpgroupRows {
		rate /= n.small
	}
	rows, cols := max(s.M, sm90.WarpgroupRows), s.N // of the boxes
	if _, kMajor := kernel.SwapAB(s, !t.c.TransA, t.c.TransB); !kMajor {
		cols = max(cols, sm90.WarpgroupRows)
	}
	left, right := kernel.SwapAB(s, n.skew(t.q.Layouts[gemm.A]), n.skew(t.q.Layouts[gemm.B]))
	return t.terms * frag.SwizzleBytes * (float64(rows)*left + float64(cols/s.BlocksM())*right) / rate
}

// skew returns how much longer the L2 cache takes to deliver a matrix's boxes because their rows
// span two of its lines.
func (n *wgmmaCosts) skew(l gemm.Layout) float64 {
	switch ld := l.Type.Bytes(l.LD); {
	case l.Type.Bytes(l.Cols) <= frag.SwizzleBytes || l.Rows == 1 || ld%frag.SwizzleBytes == 0:
		return 1
	case ld%kernel.SectorBytes == 0:
		return n.sectors
	}
	return n.skewed
}

// step returns the cycles of a step along K whose operands take the given time to load.
func (t *wgmmaTile) step(load float64) float64 {
	n, s := t.n, t.s
	products, adds := t.promotions()
	step := max(products*t.area/n.rate+adds+2*n.step/float64(s.RowsPerThread), load, t.terms*n.latency/float64(s.Stages))
	if s.SwapAB {
		step = max(step, n.loads)
	}
	switch {
	case t.c.ScaleB == 1:
		step += n.owners
	case t.c.ScaleB > 1:
		step += n.scales
	}
	if s.BlocksM() > 1 {
		step = max(step, t.terms*n.meet)
		if (t.arithmetic.Elem.Bits() != 16 || t.terms > 1) && !sm90.PingPong(s) {
			step *= n.together
		}
	}
	return step
}

// promotions returns the number of products of tiles in a step, and the cycles in which threads
// add their sums.
func (t *wgmmaTile) promotions() (products, adds float64) {
	rows, _ := sm90.WarpgroupTile(t.s)
	switch {
	case len(t.arithmetic.Promotions) == 0:
		return 1, 0
	case t.arithmetic.PromotesEveryStep():
		return 1, t.n.part * float64(rows/sm90.WarpgroupRows*max(t.s.N, 2*sm90.WarpgroupRows)/sm90.WarpgroupRows)
	}
	for _, round := range t.arithmetic.Promotions {
		products += float64(len(round.Pairs))
		adds += t.n.promote * float64(round.Passes*rows/sm90.WarpgroupRows)
	}
	if t.s.N > sm90.PromotionCols(t.s) {
		const halves, wait = 2, 1.2 // each half of the columns waits a fifth longer
		adds *= halves * wait
	}
	return products, adds
}

// store returns the cycles of a tile's epilogue.
func (t *wgmmaTile) store() float64 {
	n, s := t.n, t.s
	store := n.end + t.area/n.store
	if s.N < frag.Lanes { // lanes without a column of the row that they store
		store *= 4
	}
	if t.Epilogue.Activation > gemm.ActReLU {
		store += t.area / n.functions * float64(t.N) / float64(t.Columns())
	}
	if s.SwapAB && s.SplitK < 2 && !sm90.StoresWithTMA(*t.c) {
		store += t.area / n.lines
		if t.Epilogue.Residual {
			store += t.area / n.waits
		}
	}
	return store
}

// multiply returns the cycles of a tile with steps of the given time, and those after the last
// tile.
func (t *wgmmaTile) multiply(step float64) (tile, last float64) {
	mainloop, store := t.steps*step, t.store()
	switch {
	case !sm90.PingPong(t.s):
		return mainloop + store, 0
	case t.rounds == 1: // no other tile to alternate with
		return mainloop + store, t.area / t.n.store
	}
	// One warpgroup stores while the other multiplies.
	return max(mainloop, (mainloop+store)/float64(sm90.Consumers(t.s))), store
}

// outside returns how much longer the last tiles of a side take for rows of boxes that the matrix
// does not have.
func (t *wgmmaTile) outside(load, step float64) (longest float64) {
	height, width := t.s.SizeInC()
	for _, side := range []struct {
		kMajor     bool
		size, tile int
	}{{!t.c.TransA, t.M, height}, {t.c.TransB, t.Columns(), width}} {
		if !side.kMajor && !t.s.SwapAB {
			continue
		}
		tiles := kernel.CeilDiv(side.size, side.tile)
		missing := max(float64(tiles*side.tile-side.size)-t.n.free, 0)
		if tiles > 1 && t.rounds == 1 { // the other SMs have as much work with whole tiles
			missing /= 3
		}
		rounds := float64(kernel.CeilDiv(t.rounds, tiles))
		longest = max(longest, rounds*t.steps*max(load+t.n.outside*missing-step, 0))
	}
	return longest
}

// pack returns the cycles in which operands are packed.
func (t *wgmmaTile) pack(x *packing) (cycles float64) {
	for _, o := range kernel.Packable {
		if !x.packed[o] {
			continue
		}
		from, to := &t.Layouts[o], &x.product.Layouts[o]
		matrices, rate := 1, t.n.packBytes
		if t.Batch.Stride[o] > 0 {
			matrices = t.Batch.Count
		}
		switch {
		case from.Trans == to.Trans:
		case t.Batch.Kind != gemm.Single:
			rate = t.n.transposeBatch
		default:
			rate = t.n.transposeBytes
		}
		cycles += t.n.packLaunch + t.perSM(float64(matrices)*float64(from.Bytes()+to.Bytes()), rate)
	}
	return cycles
}
