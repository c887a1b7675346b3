package kernel

import (
	"tilework/ptx/build"
)

// A gated product is act(α·A·B) ∘ (α·A·Up). A kernel with GatesInOneLaunch computes both factors in
// one launch. The first half of a tile's columns belongs to B, and the second half to Up, for the
// same columns of C. A thread that holds every n-th column holds both factors of its elements, and
// only their product leaves the thread. Other kernels need two launches: the first writes A·Up to
// scratch memory, and the epilogue of the second, which computes A·B, multiplies by it.

// ComputesGate reports whether a launch computes both factors of a gated product.
func (c Config) ComputesGate() bool { return c.Epilogue.Gated && !c.Factor.Valid() }

// ColumnsOfC returns the number of columns of C in a tile or, with swapAB, of Cᵀ.
func (c Config) ColumnsOfC() int {
	if c.ComputesGate() {
		return c.Tile.N / 2
	}
	return c.Tile.N
}

// GatedValues returns the gated products of corresponding sums of A·B and A·Up, including alpha.
func (g *Writer) GatedValues(gates, ups []build.Reg) []build.Reg {
	values := make([]build.Reg, len(gates))
	for i, sum := range gates {
		values[i] = g.Mul(g.alpha, g.SumToEpilogueType(sum))
	}
	for i, x := range g.activate(g.Config.Epilogue.Activation, values) {
		values[i] = g.Mul(x, g.Mul(g.alpha, g.SumToEpilogueType(ups[i])))
	}
	return values
}
