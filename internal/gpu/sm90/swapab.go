package sm90

import (
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// This file holds the parts of the kernel that only swapAB needs. It computes Cᵀ = Bᵀ·Aᵀ: B becomes
// the left operand with M columns per tile, and A the right operand with N rows per tile. There are
// two reasons.
//
// The left side of wgmma has 64 rows, and the right side any multiple of 8. With 160 rows in C, a
// tile with N of 160 multiplies nothing else.
//
// wgmma reads 32-bit elements in shared memory K-major only, and in most tf32 products B is
// MN-major. It can also read its left operand from registers, which threads load in any order.

// swapABTiles lists further tiles with swapAB by the number of elements along K in 128 bytes. M
// counts columns of C.
//
// Those of tf32 are for an MN-major B. 256×128 with 128 columns of C per warpgroup spills registers
// in the epilogue.
var swapABTiles = map[int][]kernel.Tile{
	32: {
		{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, SwapAB: true, Stages: 4},
		{M: 128, N: 192, RowsPerThread: 2, ColsPerThread: 48, SwapAB: true, Stages: 4},
		{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, SwapAB: true, Stages: 6},
		{M: 64, N: 128, RowsPerThread: 2, ColsPerThread: 32, SwapAB: true, Stages: 8},
		{M: 128, N: 64, RowsPerThread: 2, ColsPerThread: 16, SwapAB: true, Stages: 8},
		{M: 64, N: 32, RowsPerThread: 2, ColsPerThread: 8, SwapAB: true, Stages: 12},
		{M: 64, N: 64, RowsPerThread: 2, ColsPerThread: 16, SwapAB: true, Stages: 12},
		{M: 64, N: 16, RowsPerThread: 2, ColsPerThread: 4, SwapAB: true, Stages: 12},
	},
	64:  swapABTilesOfHeights(),
	128: swapABTilesOfHeights(),
}

// SwapABStep is the difference between the rows of C in one swapAB tile of 8- and 16-bit types and
// in the next: those that wgmma multiplies are a multiple of it.
const SwapABStep = 8

// swapABTilesOfHeights returns the tiles of 8- and 16-bit types: 192, 128 and 64 columns by any
// multiple of [SwapABStep] rows of C, with as many stages as shared memory holds, up to 12. Those
// of 192 columns gain nothing with fewer than 72 rows, and spill registers with more than 176.
// Clusters gain nothing for them, nor does a warpgroup with 128 columns.
func swapABTilesOfHeights() (all []kernel.Tile) {
	for _, x := range []struct{ cols, low, high int }{{192, 72, 176}, {128, SwapABStep, 256}, {64, SwapABStep, 256}} {
		for n := x.low; n <= x.high; n += SwapABStep {
			s := kernel.Tile{M: x.cols, N: n, RowsPerThread: 2, ColsPerThread: n / frag.Quad, SwapAB: true}
			const subtile = WarpgroupRows * frag.SwizzleBytes // of the epilogue; a warpgroup has two
			room := 224<<10 - Consumers(s)*2*subtile
			s.Stages = min(room/((s.M+n)*frag.SwizzleBytes), 12)
			all = append(all, s)
		}
	}
	return all
}

// HasHeight reports whether tiles with swapAB can have n rows of C, by the arithmetic of 8- and
// 16-bit operands and by whether A is MN-major. TMA loads an MN-major A in boxes of 64 rows.
func HasHeight(r Arithmetic, mnMajorA bool, n int) bool {
	s := kernel.Tile{N: n, RowsPerThread: 2, ColsPerThread: n / frag.Quad}
	return (!mnMajorA || n%WarpgroupRows == 0) && r.hasColumns(n) && r.promotesColumns(kernel.Config{Tile: s})
}

// checkSwapAB returns a reason unless the tile of c, which has swapAB, can compute p.
func checkSwapAB(p *gemm.Problem, c *kernel.Config) *kernel.Reason {
	switch {
	case p.Batch.Kind == gemm.Grouped || p.Epilogue.Gated:
		return kernel.Because("swapAB: want no groups and no gate")
	case p.Precision == gemm.TF32 && (c.TransB || p.N < 2):
		return kernel.Because("swapAB in tf32: want an MN-major B and N of at least 2")
	case p.In().Bits() == 16 && c.TransA && c.Tile.IsRagged(): // TMA loads boxes of 64 rows
		return kernel.Because("swapAB with N of %d and an MN-major A: want a multiple of %d", c.Tile.N, WarpgroupRows)
	case p.BlockScaled():
		return kernel.Because("swapAB: want no block scales")
	case p.Precision == gemm.F32x3:
		return kernel.Because("swapAB: want elements of 8 or 16 bits, or tf32")
	}
	return nil
}

// loadsFragments reports whether threads load the left operand into registers.
func (w *writer) loadsFragments() bool { return w.Config.Tile.SwapAB && w.Elem == ptx.TF32 }

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

// swapABSide returns the number of rows and of columns of a subtile of swapAB, whose elements have
// the given type: those in 128 bytes. A buffer of the epilogue holds 64 columns of C, in one
// subtile or in two side by side.
func swapABSide(elem ptx.Type) int { return frag.SwizzleBytes / elem.Bytes() }

// swapABBoxRows returns the number of rows of C that TMA stores at once. It divides the rows of a
// tile, whose last subtile may be lower than the others.
func swapABBoxRows(c kernel.Config) int {
	rows := swapABSide(kernel.PTXTypes[c.Out])
	for c.Tile.N%rows != 0 {
		rows /= 2
	}
	return rows
}

// swapABRows are the rows of 64 columns of C that a buffer holds. A thread has accumulators of two
// of the columns. They pass through the buffer, which transposes them so that neighbours in a row
// of C are stored together.
type swapABRows struct {
	*epilogue
	row, col   build.Reg   // of the first element in C
	acc        []build.Reg // the thread's accumulators
	rows, cols []build.Reg // of each accumulator in C
	side       int         // of a subtile
	number     int         // of the buffer
}

// storeSwapAB stores accumulators of 64 columns of C from (row, col) on. The warpgroup writes one
// of its two buffers while TMA stores the other.
func (ep *epilogue) storeSwapAB(row, col build.Reg, acc []build.Reg) {
	ep.setBarrier()
	elem := ep.w.AccType
	if ep.w.tmaStore {
		elem = kernel.PTXTypes[ep.w.Config.Out]
	}
	side := swapABSide(elem)
	parts := slices.Collect(slices.Chunk(acc, side/2))
	for n, part := range parts {
		x := swapABRows{epilogue: ep, row: ep.w.Add(row, n*side), col: col, acc: part, side: side,
			number: n % subtileBuffers(ep.w.Config)}
		x.place()
		switch {
		case ep.w.Config.Tile.SplitK > 1:
			x.storeSums()
		case ep.w.tmaStore:
			x.storeByTMA(n == 0 && len(parts)%2 == 1)
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

// storeByTMA finishes the elements, writes them to the buffer and issues the copy to C. TMA may
// still read the other buffer, but not if the part before had this one too.
func (x *swapABRows) storeByTMA(again bool) {
	k := x.w.Kernel
	values := x.finish()
	k.Comment("once the copies that were there are read")
	pending := 1
	if again {
		pending = 0
	}
	k.If(x.leader, func() { k.BulkWaitRead(pending) })
	x.syncWarpgroup()
	x.write(values)
	k.ProxyFence()
	x.syncWarpgroup()
	k.If(x.leader, func() {
		const accumulatorRows = 2 // of C, for each accumulator of a thread
		box := swapABBoxRows(x.w.Config)
		for down := 0; down < accumulatorRows*len(values); down += box {
			for across := 0; across < WarpgroupRows; across += x.side {
				from := x.subtile(across/x.side).At(down, 0)
				x.w.tensorC.Store(from, x.w.storeCoords(k.Add(x.row, down), k.Add(x.col, across))...)
			}
		}
		k.BulkCommit()
	})
}

// storeByWarps writes the accumulators to the buffer, from which each warp finishes and stores an
// equal share of the rows.
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
				cols = append(cols, k.Add(x.col, k.To(x.w.IndexType, k.Add(x.lane, half*x.side))))
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

// write writes a value of each accumulator to the buffer.
func (x *swapABRows) write(values []build.Reg) {
	if x.side == WarpgroupRows {
		x.write16Bit(values)
		return
	}
	for i, v := range values {
		x.element(i).Store(v)
	}
}

// write16Bit writes elements of 16 bits with stmatrix, which transposes 8×8 matrices: two
// neighbouring columns of matrices with 8 rows of C each, and the two below them.
func (x *swapABRows) write16Bit(values []build.Reg) {
	k, elem := x.w.Kernel, kernel.PTXTypes[x.w.Config.Out]
	line := k.Add(k.Mul(k.Div(x.lane, 16), 8), k.Rem(x.lane, 8))
	chunk := k.Mad(x.warp, 2, k.Rem(k.Div(x.lane, 8), 2))
	swizzled := k.Mul(k.Xor(chunk, k.Rem(x.lane, 8)), 16)
	for n, eight := range slices.Collect(slices.Chunk(values, 8)) {
		var pairs []build.Reg
		for pair := range slices.Chunk(eight, 2) {
			pairs = append(pairs, k.Pack(elem, pair[0], pair[1]))
		}
		k.StoreMatrices(x.subtile(0).At(k.Add(line, 16*n), 0).Skip(swizzled), true, pairs...)
	}
}

// rowOf returns the row of the thread's accumulator i in the buffer.
func (x *swapABRows) rowOf(i int) build.Reg { return x.w.Add(x.epilogue.col, i/4*8+i%2) }

// colOf returns the column of the thread's accumulator i in the buffer.
func (x *swapABRows) colOf(i int) build.Reg {
	if x.fragA != nil {
		return x.w.Add(x.fragA.Row(), i/2%2*frag.LowerRow)
	}
	return x.w.Add(x.epilogue.row, i/2%2*8)
}

// element returns the address of the thread's accumulator i in the buffer, of 4 bytes.
func (x *swapABRows) element(i int) build.Ptr {
	k := x.w.Kernel
	const chunkWords = 4 // 16 bytes
	line, c := x.rowOf(i), x.colOf(i)
	chunk, in := k.Div(k.Rem(c, x.side), chunkWords), k.Rem(c, chunkWords)
	return x.subtile(k.Div(c, x.side)).At(line, k.Mad(k.Xor(chunk, k.Rem(line, 8)), chunkWords, in))
}

// subtile returns a subtile of the buffer, counted from the left.
func (x *swapABRows) subtile(n build.Value) build.Array {
	k := x.w.Kernel
	first := k.Mad(x.warpgroup, subtileBuffers(x.w.Config)*WarpgroupRows, x.number*WarpgroupRows)
	return x.w.subtiles.From(k.Add(first, k.Mul(n, x.side)), 0)
}
