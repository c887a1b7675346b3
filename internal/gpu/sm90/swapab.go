package sm90

import (
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/build"
)

// This file holds the parts of the kernel that only swapAB needs. wgmma reads 32-bit elements in
// shared memory K-major only, and in most tf32 products B is MN-major. wgmma can also read its
// left operand from registers, which threads load in any order. So swapAB computes Cᵀ = Bᵀ·Aᵀ: B
// becomes the left operand with M columns per tile, and A the right operand with N rows per tile.

// swapABTiles lists further tiles of tf32 for an MN-major B. M counts columns of C. 256×128 with
// 128 columns of C per warpgroup spills registers in the epilogue.
var swapABTiles = []kernel.Tile{
	{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, Stages: 4},
	{M: 128, N: 192, RowsPerThread: 2, ColsPerThread: 48, Stages: 4},
	{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6},
	{M: 64, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 8},
	{M: 128, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 8},
	{M: 64, N: 32, RowsPerThread: 2, ColsPerThread: 8, Stages: 12},
	{M: 64, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 12},
	{M: 64, N: 16, RowsPerThread: 2, ColsPerThread: 4, Stages: 12},
}

// checkSwapAB returns a reason unless swapAB tiles can compute p.
func checkSwapAB(p *gemm.Problem) *kernel.Reason {
	q, _ := kernel.Repack(p, kernel.Tile{SwapAB: true}, kernel.Align{})
	if p.Precision != gemm.TF32 || q.B().Trans || p.N < 2 || p.Batch.Kind == gemm.Grouped || p.Epilogue.Gated {
		return kernel.Because("swapAB: want tf32, an MN-major B, N of at least 2, and no groups or gate")
	}
	return nil
}

// accumulateRS emits the main loop of accumulateSS with the left operand in registers. It is
// double-buffered: while the tensor cores multiply one half of a step, threads load the fragments
// of the other half.
func (x *mainloop) accumulateRS() {
	k, s := x.Kernel, x.Config.Tile
	const halves = 2 // parts of a step
	steps := s.K / halves / x.op.K()
	var fragments [halves][][]build.Reg
	for half := range fragments {
		for range len(x.acc) * steps {
			regs := []build.Reg{k.Fresh(x.Elem), k.Fresh(x.Elem), k.Fresh(x.Elem), k.Fresh(x.Elem)}
			fragments[half] = append(fragments[half], regs)
		}
	}
	k.For(0, x.steps, func(i build.Reg) {
		x.state.WaitFull()
		stageA, stageB := x.a.StageByteOffset(x.state.Stage()), x.b.DescStageOffset(x.state.Stage())
		for half, frags := range fragments {
			k.Comment("once the products before the last ones are done, of which these were the fragments")
			k.WgmmaWait(1)
			if half > 0 {
				x.release(x.prevStage, k.Ne(i, 0))
			}
			for n, to := range frags {
				x.fragA.Load(to, stageA, n/steps*WarpgroupRows, (half*steps+n%steps)*x.op.K())
			}
			k.WgmmaFence()
			for step := range steps {
				p := (half*steps + step) * x.op.K()
				var add build.Value = true
				if p == 0 {
					add = k.Ne(i, 0) // the first wgmma overwrites the accumulators
				}
				b := k.Add(k.Add(x.descB, stageB), x.b.DescKOffset(p))
				for m := range x.acc {
					k.Wgmma(x.op, x.acc[m], frags[m*steps+step], b, add)
				}
			}
			k.WgmmaCommit()
		}
		k.Set(x.prevStage, x.state.Stage())
		x.state.Next()
	})
}

// swapABSubtileRows is the number of rows of C that the epilogue stores at a time. They are in two
// subtiles side by side, of 32 columns each.
const swapABSubtileRows = 32

// storeSwapAB stores accumulators of 64 columns of C from (row, col) on. A thread has two of the
// columns. The accumulators pass through subtiles, which transpose them so that neighbours in a
// row of C are stored together. Shared memory holds two pairs of subtiles: the warpgroup writes
// one pair while TMA stores the other.
func (ep *epilogue) storeSwapAB(row, col build.Reg, acc []build.Reg) {
	k := ep.Kernel
	const each = swapABSubtileRows / 2                                        // accumulators of a thread
	barrier, passes := k.Add(ep.warpgroup, 1), kernel.CeilDiv(len(acc), each) // barrier 0 is block-wide
	for n := range passes {
		part := acc[n*each : min((n+1)*each, len(acc))]
		row := k.Add(row, n*swapABSubtileRows)
		var rows, cols []build.Reg // positions of the elements of part
		for i := range part {
			rows = append(rows, k.Add(row, k.To(ep.IndexType, ep.swapABRow(i))))
			cols = append(cols, k.Add(col, k.To(ep.IndexType, ep.swapABCol(i))))
		}
		if ep.Config.Tile.SplitK > 1 {
			for i, x := range part {
				k.If(ep.C.InBounds(rows[i], cols[i]), func() { ep.StoreSums(rows[i], cols[i], []build.Reg{x}) })
			}
			continue
		}
		if ep.tmaStore {
			part = ep.finishElements(rows, cols, part)
			k.Comment("once the copies that were there are read")
			k.If(ep.leader, func() { k.BulkWaitRead(1 - passes%2) })
		}
		k.NamedBarrier(barrier, WarpgroupThreads)
		for i, x := range part {
			ep.swapABElement(n%2, i).Store(x)
		}
		if !ep.tmaStore {
			k.NamedBarrier(barrier, WarpgroupThreads)
			ep.storeSwapABRows(n%2, 2*len(part), row, col)
			continue
		}
		k.ProxyFence()
		k.NamedBarrier(barrier, WarpgroupThreads)
		k.If(ep.leader, func() {
			for half := range 2 {
				ep.tensorC.Store(ep.swapABSubtile(n%2, half).Ptr, ep.storeCoords(row, k.Add(col, half*swapABSubtileRows))...)
			}
			k.BulkCommit()
		})
	}
}

// finishElements returns elements of C that are not neighbours: the accumulators times alpha plus
// beta times C, after the epilogue operations and before the conversion to the type of C.
func (ep *epilogue) finishElements(rows, cols, acc []build.Reg) []build.Reg {
	k := ep.Kernel
	values := ep.ScaledByAlpha(acc)
	k.If(ep.ReadC, func() {
		const ahead = 4 // more elements in flight would spill registers
		for first := 0; first < len(values); first += ahead {
			var old []build.Reg
			for i := first; i < first+ahead; i++ {
				old = append(old, ep.C.At(rows[i], cols[i]).LoadVecOr0(ep.C.InBounds(rows[i], cols[i]), 1)...)
			}
			ep.AddBetaC(values[first:][:ahead], old)
		}
	})
	operands := kernel.EpilogueOperands{OutScale: ep.outScale, Rows: rows, Cols: cols}
	single := slices.Collect(slices.Chunk(values, 1))
	return slices.Concat(ep.ApplyEpilogue(single, &operands)...)
}

// storeSwapABRows finishes and stores rows of accumulators from one pair of subtiles, to C from
// (row, col) on. Each warp processes an equal share of the rows.
func (ep *epilogue) storeSwapABRows(pair, rowCount int, row, col build.Reg) {
	k := ep.Kernel
	const ahead = 2 // rows
	share := rowCount / (WarpgroupThreads / frag.Lanes)
	firstRow := k.Mul(ep.warp, share)
	k.ForStep(0, share, ahead, func(r build.Reg) {
		var rows, cols []build.Reg
		var acc [][]build.Reg
		for n := range ahead {
			line := k.Add(firstRow, k.Add(r, n))
			swizzled := k.Xor(k.Mul(ep.lane, ep.AccType.Bytes()), k.Mul(k.Rem(line, 8), 16))
			for half := range 2 {
				rows = append(rows, k.Add(row, k.To(ep.IndexType, line)))
				cols = append(cols, k.Add(col, k.To(ep.IndexType, k.Add(ep.lane, half*swapABSubtileRows))))
				acc = append(acc, ep.swapABSubtile(pair, half).At(line, 0).Skip(swizzled).LoadVec(1))
			}
		}
		ep.StoreAll(rows, cols, acc)
	})
}

// swapABRow returns the row of the thread's accumulator i in a pair of subtiles.
func (ep *epilogue) swapABRow(i int) build.Reg { return ep.Add(ep.col, i/4*8+i%2) }

// swapABCol returns the column of the thread's accumulator i in a pair of subtiles.
func (ep *epilogue) swapABCol(i int) build.Reg { return ep.Add(ep.fragA.Row(), i/2%2*frag.LowerRow) }

// swapABElement returns the address of the thread's accumulator i in a pair of subtiles.
func (ep *epilogue) swapABElement(pair, i int) build.Ptr {
	k := ep.Kernel
	const chunkWords = 4 // 16 bytes
	line, c := ep.swapABRow(i), ep.swapABCol(i)
	chunk, in := k.Div(k.Rem(c, swapABSubtileRows), chunkWords), k.Rem(c, chunkWords)
	subtile := ep.swapABSubtile(pair, k.Div(c, swapABSubtileRows))
	return subtile.At(line, k.Mad(k.Xor(chunk, k.Rem(line, 8)), chunkWords, in))
}

// swapABSubtile returns the left or the right subtile of a pair.
func (ep *epilogue) swapABSubtile(pair int, half build.Value) build.Array {
	k := ep.Kernel
	first := k.Mad(ep.warpgroup, subtileBuffers(ep.Config)*WarpgroupRows, 2*pair*swapABSubtileRows)
	return ep.subtiles.From(k.Add(first, k.Mul(half, swapABSubtileRows)), 0)
}
