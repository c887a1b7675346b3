package sm90

import (
	"fmt"
	"slices"

	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// A mainloop emits the main loop of one consumer warpgroup: the accumulation along K of one tile.
type mainloop struct {
	w         *writer
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
	first    build.Value
	steps    build.Reg
	totals   *kernel.SerialSums // nil without serial parts
	handover *handover          // nil without stream-K
}

// newMainloop declares the accumulators of a warpgroup, whose part of a tile begins at firstRow,
// and computes the matrix descriptors of its operands. thread is the index of the thread in it.
func (w *writer) newMainloop(thread build.Reg, firstRow build.Value) *mainloop {
	k, s := w.Kernel, w.Config.Tile
	shapeA, shapeB := operandShapes(w.Config)
	rows, _ := WarpgroupTile(s)
	x := &mainloop{
		w: w, thread: thread, first: 0, steps: w.steps,
		op:  build.Wgmma{N: s.N, A: w.Elem, B: w.Elem, MNMajorA: !shapeA.KMajor, MNMajorB: !shapeB.KMajor},
		acc: make([][]build.Reg, rows/WarpgroupRows), descA: make([]build.Reg, rows/WarpgroupRows),
	}
	for m := range x.acc {
		x.acc[m] = k.Vars(fmt.Sprintf("sum%d_", m), w.AccType, s.N/2, 0)
		if !w.loadsFragments() {
			x.descA[m] = w.a.Descriptor(k.Add(firstRow, m*WarpgroupRows))
		}
	}
	if w.loadsFragments() {
		x.fragA = w.a.FragmentsA(thread, firstRow)
	}
	x.descB = w.b.Descriptor(0)
	x.state = w.pipe.State()
	if s.StreamK {
		x.handover = w.newHandover(thread)
	}
	if s.SerialK > 1 {
		x.totals = w.NewSerialSums(slices.Concat(x.acc...))
	}
	x.prevStage = k.Var("before", ptx.U32, 0)
	return x
}

// multiply emits the accumulation of one tile and returns the registers with the sums by 64 rows.
// When the last wgmma is issued, it calls issued.
func (x *mainloop) multiply(issued func()) [][]build.Reg {
	if x.totals != nil {
		return x.multiplySerialParts(issued)
	}
	if x.handover != nil {
		x.steps = x.w.steps
	}
	x.accumulate()
	issued()
	x.waitAccumulators()
	return x.acc
}

// multiplySerialParts emits multiply for serial parts: it adds the sums of each part of K to the
// totals.
func (x *mainloop) multiplySerialParts(issued func()) [][]build.Reg {
	k, all, totals := x.w.Kernel, x.steps, x.totals
	partSteps := k.Named("partSteps", x.w.PartSteps())
	totals.Begin()
	k.For(0, k.Max(k.CeilDiv(all, partSteps), 1), func(part build.Reg) {
		first := k.Named("first", k.Mul(part, partSteps))
		x.first, x.steps = first, k.Named("stepsLeft", k.Min(k.Sub(all, first), partSteps))
		x.accumulate()
		k.If(k.Eq(k.Add(first, x.steps), all), issued)
		x.waitAccumulators()
		totals.AddAll()
	})
	x.first, x.steps = 0, all
	// ptxas serialises wgmma if other instructions write the accumulators.
	return slices.Collect(slices.Chunk(totals.Totals, len(x.acc[0])))
}

// accumulate emits the main loop over the steps from first on. Without promotion, the wgmma of the
// last step are in flight at its end.
func (x *mainloop) accumulate() {
	switch {
	case x.fragA != nil:
		x.accumulateRS()
	case len(x.w.Promotions) == 0:
		x.accumulateSS()
	case x.w.PromotesEveryStep():
		x.accumulatePromotedPerStep()
	default:
		x.accumulatePromoted()
	}
}

// release emits the release of a stage to the producer if the condition when holds. With
// multicast, the blocks of the cluster have loaded parts of the stage and wait for this block
// too. If threads load fragments from shared memory, each warp releases the stage, otherwise each
// warpgroup.
func (x *mainloop) release(stage build.Reg, when build.Value) {
	k, blocks, lane := x.w.Kernel, x.w.Config.Tile.BlocksM()*x.w.Config.Tile.BlocksN(), x.thread
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

// accumulateSS emits the main loop in which the tensor cores accumulate over all steps and read
// both operands from shared memory. While they multiply one step, the stage of the step before is
// released.
func (x *mainloop) accumulateSS() {
	k, first := x.w.Kernel, 0
	if x.handover != nil { // ptxas serialises wgmma if the first one in the loop adds to loaded accumulators
		x.multiplyStep(x.takeOver())
		x.advance()
		first = 1
	}
	k.For(first, x.steps, func(i build.Reg) {
		after := k.Or(first > 0, k.Ne(i, 0)) // the first step
		x.multiplyStep(after)
		k.Comment("while these are multiplied the stage before them can be given back")
		k.WgmmaWait(1)
		x.release(x.prevStage, after)
		x.advance()
	})
}

// multiplyStep issues the wgmma of a step when its stage is full. The first one overwrites the
// accumulators unless add is true.
func (x *mainloop) multiplyStep(add build.Value) {
	k, s := x.w.Kernel, x.w.Config.Tile
	x.state.WaitFull()
	stageA, stageB := x.w.a.DescStageOffset(x.state.Stage()), x.w.b.DescStageOffset(x.state.Stage())
	k.WgmmaFence()
	for p := 0; p < s.K; p += x.op.K() {
		b := k.Add(k.Add(x.descB, stageB), x.w.b.DescKOffset(p))
		for m := range x.acc {
			k.Wgmma(x.op, x.acc[m], k.Add(k.Add(x.descA[m], stageA), x.w.a.DescKOffset(p)), b, k.Or(add, p > 0))
		}
	}
	k.WgmmaCommit()
}

// advance begins with the next stage. The wgmma of the current one can be in flight.
func (x *mainloop) advance() {
	x.w.Set(x.prevStage, x.state.Stage())
	x.state.Next()
}

// takeOver begins with the accumulators of the block before, if it has multiplied the first steps
// of the tile. It returns whether it has.
func (x *mainloop) takeOver() (begun build.Value) {
	if x.handover == nil {
		return false
	}
	taken := x.w.beginsWithin()
	x.w.If(taken, func() { x.handover.take(x.w.blockBefore, x.acc) })
	return taken
}

// waitAccumulators waits for the wgmma in flight and releases the last stage.
func (x *mainloop) waitAccumulators() {
	if len(x.w.Promotions) > 0 {
		return // each promotion waits for its wgmma
	}
	x.w.WgmmaWait(0)
	x.release(x.prevStage, x.w.Ne(x.w.allSteps, 0))
}
