package sm90

import (
	"slices"

	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// output hands over what a warpgroup of wgmma has summed, a patch of 64 rows of 128 bytes
// at a time, which goes through shared memory. Where C's rows are whole vectors the patch
// is of C, and a bulk copy takes it from there while the threads go on. Otherwise it is of
// sums, which each warp then finishes row by row, whatever C's leading dimension is.
type output struct {
	*writer
	group, lane  build.Reg        // the warpgroup, and the thread in it
	warp, inWarp build.Reg        // the warp in the warpgroup, and the thread in that
	leader       build.Reg        // whether it is the one that begins copies
	mine         build.Reg        // whether the thread's rows are the tile's
	row, col     build.Reg        // the thread's first sum in the warpgroup's part of C
	words        *frag.FragmentsA // whose rows are the thread's columns of C, if the product is turned
	heldCol      build.Reg
	round        build.Reg // the parity of the tile's number, where blocks share out K
	// held are, for each side of the epilogue, the elements of the tile's that a thread keeps
	// while it multiplies: of rows its own, of columns every 32nd of the warp's, from heldCol on.
	held    [][]build.Reg
	heldOut build.Reg // the epilogue's last factor
	// Where the residual comes in bulk, the parity of the copies to each patch, and where the
	// warpgroup's part of C begins.
	phases     []build.Reg
	row0, col0 build.Reg
}

// rowsOfWarp is how many of the 64 rows are a warp's.
const rowsOfWarp = WarpgroupRows / 4

// patchSlots is how many patches of a warpgroup there is room for: while one is copied to
// C the next is written, if each copy finds the place of the one before the last.
func storeSlots(c kernel.Config) int {
	rows, _ := WarpgroupTile(c.Tile)
	cols := c.ColumnsOfC()
	if c.Tile.ClusterK > 1 {
		return rows / WarpgroupRows * cols * c.In.Info().Accum.Size() / frag.SwizzleBytes
	}
	if c.Tile.SwapAB {
		return 2
	}
	if patches := kernel.CeilDiv(rows/WarpgroupRows*cols*c.Out.Size(), frag.SwizzleBytes); patches%2 != 0 || !StoresWithTMA(c) {
		return 1
	}
	return 2
}

func (w *writer) output(group, lane build.Reg) *output {
	o := &output{writer: w, group: group, lane: lane, leader: w.Eq(lane, 0)}
	o.warp, o.inWarp = w.Div(lane, frag.Lanes), w.Rem(lane, frag.Lanes)
	o.mine = w.Lt(w.Mul(o.warp, rowsOfWarp), rowsOfTile(w.Config.Tile))
	o.row = w.Add(w.Mul(o.warp, rowsOfWarp), w.Div(o.inWarp, frag.Quad))
	o.col = w.Mul(w.Rem(o.inWarp, frag.Quad), 2)
	// Of 32 columns a thread needs eight, two neighbours of each group of eight: every fourth
	// lane keeps one of them, so that a shuffle that finds it among these asks for a constant.
	// Numbers of lanes would take registers beside the sums.
	turn := w.Div(o.inWarp, frag.Quad)
	o.heldCol = w.Add(w.Add(w.Mul(w.Div(turn, 2), 8), o.col), w.Rem(turn, 2))
	if w.Config.Tile.ClusterK > 1 {
		o.round = w.Var("round", ptx.U32, 0)
	}
	if loadsResidualWithTMA(w.Config) {
		o.phases = w.Vars("came", ptx.U32, storeSlots(w.Config), 0)
	}
	return o
}

// fetch has what the epilogue's sides have for the warpgroup's part of C, which begins at (row,
// col), set out. It comes while the tile is multiplied.
func (o *output) fetch(row, col build.Reg) {
	if o.held = nil; !o.bulk {
		return
	}
	o.heldOut, o.row0, o.col0 = o.LoadOutScale(), row, col
	rows, _ := WarpgroupTile(o.Config.Tile)
	cols := o.Config.ColumnsOfC()
	for _, s := range o.EpilogueVectors() {
		var held []build.Reg
		for n := 0; s.PerRow && n < rows; n += 8 {
			if n%WarpgroupRows < 16 { // two of every 64
				held = append(held, o.LoadElement(s, o.Add(row, o.To(o.IndexType, o.Add(o.row, n)))))
			}
		}
		for n := 0; !s.PerRow && n < cols; n += frag.Lanes {
			held = append(held, o.LoadElement(s, o.Add(col, o.To(o.IndexType, o.Add(o.heldCol, n)))))
		}
		o.held = append(o.held, held)
	}
	if loadsResidualWithTMA(o.Config) {
		k := o.Kernel
		k.Comment("the residual for the first patches, when those have been copied to C")
		k.If(o.leader, func() {
			k.BulkWaitRead(0)
			for n := range storeSlots(o.Config) {
				o.load(n, row, col)
			}
		})
	}
}

// load has the residual for the n-th patch of the warpgroup's part of C, which begins at (row,
// col), come to where the patch is going to be.
func (o *output) load(n int, row, col build.Reg) {
	k, slots := o.Kernel, storeSlots(o.Config)
	elements := frag.SwizzleBytes / o.Config.Out.Size()
	across := o.Config.ColumnsOfC() / elements
	at := k.Mad(o.group, slots, n%slots)
	o.came.ArriveExpectTx(at, rowsOfTile(o.Config.Tile)*frag.SwizzleBytes)
	o.residue.Load(o.patch(n%slots).Ptr, o.came.At(at), k.Add(col, n%across*elements), k.Add(row, n/across*WarpgroupRows))
}

// number is that of the patch that begins so many rows and columns behind the warpgroup's
// first.
func (o *output) number(down, across int) int {
	return (down/WarpgroupRows*o.Config.ColumnsOfC() + across) * o.Config.Out.Size() / frag.SwizzleBytes
}

// sidesOf are the elements of the sides for pairs of a patch, which begins so many rows and
// columns behind the warpgroup's first. A column's element is another lane's.
func (o *output) sidesOf(down, across int, pairs [][]build.Reg) (all [][][]build.Reg) {
	k := o.Kernel
	for n, s := range o.EpilogueVectors() {
		of := make([][]build.Reg, len(pairs))
		for p := range pairs {
			switch {
			case s.PerRow:
				x := o.held[n][down/WarpgroupRows*2+p%2]
				of[p] = []build.Reg{x, x}
			case p%2 == 1: // another row's
				of[p] = of[p-1]
			default:
				at := across + p/2*8
				for e := range 2 {
					of[p] = append(of[p], k.Shuffle(o.held[n][at/frag.Lanes], (at%frag.Lanes/8*2+e)*frag.Quad, frag.Quad-1))
				}
			}
		}
		all = append(all, of)
	}
	return all
}

// store hands over 64 rows of sums, which begin so many rows behind the warpgroup's first, and
// at (row, col) of C. Sums 4·j to 4·j+3 are
// two neighbours of columns 8·j on, and two that lie 8 rows further down (manual:
// "wgmma.mma_async", accumulator fragments).
func (o *output) store(down int, row, col build.Reg, sums []build.Reg) {
	if o.Config.Tile.SplitK > 1 {
		o.deliverPairs(row, col, sums)
		return
	}
	width := frag.SwizzleBytes / o.patches.Elem().Bytes() // columns of a patch
	each := width / 8 * 4                                 // sums
	for i, held := range o.held {
		for j, x := range held {
			o.held[i][j] = o.ToEpilogueType(x)
		}
	}
	var ups []build.Reg
	if o.Config.ComputesGate() {
		sums, ups = sums[:len(sums)/2], sums[len(sums)/2:]
	}
	for n := 0; n*each < len(sums); n++ {
		end := min((n+1)*each, len(sums))
		c, part := o.Add(col, n*width), sums[n*each:end]
		if o.Config.ComputesGate() {
			part = o.GatedValues(part, ups[n*each:end])
		}
		if o.bulk {
			o.storePatch(down, n*width, row, c, part)
		} else {
			o.storeSums(row, c, part)
		}
	}
}

// storeTogether adds up what the blocks of a cluster have summed of a warpgroup's part of
// C, sums for 64 rows each. All write theirs to patches; then each block finishes its share of the
// rows, and reads those of all in the order of the blocks' ranks.
func (o *output) storeTogether(row, col build.Reg, sums [][]build.Reg) {
	k, blocks := o.Kernel, o.Config.Tile.ClusterK
	barrier := k.Add(o.group, 1)
	toPeers := func(arrive func(i, rank build.Value)) {
		k.NamedBarrier(barrier, WarpgroupThreads)
		k.If(k.Lt(o.lane, blocks), func() { arrive(o.group, o.lane) })
	}
	width := frag.SwizzleBytes / o.AccType.Bytes() // columns of a patch
	across := len(sums[0]) * 2 / width
	k.Comment("once all have read what was there")
	o.added.WaitAcquire(o.group, k.Xor(o.round, 1))
	for m := range sums {
		for n := range across {
			o.writeWords(o.patch(m*across+n), sums[m][n*width/2:][:width/2])
		}
	}
	toPeers(o.summed.ArrivePeerRelease)
	o.summed.WaitAcquire(o.group, o.round)
	k.Set(o.round, k.Xor(o.round, 1))

	var peers []build.Ptr
	for rank := range blocks {
		peers = append(peers, k.Peer(o.patch(0).Ptr, rank))
	}
	lines := rowsOfTile(o.Config.Tile) / (WarpgroupThreads / frag.Lanes) / blocks // of each patch, that a warp finishes
	top := k.Mul(k.Mad(k.ClusterRank(), WarpgroupThreads/frag.Lanes, o.warp), lines)
	ahead := min(lines, 4)
	k.ForStep(0, len(sums)*across*lines, ahead, func(i build.Reg) {
		patch := k.Div(i, lines)
		first := k.Add(top, k.Rem(i, lines))
		down, c := k.Mul(k.Div(patch, across), WarpgroupRows), k.Mad(k.Rem(patch, across), width, o.inWarp)
		var rows, cols []build.Reg
		parts := make([][]build.Reg, ahead)
		for n := range ahead {
			line := k.Add(first, n)
			swizzled := k.Xor(k.Mul(o.inWarp, o.AccType.Bytes()), k.Mul(k.Rem(line, 8), 16))
			at := k.Add(k.Mul(k.Mad(patch, WarpgroupRows, line), frag.SwizzleBytes), swizzled)
			for _, p := range peers {
				parts[n] = append(parts[n], p.Skip(at).Load())
			}
			rows = append(rows, k.Add(row, k.To(o.IndexType, k.Add(down, line))))
			cols = append(cols, k.Add(col, k.To(o.IndexType, c)))
		}
		var totals [][]build.Reg
		for _, p := range parts {
			total := p[0]
			for _, x := range p[1:] {
				total = k.Add(total, x)
			}
			totals = append(totals, []build.Reg{total})
		}
		o.StoreAll(rows, cols, totals)
	})
	toPeers(o.added.ArrivePeer)
}

// deliverPairs leaves the sums to whoever adds up the parts of K.
func (o *output) deliverPairs(row, col build.Reg, sums []build.Reg) {
	row, col = o.Add(row, o.To(o.IndexType, o.row)), o.Add(col, o.To(o.IndexType, o.col))
	for n := 0; n < len(sums); n += 2 {
		at, c := o.Add(row, n/2%2*8), o.Add(col, n/4*8)
		o.If(o.inside(at, c), func() { o.StoreSums(at, c, sums[n:][:2]) })
	}
}

// inside says whether an element of the thread's is one of C, and of the tile.
func (o *output) inside(row, col build.Reg) build.Reg {
	in := o.C.InBounds(row, col)
	if rowsOfTile(o.Config.Tile) < WarpgroupRows {
		in = o.And(in, o.mine)
	}
	return in
}

// patch is the place of a patch.
func (o *output) patch(slot int) build.Array {
	at := o.Mad(o.group, storeSlots(o.Config), slot)
	return o.patches.From(o.Mul(at, WarpgroupRows), 0)
}

// storePatch finishes sums, writes them to a patch and has that copied to C. The patch begins
// so many rows and columns behind the warpgroup's first.
func (o *output) storePatch(down, across int, row, col build.Reg, sums []build.Reg) {
	k, slots := o.Kernel, storeSlots(o.Config)
	n := o.number(down, across)
	slot, barrier := n%slots, k.Add(o.group, 1) // number 0 is the block's
	patch := o.patch(slot)
	if loadsResidualWithTMA(o.Config) {
		rows, _ := WarpgroupTile(o.Config.Tile)
		if next := n + slots - 1; n > 0 && next < o.number(rows, 0) {
			k.Comment("what comes next takes the place of the patch before, once that is read")
			k.If(o.leader, func() {
				k.BulkWaitRead(0)
				o.load(next, o.row0, o.col0)
			})
		}
		o.came.Wait(k.Mad(o.group, slots, slot), o.phases[slot])
		k.Set(o.phases[slot], k.Xor(o.phases[slot], 1))
	}
	values := o.finished(down, across, row, col, sums)
	if loadsResidualWithTMA(o.Config) {
		k.Do("bar.warp.sync", -1) // a warp's rows are its own
	} else {
		k.Comment("once the copy that was there is read")
		k.If(o.leader, func() { k.BulkWaitRead(slots - 1) })
		k.NamedBarrier(barrier, WarpgroupThreads)
	}
	if o.Config.Out.Size() == 2 {
		o.writeHalves(patch, values)
	} else {
		o.writeWords(patch, values)
	}
	k.ProxyFence()
	k.NamedBarrier(barrier, WarpgroupThreads)
	k.If(o.leader, func() {
		o.tensor.Store(patch.Ptr, o.box(row, col)...)
		k.BulkCommit()
	})
}

// inPatch is the residual where it has come to a patch, for pairs.
func (o *output) inPatch(patch build.Array, pairs int) (all [][]build.Reg) {
	k := o.Kernel
	if o.Config.Out.Size() == 4 {
		for n := range pairs {
			all = append(all, o.word(patch, 2*n).LoadVec(2))
		}
		return all
	}
	elem := kernel.PTXTypes[o.Config.Out]
	for n := 0; n < pairs; n += 4 {
		for _, x := range k.LoadMatrices(o.piece(patch, 2*n), 4, false) {
			half := func(bits build.Reg) build.Reg { return k.Bits(elem, k.To(ptx.U16, bits)) }
			all = append(all, []build.Reg{half(k.To(ptx.U32, x)), half(k.Shr(k.To(ptx.U32, x), 16))})
		}
	}
	return all
}

// pairsAtOnce is how many pairs a thread has registers to read while it holds all sums.
func pairsAtOnce(s kernel.Tile) int {
	if Consumers(s) > 2 {
		return 4
	}
	return 8
}

// finished are the sums of a patch, with alpha and all that follows but for the rounding.
func (o *output) finished(down, across int, row, col build.Reg, sums []build.Reg) []build.Reg {
	k := o.Kernel
	row, col = k.Add(row, k.To(o.IndexType, o.row)), k.Add(col, k.To(o.IndexType, o.col))
	rows := []build.Reg{row, k.Add(row, 8)}
	values := o.ScaledByAlpha(sums)
	place := func(n int) (at, c, inside build.Reg) { // of pair n
		at, c = rows[n%2], k.Add(col, n/2*8)
		return at, c, o.inside(at, c)
	}
	k.If(o.ReadC, func() {
		ahead := pairsAtOnce(o.Config.Tile)
		for first := 0; first < len(values)/2; first += ahead {
			old := make([][]build.Reg, ahead)
			for n := range old {
				at, c, inside := place(first + n)
				old[n] = o.C.At(at, c).LoadVecOr0(inside, 2)
			}
			for n := range old {
				o.AddBetaC(values[2*(first+n):][:2], old[n])
			}
		}
	})
	var at, cols, within []build.Reg
	var pairs [][]build.Reg
	for n := range len(values) / 2 {
		r, c, inside := place(n)
		at, cols, within = append(at, r), append(cols, c), append(within, inside)
		pairs = append(pairs, values[2*n:][:2])
	}
	x := kernel.EpilogueOperands{Vectors: o.sidesOf(down, across, pairs), OutScale: o.heldOut, Rows: at, Cols: cols}
	switch c := o.Config; {
	case loadsResidualWithTMA(c):
		x.Residual = o.inPatch(o.patch(o.number(down, across)%storeSlots(c)), len(pairs))
	case c.Epilogue.Residual:
		x.Residual = kernel.LoadMatching(o.Residual, c.VecResidual, at, cols, pairs, within)
	}
	return slices.Concat(o.ApplyEpilogue(pairs, &x)...)
}

// writeHalves writes values of 16 bits to a patch: a row's 8 neighbours, which four lanes
// have, are a piece of the swizzle, and four of those a warp writes at once.
func (o *output) writeHalves(patch build.Array, values []build.Reg) {
	k := o.Kernel
	for n := 0; n < len(values); n += 8 {
		var pairs []build.Reg
		for e := n; e < n+8; e += 2 {
			pairs = append(pairs, k.Pack(kernel.PTXTypes[o.Config.Out], values[e], values[e+1]))
		}
		k.StoreMatrices(o.piece(patch, n), pairs...)
	}
}

// piece is where the lane's row of the matrices begins that hold values n to n+7 of 16 bits:
// lanes give the addresses of 16 rows, of one piece and of the next.
func (o *output) piece(patch build.Array, n int) build.Ptr {
	k := o.Kernel
	row := k.Mad(o.warp, rowsOfWarp, k.Rem(o.inWarp, rowsOfWarp))
	swizzle := k.Mul(k.Xor(k.Div(o.inWarp, rowsOfWarp), k.Rem(row, 8)), 16)
	return patch.At(row, 0).Skip(k.Xor(swizzle, n/8*32))
}

// writeWords writes values of 32 bits to a patch.
func (o *output) writeWords(patch build.Array, values []build.Reg) {
	for n := 0; n < len(values); n += 2 {
		o.word(patch, n).StoreVec(values[n], values[n+1])
	}
}

// word is where values n and n+1 of 32 bits are: two neighbours are half of a piece.
func (o *output) word(patch build.Array, n int) build.Ptr {
	k := o.Kernel
	swizzle := k.Mul(k.Xor(k.Div(o.col, 4), k.Rem(o.row, 8)), 16)
	behind := k.Mul(k.Rem(o.col, 4), 4) // in the piece
	return patch.At(k.Add(o.row, n/2%2*8), 0).Skip(k.Add(k.Xor(swizzle, n/4*32), behind))
}

// storeSums has sums pass through a patch, from which each warp finishes its rows: what
// neighbouring lanes read and write of C are neighbours then. It is a loop, as there are no
// registers for many addresses beside the sums.
func (o *output) storeSums(row, col build.Reg, sums []build.Reg) {
	k := o.Kernel
	patch := o.patch(0)
	k.Comment("a warp's rows are its own")
	k.Do("bar.warp.sync", -1)
	o.writeWords(patch, sums)
	k.Do("bar.warp.sync", -1)
	first, c := k.Mul(o.warp, rowsOfWarp), k.Add(col, k.To(o.IndexType, o.inWarp))
	const ahead = 4 // rows
	finish := func() {
		k.ForStep(0, rowsOfWarp, ahead, func(r build.Reg) {
			var rows []build.Reg
			var held [][]build.Reg
			for n := range ahead {
				line := k.Add(first, k.Add(r, n))
				swizzled := k.Xor(k.Mul(o.inWarp, o.AccType.Bytes()), k.Mul(k.Rem(line, 8), 16))
				rows = append(rows, k.Add(row, k.To(o.IndexType, line)))
				held = append(held, patch.At(line, 0).Skip(swizzled).LoadVec(1))
			}
			o.StoreAll(rows, []build.Reg{c, c, c, c}, held)
		})
	}
	whose := o.mine
	switch columns := o.Config.ColumnsOfC(); {
	case columns < frag.Lanes: // the columns behind are another tile's
		whose = k.And(whose, k.Lt(o.inWarp, columns))
	case rowsOfTile(o.Config.Tile) == WarpgroupRows:
		finish()
		return
	}
	k.If(whose, finish)
}

// end waits until the last copies have read the patches: shared memory is about to become
// another block's.
func (o *output) end() {
	if o.bulk {
		o.If(o.leader, func() { o.BulkWaitRead(0) })
	}
}
