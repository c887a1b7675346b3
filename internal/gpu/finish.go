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
	rows := make([]build.Reg, len(cols))
	for i := range rows {
		rows[i] = row
	}
	g.storeAll(rows, cols, vectors)
}

// storeAll is storeRow for vectors of several rows.
func (g *product) storeAll(rows, cols []build.Reg, vectors [][]build.Reg) {
	inside, values := make([]build.Reg, len(cols)), make([][]build.Reg, len(cols))
	for i, sums := range vectors {
		inside[i], values[i] = g.c.Inside(rows[i], cols[i]), g.scaled(sums)
	}
	g.If(g.readC, func() {
		old := make([][]build.Reg, len(cols))
		for i, col := range cols {
			old[i] = g.c.At(rows[i], col).LoadVecOr0(inside[i], len(values[i]))
		}
		for i := range old {
			g.addOld(values[i], old[i])
		}
	})
	for i, col := range cols {
		g.If(inside[i], func() { g.write(rows[i], col, values[i]) })
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

// biased is values of consecutive elements of a row with what the epilogue adds and does
// to them. What is added is zeros if inside does not hold, as there is none.
func (g *product) biased(row, col build.Reg, values []build.Reg, inside build.Value) []build.Reg {
	out := make([]build.Reg, len(values))
	for i, v := range values {
		switch g.config.Epilogue.Bias {
		case gemm.BiasRow:
			v = g.Add(v, g.sum(g.bias.At(row).LoadVecOr0(inside, 1)[0]))
		case gemm.BiasCol:
			v = g.Add(v, g.sum(g.bias.At(col).At(i).LoadVecOr0(inside, 1)[0]))
		}
		if act := activations[g.config.Epilogue.Activation]; act != nil {
			v = act(g.Kernel, v)
		}
		out[i] = v
	}
	return out
}

// write does the rest of what storeVec says.
func (g *product) write(row, col build.Reg, values []build.Reg) {
	at := g.c.At(row, col)
	out := make([]build.Value, len(values))
	for i, v := range g.biased(row, col, values, true) {
		if v.Type() != at.Elem() {
			v = g.To(at.Elem(), v)
		}
		out[i] = v
	}
	at.StoreVec(out...)
}
