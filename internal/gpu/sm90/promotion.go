package sm90

import (
	"fmt"
	"slices"

	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// This file holds the main loops with accumulator promotion: CUDA cores add short sums of the
// tensor cores to float32 accumulators. With one promotion per step, as for 8-bit floats, a
// warpgroup adds one sum while the tensor cores compute its next. With several, as for an operand
// split, it waits for each sum, and the tensor cores multiply for the other warpgroup while it
// adds.

// PromotionCols returns how many columns are accumulated before a promotion. The partial sums take
// registers in addition to the accumulators.
func PromotionCols(s kernel.Tile) int {
	if s.N == 256 {
		return 128
	}
	return s.N
}

// accumulatePromoted emits the main loop for several promotions per step: it multiplies and
// promotes one after the other, some columns of 64 rows at a time.
func (x *mainloop) accumulatePromoted() {
	k, op := x.w.Kernel, x.op
	op.N = PromotionCols(x.w.Config.Tile)
	partial := k.Vars("part", x.w.AccType, op.N/2, 0)
	terms := x.newTermStages()
	x.clearAccumulators()
	x.takeOver()
	k.For(0, x.steps, func(build.Reg) {
		terms.loaded = 0
		for n, promotion := range x.w.Promotions {
			for m := range x.acc {
				for col := 0; col < x.op.N; col += op.N {
					for pass := range promotion.Passes {
						x.multiplyPass(op, partial, promotion, pass, func(pair [2]int) (a, b build.Reg) {
							return terms.descriptors(pair, m, col)
						})
						for e, sum := range partial {
							k.FMA(x.acc[m][col/2+e], sum, promotion.Scale)
						}
					}
				}
			}
			for _, term := range x.w.lastUses(n) {
				x.release(terms.stages[term], true)
			}
		}
	})
}

// clearAccumulators sets the accumulators to zero.
func (x *mainloop) clearAccumulators() {
	for _, acc := range x.acc {
		for _, r := range acc {
			x.w.Set(r, 0)
		}
	}
}

// multiplyPass emits the wgmma instructions of one pass of a promotion, for 64 rows and some
// columns, and waits for them. descriptors returns the matrix descriptors of a pair of terms.
func (x *mainloop) multiplyPass(
	op build.Wgmma, partial []build.Reg, promotion Promotion, pass int, descriptors func(pair [2]int) (a, b build.Reg),
) {
	k, depth := x.w.Kernel, x.w.Config.Tile.K/promotion.Passes
	for i, pair := range promotion.Pairs {
		a, b := descriptors(pair)
		k.WgmmaFence() // again for each pair, or ptxas puts one into the loop that waits for a stage
		for p := pass * depth; p < (pass+1)*depth; p += op.K() {
			add := i > 0 || p > pass*depth
			k.Wgmma(op, partial, k.Add(a, x.w.a.DescKOffset(p)), k.Add(b, x.w.b.DescKOffset(p)), add)
		}
	}
	k.WgmmaCommit()
	k.WgmmaWait(0)
}

// termStages holds the stages of the terms of a step.
type termStages struct {
	*mainloop
	stages map[int]build.Reg // by term
	loaded int               // number of terms for whose arrival the step has waited
}

func (x *mainloop) newTermStages() *termStages {
	t := &termStages{mainloop: x, stages: make(map[int]build.Reg, len(x.w.Terms))}
	for _, term := range x.w.Terms {
		t.stages[term] = x.w.Var(fmt.Sprintf("plane%d", term), ptx.U32, 0)
	}
	return t
}

// descriptors waits for the terms of A and B in pair, and returns their matrix descriptors for the
// m-th 64 rows and the columns from col on.
func (t *termStages) descriptors(pair [2]int, m, col int) (a, b build.Reg) {
	k := t.w.Kernel
	t.wait(pair[0])
	t.wait(pair[1])
	a = k.Add(t.descA[m], t.w.a.DescStageOffset(t.stages[pair[0]]))
	return a, k.Add(k.Add(t.descB, t.w.b.DescStageOffset(t.stages[pair[1]])), t.w.b.DescSideOffset(col))
}

// wait waits until a term and those loaded before it have arrived.
func (t *termStages) wait(term int) {
	for ; slices.Contains(t.w.Terms[t.loaded:], term); t.loaded++ {
		t.state.WaitFull()
		t.w.Set(t.stages[t.w.Terms[t.loaded]], t.state.Stage())
		t.state.Next()
	}
}

// PerStepPromotionCols returns how many columns are accumulated at a time if every step is
// promoted. The two sets of partial sums must fit in the registers that the accumulators leave. A
// scale per column takes further registers, as do scales of rows in a ping-pong kernel.
func PerStepPromotionCols(c kernel.Config) int {
	room := 192
	if c.ScaleB == 1 || c.ScaleA > 0 && PingPong(c.Tile) {
		room = 128
	}
	held := c.Tile.RowsPerThread * c.Tile.ColsPerThread
	if c.Tile.SerialK > 1 {
		held *= 2 // with the totals
	}
	const least = 8 // columns of a wgmma instruction, which has a multiple of them
	for parts := 1; parts < c.Tile.N/least; parts++ {
		if cols := c.Tile.N / parts; cols <= room-held && cols*parts == c.Tile.N && cols%least == 0 {
			return cols
		}
	}
	return least
}

// leastPromoted is the least number of columns of a part in narrowed tiles and with swapAB: 208
// columns in parts of 16 take twice as long as 224 in parts of 56.
const leastPromoted = 48

// promotesColumns reports whether the columns of a narrowed tile or one with swapAB have parts that
// are long enough, unless they are not promoted step by step.
func (r Arithmetic) promotesColumns(c kernel.Config) bool {
	return !r.PromotesEveryStep() || PerStepPromotionCols(c) >= min(c.Tile.N, leastPromoted)
}

// promotionPipeline is the software pipeline of steps with a single promotion of one pair of terms.
// It divides a step into parts of 64 rows and some columns. While the warpgroup promotes one part,
// the tensor cores multiply the next. Parts are numbered over two steps.
type promotionPipeline struct {
	*mainloop
	op        build.Wgmma    // multiplies a part
	partials  [2][]build.Reg // partial sums of even and of odd parts
	stepParts int            // parts of a step
}

// accumulatePromotedPerStep emits the main loop for one promotion per step. The loop covers two
// steps, so that each iteration begins with the first set of partial sums in flight: ptxas
// serialises wgmma if it cannot follow which registers are in flight.
func (x *mainloop) accumulatePromotedPerStep() {
	k := x.w.Kernel
	p := x.newPromotionPipeline()
	x.clearAccumulators()
	x.takeOver()
	k.If(k.Ne(x.steps, 0), func() {
		x.state.WaitFull()
		p.multiply(0)
		pairs := k.Div(k.Sub(x.steps, 1), 2) // of steps, before the last one or two
		k.For(0, pairs, func(i build.Reg) {
			for part := range 2 * p.stepParts {
				p.overlap(i, part)
			}
		})
		k.If(k.Eq(k.Rem(x.steps, 2), 0), func() { p.drain(pairs, 2) }).Else(func() { p.drain(pairs, 1) })
	})
}

func (x *mainloop) newPromotionPipeline() *promotionPipeline {
	p := &promotionPipeline{mainloop: x, op: x.op}
	p.op.N = PerStepPromotionCols(x.w.Config)
	for i, name := range []string{"even", "odd"} {
		p.partials[i] = x.w.Vars(name, x.w.AccType, p.op.N/2, 0)
	}
	p.stepParts = len(x.acc) * (x.op.N / p.op.N)
	return p
}

// place returns which 64 rows a part has, and its first column.
func (p *promotionPipeline) place(part int) (m, col int) {
	across := p.mainloop.op.N / p.op.N
	return part % p.stepParts / across, part % across * p.op.N
}

// multiply issues the wgmma instructions of a part in the current stage.
func (p *promotionPipeline) multiply(part int) {
	k := p.w.Kernel
	m, col := p.place(part)
	a := k.Add(p.descA[m], p.w.a.DescStageOffset(p.state.Stage()))
	b := k.Add(k.Add(p.descB, p.w.b.DescStageOffset(p.state.Stage())), p.w.b.DescSideOffset(col))
	k.WgmmaFence()
	for depth := 0; depth < p.w.Config.Tile.K; depth += p.op.K() {
		a, b := k.Add(a, p.w.a.DescKOffset(depth)), k.Add(b, p.w.b.DescKOffset(depth))
		k.Wgmma(p.op, p.partials[part%2], a, b, depth > 0)
	}
	k.WgmmaCommit()
}

// overlap issues the part after the given one of the i-th pair of steps, and promotes the given one
// meanwhile.
func (p *promotionPipeline) overlap(i build.Value, part int) {
	k := p.w.Kernel
	endsStep := (part+1)%p.stepParts == 0
	k.Set(p.prevStage, p.state.Stage())
	if endsStep {
		p.state.Next()
		p.state.WaitFull()
	}
	p.multiply(part + 1)
	p.advanceScales(i, part)
	k.WgmmaWait(1)
	if endsStep {
		p.release(p.prevStage, true)
	}
	p.promote(part)
}

// drain emits the last one or two steps, after which nothing is in flight.
func (p *promotionPipeline) drain(i build.Value, steps int) {
	last := steps*p.stepParts - 1
	for part := range last {
		p.overlap(i, part)
	}
	p.advanceScales(i, last)
	p.w.WgmmaWait(0)
	p.release(p.state.Stage(), true)
	p.promote(last)
	p.state.Next()
}

// advanceScales makes the block scales of a part's step the current ones, before its first part.
func (p *promotionPipeline) advanceScales(i build.Value, part int) {
	if p.scales != nil && part%p.stepParts == 0 {
		p.scales.advance(p.w.Add(p.first, p.w.Mad(i, 2, part/p.stepParts+1)))
	}
}

// promote adds the partial sums of a part to the accumulators.
func (p *promotionPipeline) promote(part int) {
	m, col := p.place(part)
	acc, partial := p.acc[m][col/2:], p.partials[part%2]
	if p.scales != nil {
		p.scales.accumulate(col, acc, partial)
		return
	}
	for e, sum := range partial {
		p.w.Set(acc[e], p.w.Add(acc[e], sum))
	}
}
