package sm90

import (
	"slices"

	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// An epilogue emits the epilogue of a consumer warpgroup. It processes the accumulators in subtiles
// of 64 rows, which pass through shared memory. In most cases they hold finished
// elements of C, which TMA copies while the threads continue, or which the warps copy if TMA
// cannot; see [epilogue.storeSubtiles]. Otherwise they hold accumulators; see [epilogue.storeRows].
type epilogue struct {
	w                 *writer
	warpgroup, thread build.Reg        // index of the consumer warpgroup, and of the thread in it
	warp, lane        build.Reg        // index of the warp in the warpgroup, and of the thread in the warp
	barrier           build.Reg        // number of the warpgroup's named barrier, from setBarrier
	leader            build.Reg        // whether the thread issues the TMA stores of the warpgroup
	inTile            build.Reg        // whether the thread's rows belong to the tile
	row, col          build.Reg        // position of the thread's first accumulator in the warpgroup's part of C
	fragA             *frag.FragmentsA // with swapAB, whose rows are the thread's columns of C
	vectorCol         build.Reg        // column of the first vector element that the thread holds
	reducePhase       build.Reg        // phase of the mbarriers of a cluster along K
	// vectors are the elements of each epilogue vector that a thread loads before the main loop:
	// those of its rows, or those of every 32nd column of the warp, from vectorCol on.
	vectors  [][]build.Reg
	outScale build.Reg
	// If TMA loads the residual: the phase of the mbarrier of each subtile, and the first row and
	// column of the warpgroup's part of C.
	residualPhases []build.Reg
	row0, col0     build.Reg
}

// WarpRows is the number of rows of a warp in the 64 rows of a wgmma instruction.
const WarpRows = WarpgroupRows / 4

// newEpilogue computes the positions of the thread and declares the variables of the epilogue.
func (w *writer) newEpilogue(warpgroup, thread build.Reg) *epilogue {
	ep := &epilogue{w: w, warpgroup: warpgroup, thread: thread, leader: w.Eq(thread, 0)}
	ep.warp, ep.lane = w.Div(thread, frag.Lanes), w.Rem(thread, frag.Lanes)
	ep.inTile = w.Lt(w.Mul(ep.warp, WarpRows), validRows(w.Config.Tile))
	ep.row = w.Add(w.Mul(ep.warp, WarpRows), w.Div(ep.lane, frag.Quad))
	ep.col = w.Mul(w.Rem(ep.lane, frag.Quad), 2)
	// Of 32 columns a thread needs eight: two neighbours in each group of eight. The eight lanes
	// with the same remainder modulo 4 need the same ones, and each holds one of them. Shuffles
	// among these lanes have constant sources. Computed sources would take registers.
	quad := w.Div(ep.lane, frag.Quad)
	ep.vectorCol = w.Add(w.Add(w.Mul(w.Div(quad, 2), 8), ep.col), w.Rem(quad, 2))
	if w.Config.Tile.ClusterK > 1 {
		ep.reducePhase = w.Var("round", ptx.U32, 0)
	}
	if loadsResidualWithTMA(w.Config) {
		ep.residualPhases = w.Vars("came", ptx.U32, subtileBuffers(w.Config), 0)
	}
	return ep
}

// prefetch begins to load the operands of the epilogue for the warpgroup's part of C at (row,
// col), so that they arrive during the main loop. Without subtiles of C they are loaded when they
// are used.
func (ep *epilogue) prefetch(row, col build.Reg) {
	if !finishesSubtiles(ep.w.Config) {
		return
	}
	ep.row0, ep.col0 = row, col
	ep.outScale = ep.w.LoadOutScale()
	ep.prefetchVectors()
	if loadsResidualWithTMA(ep.w.Config) {
		ep.prefetchResidual()
	}
}

// prefetchVectors begins to load the elements of the epilogue vectors that the thread holds.
func (ep *epilogue) prefetchVectors() {
	ep.vectors = nil
	for _, s := range ep.w.EpilogueVectors() {
		first, offsets := ep.col0, ep.vectorOffsets(s.PerRow)
		if s.PerRow {
			first = ep.row0
		}
		var elems []build.Reg
		for _, at := range offsets {
			elems = append(elems, ep.w.LoadElement(s, ep.w.Add(first, ep.w.To(ep.w.IndexType, at))))
		}
		ep.vectors = append(ep.vectors, elems)
	}
}

// vectorOffsets returns the rows or columns of the warpgroup's part of C whose elements of a vector
// the thread holds: two rows of every 64, or every 32nd column.
func (ep *epilogue) vectorOffsets(perRow bool) (at []build.Reg) {
	if !perRow {
		for n := 0; n < ep.w.Config.ColumnsOfC(); n += frag.Lanes {
			at = append(at, ep.w.Add(ep.vectorCol, n))
		}
		return at
	}
	rows, _ := WarpgroupTile(ep.w.Config.Tile)
	for n := 0; n < rows; n += WarpgroupRows {
		at = append(at, ep.w.Add(ep.row, n), ep.w.Add(ep.row, n+8))
	}
	return at
}

// prefetchResidual issues the TMA loads of the residual for the first subtiles.
func (ep *epilogue) prefetchResidual() {
	k := ep.w.Kernel
	k.Comment("the residual for the first patches, when those have been copied to C")
	k.If(ep.leader, func() {
		k.BulkWaitRead(0)
		for n := range subtileBuffers(ep.w.Config) {
			ep.loadResidual(n)
		}
	})
}

// loadResidual issues the TMA load of the residual for subtile n of the warpgroup's part of C
// into the buffer of that subtile.
func (ep *epilogue) loadResidual(n int) {
	k, buffers := ep.w.Kernel, subtileBuffers(ep.w.Config)
	elements := SubtileColumns(ep.w.Config)
	across := ep.w.Config.ColumnsOfC() / elements
	at := k.Mad(ep.warpgroup, buffers, n%buffers)
	ep.w.residualFull.ArriveExpectTx(at, validRows(ep.w.Config.Tile)*ep.w.Config.Out.Bytes(elements))
	ep.w.tensorResidual.Load(ep.buffer(n%buffers).Ptr, ep.w.residualFull.At(at), k.Add(ep.col0, n%across*elements),
		k.Add(ep.row0, n/across*WarpgroupRows))
}

// store stores 64 rows of accumulators, which begin at row down of the warpgroup's part of C and
// at (row, col) of C. Accumulators 4·j to 4·j+3 are two neighbours from column 8·j on, and two
// that are 8 rows below (manual: "wgmma.mma_async", accumulator fragments).
func (ep *epilogue) store(down int, row, col build.Reg, acc []build.Reg) {
	switch {
	case ep.w.Config.Tile.SplitK > 1:
		ep.storePartialSums(row, col, acc)
	case finishesSubtiles(ep.w.Config):
		ep.storeSubtiles(down, row, col, acc)
	default:
		ep.storeRows(row, col, acc)
	}
}

// finishPairs returns the elements of C of subtile s: the accumulators times alpha plus beta times
// C, after the epilogue operations and before the conversion to the type of C.
func (ep *epilogue) finishPairs(s subtile, acc []build.Reg) []build.Reg {
	x := ep.pairsOf(s, acc)
	ep.addOldC(x)
	x.place()
	operands := kernel.EpilogueOperands{Vectors: ep.vectorValues(s, x.values), OutScale: ep.outScale, Rows: x.rows,
		Cols: x.cols}
	switch c := ep.w.Config; {
	case loadsResidualWithTMA(c):
		operands.Residual = ep.residualInSubtile(s.memory, len(x.values))
	case c.Epilogue.Residual:
		operands.Residual = kernel.LoadMatching(ep.w.Residual, c.VecResidual, x.rows, x.cols, x.values, x.inside)
	}
	return slices.Concat(ep.w.ApplyEpilogue(x.values, &operands)...)
}

// pairs are the thread's pairs of neighbouring elements of a subtile.
type pairs struct {
	*epilogue
	evenRow, oddRow    build.Reg // of the pairs with even and with odd numbers in C
	col                build.Reg // of the first pair in C
	values             [][]build.Reg
	rows, cols, inside []build.Reg // of each pair, set by place
}

// pairsOf returns the pairs of subtile s, with the accumulators times alpha.
func (ep *epilogue) pairsOf(s subtile, acc []build.Reg) *pairs {
	k, x := ep.w.Kernel, &pairs{epilogue: ep}
	x.evenRow, x.col = k.Add(s.row, k.To(ep.w.IndexType, ep.row)), k.Add(s.col, k.To(ep.w.IndexType, ep.col))
	x.oddRow = k.Add(x.evenRow, 8)
	x.values = slices.Collect(slices.Chunk(ep.w.ScaledByAlpha(acc), 2))
	return x
}

// position computes the row and column of pair n in C, and whether it is inside.
func (x *pairs) position(n int) (row, col, inside build.Reg) {
	row, col = x.evenRow, x.w.Add(x.col, n/2*8)
	if n%2 == 1 {
		row = x.oddRow
	}
	return row, col, x.inBounds(row, col)
}

// place computes the positions of all pairs.
func (x *pairs) place() {
	for n := range x.values {
		row, col, inside := x.position(n)
		x.rows, x.cols, x.inside = append(x.rows, row), append(x.cols, col), append(x.inside, inside)
	}
}

// addOldC adds beta times C to the pairs if beta is not 0. The number of pairs that it loads at a
// time is limited by the registers that the accumulators leave.
func (ep *epilogue) addOldC(x *pairs) {
	ahead := 8
	if Consumers(ep.w.Config.Tile) > 2 {
		ahead = 4
	}
	ep.w.If(ep.w.ReadC, func() {
		for first := 0; first < len(x.values); first += ahead {
			old := make([][]build.Reg, min(ahead, len(x.values)-first))
			for n := range old {
				old[n] = x.loadOldC(x.position(first + n))
			}
			for n := range old {
				ep.w.AddBetaC(x.values[first+n], old[n])
			}
		}
	})
}

// loadOldC loads a pair of elements of C at (row, col). inside reports whether the first one is
// inside C.
func (x *pairs) loadOldC(row, col, inside build.Reg) []build.Reg {
	at := x.w.C.At(row, col)
	if x.w.Config.VecC > 1 {
		return at.LoadVecOr0(inside, 2)
	}
	second := x.inBounds(row, x.w.Add(col, 1))
	return append(at.LoadVecOr0(inside, 1), at.At(1).LoadVecOr0(second, 1)...)
}

// vectorValues returns the elements of each epilogue vector for the pairs of subtile s.
// Shuffles fetch the elements of columns from other lanes.
func (ep *epilogue) vectorValues(s subtile, pairs [][]build.Reg) (all [][][]build.Reg) {
	k := ep.w.Kernel
	for n, vector := range ep.w.EpilogueVectors() {
		elems := make([][]build.Reg, len(pairs))
		for p := range pairs {
			switch {
			case vector.PerRow:
				x := ep.vectors[n][s.down/WarpgroupRows*2+p%2]
				elems[p] = []build.Reg{x, x}
			case p%2 == 1: // same columns as the pair before, in another row
				elems[p] = elems[p-1]
			default:
				at := s.across + p/2*8
				for e := range 2 {
					source := (at%frag.Lanes/8*2 + e) * frag.Quad
					elems[p] = append(elems[p], k.Shuffle(ep.vectors[n][at/frag.Lanes], source, frag.Quad-1))
				}
			}
		}
		all = append(all, elems)
	}
	return all
}

// residualInSubtile returns the residual of the thread's pairs, read from a subtile that TMA has
// loaded.
func (ep *epilogue) residualInSubtile(memory build.Array, pairs int) (all [][]build.Reg) {
	k := ep.w.Kernel
	if ep.w.Config.Out.Bits() == 32 {
		for n := range pairs {
			all = append(all, ep.pairAt(memory, 2*n).LoadVec(2))
		}
		return all
	}
	elem := kernel.PTXTypes[ep.w.Config.Out]
	for n := 0; n < pairs; n += 4 {
		for _, x := range k.LoadMatrices(ep.stmatrixRow(memory, 2*n), min(4, pairs-n), false) {
			half := func(bits build.Reg) build.Reg { return k.Bits(elem, k.To(ptx.U16, bits)) }
			all = append(all, []build.Reg{half(k.To(ptx.U32, x)), half(k.Shr(k.To(ptx.U32, x), 16))})
		}
	}
	return all
}

// storePartialSums stores the partial sums of a slice of split-K, for the kernel that adds the
// slices.
func (ep *epilogue) storePartialSums(row, col build.Reg, acc []build.Reg) {
	row, col = ep.w.Add(row, ep.w.To(ep.w.IndexType, ep.row)), ep.w.Add(col, ep.w.To(ep.w.IndexType, ep.col))
	for n := 0; n < len(acc); n += 2 {
		at, c := ep.w.Add(row, n/2%2*8), ep.w.Add(col, n/4*8)
		ep.w.If(ep.inBounds(at, c), func() { ep.w.StoreSums(at, c, acc[n:][:2]) })
	}
}

// inBounds emits the test whether an element of the thread is inside C and inside the tile.
func (ep *epilogue) inBounds(row, col build.Reg) build.Reg {
	in := ep.w.C.InBounds(row, col)
	if validRows(ep.w.Config.Tile) < WarpgroupRows {
		in = ep.w.And(in, ep.inTile)
	}
	return in
}

// buffer returns one of the subtile buffers of the warpgroup.
func (ep *epilogue) buffer(n int) build.Array {
	at := ep.w.Mad(ep.warpgroup, subtileBuffers(ep.w.Config), n)
	return ep.w.subtiles.From(ep.w.Mul(at, WarpgroupRows), 0)
}

// setBarrier computes the number of the warpgroup's named barrier; number 0 is that of the block.
// Before the main loop it would occupy a register there.
func (ep *epilogue) setBarrier() { ep.barrier = ep.w.Add(ep.warpgroup, 1) }

// syncWarp waits for all threads of the warp.
func (ep *epilogue) syncWarp() { ep.w.Do("bar.warp.sync", -1) }

// syncWarpgroup waits for all threads of the warpgroup.
func (ep *epilogue) syncWarpgroup() { ep.w.NamedBarrier(ep.barrier, WarpgroupThreads) }
