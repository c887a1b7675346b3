package sm90

import (
	"tilework/internal/gpu/kernel"
	"tilework/ptx/build"
)

// A subtile is 64 rows of some columns of C that TMA stores together; see [SubtileColumns].
type subtile struct {
	down, across int         // first row and column in the warpgroup's part of C
	row, col     build.Reg   // first row and column in C
	number       int         // among the subtiles of the warpgroup's part of C, by rows
	buf          int         // buffer of the warpgroup
	memory       build.Array // of the buffer
}

// subtileAt returns the subtile that begins at row down and column across of the warpgroup's part
// of C, and at (row, col) of C.
func (ep *epilogue) subtileAt(down, across int, row, col build.Reg) subtile {
	s := subtile{down: down, across: across, row: row, col: col, number: ep.subtilesBefore(down, across)}
	ep.setBarrier()
	s.buf = s.number % subtileBuffers(ep.w.Config)
	s.memory = ep.buffer(s.buf)
	return s
}

// subtilesBefore returns the number of subtiles before row down and column across of the
// warpgroup's part of C.
func (ep *epilogue) subtilesBefore(down, across int) int {
	return (down/WarpgroupRows*ep.w.Config.ColumnsOfC() + across) / SubtileColumns(ep.w.Config)
}

// storeSubtiles finishes the accumulators of one subtile after the other and writes them to shared
// memory, from which TMA or the warps copy them to C. While TMA copies a subtile, the warpgroup
// works on the next.
func (ep *epilogue) storeSubtiles(down int, row, col build.Reg, acc []build.Reg) {
	ep.convertVectors()
	width := SubtileColumns(ep.w.Config)
	each := width / 8 * 4 // accumulators of a thread in a subtile
	var up []build.Reg
	if ep.w.Config.ComputesGate() {
		acc, up = acc[:len(acc)/2], acc[len(acc)/2:]
	}
	var adjacent []subtile // that the warps will copy
	for n := 0; n*each < len(acc); n++ {
		first, end := n*each, min((n+1)*each, len(acc))
		subtileCol, part := ep.w.Add(col, n*width), acc[first:end]
		if up != nil {
			part = ep.w.GatedValues(part, up[first:end])
		}
		s := ep.subtileAt(down, n*width, row, subtileCol)
		ep.awaitResidual(s)
		values := ep.finishPairs(s, part)
		if ep.w.tmaStore {
			ep.awaitBuffer()
			ep.writeSubtile(s.memory, values)
			ep.copyToC(s)
			continue
		}
		if len(adjacent) == 0 {
			ep.syncWarp() // it has read the subtiles that were there
		}
		ep.writeSubtile(s.memory, values)
		if adjacent = append(adjacent, s); len(adjacent) == subtileBuffers(ep.w.Config) || end == len(acc) {
			ep.copyRows(adjacent)
			adjacent = nil
		}
	}
}

// convertVectors converts the elements of the epilogue vectors to the type of the epilogue.
func (ep *epilogue) convertVectors() {
	for _, elems := range ep.vectors {
		for j, x := range elems {
			elems[j] = ep.w.ToEpilogueType(x)
		}
	}
}

// awaitResidual waits for the residual of a subtile, if TMA loads it into the subtile's buffer,
// after it has issued the load for the next subtile whose buffer is free.
func (ep *epilogue) awaitResidual(s subtile) {
	if !loadsResidualWithTMA(ep.w.Config) {
		return
	}
	k, buffers := ep.w.Kernel, subtileBuffers(ep.w.Config)
	rows, _ := WarpgroupTile(ep.w.Config.Tile)
	if next := s.number + buffers - 1; s.number > 0 && next < ep.subtilesBefore(rows, 0) {
		k.Comment("what comes next takes the place of the patch before, once that is read")
		k.If(ep.leader, func() {
			k.BulkWaitRead(0)
			ep.loadResidual(next)
		})
	}
	ep.w.residualFull.Wait(k.Mad(ep.warpgroup, buffers, s.buf), ep.residualPhases[s.buf])
	k.Set(ep.residualPhases[s.buf], k.Xor(ep.residualPhases[s.buf], 1))
}

// awaitBuffer waits until a subtile can be overwritten. Either TMA has read the subtile that was in
// the buffer before, or each warp has read the residual in the rows that it writes.
func (ep *epilogue) awaitBuffer() {
	k := ep.w.Kernel
	if loadsResidualWithTMA(ep.w.Config) {
		ep.syncWarp()
		return
	}
	k.Comment("once the copy that was there is read")
	k.If(ep.leader, func() { k.BulkWaitRead(subtileBuffers(ep.w.Config) - 1) })
	ep.syncWarpgroup()
}

// copyToC issues the TMA store of a subtile when all threads have written it.
func (ep *epilogue) copyToC(s subtile) {
	k := ep.w.Kernel
	k.ProxyFence()
	ep.syncWarpgroup()
	k.If(ep.leader, func() {
		ep.w.tensorC.Store(s.memory.Ptr, ep.w.storeCoords(s.row, s.col)...)
		k.BulkCommit()
	})
}

// writeSubtile writes elements of C to a subtile.
func (ep *epilogue) writeSubtile(memory build.Array, values []build.Reg) {
	if ep.w.Config.Out.Bits() == 16 {
		ep.write16Bit(memory, values)
	} else {
		ep.write32Bit(memory, values)
	}
}

// write16Bit writes elements of 16 bits to a subtile with stmatrix. The 8 neighbours that four
// lanes hold are one 16-byte chunk of the swizzle. One instruction writes four 8×8 matrices: two
// chunks of 16 rows, or a single chunk at the end of a row.
func (ep *epilogue) write16Bit(memory build.Array, values []build.Reg) {
	k := ep.w.Kernel
	for n := 0; n < len(values); n += 8 {
		var pairs []build.Reg
		for e := n; e < min(n+8, len(values)); e += 2 {
			pairs = append(pairs, k.Pack(kernel.PTXTypes[ep.w.Config.Out], values[e], values[e+1]))
		}
		k.StoreMatrices(ep.stmatrixRow(memory, n), false, pairs...)
	}
}

// stmatrixRow returns the address of the lane's row in the matrices of elements n to n+7 of 16
// bits. The lanes supply the addresses of 16 rows in one chunk and of the same rows in the next.
func (ep *epilogue) stmatrixRow(memory build.Array, n int) build.Ptr {
	k := ep.w.Kernel
	row, chunk := k.Mad(ep.warp, WarpRows, k.Rem(ep.lane, WarpRows)), k.Div(ep.lane, WarpRows)
	if !swizzlesSubtiles(ep.w.Config) {
		return memory.At(row, 0).Skip(k.Mul(chunk, 16)).Skip(n / 8 * 32)
	}
	swizzle := k.Mul(k.Xor(chunk, k.Rem(row, 8)), 16)
	return memory.At(row, 0).Skip(k.Xor(swizzle, n/8*32))
}

// write32Bit writes elements of 32 bits to a subtile.
func (ep *epilogue) write32Bit(memory build.Array, values []build.Reg) {
	for n := 0; n < len(values); n += 2 {
		ep.pairAt(memory, n).StoreVec(values[n], values[n+1])
	}
}

// pairAt returns the address in a subtile of elements n and n+1 of 32 bits, two neighbours that
// fill half of a 16-byte chunk.
func (ep *epilogue) pairAt(memory build.Array, n int) build.Ptr {
	k, row := ep.w.Kernel, ep.w.Add(ep.row, n/2%2*8)
	if !swizzlesSubtiles(ep.w.Config) {
		return memory.At(row, k.Add(ep.col, n/4*8))
	}
	swizzle := k.Mul(k.Xor(k.Div(ep.col, 4), k.Rem(ep.row, 8)), 16)
	offset := k.Mul(k.Rem(ep.col, 4), 4) // in the chunk
	return memory.At(row, 0).Skip(k.Add(k.Xor(swizzle, n/4*32), offset))
}

// drain waits until TMA has read the last subtiles, before the block exits and frees its shared
// memory.
func (ep *epilogue) drain() {
	if ep.w.tmaStore {
		ep.w.If(ep.leader, func() { ep.w.BulkWaitRead(0) })
	}
}
