package gpu

import (
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// store finishes the sum of element (row, col) and writes it to C.
func (g *product) store(row, col, sum build.Reg) { g.storeVec(row, col, []build.Reg{sum}) }

// storeVec finishes consecutive elements of a row, from (row, col) on: alpha and
// beta, bias, activation, the rounding to C's type.
func (g *product) storeVec(row, col build.Reg, sums []build.Reg) {
	at, values := g.c.At(row, col), g.scaled(sums)
	g.If(g.readC, func() { g.addOld(values, at.LoadVec(len(values))) })
	g.write(row, col, values)
}

// storeRow finishes vectors of a row, from the columns cols on, each inside of C or
// outside. What it reads of C is under way at the same time.
func (g *product) storeRow(row build.Reg, cols []build.Reg, vectors [][]build.Reg) {
	inside, values := make([]build.Reg, len(cols)), make([][]build.Reg, len(cols))
	for i, sums := range vectors {
		inside[i], values[i] = g.c.Inside(row, cols[i]), g.scaled(sums)
	}
	g.If(g.readC, func() {
		old := make([][]build.Reg, len(cols))
		for i, col := range cols {
			old[i] = g.c.At(row, col).LoadVecOr0(inside[i], len(values[i]))
		}
		for i := range old {
			g.addOld(values[i], old[i])
		}
	})
	for i, col := range cols {
		g.If(inside[i], func() { g.write(row, col, values[i]) })
	}
}

// scaled are variables with alpha times the sums.
func (g *product) scaled(sums []build.Reg) []build.Reg {
	values := make([]build.Reg, len(sums))
	for i, sum := range sums {
		values[i] = g.Var("", g.acc, g.Mul(g.alpha, sum))
	}
	return values
}

// addOld adds beta times what C held.
func (g *product) addOld(values, old []build.Reg) {
	for i, x := range old {
		g.FMA(values[i], g.beta, g.sum(x))
	}
}

// write does the rest of what storeVec says.
func (g *product) write(row, col build.Reg, values []build.Reg) {
	at := g.c.At(row, col)
	out := make([]build.Value, len(values))
	for i, v := range values {
		switch g.config.Epilogue.Bias {
		case gemm.BiasRow:
			v = g.Add(v, g.sum(g.bias.At(row).Load()))
		case gemm.BiasCol:
			v = g.Add(v, g.sum(g.bias.At(col).At(i).Load()))
		}
		if act := activations[g.config.Epilogue.Activation]; act != nil {
			v = act(g.Kernel, v)
		}
		if out[i] = v; v.Type() != at.Elem() {
			out[i] = g.To(at.Elem(), v)
		}
	}
	at.StoreVec(out...)
}
