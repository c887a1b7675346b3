package choose

import (
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/ints"
)

// wgmmaTiles returns the tiles of wgmma for the job's element type, for K as a whole and for parts.
func wgmmaTiles(j *job) []kernel.Tile { return streamedToo[swizzleK(j)] }

// needlessWGMMA reports whether tile s multiplies needless rows or columns, or has stream-K in
// vain.
func needlessWGMMA(j *job, s kernel.Tile) bool {
	return j.isTooHigh(s) || j.narrowsInVain(s) || s.StreamK && j.streamsInVain(s)
}

// narrowsInVain reports whether a narrowed tile is no candidate: its rows are too many or too few
// for C, a narrower one needs equally many tiles, or the tiles take more than four rounds, in which
// the last one matters little.
func (j *job) narrowsInVain(s kernel.Tile) bool {
	if !sm90.IsNarrowed(s) {
		return false
	}
	const rounds, few = 4, 16 // rows of C: those of the lowest narrowed tiles
	needless := s.M > sm90.WarpgroupRows && j.M <= sm90.WarpgroupRows || (s.M == few) != (j.M <= few)
	if needless || !j.packing(s).product.B().Trans || kernel.TileCount(j.Problem, s) > rounds*j.device.SMs {
		return true
	}
	across := kernel.Tiles(j.N, s.N)
	inVain := func(n int) bool { return n < s.N && kernel.Tiles(j.N, n) == across }
	return inVain(sm90.WarpgroupRows) || slices.ContainsFunc(sm90.NarrowedColumns, func(n int) bool {
		return inVain(n) && (j.In() != dtype.I8 || n%16 == 0)
	})
}

// isTooHigh reports whether equally many tiles of 8- or 16-bit types with fewer rows of C cover it.
func (j *job) isTooHigh(s kernel.Tile) bool {
	if !s.SwapAB || j.Precision == gemm.TF32 {
		return false
	}
	if j.lowest == 0 {
		mnMajorA := j.packing(kernel.Tile{SwapAB: true, N: sm90.SwapABStep}).product.A().Trans
		tiles := 0
		for n := sm90.SwapABStep; n <= 256; n += sm90.SwapABStep {
			if x := kernel.Tiles(j.M, n); x != tiles && sm90.HasHeight(j.arithmetic, mnMajorA, n) {
				j.lowest |= 1 << (n / sm90.SwapABStep)
				tiles = x
			}
		}
	}
	return j.lowest>>(s.N/sm90.SwapABStep)&1 == 0
}

// wgmmaPartTiles returns the further tiles for K in parts.
func wgmmaPartTiles(j *job) []kernel.Tile { return sm90.PartTiles(swizzleK(j)) }

// swizzleK returns the number of the job's elements along K in 128 bytes.
func swizzleK(j *job) int { return frag.SwizzleBytes / j.arithmetic.Elem.Bytes() }

// wgmmaTile is the work of one tile of C in the kernel wgmma.
type wgmmaTile struct {
	*job
	n *wgmmaCosts
	c *kernel.Config
	s kernel.Tile
	x *packing // the product as it is launched, with packed operands
	// operands are the left and the right operand.
	operands [2]operand
	// parts is the number of parts of K, blocks that of blocks of all tiles, and steps the number of
	// steps along K.
	parts, blocks int
	steps         float64
	// active is the number of SMs with a tile, out of sms that have room for whole clusters, and
	// rounds the number of tiles of the busiest SM. last is the number of SMs with a tile in the last
	// round. The few SMs that even rounds leave out are counted: with them a product takes nearly the
	// same time.
	active, last, sms float64
	rounds            int
	// work is rounds or, with stream-K, the number of tiles of each SM.
	work float64
	// terms is the number of terms of an operand split.
	terms float64
	// compute is the number of cycles in which the tensor cores multiply a step, and threads add the
	// promotions.
	compute float64
	// lines is the number of rows of 128 bytes that a block loads for a step. A row that spans two
	// lines of the L2 cache counts as more than one. beyond is the number of cycles that parts of
	// boxes outside of the matrices add to a step.
	lines, beyond float64
	// apart is the factor of loads where SMs load different parts of K at a time, otherwise 1.
	apart float64
	// clock is the full clock rate divided by the one at which the product runs.
	clock float64
}

// newWGMMATile returns the work of a tile in configuration c.
func newWGMMATile(j *job, c *kernel.Config) wgmmaTile {
	s := c.Tile
	cluster := s.ClusterBlocks()
	sms := sm90.ClustersAtOnce(j.device.SMs, cluster) * cluster
	parts, depth := j.parts(s)
	blocks := kernel.TileCount(j.Problem, s) * parts * s.BlocksK()
	t := wgmmaTile{
		job: j, n: &j.costs.WGMMA, c: c, s: s, x: j.packing(s), parts: parts, blocks: blocks,
		steps:  float64(kernel.Tiles(ints.CeilDiv(depth, s.BlocksK()), s.K)),
		active: float64(min(blocks, sms)), sms: float64(sms), rounds: ints.CeilDiv(blocks, sms),
		terms: float64(len(j.arithmetic.Terms)), apart: 1,
	}
	t.last, t.work = float64(blocks-(t.rounds-1)*sms), float64(t.rounds)
	if s.StreamK {
		t.work, t.active, _ = j.streamed(s)
		t.rounds, t.last = int(math.Ceil(t.work)), t.active
	}
	t.setOperands()
	t.compute = t.multiply()
	multiply := t.work * t.steps * t.compute
	t.clock = 1 + t.n.Power*multiply/(multiply+t.n.Sustained)
	return t
}

// predictWGMMA: TMA loads the stages of a pipeline while two or three warpgroups multiply and store
// tiles. Meanwhile memory delivers the operands and takes C.
func predictWGMMA(j *job, c *kernel.Config) prediction {
	t := newWGMMATile(j, c)
	n, rounds := t.n, t.work
	x := prediction{blocks: t.blocks, rounds: t.rounds}
	// The next launch begins on the SMs that have no block.
	x.launch = n.Launch + n.Crowd*max(2*t.active/t.sms-1, 0)
	x.sum, x.pack = j.sum(c, t.parts), t.pack()

	loop, store := t.loop(t.active), t.store()
	last := t.lastLoop(loop)
	reads, again, writes := t.memory()
	busy, memory := t.tiles(loop, last, store)+t.handOver(), n.Fill+reads+writes+t.handOver()
	// Loads of the first tile of an SM and stores of the last overlap with no other tile.
	stores := rounds * store
	if t.alternates() && t.rounds > 1 {
		stores /= float64(sm90.Consumers(t.s))
	}
	apart := n.Fill + max((rounds-1)*loop+last, reads) + max(stores, writes)
	exposed := max(apart-max(busy, memory), 0) / rounds
	x.multiply = busy + exposed + n.Exposed*memory
	x.load = max(memory+exposed+n.Exposed*busy, memory+again)
	return x
}

// tiles returns the cycles in which the busiest SM computes its tiles, each with a main loop and a
// store of the given cycles. The main loop of the last tile takes last cycles, as fewer SMs load.
func (t *wgmmaTile) tiles(loop, last, store float64) float64 {
	before := t.work - 1
	if !t.alternates() {
		busy := t.n.Fill + before*(loop+store) + last + store
		if t.parts > 1 { // each part of K has blocks of its own, which follow each other on an SM
			busy += before * t.n.Restart
		}
		return busy
	}
	// One warpgroup stores while the other multiplies. Both have a tile each in a pair of rounds.
	pairs := ints.CeilDiv(t.rounds, 2)
	busy := t.n.Fill + float64(pairs-1)*max(2*loop, loop+store) + last + store
	if t.rounds%2 == 0 {
		busy += loop
	}
	return busy
}

// alternates reports whether the warpgroups of a block have tiles in turn. With K in parts, a block
// has a single tile.
func (t *wgmmaTile) alternates() bool { return sm90.PingPong(t.s) && t.parts == 1 }

// loop returns the cycles of a tile's main loop while the given number of SMs work.
func (t *wgmmaTile) loop(active float64) float64 {
	load := t.load(active)
	step := t.step(active, load)
	last := step
	if tail := t.tail(); tail > 0 {
		last = t.step(active, load+tail)
	}
	return (t.steps-1)*step + last
}

// step returns the cycles of a step along K while the given number of SMs work. Its operands load
// in the given cycles. It takes longer than the longest of its parts, whose times vary.
func (t *wgmmaTile) step(active, load float64) float64 {
	n, s := t.n, t.s
	step := tightOverlap(t.compute, load, t.terms*n.Latency/float64(s.Stages))
	if s.SwapAB && t.Precision == gemm.TF32 { // threads load fragments
		step = max(step, n.Fragments+n.Further*float64(s.M/sm90.WarpgroupRows-1))
	}
	switch {
	case t.c.ScaleB == 1:
		step += n.Owners
	case t.c.ScaleB > 1:
		step += n.Scales
	}
	if s.Multicasts() {
		step = n.Together * max(step, t.terms*n.Meet)
	}
	return step
}

// multiply returns the cycles in which the tensor cores multiply a step and threads add the
// promotions.
func (t *wgmmaTile) multiply() float64 {
	n, s := t.n, t.s
	area := float64(max(s.M, sm90.WarpgroupRows) * t.columns())
	products, adds := t.promotions()
	return products*area/n.Rate + adds + 2*n.Issue/float64(s.RowsPerThread)
}

// columns returns the columns of the instructions of a step. Those for few columns count as 64,
// because they read as much of the left operand.
func (t *wgmmaTile) columns() int {
	each := t.s.N
	if t.arithmetic.PromotesEveryStep() {
		each = sm90.PerStepPromotionCols(*t.c)
	}
	return t.s.N / each * max(each, sm90.WarpgroupRows)
}

// promotions returns the number of products of tiles in a step, and the cycles in which threads
// add their sums.
func (t *wgmmaTile) promotions() (products, adds float64) {
	rows, _ := sm90.WarpgroupTile(t.s)
	switch {
	case len(t.arithmetic.Promotions) == 0:
		return 1, 0
	case t.arithmetic.PromotesEveryStep():
		part := t.n.Part
		if sm90.PingPong(t.s) { // no other warpgroup multiplies meanwhile
			part = t.n.PartAlone
		}
		return 1, part * float64(rows/sm90.WarpgroupRows*max(t.s.N, 2*sm90.WarpgroupRows)/sm90.WarpgroupRows)
	}
	for _, round := range t.arithmetic.Promotions {
		products += float64(len(round.Pairs))
		adds += t.n.Promote * float64(round.Passes*rows/sm90.WarpgroupRows)
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
	rows, _ := sm90.WarpgroupTile(s)
	blocks := float64(rows / sm90.WarpgroupRows) // of 64 rows, one after the other in a warpgroup
	store := n.End
	switch {
	case s.ClusterK > 1:
		store += n.ClusterMeet + float64(s.M*s.N)/n.ClusterRate
	case s.SplitK > 1:
		const pairs = 4 // columns for which a thread stores a pair of sums
		store += n.Pair * blocks * float64(s.N/pairs) * t.inside()
	case sm90.StoresWithTMA(*t.c):
		subtiles := n.Subtile * blocks * t.subtiles()
		if s.SwapAB { // which the threads transpose
			subtiles *= t.crowded()
		}
		store += subtiles
	case sm90.CopiesRows(*t.c):
		subtile := n.ByWarps
		if t.c.VecC == 1 {
			subtile = n.Shifted
		}
		store += subtile * t.crowded() * blocks * t.subtiles() * t.inside()
	default:
		store += t.storeRows() * blocks * t.inside()
		if s.SwapAB && t.Epilogue.Residual {
			store += float64(s.M*s.N) / n.ResidualRate
		}
	}
	if t.Epilogue.Activation > gemm.ActReLU {
		store += float64(s.M*t.c.ColumnsOfC()) / n.ActivationRate
	}
	return store
}

// subtiles returns the subtiles of 64 rows of a tile.
func (t *wgmmaTile) subtiles() float64 {
	return float64(ints.CeilDiv(t.c.ColumnsOfC(), sm90.SubtileColumns(*t.c)))
}

// crowded returns the factor by which the warpgroups of a block slow each other's stores down.
func (t *wgmmaTile) crowded() float64 {
	const unhindered = 2 // warpgroups that store without slowing each other down
	return max(float64(sm90.Consumers(t.s))/unhindered, 1)
}

// storeRows returns the cycles in which a warp stores its rows of a block of 64 rows, 32 columns at
// a time. The warp waits for shared memory and conversions, with few elements in flight.
func (t *wgmmaTile) storeRows() float64 {
	unit := t.n.Rows
	if t.c.Out.Bits() < 32 {
		unit = t.n.NarrowRows
	}
	unit *= t.crowded()
	if t.s.SwapAB {
		const warps = sm90.WarpgroupThreads / frag.Lanes
		return unit * float64(t.s.N/warps*sm90.WarpgroupRows/frag.Lanes)
	}
	return unit * float64(sm90.WarpRows*ints.CeilDiv(t.c.ColumnsOfC(), frag.Lanes))
}

// inside returns the part of the busiest SM's tiles that is inside C.
func (t *wgmmaTile) inside() float64 {
	height, width := kernel.SwapAB(t.s, t.s.M, t.c.ColumnsOfC())
	parts := func(cols int) float64 { return float64(ints.CeilDiv(cols, frag.Lanes)) } // of a row
	full := t.insideRows(height) * parts(min(t.N, width)) / parts(width)
	if t.rounds == 1 {
		return full
	}
	products := 1
	if t.Batch.Kind == gemm.Strided {
		products = max(t.Batch.Count, 1)
	}
	whole := volume(kernel.TileCount(t.Problem, t.s), height) * parts(width)
	return min(full, volume(products, t.M)*parts(t.N)/whole)
}

// insideRows returns the part of a tile's rows that is inside C, for the busiest warp. A warp has
// 16 of each 64 rows, or with swapAB all rows.
func (t *wgmmaTile) insideRows(height int) float64 {
	rows := min(t.M, height)
	if t.s.SwapAB {
		return float64(rows) / float64(height)
	}
	inside := rows/sm90.WarpgroupRows*sm90.WarpRows + min(rows%sm90.WarpgroupRows, sm90.WarpRows)
	return float64(inside) / float64(ints.CeilDiv(height, sm90.WarpgroupRows)*sm90.WarpRows)
}
