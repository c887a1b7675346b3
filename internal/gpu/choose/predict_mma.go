package choose

import (
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
)

// mmaTiles returns the tiles of mma for the job's element type. Those of MMATiles are for 2 bytes.
func mmaTiles(j *job) []kernel.Tile {
	if j.In() == dtype.F64 {
		return kernel.MMATilesF64
	}
	tiles := slices.Clone(kernel.MMATiles)
	for i := range tiles {
		tiles[i].K = j.In().Elements(tiles[i].K * 2)
	}
	return tiles
}

// The limits of an SM from sm_80 on.
const (
	schedulers    = 4        // each issues an instruction of one warp per cycle
	smRegisters   = 64 << 10 // 32-bit registers
	maxRegisters  = 255      // of a thread
	blockReserved = 1 << 10  // bytes of shared memory of a block besides its own
)

// mmaBlock is the work of one block of the kernel mma.
type mmaBlock struct {
	*job
	n     *mmaCosts
	c     *kernel.Config
	s     kernel.Tile
	warps float64
	// queue is the number of the block's warps that share a scheduler, at least 1.
	queue float64
	// async and single are the copies per thread and stage: with cp.async, and of single elements
	// that pass through registers.
	async, single float64
	byteRuns      float64 // copies of less than 16 bytes of an 8-bit operand that is stored across K
	sectors       float64 // sectors that the copies of a stage read
	resident      int     // blocks that an SM holds
}

// predictMMA: blocks issue copies and multiply, or wait for either. Memory delivers each matrix
// once, and the L2 cache receives C in sectors.
func predictMMA(j *job, c *kernel.Config) prediction {
	n := &j.costs.MMA
	parts, depth := j.parts(c.Tile)
	x := prediction{blocks: kernel.TileCount(j.Problem, c.Tile) * parts, launch: n.Launch}
	x.rounds = ints.CeilDiv(x.blocks, j.sms)
	b := newMMABlock(j, c)
	steps := float64(kernel.Tiles(depth, c.Tile.K))

	busy := float64(x.rounds)*n.Block + b.rounds(x.rounds, steps)
	stored := j.perSM(float64(parts)*b.stored(), n.StoreRate)
	exposed := n.StoreExposed
	if kernel.StoresRows(*c) {
		exposed = n.RowExposed
	}
	busy = max(busy, stored) + exposed/float64(max(1, min(b.resident, x.rounds)))*min(busy, stored)
	memory := j.deliver(j.operandBytes(), n.Memory)
	// The shorter of the two is hidden unless they take about as long.
	if x.multiply, x.load = math.Hypot(busy, memory), memory; memory > busy {
		x.multiply, x.load = x.load, x.multiply
	}
	x.sum = j.sum(c, parts)
	return x
}

func newMMABlock(j *job, c *kernel.Config) mmaBlock {
	s := c.Tile
	b := mmaBlock{job: j, n: &j.costs.MMA, c: c, s: s, warps: float64(kernel.MMAThreads(s) / frag.Lanes)}
	b.queue = max(b.warps/schedulers, 1)
	b.addCopies(j.A(), s.M, c.VecA, !c.TransA, j.M)
	b.addCopies(j.B(), s.N, c.VecB, c.TransB, j.N)
	b.setResident()
	return b
}

// addCopies adds the copies of an operand with side rows or columns in a tile and size in the
// matrix.
func (b *mmaBlock) addCopies(l *gemm.Layout, side, vec int, kMajor bool, size int) {
	rows, cols := b.s.K, side
	if kMajor {
		rows, cols = side, b.s.K
	}
	async := l.Type.Bytes(vec) >= frag.MinAsyncCopy
	if !async {
		vec = 1
	}
	copies := float64(ints.CeilDiv(rows*cols, vec*kernel.MMAThreads(b.s)))
	if async {
		b.async += copies
		if l.Type.Bits() == 8 && !kMajor && vec < kernel.MaxVectorBytes {
			b.byteRuns += copies
		}
	} else {
		b.single += copies
	}
	inside := float64(min(side, size)) / float64(side)
	b.sectors += inside * float64(rows) * sectorsOf(l.Type.Bytes(cols), l.Type.Bytes(l.LD))
}

// sectorsOf returns the mean number of sectors of a run of bytes in each row of a matrix whose rows
// are the given number of bytes apart.
func sectorsOf(run, apart int) float64 {
	aligned := min(apart&-apart, kernel.SectorBytes, run)
	return 1 + float64(run-aligned)/kernel.SectorBytes
}

// setResident estimates the registers of a thread, and from them how many blocks an SM holds. Each
// single element in flight takes registers for its value and its address.
func (b *mmaBlock) setResident() {
	const others, perSum, perElement = 60, 1.3, 2
	sums := float64(b.s.RowsPerThread * b.s.ColsPerThread * b.Accum().Bits() / 32)
	registers := others + perSum*sums + perElement*b.single
	granted := ints.RoundUp(int(min(registers, maxRegisters)), 8)
	shared := b.device.MaxShared + blockReserved
	b.resident = max(1, min(smRegisters/(granted*kernel.MMAThreads(b.s)),
		shared/(kernel.MMA.SharedFor(*b.c)+blockReserved)))
}

// rounds returns the cycles in which an SM computes the given number of blocks.
func (b *mmaBlock) rounds(blocks int, steps float64) (cycles float64) {
	full, rest := blocks/b.resident, blocks%b.resident
	if rest > 0 {
		cycles, _ = b.round(rest, steps)
	}
	if full > 0 {
		// Blocks drift apart, so that later ones wait while others work.
		first, work := b.round(b.resident, steps)
		cycles += first + float64(full-1)*(work+b.n.Later*(first-work))
	}
	return cycles
}

// round returns the cycles in which an SM computes the given number of blocks side by side, and
// those of them in which it works, if it never waits.
func (b *mmaBlock) round(blocks int, steps float64) (cycles, busy float64) {
	n, side := b.n, float64(blocks)
	fill, wait := n.Fill+n.CopyIssue*b.async, 0.0
	if b.single > 0 {
		wait = n.SingleWait
	}
	queue := max(b.queue, side*b.warps/schedulers)
	start := queue*fill + wait
	latency := n.Step + b.queue*(fill+b.multiplyIssue()) + wait + n.ByteRun*b.byteRuns/b.queue
	copies := max(b.warps*(n.Copy*b.async+n.Single*b.single), b.sectors*kernel.SectorBytes/n.L2Rate)
	tensor := float64(b.s.M*b.s.N*b.s.K) / n.Rates.of(b.In())
	store := b.storeTime(queue)
	work := max(tensor, copies) + n.CopyExposed/float64(b.s.Stages-1)*min(tensor, copies)
	step := max(latency, side*work+n.StepExposed*latency/(side*b.queue))
	filled := float64(b.s.Stages - 1)
	return filled*start + steps*step + store, filled*queue*fill + steps*side*work + store
}

// multiplyIssue returns the instructions of a warp to multiply a stage: mma.sync, the loads of its
// fragments, and the conversions of elements and additions of sums.
func (b *mmaBlock) multiplyIssue() float64 {
	const rowsOf, colsOf = 16, 8 // an instruction
	t := b.In()
	steps, f64 := t.Elements(32), t == dtype.F64
	if f64 {
		steps = 8
	}
	rows, cols := b.s.RowsPerThread*frag.Eight/rowsOf, b.s.ColsPerThread*frag.Quad/colsOf
	loadA, loadB := rows, ints.CeilDiv(cols, 2)
	if f64 || t == dtype.F32 && b.c.TransA { // element by element
		loadA = 4 * rows
	}
	if f64 || t == dtype.F32 && !b.c.TransB {
		loadB = 2 * cols
	}
	more := 0
	switch {
	case t == dtype.F32: // rounded to tf32
		more = 4*rows + 2*cols
	case t.Bits() == 8:
		if b.c.TransA {
			more += 4 * rows
		}
		if !b.c.TransB {
			more += 2 * cols
		}
		if b.Accum() == dtype.F32 { // promotion: accumulators are cleared and added
			more += 6 * rows * cols
		}
	}
	return b.n.Multiply + float64(b.s.K/steps*(rows*cols+loadA+loadB+more))
}

// storeTime returns the cycles in which a block stores C, where each scheduler has the given number
// of warps. The stores of whole rows wait for shared memory.
func (b *mmaBlock) storeTime(queue float64) float64 {
	if !kernel.StoresRows(*b.c) {
		return queue * b.n.StoreIssue * b.stores()
	}
	// The accesses of a thread to shared memory between the main loop and its stores.
	exchanges := b.sums()/float64(kernel.SumsPerRow(*b.c)) + b.stores()
	return (queue*(b.n.RowIssue*b.stores()+b.n.Exchange*exchanges) + b.n.RowWait*b.stores()) * b.inside()
}

// inside returns the part of a tile's columns that is inside C.
func (b *mmaBlock) inside() float64 {
	return float64(b.Columns()) / float64(kernel.Tiles(b.Columns(), b.s.N)*b.s.N)
}

// stores returns the number of stores of a thread.
func (b *mmaBlock) stores() float64 { return b.sums() / float64(b.storeVec()) }

// sums returns the number of accumulators of a thread.
func (b *mmaBlock) sums() float64 { return float64(b.s.RowsPerThread * b.s.ColsPerThread) }

// storeVec returns the number of elements that a thread stores at once. Partial sums of split-K
// always have pairs.
func (b *mmaBlock) storeVec() int {
	if b.s.SplitK > 1 {
		return 2
	}
	return b.c.VecC
}

// stored returns the number of sectors that all stores to C or to one part of the partial sums
// write, in runs of adjacent elements. It counts more for narrow tiles: memory is slower for their
// short rows.
func (b *mmaBlock) stored() float64 {
	run := frag.Quad * b.storeVec()
	if kernel.StoresRows(*b.c) {
		run = kernel.RowStore(*b.c)
	}
	l := b.C()
	elem, ld := l.Type.Bytes(1), l.LD
	if b.s.SplitK > 1 {
		elem, ld = b.Accum().Bytes(1), kernel.PartialSumLD(b.Problem)
	}
	sectors := sectorsOf(run*elem, ld*elem) * (1 + b.n.ShortRow/float64(b.s.N*elem))
	return volume(b.Products(), b.M, b.Columns()) / float64(run) * sectors
}
