package kernel

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// SerialSums adds the sums of the parts of K of a tile with serial parts. A part begins at zero,
// and so does the total, as with split-K.
type SerialSums struct {
	*Writer
	// Totals are the sums of the parts so far.
	Totals []build.Reg
	sums   []build.Reg // of the part
}

// NewSerialSums declares the totals of a thread's accumulators.
func (g *Writer) NewSerialSums(sums []build.Reg) *SerialSums {
	return &SerialSums{Writer: g, sums: sums, Totals: g.Vars("total", g.AccType, len(sums), 0)}
}

// PartSteps returns the number of steps along K of a part.
func (g *Writer) PartSteps() build.Reg {
	return g.To(ptx.U32, g.Div(g.partLength, g.Config.Tile.K))
}

// Begin clears the totals.
func (x *SerialSums) Begin() {
	for _, total := range x.Totals {
		x.Set(total, 0)
	}
}

// Add adds the sums of a part to the totals.
func (x *SerialSums) Add() {
	for i, total := range x.Totals {
		x.Set(total, x.Writer.Add(total, x.sums[i]))
	}
}

// serialSteps returns functions to call after each step along K and after the last one, for a
// kernel that multiplies all steps in one loop. They emit nothing without serial parts. inShared
// selects shared memory for the totals.
func (g *Writer) serialSteps(sums []build.Reg, inShared bool) (step, end func()) {
	if g.Config.Tile.SerialK < 2 {
		return func() {}, func() {}
	}
	add := g.newTotals(sums, inShared)
	steps := g.Named("partSteps", g.PartSteps())
	left := g.Var("left", steps.Type(), steps) // steps of the part
	step = func() {
		g.Set(left, g.Sub(left, 1))
		g.If(g.Eq(left, 0), func() {
			g.Comment("the part is complete")
			for i := range sums {
				add(i)
				g.Set(sums[i], 0)
			}
			g.Set(left, steps)
		})
	}
	return step, func() {
		for i := range sums {
			g.Set(sums[i], add(i))
		}
	}
}

// newTotals returns a function that adds sum i of a part to the total of the thread, and returns
// the total.
func (g *Writer) newTotals(sums []build.Reg, inShared bool) (add func(i int) build.Reg) {
	if !inShared {
		totals := g.Vars("total", g.AccType, len(sums), 0)
		return func(i int) build.Reg {
			g.Set(totals[i], g.Add(totals[i], sums[i]))
			return totals[i]
		}
	}
	// Threads access adjacent banks, and each its own totals only.
	shared, tid := g.SharedDynamic("totals", g.AccType, len(sums), BlockedThreads(g.Config.Tile)), g.ThreadIdx(build.X)
	zero := g.Var("", g.AccType, 0)
	for i := range sums {
		shared.Store(i, tid, zero)
	}
	return func(i int) build.Reg {
		total := g.Add(shared.Load(i, tid), sums[i])
		shared.Store(i, tid, total) // after the last part too: it keeps ptxas from loading all totals at once
		return total
	}
}
