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

// Arithmetic describes how wgmma multiplies elements of a type in a precision: the instruction's
// type, the split of the operands into terms, and the promotion of accumulators.
type Arithmetic struct {
	Elem ptx.Type // operand type of the instruction
	// Terms are the terms of the operand split, in the order in which they are loaded, each into
	// its own stage. Without a split the only term is 0, the operand itself.
	Terms []int
	// Promotions are the partial sums of one step along K that CUDA cores add to the float32
	// accumulators, with rounding to nearest. It is empty if the tensor cores accumulate over all
	// of K.
	Promotions []Promotion
}

// Promotion is a partial sum of one step along K: products of terms with the same magnitude.
type Promotion struct {
	Pairs  [][2]int // terms of A and B to multiply
	Scale  float64  // factor on promotion
	Passes int      // equal parts of the step along K, each promoted on its own
}

// ArithmeticOf returns the arithmetic for elements of type in at a precision.
func ArithmeticOf(in dtype.Type, precision gemm.Precision) Arithmetic {
	r := Arithmetic{Elem: kernel.PTXTypes[in], Terms: []int{0}}
	switch {
	case precision == gemm.F32x3:
		// bf16x3 with six of the nine products of terms. The other three are at most 2⁻²⁴ times
		// the first. Truncation in the tensor cores matters most for the largest products, so
		// those of term 0 are promoted after 32 elements along K. Term 0 is part of every
		// promotion. It is loaded last, which leaves the most time to load it for the next step.
		r.Elem, r.Terms = ptx.BF16, []int{1, 2, 0}
		r.Promotions = []Promotion{
			{[][2]int{{1, 1}, {2, 0}, {0, 2}}, 1. / (kernel.SplitTermScale * kernel.SplitTermScale), 1},
			{[][2]int{{1, 0}, {0, 1}}, 1. / kernel.SplitTermScale, 1},
			{[][2]int{{0, 0}}, 1, 2},
		}
	case precision == gemm.TF32:
		r.Elem = ptx.TF32
	case r.Elem.Bits() == 8 && r.Elem != ptx.S8 && precision != gemm.Fast:
		r.Promotions = []Promotion{{[][2]int{{0, 0}}, 1, 1}} // fp8 accumulators have 14 bits
	}
	return r
}

// storedType returns the element type in shared memory.
func (r Arithmetic) storedType() ptx.Type {
	if r.Elem == ptx.TF32 {
		return ptx.F32
	}
	return r.Elem
}

// accuracy returns the error model of the kernel for p. The tensor cores truncate when they align
// the products with the accumulator, and truncate the result to float32 or, for 8-bit floats, to
// 14 bits. The partial sums of F32x3 are so short that truncation costs less than rounding in
// float32 arithmetic.
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

// order returns the order of summation of the kernel. That of the terms of F32x3 is the same in
// every chunk.
func order(p *gemm.Problem, _ int) kernel.Order {
	r := ArithmeticOf(p.In(), p.Precision)
	o := kernel.Order{Terms: kernel.WGMMABytesK * 8 / r.Elem.Bits(), Bits: kernel.F32SumBits}
	if r.Elem.Bits() == 8 {
		o.Bits = kernel.FP8SumBits
	}
	if len(r.Promotions) > 0 {
		o.Chunk = frag.SwizzleBytes / r.Elem.Bytes()
	}
	return o
}

// A mainloop emits the main loop of one consumer warpgroup: the accumulation along K of one tile.
type mainloop struct {
	*writer
	op        build.Wgmma
	thread    build.Reg // index of the thread in the warpgroup
	state     *frag.PipelineState
	prevStage build.Reg        // stage of the previous step, whose wgmma can be in flight
	acc       [][]build.Reg    // accumulators, by 64 rows
	descA     []build.Reg      // matrix descriptors of A in the first stage, by 64 rows
	descB     build.Reg        // matrix descriptor of B in the first stage
	fragA     *frag.FragmentsA // fragments of A in registers, used instead of descA if not nil
	scales    *tileScales      // nil without block scales
	// first and steps are the first step of the part of K that is multiplied and the number of its
	// steps: without serial parts, all.
	first  build.Value
	steps  build.Reg
	totals *kernel.SerialSums // nil without serial parts
}

// multiply emits the accumulation of one tile, one part of K after the other, and returns the
// registers with the sums by 64 rows. When the last wgmma is issued, it calls issued.
func (x *mainloop) multiply(issued func()) [][]build.Reg {
	k := x.Kernel
	accumulate := func() {
		switch {
		case x.Config.Tile.SwapAB:
			x.accumulateRS()
		case len(x.Promotions) == 0:
			x.accumulate()
		case x.PromotesEveryStep():
			x.accumulatePromotedPerStep()
		default:
			x.accumulatePromoted()
		}
	}
	if x.Config.Tile.SerialK < 2 {
		accumulate()
		issued()
		x.waitAccumulators()
		return x.acc
	}
	all, partSteps, totals := x.steps, k.Named("partSteps", x.PartSteps()), x.totals
	totals.Begin()
	k.For(0, k.Max(k.CeilDiv(all, partSteps), 1), func(part build.Reg) {
		first := k.Named("first", k.Mul(part, partSteps))
		x.first, x.steps = first, k.Named("stepsLeft", k.Min(k.Sub(all, first), partSteps))
		accumulate()
		k.If(k.Eq(k.Add(first, x.steps), all), issued)
		x.waitAccumulators()
		totals.AddAll()
	})
	x.first, x.steps = 0, all
	// ptxas serialises wgmma if other instructions write the accumulators.
	return slices.Collect(slices.Chunk(totals.Totals, len(x.acc[0])))
}

// release emits the release of a stage to the producer if the condition when holds. With
// multicast, every block of the cluster has loaded a part of the stage and waits for this block
// too. If threads load fragments from shared memory, each warp releases the stage, otherwise each
// warpgroup.
func (x *mainloop) release(stage build.Reg, when build.Value) {
	k, blocks, lane := x.Kernel, x.Config.Tile.BlocksM(), x.thread
	if x.fragA != nil {
		k.Do("bar.warp.sync", -1)
		lane = k.Rem(lane, frag.Lanes)
	}
	k.If(k.And(when, k.Lt(lane, blocks)), func() {
		if blocks > 1 {
			x.state.ReleasePeer(stage, lane)
		} else {
			x.state.Release(stage)
		}
	})
}

// PromotionCols returns how many columns are accumulated before a promotion. The partial sums take
// registers in addition to the accumulators.
func PromotionCols(s kernel.Tile) int {
	if s.N == 256 {
		return 128
	}
	return s.N
}

// accumulatePromoted emits a main loop that adds the partial sums of every promotion to the
// accumulators. While the CUDA cores promote for one warpgroup, the tensor cores multiply for the
// other.
func (x *mainloop) accumulatePromoted() {
	k, s := x.Kernel, x.Config.Tile
	op := x.op
	op.N = PromotionCols(s)
	partial := k.Vars("part", x.AccType, op.N/2, 0)
	stages := make(map[int]build.Reg, len(x.Terms))
	for _, term := range x.Terms {
		stages[term] = k.Var(fmt.Sprintf("plane%d", term), ptx.U32, 0)
	}
	for _, acc := range x.acc {
		for _, r := range acc {
			k.Set(r, 0)
		}
	}
	k.For(0, x.steps, func(build.Reg) {
		loaded := 0 // terms of this step that have arrived
		waitTerm := func(term int) {
			for ; slices.Contains(x.Terms[loaded:], term); loaded++ {
				x.state.WaitFull()
				k.Set(stages[x.Terms[loaded]], x.state.Stage())
				x.state.Next()
			}
		}
		for n, promotion := range x.Promotions {
			for m := range x.acc {
				for col := 0; col < s.N; col += op.N {
					descriptors := func(pair [2]int) (a, b build.Reg) {
						waitTerm(pair[0])
						waitTerm(pair[1])
						a = k.Add(x.descA[m], x.a.DescStageOffset(stages[pair[0]]))
						return a, k.Add(k.Add(x.descB, x.b.DescStageOffset(stages[pair[1]])), x.b.DescSideOffset(col))
					}
					for pass := range promotion.Passes {
						x.issuePass(op, partial, promotion, pass, descriptors)
						for e, r := range x.acc[m][col/2:][:len(partial)] {
							k.FMA(r, partial[e], promotion.Scale)
						}
					}
				}
			}
			for _, term := range x.Terms {
				usesTerm := func(r Promotion) bool { return r.uses(term) }
				if usesTerm(promotion) && !slices.ContainsFunc(x.Promotions[n+1:], usesTerm) {
					x.release(stages[term], true)
				}
			}
		}
	})
}

// PromotesEveryStep reports whether each step has a single promotion of one pair in one pass, as
// that of 8-bit floats.
func (r Arithmetic) PromotesEveryStep() bool {
	return len(r.Promotions) == 1 && len(r.Promotions[0].Pairs) == 1 && r.Promotions[0].Passes == 1
}

// perStepPromotionCols returns how many columns are accumulated at a time if every step is
// promoted. The two sets of partial sums must fit in the registers that the accumulators leave. A
// scale per column takes further registers, as do scales of rows in a ping-pong kernel.
func perStepPromotionCols(c kernel.Config) int {
	room := 192
	if c.ScaleB == 1 || c.ScaleA > 0 && PingPong(c.Tile) {
		room = 128
	}
	held := c.Tile.RowsPerThread * c.Tile.ColsPerThread
	if c.Tile.SerialK > 1 {
		held *= 2 // with the totals
	}
	return min(c.Tile.N, room-held)
}

// accumulatePromotedPerStep emits the main loop of accumulatePromoted for steps with a single
// promotion of one pair. It divides a step into parts of some columns and software-pipelines them:
// while the warpgroup promotes one part, the tensor cores multiply the next. The parts alternate
// between two sets of registers. The loop covers two steps, so that each iteration begins with the
// first set in flight: ptxas serialises wgmma if it cannot follow which registers are in flight.
func (x *mainloop) accumulatePromotedPerStep() {
	k, s := x.Kernel, x.Config.Tile
	op, cols := x.op, perStepPromotionCols(x.Config)
	op.N = cols
	partials := [2][]build.Reg{k.Vars("even", x.AccType, cols/2, 0), k.Vars("odd", x.AccType, cols/2, 0)}
	colParts := s.N / cols
	stepParts := len(x.acc) * colParts
	multiply := func(part int) {
		m, col := part%stepParts/colParts, part%colParts*cols
		a := k.Add(x.descA[m], x.a.DescStageOffset(x.state.Stage()))
		b := k.Add(k.Add(x.descB, x.b.DescStageOffset(x.state.Stage())), x.b.DescSideOffset(col))
		k.WgmmaFence()
		for p := 0; p < s.K; p += op.K() {
			k.Wgmma(op, partials[part%2], k.Add(a, x.a.DescKOffset(p)), k.Add(b, x.b.DescKOffset(p)), p > 0)
		}
		k.WgmmaCommit()
	}
	promote := func(part int) {
		m, col := part%stepParts/colParts, part%colParts*cols
		acc, partial := x.acc[m][col/2:], partials[part%2]
		if x.scales != nil {
			x.scales.accumulate(col, acc, partial)
			return
		}
		for e, r := range partial {
			k.Set(acc[e], k.Add(acc[e], r))
		}
	}
	scale := func(i build.Value, part int) {
		if x.scales != nil && part%stepParts == 0 {
			x.scales.advance(k.Add(x.first, k.Mad(i, 2, part/stepParts+1)))
		}
	}
	// next starts the part after the given one of the i-th pair of steps and promotes the given one.
	next := func(i build.Value, part int) {
		last := (part+1)%stepParts == 0 // of its step
		k.Set(x.prevStage, x.state.Stage())
		if last {
			x.state.Next()
			x.state.WaitFull()
		}
		multiply(part + 1)
		scale(i, part)
		k.WgmmaWait(1)
		if last {
			x.release(x.prevStage, true)
		}
		promote(part)
	}
	end := func(i build.Value, part int) {
		scale(i, part)
		k.WgmmaWait(0)
		x.release(x.state.Stage(), true)
		promote(part)
		x.state.Next()
	}
	for _, acc := range x.acc {
		for _, r := range acc {
			k.Set(r, 0)
		}
	}
	k.If(k.Ne(x.steps, 0), func() {
		x.state.WaitFull()
		multiply(0)
		stepPairs := k.Div(k.Sub(x.steps, 1), 2)
		k.For(0, stepPairs, func(i build.Reg) {
			for part := range 2 * stepParts {
				next(i, part)
			}
		})
		remaining := func(steps int) {
			for part := range steps*stepParts - 1 {
				next(stepPairs, part)
			}
			end(stepPairs, steps*stepParts-1)
		}
		k.If(k.Eq(k.Rem(x.steps, 2), 0), func() { remaining(2) }).Else(func() { remaining(1) })
	})
}

// issuePass emits the wgmma instructions of one pass of a promotion, for 64 rows and some columns,
// and waits for them. descriptors returns the matrix descriptors of a pair of terms.
func (x *mainloop) issuePass(
	op build.Wgmma, partial []build.Reg, promotion Promotion, pass int, descriptors func(pair [2]int) (a, b build.Reg),
) {
	k, depth := x.Kernel, x.Config.Tile.K/promotion.Passes
	for i, pair := range promotion.Pairs {
		a, b := descriptors(pair)
		k.WgmmaFence() // again for each pair, or ptxas puts one into the loop that waits for a stage
		for p := pass * depth; p < (pass+1)*depth; p += op.K() {
			k.Wgmma(op, partial, k.Add(a, x.a.DescKOffset(p)), k.Add(b, x.b.DescKOffset(p)), i > 0 || p > pass*depth)
		}
	}
	k.WgmmaCommit()
	k.WgmmaWait(0)
}

// uses reports whether the promotion multiplies a term of A or of B.
func (r Promotion) uses(term int) bool {
	return slices.ContainsFunc(r.Pairs, func(pair [2]int) bool { return pair[0] == term || pair[1] == term })
}

// accumulate emits the main loop in which the tensor cores accumulate over all steps. One step
// stays in flight: waitAccumulators waits for it.
func (x *mainloop) accumulate() {
	k, s := x.Kernel, x.Config.Tile
	k.For(0, x.steps, func(i build.Reg) {
		x.state.WaitFull()
		stageA, stageB := x.a.DescStageOffset(x.state.Stage()), x.b.DescStageOffset(x.state.Stage())
		k.WgmmaFence()
		for p := 0; p < s.K; p += x.op.K() {
			var add build.Value = true
			if p == 0 {
				add = k.Ne(i, 0) // the first wgmma overwrites the accumulators
			}
			b := k.Add(k.Add(x.descB, stageB), x.b.DescKOffset(p))
			for m := range x.acc {
				k.Wgmma(x.op, x.acc[m], k.Add(k.Add(x.descA[m], stageA), x.a.DescKOffset(p)), b, add)
			}
		}
		k.WgmmaCommit()
		k.Comment("while these are multiplied the stage before them can be given back")
		k.WgmmaWait(1)
		x.release(x.prevStage, k.Ne(i, 0))
		k.Set(x.prevStage, x.state.Stage())
		x.state.Next()
	})
}

// waitAccumulators waits for the wgmma in flight and releases the last stage.
func (x *mainloop) waitAccumulators() {
	if len(x.Promotions) > 0 {
		return // each promotion waits for its wgmma
	}
	x.WgmmaWait(0)
	x.release(x.prevStage, x.Ne(x.steps, 0))
}

// termTiles returns the tiles of each term of an operand, in the order in which they are loaded.
// The terms are concatenated along a row of memory. A row runs along K if the operand is K-major
// and otherwise along its other side, whose length is mn.
func (w *writer) termTiles(operand *frag.Boxes, kMajor bool, mn build.Reg) (all []*frag.Boxes) {
	k, length := w.Kernel, mn
	if kMajor {
		length = w.K
	}
	for _, term := range w.Terms {
		if term == 0 {
			all = append(all, operand)
			continue
		}
		termLen := k.Mul(k.CeilDiv(length, kernel.SplitRowUnit), kernel.SplitRowUnit)
		all = append(all, operand.Offset(k.Mul(termLen, term)))
	}
	return all
}
