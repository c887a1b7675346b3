package kernel

import (
	"tilework/ptx/build"
)

// A gated product is act(α·A·B) ∘ (α·A·Up). A kernel that gates computes both in one launch: of a
// tile's columns the first half are B's and the second half Up's, for the same columns of C, so
// that a thread which holds every n-th column holds both factors of its elements, and nothing but
// their product leaves it. For any other kernel it is two launches: the sums of A·Up go to memory
// of their own, and the epilogue of A·B is multiplied by them.

// gates says that a launch computes both factors.
func (c Config) ComputesGate() bool { return c.Epilogue.Gated && !c.Factor.Valid() }

// columns is how many columns a tile has of C or, if it is turned, of C's transpose.
func (c Config) ColumnsOfC() int {
	if c.ComputesGate() {
		return c.Tile.N / 2
	}
	return c.Tile.N
}

// gate is the products of the factors, of sums in the same order.
func (g *Writer) GatedValues(gates, ups []build.Reg) []build.Reg {
	values := make([]build.Reg, len(gates))
	for i, sum := range gates {
		values[i] = g.Mul(g.alpha, g.SumToEpilogueType(sum))
	}
	if act := activations[g.Config.Epilogue.Activation]; act != nil {
		values = act(g.Kernel, g.Config.SM, values)
	}
	for i, x := range values {
		values[i] = g.Mul(x, g.Mul(g.alpha, g.SumToEpilogueType(ups[i])))
	}
	return values
}
