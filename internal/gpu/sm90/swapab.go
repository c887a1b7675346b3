package sm90

import (
	"fmt"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/build"
)

// The tensor cores read 32-bit elements of shared memory along K alone, and a B of tf32 usually runs
// across K. Of the left operand they take fragments from registers, which threads load as they like: turned
// tiles are of Cᵀ = Bᵀ·Aᵀ. The kernel multiplies a left operand, of which a tile has M rows, and a right
// one, of which it has N columns. Which they are is up to turned; what else only turned tiles do is here.

// turnedTiles are further ones of tf32, for a B that runs across K: M are columns of C. 256×128, with 128
// of them a warpgroup, spills registers where it hands over C.
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

// turnable is nil if a turned tile can compute p. The error is ErrUnsupported.
func CheckSwapAB(p *gemm.Problem) error {
	q, _ := kernel.Repack(p, kernel.Tile{SwapAB: true}, kernel.Align{})
	if p.Precision != gemm.TF32 || q.B().Trans || p.N < 2 || p.Batch.Kind == gemm.Grouped || p.Epilogue.Gated {
		return fmt.Errorf("%w: kernel wgmma with a turned tile: that is for tf32, with a B that runs across K, and neither groups of rows nor gates", gemm.ErrUnsupported)
	}
	return nil
}

// addLoaded is addStraight with the left operand from registers. While the tensor cores are at one half of a step
// the other half's fragments are loaded.
func (x *mainloop) addLoaded() {
	k, s := x.Kernel, x.Config.Tile
	const halves = 2 // of a step
	steps := s.K / halves / x.op.K()
	var sets [halves][][]build.Reg
	for half := range sets {
		for range len(x.sums) * steps {
			sets[half] = append(sets[half], []build.Reg{k.Fresh(x.Elem), k.Fresh(x.Elem), k.Fresh(x.Elem), k.Fresh(x.Elem)})
		}
	}
	k.For(0, x.steps, func(i build.Reg) {
		x.turn.WaitFull()
		stageA, stageB := x.a.StageByteOffset(x.turn.Stage()), x.b.DescStageOffset(x.turn.Stage())
		for half, set := range sets {
			k.Comment("once the products before the last ones are done, of which these were the fragments")
			k.WgmmaWait(1)
			if half > 0 {
				x.release(x.before, k.Ne(i, 0))
			}
			for n, to := range set {
				x.words.Load(to, stageA, n/steps*WarpgroupRows, (half*steps+n%steps)*x.op.K())
			}
			k.WgmmaFence()
			for step := range steps {
				p := (half*steps + step) * x.op.K()
				var add build.Value = true
				if p == 0 {
					add = k.Ne(i, 0) // or the sums begin with these products
				}
				b := k.Add(k.Add(x.fromB, stageB), x.b.DescKOffset(p))
				for m := range x.sums {
					k.Wgmma(x.op, x.sums[m], set[m*steps+step], b, add)
				}
			}
			k.WgmmaCommit()
		}
		k.Set(x.before, x.turn.Stage())
		x.turn.Next()
	})
}

// turnedRows is how many rows of C are handed over at a time of its transpose, in two patches side by
// side, of 32 columns each.
const turnedRows = 32

// storeTurned hands over sums of C's transpose: 64 columns from (row, col) on, of which a thread has
// two. They pass through patches so that neighbours in C's rows come together. There is room for
// twice as many patches as are written at a time.
func (o *output) storeTurned(row, col build.Reg, sums []build.Reg) {
	k := o.Kernel
	const each = turnedRows / 2                                          // a thread's sums
	barrier, times := k.Add(o.group, 1), kernel.CeilDiv(len(sums), each) // barrier 0 is the block's
	for n := range times {
		part := sums[n*each : min((n+1)*each, len(sums))]
		row := k.Add(row, n*turnedRows)
		var rows, cols []build.Reg // of the thread's
		for i := range part {
			rows = append(rows, k.Add(row, k.To(o.IndexType, o.turnedRow(i))))
			cols = append(cols, k.Add(col, k.To(o.IndexType, o.turnedCol(i))))
		}
		if o.Config.Tile.SplitK > 1 {
			for i, x := range part {
				k.If(o.C.InBounds(rows[i], cols[i]), func() { o.StoreSums(rows[i], cols[i], []build.Reg{x}) })
			}
			continue
		}
		if o.bulk {
			part = o.finishedAlone(rows, cols, part)
			k.Comment("once the copies that were there are read")
			k.If(o.leader, func() { k.BulkWaitRead(1 - times%2) })
		}
		k.NamedBarrier(barrier, WarpgroupThreads)
		for i, x := range part {
			o.turnedPlace(n%2, i).Store(x)
		}
		if !o.bulk {
			k.NamedBarrier(barrier, WarpgroupThreads)
			o.storeLines(n%2, 2*len(part), row, col)
			continue
		}
		k.ProxyFence()
		k.NamedBarrier(barrier, WarpgroupThreads)
		k.If(o.leader, func() {
			for half := range 2 {
				o.tensor.Store(o.turnedPatch(n%2, half).Ptr, o.box(row, k.Add(col, half*turnedRows))...)
			}
			k.BulkCommit()
		})
	}
}

// finishedAlone are sums of elements that are nobody's neighbours, with alpha and all that follows but
// for the rounding.
func (o *output) finishedAlone(rows, cols, sums []build.Reg) []build.Reg {
	k := o.Kernel
	values := o.ScaledByAlpha(sums)
	k.If(o.ReadC, func() {
		const ahead = 4 // there are no registers for more beside the sums
		for first := 0; first < len(values); first += ahead {
			var old []build.Reg
			for i := first; i < first+ahead; i++ {
				old = append(old, o.C.At(rows[i], cols[i]).LoadVecOr0(o.C.InBounds(rows[i], cols[i]), 1)...)
			}
			o.AddBetaC(values[first:][:ahead], old)
		}
	})
	alone := slices.Collect(slices.Chunk(values, 1))
	return slices.Concat(o.ApplyEpilogue(alone, &kernel.EpilogueOperands{OutScale: o.heldOut, Rows: rows, Cols: cols})...)
}

// storeLines finishes so many rows of sums in two patches, from (row, col) of C on, each warp its
// share.
func (o *output) storeLines(turn, lines int, row, col build.Reg) {
	k := o.Kernel
	const ahead = 2 // rows
	share := lines / (WarpgroupThreads / frag.Lanes)
	top := k.Mul(o.warp, share)
	k.ForStep(0, share, ahead, func(r build.Reg) {
		var rows, cols []build.Reg
		var held [][]build.Reg
		for n := range ahead {
			line := k.Add(top, k.Add(r, n))
			swizzled := k.Xor(k.Mul(o.inWarp, o.AccType.Bytes()), k.Mul(k.Rem(line, 8), 16))
			for half := range 2 {
				rows = append(rows, k.Add(row, k.To(o.IndexType, line)))
				cols = append(cols, k.Add(col, k.To(o.IndexType, k.Add(o.inWarp, half*turnedRows))))
				held = append(held, o.turnedPatch(turn, half).At(line, 0).Skip(swizzled).LoadVec(1))
			}
		}
		o.StoreAll(rows, cols, held)
	})
}

// turnedRow and turnedCol are where the thread's i-th sum of those that are handed over together is.
func (o *output) turnedRow(i int) build.Reg { return o.Add(o.col, i/4*8+i%2) }
func (o *output) turnedCol(i int) build.Reg { return o.Add(o.words.Row(), i/2%2*frag.LowerRow) }

// turnedPlace is where that sum goes in the patches whose turn it is.
func (o *output) turnedPlace(turn, i int) build.Ptr {
	k := o.Kernel
	const words = 4 // of a piece
	line, c := o.turnedRow(i), o.turnedCol(i)
	piece, in := k.Div(k.Rem(c, turnedRows), words), k.Rem(c, words)
	return o.turnedPatch(turn, k.Div(c, turnedRows)).At(line, k.Mad(k.Xor(piece, k.Rem(line, 8)), words, in))
}

// turnedPatch is the left or the right one of the patches whose turn it is.
func (o *output) turnedPatch(turn int, half build.Value) build.Array {
	k := o.Kernel
	first := k.Mad(o.group, storeSlots(o.Config)*WarpgroupRows, 2*turn*turnedRows)
	return o.patches.From(k.Add(first, k.Mul(half, turnedRows)), 0)
}
