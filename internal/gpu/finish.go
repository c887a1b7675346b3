package gpu

import (
	"tilework/dtype"
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
	vectors := [][]build.Reg{values}
	g.write(row, col, g.epilogue(vectors, g.operands([]build.Reg{row}, []build.Reg{col}, vectors, []build.Reg{g.Eq(0, 0)}))[0])
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
	values = g.epilogue(values, g.operands(rows, cols, values, inside))
	for i, col := range cols {
		g.If(inside[i], func() { g.write(rows[i], col, values[i]) })
	}
}

// scaled are variables with alpha times the sums; of a launch that gates with what that made of
// them.
func (g *product) scaled(sums []build.Reg) []build.Reg {
	values := make([]build.Reg, len(sums))
	for i, sum := range sums {
		if !g.config.gates() { // which has done that
			sum = g.Mul(g.alpha, g.total(sum))
		}
		values[i] = g.Var("", g.scale, sum)
	}
	return values
}

// addOld adds beta times what C held.
func (g *product) addOld(values, old []build.Reg) {
	for i, x := range old {
		g.FMA(values[i], g.beta, g.value(x))
	}
}

// side is a vector that the epilogue reads, with an element for each row of C or for each
// column.
type side struct {
	vector build.Ptr
	rows   bool
	adds   bool // or it multiplies
}

// sides are those vectors in the order in which they come to an element.
func (g *product) sides() (all []side) {
	e := g.config.Epilogue
	if e.RowScale {
		all = append(all, side{vector: g.vectors[gemm.RowScale], rows: true})
	}
	if e.ColScale {
		all = append(all, side{vector: g.vectors[gemm.ColScale]})
	}
	if e.Bias != gemm.BiasNone {
		all = append(all, side{vector: g.bias, rows: e.Bias == gemm.BiasRow, adds: true})
	}
	return all
}

// operandsOf is how many operands an epilogue has for an element.
func operandsOf(e gemm.Epilogue) (n int) {
	for _, reads := range []bool{e.RowScale, e.ColScale, e.Bias != gemm.BiasNone, e.Gated, e.Residual} {
		if reads {
			n++
		}
	}
	return n
}

// element is what a side has for a row or a column, and zero outside of C, as there is none.
func (g *product) element(s side, at build.Reg) build.Reg {
	end := g.n
	if s.rows {
		end = g.m
	}
	return s.vector.At(at).LoadVecOr0(g.Lt(at, end), 1)[0]
}

// operands are what an epilogue reads for vectors of C's elements.
type operands struct {
	sides            [][][]build.Reg // for each side of each vector its elements
	factor, residual [][]build.Reg
	outScale         build.Reg
	// Where the vectors begin.
	rows, cols []build.Reg
}

// operands loads what the epilogue reads for vectors that begin at these rows and columns,
// each element of a side once for all that need it. All of it is under way before the first
// is used.
func (g *product) operands(rows, cols []build.Reg, vectors [][]build.Reg, inside []build.Reg) *operands {
	x := &operands{outScale: g.outScale(), rows: rows, cols: cols}
	if c := g.config; c.Factor.Valid() {
		x.factor = matching(g.factor, fragment(c.scaleType()), rows, cols, vectors, inside)
	}
	if c := g.config; c.Epilogue.Residual {
		x.residual = matching(g.d, c.VecD, rows, cols, vectors, inside)
	}
	for _, s := range g.sides() {
		loaded := map[build.Reg]build.Reg{}
		of := make([][]build.Reg, len(vectors))
		for i, values := range vectors {
			for j := range values {
				at := rows[i]
				if !s.rows {
					at = g.Add(cols[i], j)
				}
				if _, ok := loaded[at]; !ok {
					loaded[at] = g.element(s, at)
				}
				of[i] = append(of[i], loaded[at])
			}
		}
		x.sides = append(x.sides, of)
	}
	return x
}

// outScale is the number that all is multiplied by, if there is one.
func (g *product) outScale() (x build.Reg) {
	if g.config.Epilogue.OutScale {
		x = g.vectors[gemm.OutScale].Load()
	}
	return x
}

// matching is a matrix's elements for vectors that begin at these rows and columns, up to so many
// loaded at once.
func matching(m build.Matrix, vec int, rows, cols []build.Reg, vectors [][]build.Reg, inside []build.Reg) (all [][]build.Reg) {
	for i, values := range vectors {
		vec := min(vec, len(values), 4)
		var loaded []build.Reg
		for j := 0; j < len(values); j += vec {
			loaded = append(loaded, m.At(rows[i], cols[i]).At(j).LoadVecOr0(inside[i], vec)...)
		}
		all = append(all, loaded)
	}
	return all
}

// epilogue is vectors of values with what the epilogue does to them.
func (g *product) epilogue(vectors [][]build.Reg, o *operands) [][]build.Reg {
	e, sides := g.config.Epilogue, g.sides()
	if e == (gemm.Epilogue{}) {
		return vectors
	}
	var activated []build.Reg
	for i, values := range vectors {
		for j, x := range values {
			for n, s := range sides {
				if y := g.value(o.sides[n][i][j]); s.adds {
					x = g.Add(x, y)
				} else {
					x = g.Mul(x, y)
				}
			}
			activated = append(activated, x)
		}
	}
	if act := activations[e.Activation]; act != nil && !g.config.gates() {
		activated = act(g.Kernel, g.config.SM, activated)
	}
	finished := make([][]build.Reg, len(vectors))
	for i, values := range vectors {
		for j := range values {
			x := activated[0]
			activated = activated[1:]
			if o.factor != nil {
				x = g.Mul(x, g.value(o.factor[i][j]))
			}
			if e.Residual {
				x = g.Add(x, g.value(o.residual[i][j]))
			}
			if e.OutScale {
				x = g.Mul(x, o.outScale)
			}
			if e.Function != nil {
				x = g.call(x, o.rows[i], g.Add(o.cols[i], j))
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
		switch t := g.config.Out; {
		case t == dtype.F8E4M3 || t == dtype.F8E5M2:
			v = float8(g.Kernel, v, t, g.config.SM)
		case v.Type() != at.Elem():
			v = g.To(at.Elem(), v)
		}
		out[i] = v
	}
	at.StoreVec(out...)
}
