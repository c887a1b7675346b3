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
	k, s := x.w.Kernel, x.w.Config.Tile
	const halves = 2 // parts of a step
	steps := s.K / halves / x.op.K()
	var fragments [halves][][]build.Reg
	for half := range fragments {
		for range len(x.acc) * steps {
			regs := []build.Reg{k.Fresh(x.w.Elem), k.Fresh(x.w.Elem), k.Fresh(x.w.Elem), k.Fresh(x.w.Elem)}
			fragments[half] = append(fragments[half], regs)
		}
	}
	k.For(0, x.steps, func(i build.Reg) {
		x.state.WaitFull()
		stageA, stageB := x.w.a.StageByteOffset(x.state.Stage()), x.w.b.DescStageOffset(x.state.Stage())
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
				b := k.Add(k.Add(x.descB, stageB), x.w.b.DescKOffset(p))
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

// swapABRows are up to swapABSubtileRows rows of 64 columns of C. A thread has accumulators of two
// of the columns. They pass through a pair of subtiles, which transposes them so that neighbours in
// a row of C are stored together.
type swapABRows struct {
	*epilogue
	row, col   build.Reg   // of the first element in C
	acc        []build.Reg // the thread's accumulators
	rows, cols []build.Reg // of each accumulator in C
	pair       int         // of subtiles
}

// storeSwapAB stores accumulators of 64 columns of C from (row, col) on. Shared memory holds two
// pairs of subtiles: the warpgroup writes one pair while TMA stores the other.
func (ep *epilogue) storeSwapAB(row, col build.Reg, acc []build.Reg) {
	const each = swapABSubtileRows / 2 // accumulators of a thread
	ep.setBarrier()
	parts := slices.Collect(slices.Chunk(acc, each))
	for n, part := range parts {
		x := swapABRows{epilogue: ep, row: ep.w.Add(row, n*swapABSubtileRows), col: col, acc: part, pair: n % 2}
		x.place()
		switch {
		case ep.w.Config.Tile.SplitK > 1:
			x.storeSums()
		case ep.w.tmaStore:
			// With an odd number of parts, the last and the first one have the same pair.
			x.storeByTMA(1 - len(parts)%2)
		default:
			x.storeByWarps()
		}
	}
}

// place computes the positions of the accumulators.
func (x *swapABRows) place() {
	for i := range x.acc {
		x.rows = append(x.rows, x.w.Add(x.row, x.w.To(x.w.IndexType, x.rowOf(i))))
		x.cols = append(x.cols, x.w.Add(x.col, x.w.To(x.w.IndexType, x.colOf(i))))
	}
}

// storeSums stores the partial sums of split-K.
func (x *swapABRows) storeSums() {
	for i, sum := range x.acc {
		row, col := x.rows[i], x.cols[i]
		x.w.If(x.w.C.InBounds(row, col), func() { x.w.StoreSums(row, col, []build.Reg{sum}) })
	}
}

// storeByTMA finishes the elements, writes them to the pair of subtiles and issues the copy to C.
// TMA may still read the given number of earlier pairs.
func (x *swapABRows) storeByTMA(pending int) {
	k := x.w.Kernel
	values := x.finish()
	k.Comment("once the copies that were there are read")
	k.If(x.leader, func() { k.BulkWaitRead(pending) })
	x.syncWarpgroup()
	x.write(values)
	k.ProxyFence()
	x.syncWarpgroup()
	k.If(x.leader, func() {
		for half := range 2 {
			x.w.tensorC.Store(x.subtile(half).Ptr, x.w.storeCoords(x.row, k.Add(x.col, half*swapABSubtileRows))...)
		}
		k.BulkCommit()
	})
}

// storeByWarps writes the accumulators to the pair of subtiles, from which each warp finishes and
// stores an equal share of the rows.
func (x *swapABRows) storeByWarps() {
	x.syncWarpgroup()
	x.write(x.acc)
	x.syncWarpgroup()
	k := x.w.Kernel
	const ahead = 2 // rows
	share := 2 * len(x.acc) / (WarpgroupThreads / frag.Lanes)
	firstRow := k.Mul(x.warp, share)
	k.ForStep(0, share, ahead, func(r build.Reg) {
		var rows, cols []build.Reg
		var acc [][]build.Reg
		for n := range ahead {
			line := k.Add(firstRow, k.Add(r, n))
			swizzled := k.Xor(k.Mul(x.lane, x.w.AccType.Bytes()), k.Mul(k.Rem(line, 8), 16))
			for half := range 2 {
				rows = append(rows, k.Add(x.row, k.To(x.w.IndexType, line)))
				cols = append(cols, k.Add(x.col, k.To(x.w.IndexType, k.Add(x.lane, half*swapABSubtileRows))))
				acc = append(acc, x.subtile(half).At(line, 0).Skip(swizzled).LoadVec(1))
			}
		}
		x.w.StoreAll(rows, cols, acc)
	})
}

// finish returns the elements of C: the accumulators times alpha plus beta times C, after the
// epilogue operations and before the conversion to the type of C. They are not neighbours.
func (x *swapABRows) finish() []build.Reg {
	k := x.w.Kernel
	values := x.w.ScaledByAlpha(x.acc)
	k.If(x.w.ReadC, func() {
		const ahead = 4 // more elements in flight would spill registers
		for first := 0; first < len(values); first += ahead {
			var old []build.Reg
			for i := first; i < first+ahead; i++ {
				row, col := x.rows[i], x.cols[i]
				old = append(old, x.w.C.At(row, col).LoadVecOr0(x.w.C.InBounds(row, col), 1)...)
			}
			x.w.AddBetaC(values[first:][:ahead], old)
		}
	})
	operands := kernel.EpilogueOperands{OutScale: x.outScale, Rows: x.rows, Cols: x.cols}
	single := slices.Collect(slices.Chunk(values, 1))
	return slices.Concat(x.w.ApplyEpilogue(single, &operands)...)
}

// write writes a value of each accumulator to the pair of subtiles.
func (x *swapABRows) write(values []build.Reg) {
	for i, v := range values {
		x.element(i).Store(v)
	}
}

// rowOf returns the row of the thread's accumulator i in the pair of subtiles.
func (x *swapABRows) rowOf(i int) build.Reg { return x.w.Add(x.epilogue.col, i/4*8+i%2) }

// colOf returns the column of the thread's accumulator i in the pair of subtiles.
func (x *swapABRows) colOf(i int) build.Reg { return x.w.Add(x.fragA.Row(), i/2%2*frag.LowerRow) }

// element returns the address of the thread's accumulator i in the pair of subtiles.
func (x *swapABRows) element(i int) build.Ptr {
	k := x.w.Kernel
	const chunkWords = 4 // 16 bytes
	line, c := x.rowOf(i), x.colOf(i)
	chunk, in := k.Div(k.Rem(c, swapABSubtileRows), chunkWords), k.Rem(c, chunkWords)
	subtile := x.subtile(k.Div(c, swapABSubtileRows))
	return subtile.At(line, k.Mad(k.Xor(chunk, k.Rem(line, 8)), chunkWords, in))
}

// subtile returns the left or the right subtile of the pair.
func (x *swapABRows) subtile(half build.Value) build.Array {
	k := x.w.Kernel
	first := k.Mad(x.warpgroup, subtileBuffers(x.w.Config)*WarpgroupRows, 2*x.pair*swapABSubtileRows)
	return x.w.subtiles.From(k.Add(first, k.Mul(half, swapABSubtileRows)), 0)
}
