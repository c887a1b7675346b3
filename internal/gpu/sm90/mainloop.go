package sm90

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// recipe is what wgmma makes of elements of a type in a precision: what the tensor cores
// multiply them as, and who adds up the products.
type Arithmetic struct {
	Elem ptx.Type // of the instruction
	// planes are the parts whose sum an operand is, in the order in which they come, each to
	// a stage of its own. Part 0 is the operand itself if there are no others.
	Terms []int
	// rounds are what the tensor cores sum up of a step before threads add it to sums of
	// their own, rounded to nearest; none is that the tensor cores keep all sums.
	Promotions []Promotion
}

// sumRound is products of parts of A and of B that are of one size.
type Promotion struct {
	Pairs  [][2]int
	scale  float64 // times this they are as large as they should be
	Passes int     // so many sums of as many parts of the step
}

// recipeOf is the recipe for elements of a type in a precision.
func ArithmeticOf(in dtype.Type, precision gemm.Precision) Arithmetic {
	r := Arithmetic{Elem: kernel.PTXTypes[in], Terms: []int{0}}
	switch {
	case precision == gemm.F32x3:
		// The three products that are left out are 2⁻²⁴ times as large as the first at the
		// most. What is cut off counts where products are large: of those of first parts no
		// more than 32 are summed up at a time. Part 0, which every round takes, comes last,
		// and has all of the next step to come again.
		r.Elem, r.Terms = ptx.BF16, []int{1, 2, 0}
		r.Promotions = []Promotion{
			{[][2]int{{1, 1}, {2, 0}, {0, 2}}, 1. / (kernel.SplitTermScale * kernel.SplitTermScale), 1},
			{[][2]int{{1, 0}, {0, 1}}, 1. / kernel.SplitTermScale, 1},
			{[][2]int{{0, 0}}, 1, 2},
		}
	case precision == gemm.TF32:
		r.Elem = ptx.TF32
	case r.Elem.Bits() == 8 && r.Elem != ptx.S8 && precision != gemm.Fast:
		r.Promotions = []Promotion{{[][2]int{{0, 0}}, 1, 1}} // the tensor cores have 14 bits for them
	}
	return r
}

// stored is the type of what is in shared memory.
func (r Arithmetic) stored() ptx.Type {
	if r.Elem == ptx.TF32 {
		return ptx.F32
	}
	return r.Elem
}

// accuracyWgmma: the tensor cores cut off what does not fit where products and the sum so
// far are aligned, and cut off again to what they keep of it, a float32 or, of 8-bit floats,
// 14 bits. The sums of F32x3's parts are so short that what is cut off is less than what
// float32 arithmetic rounds.
func accuracy(p *gemm.Problem) gemm.Accuracy {
	acc := gemm.AccuracyOf(p)
	if p.Accum() != dtype.F32 || p.Precision == gemm.F32x3 {
		return acc
	}
	r := ArithmeticOf(p.In(), p.Precision)
	acc.Truncates, acc.Terms, acc.Bits = true, kernel.WGMMABytesK*8/r.Elem.Bits(), kernel.F32SumBits
	if r.Elem.Bits() > 8 {
		acc.Roundoff *= 4
		return acc
	}
	acc.Roundoff, acc.Bits, acc.Exact = 0x1p-13, kernel.FP8SumBits, 0x1p13
	if len(r.Promotions) > 0 {
		acc.Chunk = frag.SwizzleBytes / r.Elem.Bytes()
	}
	return acc
}

// mainloop is a warpgroup at its sums: of a tile, step by step along K.
type mainloop struct {
	*writer
	op     build.Wgmma
	lane   build.Reg // the thread in the warpgroup
	turn   *frag.PipelineState
	before build.Reg        // the stage that was multiplied before, of which products may be under way
	sums   [][]build.Reg    // of each 64 rows
	fromA  []build.Reg      // descriptors of the first stage's A, of each 64 rows,
	fromB  build.Reg        // and of B
	words  *frag.FragmentsA // instead of fromA, where A comes from registers
	scales *tileScales      // nil if there are none
}

// release gives a stage back, if that holds. Every block of the cluster has loaded a part of
// it, and waits for this one. Where threads have loaded from it, each warp does that for its own.
func (x *mainloop) release(stage build.Reg, when build.Value) {
	k, blocks, lane := x.Kernel, x.Config.Tile.BlocksM(), x.lane
	if x.words != nil {
		k.Do("bar.warp.sync", -1)
		lane = k.Rem(lane, frag.Lanes)
	}
	k.If(k.And(when, k.Lt(lane, blocks)), func() {
		if blocks > 1 {
			x.turn.ReleasePeer(stage, lane)
		} else {
			x.turn.Release(stage)
		}
	})
}

// roundCols is how many columns' sums a round has registers for beside all of the thread's.
func PromotionCols(s kernel.Tile) int {
	if s.N == 256 {
		return 128
	}
	return s.N
}

// addRounds sums up all steps, round by round. While one warpgroup adds what the tensor
// cores have summed up to its own sums, these are at the other's.
func (x *mainloop) addRounds() {
	k, s := x.Kernel, x.Config.Tile
	op := x.op
	op.N = PromotionCols(s)
	part := k.Vars("part", x.AccType, op.N/2, 0)
	stages := make(map[int]build.Reg, len(x.Terms))
	for _, plane := range x.Terms {
		stages[plane] = k.Var(fmt.Sprintf("plane%d", plane), ptx.U32, 0)
	}
	for _, sums := range x.sums {
		for _, sum := range sums {
			k.Set(sum, 0)
		}
	}
	k.For(0, x.steps, func(build.Reg) {
		came := 0
		wait := func(plane int) {
			for ; slices.Contains(x.Terms[came:], plane); came++ {
				x.turn.WaitFull()
				k.Set(stages[x.Terms[came]], x.turn.Stage())
				x.turn.Next()
			}
		}
		for n, round := range x.Promotions {
			for m := range x.sums {
				for col := 0; col < s.N; col += op.N {
					tiles := func(pair [2]int) (a, b build.Reg) {
						wait(pair[0])
						wait(pair[1])
						a = k.Add(x.fromA[m], x.a.DescStageOffset(stages[pair[0]]))
						return a, k.Add(k.Add(x.fromB, x.b.DescStageOffset(stages[pair[1]])), x.b.DescSideOffset(col))
					}
					for n := range round.Passes {
						x.sumUp(op, part, round, n, tiles)
						for e, sum := range x.sums[m][col/2:][:len(part)] {
							k.FMA(sum, part[e], round.scale)
						}
					}
				}
			}
			for _, plane := range x.Terms {
				if round.uses(plane) && !slices.ContainsFunc(x.Promotions[n+1:], func(r Promotion) bool { return r.uses(plane) }) {
					x.release(stages[plane], true)
				}
			}
		}
	})
}

// alone says that a step is one round of one pair, as that of 8-bit floats is.
func (r Arithmetic) PromotesEveryStep() bool {
	return len(r.Promotions) == 1 && len(r.Promotions[0].Pairs) == 1 && r.Promotions[0].Passes == 1
}

// aloneCols is how many columns are summed up at a time then: all for which a thread has
// registers, twice, beside those of its sums, or fewer where each column has a scale, or rows
// have and warpgroups take turns.
func aloneCols(c kernel.Config) int {
	room := 192
	if c.ScaleB == 1 || c.ScaleA > 0 && PingPong(c.Tile) {
		room = 128
	}
	return min(c.Tile.N, room-c.Tile.RowsPerThread*c.Tile.ColsPerThread)
}

// addAlone is addRounds where a step is one round of one pair, in parts of a few columns: while
// a warpgroup adds one part to its sums the tensor cores sum up the next one. Parts take turns in
// two sets of registers, of which the first is under way wherever the loop, over two steps,
// begins again: the assembler follows no other order, and has every product waited for instead.
func (x *mainloop) addAlone() {
	k, s := x.Kernel, x.Config.Tile
	op, cols := x.op, aloneCols(x.Config)
	op.N = cols
	held := [2][]build.Reg{k.Vars("even", x.AccType, cols/2, 0), k.Vars("odd", x.AccType, cols/2, 0)}
	across := s.N / cols
	each := len(x.sums) * across // parts of a step
	sumUp := func(at int) {
		m, col := at%each/across, at%across*cols
		a := k.Add(x.fromA[m], x.a.DescStageOffset(x.turn.Stage()))
		b := k.Add(k.Add(x.fromB, x.b.DescStageOffset(x.turn.Stage())), x.b.DescSideOffset(col))
		k.WgmmaFence()
		for p := 0; p < s.K; p += op.K() {
			k.Wgmma(op, held[at%2], k.Add(a, x.a.DescKOffset(p)), k.Add(b, x.b.DescKOffset(p)), p > 0)
		}
		k.WgmmaCommit()
	}
	add := func(at int) {
		m, col := at%each/across, at%across*cols
		sums, parts := x.sums[m][col/2:], held[at%2]
		if x.scales != nil {
			x.scales.add(col, sums, parts)
			return
		}
		for e, part := range parts {
			k.Set(sums[e], k.Add(sums[e], part))
		}
	}
	scale := func(i build.Value, at int) {
		if x.scales != nil && at%each == 0 {
			x.scales.begin(k.Mad(i, 2, at/each+1))
		}
	}
	// next begins the part behind number at of the i-th two steps, and adds that one.
	next := func(i build.Value, at int) {
		last := (at+1)%each == 0 // of its step
		k.Set(x.before, x.turn.Stage())
		if last {
			x.turn.Next()
			x.turn.WaitFull()
		}
		sumUp(at + 1)
		scale(i, at)
		k.WgmmaWait(1)
		if last {
			x.release(x.before, true)
		}
		add(at)
	}
	end := func(i build.Value, at int) {
		scale(i, at)
		k.WgmmaWait(0)
		x.release(x.turn.Stage(), true)
		add(at)
		x.turn.Next()
	}
	for _, sums := range x.sums {
		for _, sum := range sums {
			k.Set(sum, 0)
		}
	}
	k.If(k.Ne(x.steps, 0), func() {
		x.turn.WaitFull()
		sumUp(0)
		twos := k.Div(k.Sub(x.steps, 1), 2)
		k.For(0, twos, func(i build.Reg) {
			for at := range 2 * each {
				next(i, at)
			}
		})
		rest := func(steps int) {
			for at := range steps*each - 1 {
				next(twos, at)
			}
			end(twos, steps*each-1)
		}
		k.If(k.Eq(k.Rem(x.steps, 2), 0), func() { rest(2) }).Else(func() { rest(1) })
	})
}

// sumUp has the tensor cores sum up part n of the step in a round, for 64 rows and some
// columns, and waits for it. tiles are the descriptors of a pair's tiles.
func (x *mainloop) sumUp(op build.Wgmma, part []build.Reg, round Promotion, n int, tiles func(pair [2]int) (a, b build.Reg)) {
	k, depth := x.Kernel, x.Config.Tile.K/round.Passes
	for i, pair := range round.Pairs {
		a, b := tiles(pair)
		k.WgmmaFence() // again, or the assembler puts one into the loop that waits for tiles
		for p := n * depth; p < (n+1)*depth; p += op.K() {
			k.Wgmma(op, part, k.Add(a, x.a.DescKOffset(p)), k.Add(b, x.b.DescKOffset(p)), i > 0 || p > n*depth)
		}
	}
	k.WgmmaCommit()
	k.WgmmaWait(0)
}

// uses says whether part plane of an operand is in the round.
func (r Promotion) uses(plane int) bool {
	return slices.ContainsFunc(r.Pairs, func(pair [2]int) bool { return pair[0] == plane || pair[1] == plane })
}

// addStraight has the tensor cores add all steps' products to the sums, which finish waits
// for.
func (x *mainloop) addStraight() {
	k, s := x.Kernel, x.Config.Tile
	k.For(0, x.steps, func(i build.Reg) {
		x.turn.WaitFull()
		stageA, stageB := x.a.DescStageOffset(x.turn.Stage()), x.b.DescStageOffset(x.turn.Stage())
		k.WgmmaFence()
		for p := 0; p < s.K; p += x.op.K() {
			var add build.Value = true
			if p == 0 {
				add = k.Ne(i, 0) // or the sums begin with these products
			}
			b := k.Add(k.Add(x.fromB, stageB), x.b.DescKOffset(p))
			for m := range x.sums {
				k.Wgmma(x.op, x.sums[m], k.Add(k.Add(x.fromA[m], stageA), x.a.DescKOffset(p)), b, add)
			}
		}
		k.WgmmaCommit()
		k.Comment("while these are multiplied the stage before them can be given back")
		k.WgmmaWait(1)
		x.release(x.before, k.Ne(i, 0))
		k.Set(x.before, x.turn.Stage())
		x.turn.Next()
	})
}

// finish waits for the sums.
func (x *mainloop) finish() {
	if len(x.Promotions) > 0 {
		return // they are there
	}
	x.WgmmaWait(0)
	x.release(x.before, x.Ne(x.steps, 0))
}

// planeBoxes are the tiles of each part of an operand, in the order in which they come. Parts
// stand side by side in the rows of memory, which run along K or across it.
func (w *writer) planeBoxes(whole *frag.Boxes, along bool, across build.Reg) (all []*frag.Boxes) {
	k, length := w.Kernel, across
	if along {
		length = w.K
	}
	for _, plane := range w.Terms {
		if plane == 0 {
			all = append(all, whole)
			continue
		}
		all = append(all, whole.Offset(k.Mul(k.Mul(k.CeilDiv(length, kernel.SplitRowUnit), kernel.SplitRowUnit), plane)))
	}
	return all
}
