package choose

import (
	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
)

// skinnyBlock is the work of one block of the kernel skinny. A step multiplies one patch per
// thread.
type skinnyBlock struct {
	in        dtype.Type
	warps     int         // number of warps
	slim      int         // the slim side of the tile
	few, many skinnyStrip // the operand of the slim side, and that of the long side
	steps     int         // along K
	ahead     int         // steps that a thread has in flight
	held      int         // blocks that an SM holds at once

	edge  float64 // instructions of a thread before and after its steps
	step  float64 // instructions of a thread in a step
	bytes float64 // bytes that the SM reads from the L2 cache
	// sectors and lines are the numbers of sectors and of lines that load instructions access, each
	// counted for every instruction of a warp that accesses it.
	sectors, lines float64
	// single is the number of accesses to lines that only one lane of a warp reads.
	single float64
}

// skinnyStrip is a tile's part of an operand: rows of op(A) or of op(B)ᵀ.
type skinnyStrip struct {
	kMajor bool
	vec    int     // elements of one load
	rows   int     // rows that a thread loads
	inside int     // rows among them that the matrix has
	total  int     // rows of the matrix
	block  int     // rows of the tile that the matrix has
	warp   int     // rows that a warp loads
	lanes  int     // lanes of a warp along K
	size   float64 // bytes of an element
	pitch  float64 // bytes between adjacent rows in memory
	apart  bool    // whether the lanes along K have parts of K of their own
}

// lineBytes is the size of a line of the L1 cache.
const lineBytes = 128

// skinnyTiles returns the tiles for K as a whole and for split-K.
func skinnyTiles(*job) []kernel.Tile { return kernel.SkinnyTiles }

// skinnyPartTiles returns the further tiles for K in parts.
func skinnyPartTiles(*job) []kernel.Tile { return kernel.SkinnyPartTiles }

// predictSkinny: threads issue instructions and wait for loads, while memory and the L2 cache
// deliver the operands. The blocks that an SM holds at once hide each other's latency, but the
// instructions before and after a block's steps overlap little with the loads.
func predictSkinny(j *job, c *kernel.Config) prediction {
	n := &j.costs.Skinny
	parts, depth := j.parts(c.Tile)
	b := newSkinnyBlock(j, c, depth)
	x := prediction{blocks: kernel.TileCount(j.Problem, c.Tile) * parts, launch: n.Launch, sum: j.sum(c, parts)}
	busiest := ints.CeilDiv(x.blocks, j.sms)
	if b.many.apart { // K is not split further to fill the SMs
		b.held = min(b.held, busiest)
	}
	x.rounds = ints.CeilDiv(busiest, b.held)

	first := float64(min(busiest, b.held))*b.start(n) + n.Latency
	busy := max(b.threads(n, busiest, b.fresh(j, x.blocks))-first, 0)
	cache := max(b.bytes/n.L2Rate, b.sectors*n.Sector+b.lines*n.Line+b.single*n.Single)
	traffic := j.traffic + b.rereadBytes(j, c.Tile) + n.ShortRow*b.shortRows(j)
	delivery := max(j.perSM(traffic, n.Memory*j.costs.Machine.MemoryRate), float64(busiest)*cache)
	x.multiply, x.load = first+busy, first+delivery
	total := first + norm(1.5, busy, delivery) // the two overlap in part
	if busy > delivery {
		x.multiply = total
	} else {
		x.load = total
	}
	return x
}

// rereadBytes returns the bytes of B that memory delivers again. Tiles with few rows start row by
// row, so those below each other share the reads of B only if they run at the same time, or if the
// L2 cache holds B. Tiles with few columns start in the other order.
func (b *skinnyBlock) rereadBytes(j *job, s kernel.Tile) float64 {
	if !kernel.HasSlimRows(s) || j.Batch.Kind != gemm.Single {
		return 0
	}
	rowsAtOnce := max(b.held*j.sms/kernel.Tiles(j.N, s.N), 1)
	again := float64(ints.CeilDiv(kernel.Tiles(j.M, s.M), rowsAtOnce) - 1)
	return again * max(float64(j.B().Bytes())-j.costs.Machine.L2Bytes, 0)
}

// shortRows returns the bytes by which the rows of the long operand that blocks read are shorter
// than a line, if they do not run along K.
func (b *skinnyBlock) shortRows(j *job) float64 {
	row := float64(b.many.block) * b.many.size
	if b.many.kMajor || row == 0 {
		return 0
	}
	rows := volume(j.Products(), j.K, b.many.total) * b.many.size / row
	return rows * max(lineBytes-row, 0)
}

// fresh returns the part of the bytes which blocks read that comes from memory.
func (b *skinnyBlock) fresh(j *job, blocks int) float64 {
	return min(1, j.operandBytes()/max(1, float64(blocks)*b.bytes))
}

// threads returns the time that an SM takes for its blocks if memory delivers at any rate: that of
// all instructions, or that of blocks one after the other with their waits. The part of the loads
// that is fresh comes from memory. The first blocks wait for memory in any case.
func (b *skinnyBlock) threads(n *skinnyCosts, blocks int, fresh float64) float64 {
	issue := float64(blocks)*(b.start(n)+b.again()*b.issue(n)) + n.Latency
	waves := float64(ints.CeilDiv(blocks, b.held))
	later := fresh*n.Latency + (1-fresh)*n.CacheLatency
	return max(issue, waves*b.start(n)+b.loop(n, n.Latency)+max(waves-1, 0)*b.loop(n, later))
}

// issue returns the cycles of an SM in which all threads of a block issue an instruction. Other
// blocks hide a part of its waits.
func (b *skinnyBlock) issue(n *skinnyCosts) float64 {
	exposed := n.Exposed
	if b.many.apart {
		exposed = n.PartExposed
	}
	return float64(b.warps)/schedulers + exposed/float64(b.held)
}

// start returns the cycles to start a block and to issue each of its instructions once.
func (b *skinnyBlock) start(n *skinnyCosts) float64 {
	return n.Block + b.issue(n)*(b.edge+float64(b.ahead)*b.step)
}

// turns returns how often a thread runs through its loop, which has the steps that are in flight.
func (b *skinnyBlock) turns() int { return ints.CeilDiv(b.steps, b.ahead) }

// again returns the instructions of a thread in all turns but the first.
func (b *skinnyBlock) again() float64 { return float64((b.turns()-1)*b.ahead) * b.step }

// loop returns the time from the first load of a block to the end of its loop, without the
// instructions of the first turn.
func (b *skinnyBlock) loop(n *skinnyCosts, latency float64) float64 {
	turn := max(latency+b.step*b.issue(n), float64(b.ahead)*b.step*b.issue(n))
	return latency + float64(b.turns()-1)*turn
}

func newSkinnyBlock(j *job, c *kernel.Config, depth int) skinnyBlock {
	s := c.Tile
	slim, long := kernel.SkinnySides(s)
	b := skinnyBlock{in: j.In(), warps: kernel.Skinny.BlockThreads(s).X / frag.Lanes, slim: slim,
		steps: kernel.Tiles(depth, s.K), ahead: kernel.SkinnyStepsAhead(s, j.In())}
	if s.SerialK > 1 { // each thread has a part
		b.steps = ints.CeilDiv(kernel.SplitLen(j.Problem, s), kernel.SkinnyPatch)
	}
	size := float64(b.in.Size())
	strip := func(kMajor bool, vec, rows int, l *gemm.Layout) skinnyStrip {
		return skinnyStrip{kMajor: kMajor, vec: vec, total: rows, block: rows, size: size, pitch: size * float64(l.LD)}
	}
	b.few, b.many = strip(!c.TransA, c.VecA, j.M, j.A()), strip(c.TransB, c.VecB, j.N, j.B())
	if !kernel.HasSlimRows(s) {
		b.few, b.many = b.many, b.few
	}
	lanes := min(frag.Lanes, s.K/kernel.SkinnyPatch)
	across := frag.Lanes / lanes * kernel.SkinnyPatch
	b.few.apart, b.many.apart = s.SerialK > 1, s.SerialK > 1
	if !b.many.kMajor {
		lanes, across = frag.Lanes*kernel.SkinnyPatch/long, long
	}
	b.few.place(slim, slim, slim, lanes)
	b.many.place(kernel.SkinnyPatch, long, across, lanes)

	b.setHeld(j.Accum().Bytes(1))
	b.countInstructions(j.Accum().Bytes(1))
	b.countLoads(depth, s.K, long)
	return b
}

// place sets the rows of a thread, a block and a warp, and the lanes along K.
func (x *skinnyStrip) place(rows, block, warp, lanes int) {
	x.rows, x.warp, x.lanes = rows, warp, lanes
	x.block = min(x.block, block)
	x.inside = min(x.block, rows)
	if !x.kMajor {
		x.vec = min(x.vec, rows)
	}
}

// setHeld sets the number of blocks of an SM, which registers limit.
func (b *skinnyBlock) setHeld(accum int) {
	const others = 20 // registers besides sums and elements in flight
	flight := float64(b.ahead) * (b.few.registers() + b.many.registers())
	threads := b.warps * frag.Lanes
	b.held = max(smRegisters/threads/(others+int(flight)+b.slim*kernel.SkinnyPatch*accum/4), 1)
}

// registers returns the registers of a patch.
func (x *skinnyStrip) registers() float64 {
	elements := float64(x.rows * kernel.SkinnyPatch)
	if x.packed() {
		return elements / min(float64(x.vec), 4/x.size)
	}
	return elements * max(x.size/4, 1)
}

// loads returns the number of instructions that load a patch of some rows.
func (x *skinnyStrip) loads(rows int) int {
	if x.kMajor {
		return rows * kernel.SkinnyPatch / x.vec
	}
	return ints.CeilDiv(rows, x.vec) * kernel.SkinnyPatch
}

// packed reports whether a register has several elements.
func (x *skinnyStrip) packed() bool { return x.size < 4 && x.vec > 1 }

// countInstructions counts the instructions of a thread, which follow the code that ptxas
// generates for sm_90.
func (b *skinnyBlock) countInstructions(accum int) {
	const (
		setup, perLoad, perSum = 100, 5, 3.5 // outside of the steps; perSum is for 1 byte of sums
		stepSetup, stepLoad    = 8, 6        // of a step, and of each of its loads
		unpack                 = 1.5         // of a packed element
		fromFloat8             = 7           // of an element
		reduce                 = 55
	)
	ahead := float64(b.ahead)
	loads := float64(b.few.loads(b.few.rows) + b.many.loads(b.many.rows))
	b.edge = setup + perLoad*loads*ahead + reduce + perSum*float64(b.slim*accum)
	b.step = stepSetup + stepLoad*loads + float64(b.slim*kernel.SkinnyPatch*kernel.SkinnyPatch)
	for _, x := range []*skinnyStrip{&b.few, &b.many} {
		elements := float64(x.rows * kernel.SkinnyPatch)
		if x.packed() {
			b.step += unpack * elements
		}
		if b.in == dtype.F8E4M3 || b.in == dtype.F8E5M2 {
			b.step += fromFloat8 * elements
		}
	}
}

// countLoads counts the loads of a block. Warps whose part of the long side is outside of the
// matrix load nothing.
func (b *skinnyBlock) countLoads(depth, stepK, long int) {
	steps := float64(depth) / float64(stepK)
	busy := float64(b.warps) * float64(b.many.block) / float64(long)
	for _, x := range []*skinnyStrip{&b.few, &b.many} {
		b.bytes += x.bytes(depth)
		if x.apart && x.kMajor {
			b.single += steps * busy * x.accesses(lineBytes) * float64(x.warp/x.rows)
			continue
		}
		b.sectors += steps * busy * x.accesses(kernel.SectorBytes)
		b.lines += steps * busy * x.accesses(lineBytes)
	}
}

// bytes returns the bytes of a block's elements in whole sectors.
func (x *skinnyStrip) bytes(depth int) float64 {
	row := float64(x.block) * x.size
	if !x.kMajor {
		row = max(row, min(kernel.SectorBytes, x.pitch))
	}
	return float64(depth) * row
}

// accesses returns the sectors or lines of the given number of bytes that a warp's load
// instructions access for a step. Lanes along K access elements that are a patch apart, so each
// vector accesses the sectors of its row again.
func (x *skinnyStrip) accesses(bytes float64) float64 {
	if x.kMajor {
		row := float64(x.lanes*kernel.SkinnyPatch) * x.size / bytes
		if x.apart {
			row = float64(x.lanes)
		}
		return float64(x.loads(x.inside)) * max(1, row)
	}
	apart := max(min(x.pitch*kernel.SkinnyPatch, bytes), float64(min(x.warp, x.block))*x.size)
	return float64(x.loads(x.inside)) * max(1, float64(x.lanes)*apart/bytes)
}
