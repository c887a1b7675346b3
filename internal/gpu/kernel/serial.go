package kernel

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// SerialSums adds the sums of the parts of K of a tile with serial parts. A part begins at zero,
// and so does the total, as with split-K.
type SerialSums struct {
	*Writer
	sums []build.Reg // of the part
	// Totals are the sums of the parts so far, or nil if shared holds them: that of sum i of a thread
	// in row i and the thread's column.
	Totals []build.Reg
	shared build.Array
	thread build.Reg
}

// NewSerialSums declares the totals of a thread's accumulators.
func (g *Writer) NewSerialSums(sums []build.Reg) *SerialSums {
	return &SerialSums{Writer: g, sums: sums, Totals: g.Vars("total", g.AccType, len(sums), 0)}
}

// newSharedSums is NewSerialSums with totals in shared memory. Threads access adjacent banks, and
// each its own totals only.
func (g *Writer) newSharedSums(sums []build.Reg) *SerialSums {
	x := &SerialSums{Writer: g, sums: sums,
		shared: g.SharedDynamic("totals", g.AccType, len(sums), BlockedThreads(g.Config.Tile)), thread: g.ThreadIdx(build.X)}
	zero := g.Var("", g.AccType, 0)
	for i := range sums {
		x.shared.Store(i, x.thread, zero)
	}
	return x
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

// AddAll adds the sums of a part to the totals.
func (x *SerialSums) AddAll() {
	for i := range x.sums {
		x.add(i)
	}
}

// add adds sum i of a part to its total and returns the total.
func (x *SerialSums) add(i int) build.Reg {
	if x.Totals != nil {
		x.Set(x.Totals[i], x.Add(x.Totals[i], x.sums[i]))
		return x.Totals[i]
	}
	total := x.Add(x.shared.Load(i, x.thread), x.sums[i])
	x.shared.Store(i, x.thread, total) // after the last part too: it keeps ptxas from loading all totals at once
	return total
}

// serialSteps adds the sums of serial parts in a kernel that multiplies all steps in one loop. A
// nil serialSteps, of a kernel without serial parts, emits nothing.
type serialSteps struct {
	*SerialSums
	each, left build.Reg // steps of a part, and those left of the current one
}

// newSerialSteps declares the totals of sums, in shared memory if inShared is set.
func (g *Writer) newSerialSteps(sums []build.Reg, inShared bool) *serialSteps {
	if g.Config.Tile.SerialK < 2 {
		return nil
	}
	x := &serialSteps{}
	if inShared {
		x.SerialSums = g.newSharedSums(sums)
	} else {
		x.SerialSums = g.NewSerialSums(sums)
	}
	x.each = g.Named("partSteps", g.PartSteps())
	x.left = g.Var("left", x.each.Type(), x.each)
	return x
}

// next follows a step along K.
func (x *serialSteps) next() {
	if x == nil {
		return
	}
	x.Set(x.left, x.Sub(x.left, 1))
	x.If(x.Eq(x.left, 0), func() {
		x.Comment("the part is complete")
		for i, sum := range x.sums {
			x.add(i)
			x.Set(sum, 0)
		}
		x.Set(x.left, x.each)
	})
}

// end follows the last step. It sets the sums to the totals.
func (x *serialSteps) end() {
	if x == nil {
		return
	}
	for i, sum := range x.sums {
		x.Set(sum, x.add(i))
	}
}
