package sm90

import (
	"math"

	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// This file holds the parts of the kernel that only stream-K needs. A C of 150 tiles takes two
// rounds on 132 SMs, and 18 of them work in the second one. With stream-K every SM multiplies
// equally many steps. The tiles of the last round that is full and of the one after it are laid end
// to end, and each block takes an equal part: the last steps of a tile, at most one whole tile, and
// the first steps of another one. In the rounds before, each block has one tile, as without
// stream-K.
//
// A block begins with the first steps of its last tile, and hands the accumulators over. It ends
// with the last steps of its first tile, for which it takes over the accumulators of the block
// before. As a part is longer than a tile, these were complete before it needs them. This is
// McNaughton's wrap-around rule (Scheduling with Deadlines and Loss Functions, 1959). A block waits
// only for a block with a smaller number, which started before it and which hands over before it
// waits itself.
//
// The blocks of the tiles that are below each other in C form a gang, which has the tiles of whole
// columns. They load the same parts of B at the same time, and so memory delivers them once. If
// each block had a part of its own, the L2 cache would have to hold B from the first of them to the
// last.

// MaxGang returns the largest number of rows of tiles, or of clusters, of C whose blocks form a
// gang, if as many as clusters run at once. Tiles of one column follow each other in raster order.
func MaxGang(s kernel.Tile, clusters int) int { return min(6, rasterRows(s), clusters) }

// share is the work of a block with stream-K, as a list of pieces of tiles.
type share struct {
	w *writer
	// gangs is the number of gangs, of size blocks or clusters each. gang is that of the block, and
	// member its number there.
	gangs, size, gang, member build.Reg
	// pieces is the number of pieces. The first ones are the tiles of the even rounds, in which
	// each block has one.
	pieces, even build.Reg
	// top is the column of the next piece, where columns count from the first one after the even
	// rounds. The columns before it follow.
	top build.Reg
	// begin is the first step of the last piece, and end that after the last one of piece even. The
	// other pieces have all steps.
	begin, end build.Reg
}

// newShare computes the share of the block in the tiles of a scheduler. There is at least one step.
func (w *writer) newShare(tiles *kernel.TileScheduler) *share {
	k := w.Kernel
	x := &share{w: w}
	largest := k.Min(MaxGang(w.Config.Tile, math.MaxInt32), w.numClusters)
	x.size = k.Named("gang", k.Select(k.Le(tiles.TileRows, largest), tiles.TileRows, 1))
	x.gangs = k.Named("gangs", k.Div(w.numClusters, x.size))
	x.gang, x.member = k.Div(w.cluster, x.size), k.Rem(w.cluster, x.size)
	columns := k.Div(tiles.Tiles, x.size)
	x.even = k.Named("even", k.Sub(k.Div(columns, x.gangs), 1))
	steps, further := k.To(ptx.U64, w.allSteps), k.To(ptx.U64, k.Rem(columns, x.gangs))
	// bounds returns the column in which the part of a gang begins, and the step in it.
	bounds := func(gang build.Reg) (column, step build.Reg) {
		ahead := k.Div(k.Mul(k.Mul(k.To(ptx.U64, gang), further), steps), k.To(ptx.U64, x.gangs))
		return k.Add(gang, k.To(ptx.U32, k.Div(ahead, steps))), k.To(ptx.U32, k.Rem(ahead, steps))
	}
	first, begin := bounds(x.gang)
	last, end := bounds(k.Add(x.gang, 1))
	whole := k.Eq(end, 0)
	x.begin, x.end = k.Named("begin", begin), k.Named("end", k.Select(whole, w.allSteps, end))
	x.top = k.Named("top", k.Select(whole, k.Sub(last, 1), last))
	pieces := k.Add(x.even, k.Add(k.Sub(x.top, first), 1))
	x.pieces = k.Named("pieces", k.Select(k.Lt(x.gang, x.gangs), pieces, 0)) // no gang has the last blocks
	return x
}

// piece makes piece i the current one, and returns the number of its tile.
func (x *share) piece(i build.Reg) (tile build.Reg) {
	k, w := x.w.Kernel, x.w
	after := k.Sub(k.Add(k.Mul(x.even, x.gangs), x.top), k.Sub(i, x.even))
	column := k.Select(k.Lt(i, x.even), k.Mad(i, x.gangs, x.gang), after)
	first := k.Named("first", k.Select(k.Eq(k.Add(i, 1), x.pieces), x.begin, 0))
	end := k.Select(k.Eq(i, x.even), x.end, w.allSteps)
	w.first, w.steps = first, k.Named("steps", k.Sub(end, first))
	return k.Mad(column, x.size, x.member)
}

// beginsWithin and endsTile return predicates that report whether the current piece begins after
// the first step of its tile, and whether it has the last one.
func (w *writer) beginsWithin() build.Reg { return w.Ne(w.first, 0) }
func (w *writer) endsTile() build.Reg     { return w.Eq(w.Add(w.first, w.steps), w.allSteps) }

// firstElement returns the first element along K of the current piece of a tile.
func (w *writer) firstElement() build.Value {
	if !w.Config.Tile.StreamK {
		return w.KBegin
	}
	return w.Mul(w.To(w.IndexType, w.first), w.Config.Tile.K)
}

// handover passes accumulators from each thread of a block to the same thread of the next block or,
// in clusters, of the same block of the next cluster.
type handover struct {
	w    *writer
	lane build.Reg
	// sums points to the thread's first vector of accumulators in block 0, and flag to the flag of
	// its warp there.
	sums, flag build.Ptr
}

// newHandover computes where the accumulators of a thread are, given its index in the warpgroup.
func (w *writer) newHandover(thread build.Reg) *handover {
	k := w.Kernel
	sums, flags := w.Handed()
	consumer := k.Sub(w.tid, WarpgroupThreads)
	return &handover{w, k.Rem(thread, frag.Lanes), sums.Skip(k.Mul(k.To(ptx.U64, consumer), kernel.MaxVectorBytes)),
		flags.At(k.Div(consumer, frag.Lanes))}
}

// of returns the pointers for a block.
func (x *handover) of(block build.Reg) (sums, flag build.Ptr) {
	k, s := x.w.Kernel, x.w.Config.Tile
	bytes, warps := s.M*s.N*x.w.AccType.Bytes(), Consumers(s)*WarpgroupThreads/frag.Lanes
	return x.sums.Skip(k.Mul(k.To(ptx.U64, block), bytes)), x.flag.At(k.Mul(block, warps))
}

// vectors calls f with each vector of accumulators and its address, where that of the first is at.
// The vectors of all threads with one number are adjacent.
func (x *handover) vectors(at build.Ptr, sums [][]build.Reg, f func(at build.Ptr, v []build.Reg)) {
	n := 0
	for _, acc := range sums {
		const vector = 4
		for i := 0; i < len(acc); i += vector {
			f(at.Skip(n*Consumers(x.w.Config.Tile)*WarpgroupThreads*kernel.MaxVectorBytes), acc[i:][:vector])
			n++
		}
	}
}

// give hands over the accumulators.
func (x *handover) give(sums [][]build.Reg) {
	k := x.w.Kernel
	at, flag := x.of(k.BlockIdx(build.X))
	x.vectors(at, sums, func(at build.Ptr, v []build.Reg) { at.StoreVec(v[0], v[1], v[2], v[3]) })
	k.Do("bar.warp.sync", -1)
	k.If(k.Eq(x.lane, 0), func() { k.Do("st.release.gpu.global.u32", flag, 1) })
}

// take waits for the accumulators of a block, and sets sums to them.
func (x *handover) take(block build.Reg, sums [][]build.Reg) {
	k := x.w.Kernel
	at, flag := x.of(block)
	// The shuffle tells ptxas that the lanes of a warp leave the loop together, as in newConsumer.
	k.While(func() build.Reg {
		given := k.Fresh(ptx.U32)
		k.Do("ld.acquire.gpu.global.u32", given, flag)
		return k.Eq(k.Shuffle(given, 0, 0), 0)
	}, func() {})
	k.Do("bar.warp.sync", -1)
	x.vectors(at, sums, func(at build.Ptr, v []build.Reg) { at.LoadTo(v...) })
	k.Do("bar.warp.sync", -1)
	k.If(k.Eq(x.lane, 0), func() { flag.Store(0) })
}
