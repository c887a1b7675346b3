package sm90

import (
	"slices"

	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// An epilogue emits the epilogue of a consumer warpgroup. It processes the accumulators in subtiles
// of 64 rows of 128 bytes, which pass through shared memory. If TMA stores C, the subtile holds
// finished elements of C, and the threads continue while TMA reads it. Otherwise it holds
// accumulators of whole rows; see [epilogue.storeRows].
type epilogue struct {
	*writer
	warpgroup, thread build.Reg        // index of the consumer warpgroup, and of the thread in it
	warp, lane        build.Reg        // index of the warp in the warpgroup, and of the thread in the warp
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

// subtileBuffers returns how many subtiles of a warpgroup fit in shared memory. With two, the
// warpgroup writes one while TMA stores the other. That requires an even number of subtiles per
// tile, so that the two alternate across tiles. A reduction over a cluster needs all subtiles at
// once.
func subtileBuffers(c kernel.Config) int {
	rows, _ := WarpgroupTile(c.Tile)
	cols := c.ColumnsOfC()
	if c.Tile.ClusterK > 1 {
		return c.Accum().Bytes(rows/WarpgroupRows*cols) / frag.SwizzleBytes
	}
	if c.Tile.SwapAB {
		return 2
	}
	if count := kernel.CeilDiv(c.Out.Bytes(rows/WarpgroupRows*cols), frag.SwizzleBytes); count%2 != 0 ||
		!StoresWithTMA(c) {
		return 1
	}
	return 2
}

// newEpilogue computes the positions of the thread and declares the variables of the epilogue.
func (w *writer) newEpilogue(warpgroup, thread build.Reg) *epilogue {
	ep := &epilogue{writer: w, warpgroup: warpgroup, thread: thread, leader: w.Eq(thread, 0)}
	ep.warp, ep.lane = w.Div(thread, frag.Lanes), w.Rem(thread, frag.Lanes)
	ep.inTile = w.Lt(w.Mul(ep.warp, WarpRows), validRows(w.Config.Tile))
	ep.row = w.Add(w.Mul(ep.warp, WarpRows), w.Div(ep.lane, frag.Quad))
	ep.col = w.Mul(w.Rem(ep.lane, frag.Quad), 2)
	// Of 32 columns a thread needs eight: two neighbours in each group of eight. The eight lanes with
	// the same remainder modulo 4 need the same ones, and each holds one of them. Shuffles among
	// these lanes have constant sources. Computed sources would take registers.
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
// col), so that they arrive during the main loop.
func (ep *epilogue) prefetch(row, col build.Reg) {
	if ep.vectors = nil; !ep.tmaStore {
		return
	}
	ep.outScale, ep.row0, ep.col0 = ep.LoadOutScale(), row, col
	rows, _ := WarpgroupTile(ep.Config.Tile)
	cols := ep.Config.ColumnsOfC()
	for _, s := range ep.EpilogueVectors() {
		var elems []build.Reg
		for n := 0; s.PerRow && n < rows; n += 8 {
			if n%WarpgroupRows < 16 { // two rows of every 64
				elems = append(elems, ep.LoadElement(s, ep.Add(row, ep.To(ep.IndexType, ep.Add(ep.row, n)))))
			}
		}
		for n := 0; !s.PerRow && n < cols; n += frag.Lanes {
			elems = append(elems, ep.LoadElement(s, ep.Add(col, ep.To(ep.IndexType, ep.Add(ep.vectorCol, n)))))
		}
		ep.vectors = append(ep.vectors, elems)
	}
	if loadsResidualWithTMA(ep.Config) {
		k := ep.Kernel
		k.Comment("the residual for the first patches, when those have been copied to C")
		k.If(ep.leader, func() {
			k.BulkWaitRead(0)
			for n := range subtileBuffers(ep.Config) {
				ep.loadResidual(n, row, col)
			}
		})
	}
}

// loadResidual issues the TMA load of the residual for subtile n of the warpgroup's part of C,
// which begins at (row, col), into the buffer of that subtile.
func (ep *epilogue) loadResidual(n int, row, col build.Reg) {
	k, buffers := ep.Kernel, subtileBuffers(ep.Config)
	elements := ep.Config.Out.Elements(frag.SwizzleBytes)
	across := ep.Config.ColumnsOfC() / elements
	at := k.Mad(ep.warpgroup, buffers, n%buffers)
	ep.residualFull.ArriveExpectTx(at, validRows(ep.Config.Tile)*frag.SwizzleBytes)
	ep.tensorResidual.Load(ep.subtile(n%buffers).Ptr, ep.residualFull.At(at), k.Add(col, n%across*elements),
		k.Add(row, n/across*WarpgroupRows))
}

// subtileIndex returns the index of the subtile that begins at row down and column across of the
// warpgroup's part of C.
func (ep *epilogue) subtileIndex(down, across int) int {
	return ep.Config.Out.Bytes(down/WarpgroupRows*ep.Config.ColumnsOfC()+across) / frag.SwizzleBytes
}

// vectorValues returns the elements of each epilogue vector for the pairs of a subtile, which
// begins at row down and column across of the warpgroup's part of C. Shuffles fetch the elements
// of columns from other lanes.
func (ep *epilogue) vectorValues(down, across int, pairs [][]build.Reg) (all [][][]build.Reg) {
	k := ep.Kernel
	for n, s := range ep.EpilogueVectors() {
		elems := make([][]build.Reg, len(pairs))
		for p := range pairs {
			switch {
			case s.PerRow:
				x := ep.vectors[n][down/WarpgroupRows*2+p%2]
				elems[p] = []build.Reg{x, x}
			case p%2 == 1: // same columns as the pair before, in another row
				elems[p] = elems[p-1]
			default:
				at := across + p/2*8
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

// store stores 64 rows of accumulators, which begin at row down of the warpgroup's part of C and
// at (row, col) of C. Accumulators 4·j to 4·j+3 are two neighbours from column 8·j on, and two
// that are 8 rows below (manual: "wgmma.mma_async", accumulator fragments).
func (ep *epilogue) store(down int, row, col build.Reg, acc []build.Reg) {
	if ep.Config.Tile.SplitK > 1 {
		ep.storePartialSums(row, col, acc)
		return
	}
	if !ep.tmaStore {
		ep.storeRows(row, col, acc)
		return
	}
	width := frag.SwizzleBytes / ep.subtiles.Elem().Bytes() // columns of a subtile
	each := width / 8 * 4                                   // accumulators per thread of a subtile
	for i, elems := range ep.vectors {
		for j, x := range elems {
			ep.vectors[i][j] = ep.ToEpilogueType(x)
		}
	}
	var up []build.Reg
	if ep.Config.ComputesGate() {
		acc, up = acc[:len(acc)/2], acc[len(acc)/2:]
	}
	for n := 0; n*each < len(acc); n++ {
		end := min((n+1)*each, len(acc))
		c, part := ep.Add(col, n*width), acc[n*each:end]
		if ep.Config.ComputesGate() {
			part = ep.GatedValues(part, up[n*each:end])
		}
		ep.storeSubtileTMA(down, n*width, row, c, part)
	}
}

// reduceCluster emits the epilogue of a cluster along K, whose blocks split K. acc holds the
// partial sums of the warpgroup's part of C, by 64 rows. Every block writes its partial sums to
// subtiles. Each block then finishes its share of the rows: it reads the partial sums of all
// blocks from distributed shared memory and adds them in the order of the ranks.
func (ep *epilogue) reduceCluster(row, col build.Reg, acc [][]build.Reg) {
	k, blocks := ep.Kernel, ep.Config.Tile.ClusterK
	barrier := k.Add(ep.warpgroup, 1)
	toPeers := func(arrive func(i, rank build.Value)) {
		k.NamedBarrier(barrier, WarpgroupThreads)
		k.If(k.Lt(ep.thread, blocks), func() { arrive(ep.warpgroup, ep.thread) })
	}
	width := frag.SwizzleBytes / ep.AccType.Bytes() // columns of a subtile
	across := len(acc[0]) * 2 / width               // subtiles of 64 rows
	k.Comment("once all have read what was there")
	ep.partialsRead.WaitAcquire(ep.warpgroup, k.Xor(ep.reducePhase, 1))
	for m := range acc {
		for n := range across {
			ep.write32Bit(ep.subtile(m*across+n), acc[m][n*width/2:][:width/2])
		}
	}
	toPeers(ep.partialsWritten.ArrivePeerRelease)
	ep.partialsWritten.WaitAcquire(ep.warpgroup, ep.reducePhase)
	k.Set(ep.reducePhase, k.Xor(ep.reducePhase, 1))

	var peers []build.Ptr
	for rank := range blocks {
		peers = append(peers, k.Peer(ep.subtile(0).Ptr, rank))
	}
	// Each warp of each block finishes this many rows of a subtile.
	rowsPerWarp := validRows(ep.Config.Tile) / (WarpgroupThreads / frag.Lanes) / blocks
	firstRow := k.Mul(k.Mad(k.ClusterRank(), WarpgroupThreads/frag.Lanes, ep.warp), rowsPerWarp)
	ahead := min(rowsPerWarp, 4)
	k.ForStep(0, len(acc)*across*rowsPerWarp, ahead, func(i build.Reg) {
		subtile := k.Div(i, rowsPerWarp)
		first := k.Add(firstRow, k.Rem(i, rowsPerWarp))
		down, c := k.Mul(k.Div(subtile, across), WarpgroupRows), k.Mad(k.Rem(subtile, across), width, ep.lane)
		var rows, cols []build.Reg
		partials := make([][]build.Reg, ahead)
		for n := range ahead {
			line := k.Add(first, n)
			swizzled := k.Xor(k.Mul(ep.lane, ep.AccType.Bytes()), k.Mul(k.Rem(line, 8), 16))
			at := k.Add(k.Mul(k.Mad(subtile, WarpgroupRows, line), frag.SwizzleBytes), swizzled)
			for _, p := range peers {
				partials[n] = append(partials[n], p.Skip(at).Load())
			}
			rows = append(rows, k.Add(row, k.To(ep.IndexType, k.Add(down, line))))
			cols = append(cols, k.Add(col, k.To(ep.IndexType, c)))
		}
		var totals [][]build.Reg
		for _, p := range partials {
			total := p[0]
			for _, x := range p[1:] {
				total = k.Add(total, x)
			}
			totals = append(totals, []build.Reg{total})
		}
		ep.StoreAll(rows, cols, totals)
	})
	toPeers(ep.partialsRead.ArrivePeer)
}

// storePartialSums stores the partial sums of a slice of split-K, for the kernel that adds the
// slices.
func (ep *epilogue) storePartialSums(row, col build.Reg, acc []build.Reg) {
	row, col = ep.Add(row, ep.To(ep.IndexType, ep.row)), ep.Add(col, ep.To(ep.IndexType, ep.col))
	for n := 0; n < len(acc); n += 2 {
		at, c := ep.Add(row, n/2%2*8), ep.Add(col, n/4*8)
		ep.If(ep.inBounds(at, c), func() { ep.StoreSums(at, c, acc[n:][:2]) })
	}
}

// inBounds emits the test whether an element of the thread is inside C and inside the tile.
func (ep *epilogue) inBounds(row, col build.Reg) build.Reg {
	in := ep.C.InBounds(row, col)
	if validRows(ep.Config.Tile) < WarpgroupRows {
		in = ep.And(in, ep.inTile)
	}
	return in
}

// subtile returns one of the subtile buffers of the warpgroup.
func (ep *epilogue) subtile(buf int) build.Array {
	at := ep.Mad(ep.warpgroup, subtileBuffers(ep.Config), buf)
	return ep.subtiles.From(ep.Mul(at, WarpgroupRows), 0)
}

// storeSubtileTMA finishes the accumulators of one subtile, writes them to shared memory and
// issues the TMA store to C. The subtile begins at row down and column across of the warpgroup's
// part of C.
func (ep *epilogue) storeSubtileTMA(down, across int, row, col build.Reg, acc []build.Reg) {
	k, buffers := ep.Kernel, subtileBuffers(ep.Config)
	n := ep.subtileIndex(down, across)
	buf, barrier := n%buffers, k.Add(ep.warpgroup, 1) // barrier 0 is the block-wide one
	subtile := ep.subtile(buf)
	if loadsResidualWithTMA(ep.Config) {
		rows, _ := WarpgroupTile(ep.Config.Tile)
		if next := n + buffers - 1; n > 0 && next < ep.subtileIndex(rows, 0) {
			k.Comment("what comes next takes the place of the patch before, once that is read")
			k.If(ep.leader, func() {
				k.BulkWaitRead(0)
				ep.loadResidual(next, ep.row0, ep.col0)
			})
		}
		ep.residualFull.Wait(k.Mad(ep.warpgroup, buffers, buf), ep.residualPhases[buf])
		k.Set(ep.residualPhases[buf], k.Xor(ep.residualPhases[buf], 1))
	}
	values := ep.finishPairs(down, across, row, col, acc)
	if loadsResidualWithTMA(ep.Config) {
		k.Do("bar.warp.sync", -1) // a warp writes only rows that it has read
	} else {
		k.Comment("once the copy that was there is read")
		k.If(ep.leader, func() { k.BulkWaitRead(buffers - 1) })
		k.NamedBarrier(barrier, WarpgroupThreads)
	}
	if ep.Config.Out.Bits() == 16 {
		ep.write16Bit(subtile, values)
	} else {
		ep.write32Bit(subtile, values)
	}
	k.ProxyFence()
	k.NamedBarrier(barrier, WarpgroupThreads)
	k.If(ep.leader, func() {
		ep.tensorC.Store(subtile.Ptr, ep.storeCoords(row, col)...)
		k.BulkCommit()
	})
}

// residualInSubtile returns the residual of the thread's pairs, read from a subtile that TMA has
// loaded.
func (ep *epilogue) residualInSubtile(subtile build.Array, pairs int) (all [][]build.Reg) {
	k := ep.Kernel
	if ep.Config.Out.Bits() == 32 {
		for n := range pairs {
			all = append(all, ep.pairAt(subtile, 2*n).LoadVec(2))
		}
		return all
	}
	elem := kernel.PTXTypes[ep.Config.Out]
	for n := 0; n < pairs; n += 4 {
		for _, x := range k.LoadMatrices(ep.stmatrixRow(subtile, 2*n), 4, false) {
			half := func(bits build.Reg) build.Reg { return k.Bits(elem, k.To(ptx.U16, bits)) }
			all = append(all, []build.Reg{half(k.To(ptx.U32, x)), half(k.Shr(k.To(ptx.U32, x), 16))})
		}
	}
	return all
}

// pairsInFlight returns how many pairs of the old C a thread can load at a time beside its
// accumulators.
func pairsInFlight(s kernel.Tile) int {
	if Consumers(s) > 2 {
		return 4
	}
	return 8
}

// finishPairs returns the elements of C of one subtile: the accumulators times alpha plus beta
// times C, after the epilogue operations and before the conversion to the type of C.
func (ep *epilogue) finishPairs(down, across int, row, col build.Reg, acc []build.Reg) []build.Reg {
	k := ep.Kernel
	row, col = k.Add(row, k.To(ep.IndexType, ep.row)), k.Add(col, k.To(ep.IndexType, ep.col))
	rows := []build.Reg{row, k.Add(row, 8)}
	values := ep.ScaledByAlpha(acc)
	position := func(n int) (at, c, inside build.Reg) { // position of pair n
		at, c = rows[n%2], k.Add(col, n/2*8)
		return at, c, ep.inBounds(at, c)
	}
	k.If(ep.ReadC, func() {
		ahead := pairsInFlight(ep.Config.Tile)
		for first := 0; first < len(values)/2; first += ahead {
			old := make([][]build.Reg, ahead)
			for n := range old {
				at, c, inside := position(first + n)
				old[n] = ep.C.At(at, c).LoadVecOr0(inside, 2)
			}
			for n := range old {
				ep.AddBetaC(values[2*(first+n):][:2], old[n])
			}
		}
	})
	var at, cols, within []build.Reg
	var pairs [][]build.Reg
	for n := range len(values) / 2 {
		r, c, inside := position(n)
		at, cols, within = append(at, r), append(cols, c), append(within, inside)
		pairs = append(pairs, values[2*n:][:2])
	}
	x := kernel.EpilogueOperands{Vectors: ep.vectorValues(down, across, pairs), OutScale: ep.outScale, Rows: at,
		Cols: cols}
	switch c := ep.Config; {
	case loadsResidualWithTMA(c):
		x.Residual = ep.residualInSubtile(ep.subtile(ep.subtileIndex(down, across)%subtileBuffers(c)), len(pairs))
	case c.Epilogue.Residual:
		x.Residual = kernel.LoadMatching(ep.Residual, c.VecResidual, at, cols, pairs, within)
	}
	return slices.Concat(ep.ApplyEpilogue(pairs, &x)...)
}

// write16Bit writes elements of 16 bits to a subtile with stmatrix. The 8 neighbours that four
// lanes hold are one 16-byte chunk of the swizzle. One instruction writes four 8×8 matrices: two
// chunks of 16 rows.
func (ep *epilogue) write16Bit(subtile build.Array, values []build.Reg) {
	k := ep.Kernel
	for n := 0; n < len(values); n += 8 {
		var pairs []build.Reg
		for e := n; e < n+8; e += 2 {
			pairs = append(pairs, k.Pack(kernel.PTXTypes[ep.Config.Out], values[e], values[e+1]))
		}
		k.StoreMatrices(ep.stmatrixRow(subtile, n), pairs...)
	}
}

// stmatrixRow returns the address of the lane's row in the matrices of elements n to n+7 of 16
// bits. The lanes supply the addresses of 16 rows in one chunk and of the same rows in the next.
func (ep *epilogue) stmatrixRow(subtile build.Array, n int) build.Ptr {
	k := ep.Kernel
	row := k.Mad(ep.warp, WarpRows, k.Rem(ep.lane, WarpRows))
	swizzle := k.Mul(k.Xor(k.Div(ep.lane, WarpRows), k.Rem(row, 8)), 16)
	return subtile.At(row, 0).Skip(k.Xor(swizzle, n/8*32))
}

// write32Bit writes elements of 32 bits to a subtile.
func (ep *epilogue) write32Bit(subtile build.Array, values []build.Reg) {
	for n := 0; n < len(values); n += 2 {
		ep.pairAt(subtile, n).StoreVec(values[n], values[n+1])
	}
}

// pairAt returns the address in a subtile of elements n and n+1 of 32 bits, two neighbours that
// fill half of a 16-byte chunk.
func (ep *epilogue) pairAt(subtile build.Array, n int) build.Ptr {
	k := ep.Kernel
	swizzle := k.Mul(k.Xor(k.Div(ep.col, 4), k.Rem(ep.row, 8)), 16)
	offset := k.Mul(k.Rem(ep.col, 4), 4) // in the chunk
	return subtile.At(k.Add(ep.row, n/2%2*8), 0).Skip(k.Add(k.Xor(swizzle, n/4*32), offset))
}

// drain waits until TMA has read the last subtiles, before the block exits and frees its shared
// memory.
func (ep *epilogue) drain() {
	if ep.tmaStore {
		ep.If(ep.leader, func() { ep.BulkWaitRead(0) })
	}
}
