package kernel

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/gemm"
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
// kernel that multiplies all steps in one loop. They emit nothing without serial parts.
func (g *Writer) serialSteps(sums []build.Reg) (step, end func()) {
	if g.Config.Tile.SerialK < 2 {
		return func() {}, func() {}
	}
	add := g.newTotals(sums)
	steps := g.Named("partSteps", g.PartSteps())
	left := g.Var("left", steps.Type(), steps) // steps of the part
	step = func() {
		g.Set(left, g.Sub(left, 1))
		g.If(g.Eq(left, 0), func() {
			g.Comment("the part is complete")
			add()
			for _, sum := range sums {
				g.Set(sum, 0)
			}
			g.Set(left, steps)
		})
	}
	return step, func() {
		for i, total := range add() {
			g.Set(sums[i], total)
		}
	}
}

// newTotals returns a function that adds the sums of a part to the totals of the thread, and
// returns these. They are in registers or, if a thread has too few, in shared memory.
func (g *Writer) newTotals(sums []build.Reg) (add func() []build.Reg) {
	accum := g.Config.In.Info().Accum
	if !TotalsInShared(g.Config.Tile, accum) {
		x := g.NewSerialSums(sums)
		return func() []build.Reg {
			x.Add()
			return x.Totals
		}
	}
	// Threads access adjacent banks, and each its own totals only.
	shared, tid := g.SharedDynamic("totals", g.AccType, len(sums), BlockedThreads(g.Config.Tile)), g.ThreadIdx(build.X)
	zero := g.Var("", g.AccType, 0)
	for i := range sums {
		shared.Store(i, tid, zero)
	}
	return func() []build.Reg {
		totals := make([]build.Reg, len(sums))
		for i, sum := range sums {
			totals[i] = g.Add(shared.Load(i, tid), sum)
			shared.Store(i, tid, totals[i])
		}
		return totals
	}
}

// TotalsInShared reports whether the totals of serial parts take too many registers.
func TotalsInShared(s Tile, accum dtype.Type) bool {
	return accum.Bytes(2*s.RowsPerThread*s.ColsPerThread)/4 > maxSumRegisters
}

// totalsBytes returns the dynamic shared memory of the totals of a block of kernel blocked.
func totalsBytes(c Config) int {
	s, accum := c.Tile, c.In.Info().Accum
	if s.SerialK < 2 || !TotalsInShared(s, accum) {
		return 0
	}
	return accum.Bytes(s.RowsPerThread * s.ColsPerThread * BlockedThreads(s))
}

// checkSerial returns an error if K is in parts in several ways.
func checkSerial(kernel string, s Tile) error {
	if s.SerialK > 1 && (s.SplitK > 1 || s.ClusterK > 1) {
		return fmt.Errorf("%w: kernel %s with tile %v: want K in parts in one way", gemm.ErrUnsupported, kernel, s)
	}
	return nil
}
