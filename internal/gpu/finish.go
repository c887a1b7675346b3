package gpu

import (
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// store finishes the sum of element (row, col) and writes it to C.
func (g *product) store(row, col, sum build.Reg) { g.storeVec(row, col, []build.Reg{sum}) }

// storeVec finishes consecutive elements of a row, from (row, col) on: alpha and
// beta, the epilogue, the rounding to C's type.
func (g *product) storeVec(row, col build.Reg, sums []build.Reg) {
	at, values := g.c.At(row, col), g.scaled(sums)
	g.If(g.readC, func() { g.addOld(values, at.LoadVec(len(values))) })
	g.write(row, col, g.epilogue([]build.Reg{row}, []build.Reg{col}, [][]build.Reg{values}, []build.Reg{g.Eq(0, 0)})[0])
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
	values = g.epilogue(rows, cols, values, inside)
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

// epilogue is vectors of values, from the rows and columns on, with what the epilogue does
// to them. What it reads is zeros outside of C, as there is none.
func (g *product) epilogue(rows, cols []build.Reg, vectors [][]build.Reg, inside []build.Reg) [][]build.Reg {
	e := g.config.Epilogue
	if e == (gemm.Epilogue{}) {
		return vectors
	}
	// An element of a vector that many of C's elements need is loaded once.
	type place struct {
		vector build.Ptr
		at     build.Reg
	}
	loaded := map[place]build.Reg{}
	element := func(vector build.Ptr, at, end build.Reg) build.Reg {
		p := place{vector, at}
		if _, ok := loaded[p]; !ok {
			loaded[p] = g.sum(vector.At(at).LoadVecOr0(g.Lt(at, end), 1)[0])
		}
		return loaded[p]
	}
	row := func(vector build.Ptr, i int) build.Reg { return element(vector, rows[i], g.m) }
	col := func(vector build.Ptr, i, j int) build.Reg { return element(vector, g.Add(cols[i], j), g.n) }
	// What has to come is under way before anything is computed.
	var out build.Reg
	if e.OutScale {
		out = g.scale[gemm.OutScale].LoadVec(1)[0]
	}
	residual := make([][]build.Reg, len(vectors))
	for i, values := range vectors {
		for j := range values {
			if e.RowScale {
				row(g.scale[gemm.RowScale], i)
			}
			if e.ColScale {
				col(g.scale[gemm.ColScale], i, j)
			}
			switch e.Bias {
			case gemm.BiasRow:
				row(g.bias, i)
			case gemm.BiasCol:
				col(g.bias, i, j)
			}
		}
		if e.Residual {
			vec := min(g.config.VecD, len(values))
			for j := 0; j < len(values); j += vec {
				residual[i] = append(residual[i], g.d.At(rows[i], g.Add(cols[i], j)).LoadVecOr0(inside[i], vec)...)
			}
		}
	}
	finished := make([][]build.Reg, len(vectors))
	for i, values := range vectors {
		for j, x := range values {
			if e.RowScale {
				x = g.Mul(x, row(g.scale[gemm.RowScale], i))
			}
			if e.ColScale {
				x = g.Mul(x, col(g.scale[gemm.ColScale], i, j))
			}
			switch e.Bias {
			case gemm.BiasRow:
				x = g.Add(x, row(g.bias, i))
			case gemm.BiasCol:
				x = g.Add(x, col(g.bias, i, j))
			}
			if act := activations[e.Activation]; act != nil {
				x = act(g.Kernel, x)
			}
			if e.Residual {
				x = g.Add(x, g.sum(residual[i][j]))
			}
			if e.OutScale {
				x = g.Mul(x, out)
			}
			if e.Saturate {
				x = saturated(g.Kernel, x, g.config.Out.Info().Max)
			}
			finished[i] = append(finished[i], x)
		}
	}
	return finished
}

// saturated is x where it is at most so large, and else the number next to it that is. NaN
// stays, which min and max would drop.
func saturated(k *build.Kernel, x build.Reg, most float64) build.Reg {
	x = k.Select(k.Gt(x, most), most, x)
	return k.Select(k.Lt(x, -most), -most, x)
}

// write rounds what is finished to C's type and writes it.
func (g *product) write(row, col build.Reg, values []build.Reg) {
	at := g.c.At(row, col)
	out := make([]build.Value, len(values))
	for i, v := range values {
		if v.Type() != at.Elem() {
			v = g.To(at.Elem(), v)
		}
		out[i] = v
	}
	at.StoreVec(out...)
}
