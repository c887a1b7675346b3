package kernel

import (
	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// store finishes the sum of element (row, col) and writes it to C.
func (g *Writer) store(row, col, sum build.Reg) { g.storeVec(row, col, []build.Reg{sum}) }

// storeVec finishes consecutive elements of a row, from (row, col) on: alpha and
// beta, the epilogue, the rounding to C's type.
func (g *Writer) storeVec(row, col build.Reg, sums []build.Reg) {
	at, values := g.C.At(row, col), g.ScaledByAlpha(sums)
	g.If(g.ReadC, func() { g.AddBetaC(values, at.LoadVec(len(values))) })
	vectors := [][]build.Reg{values}
	g.write(row, col, g.ApplyEpilogue(vectors, g.LoadOperands([]build.Reg{row}, []build.Reg{col}, vectors, []build.Reg{g.Eq(0, 0)}))[0])
}

// storeRow finishes vectors of a row, from the columns cols on, each inside of C or
// outside. What it reads of C is under way at the same time.
func (g *Writer) storeRow(row build.Reg, cols []build.Reg, vectors [][]build.Reg) {
	rows := make([]build.Reg, len(cols))
	for i := range rows {
		rows[i] = row
	}
	g.StoreAll(rows, cols, vectors)
}

// storeAll is storeRow for vectors of several rows.
func (g *Writer) StoreAll(rows, cols []build.Reg, vectors [][]build.Reg) {
	inside, values := make([]build.Reg, len(cols)), make([][]build.Reg, len(cols))
	for i, sums := range vectors {
		inside[i], values[i] = g.C.InBounds(rows[i], cols[i]), g.ScaledByAlpha(sums)
	}
	g.If(g.ReadC, func() {
		old := make([][]build.Reg, len(cols))
		for i, col := range cols {
			old[i] = g.C.At(rows[i], col).LoadVecOr0(inside[i], len(values[i]))
		}
		for i := range old {
			g.AddBetaC(values[i], old[i])
		}
	})
	values = g.ApplyEpilogue(values, g.LoadOperands(rows, cols, values, inside))
	for i, col := range cols {
		g.If(inside[i], func() { g.write(rows[i], col, values[i]) })
	}
}

// scaled are variables with alpha times the sums; of a launch that gates with what that made of
// them.
func (g *Writer) ScaledByAlpha(sums []build.Reg) []build.Reg {
	values := make([]build.Reg, len(sums))
	for i, sum := range sums {
		if !g.Config.ComputesGate() { // which has done that
			sum = g.Mul(g.alpha, g.SumToEpilogueType(sum))
		}
		values[i] = g.Var("", g.EpilogueType, sum)
	}
	return values
}

// addOld adds beta times what C held.
func (g *Writer) AddBetaC(values, old []build.Reg) {
	for i, x := range old {
		g.FMA(values[i], g.beta, g.ToEpilogueType(x))
	}
}

// side is a vector that the epilogue reads, with an element for each row of C or for each
// column.
type EpilogueVector struct {
	vector build.Ptr
	PerRow bool
	adds   bool // or it multiplies
}

// sides are those vectors in the order in which they come to an element.
func (g *Writer) EpilogueVectors() (all []EpilogueVector) {
	e := g.Config.Epilogue
	if e.RowScale {
		all = append(all, EpilogueVector{vector: g.vectors[gemm.RowScale], PerRow: true})
	}
	if e.ColScale {
		all = append(all, EpilogueVector{vector: g.vectors[gemm.ColScale]})
	}
	if e.Bias != gemm.BiasNone {
		all = append(all, EpilogueVector{vector: g.vectors[gemm.Bias], PerRow: e.Bias == gemm.BiasRow, adds: true})
	}
	return all
}

// operandsOf is how many operands an epilogue has for an element.
func CountOperands(e gemm.Epilogue) (n int) {
	for _, reads := range []bool{e.RowScale, e.ColScale, e.Bias != gemm.BiasNone, e.Gated, e.Residual} {
		if reads {
			n++
		}
	}
	return n
}

// element is what a side has for a row or a column, and zero outside of C, as there is none.
func (g *Writer) LoadElement(s EpilogueVector, at build.Reg) build.Reg {
	end := g.N
	if s.PerRow {
		end = g.M
	}
	return s.vector.At(at).LoadVecOr0(g.Lt(at, end), 1)[0]
}

// operands are what an epilogue reads for vectors of C's elements.
type EpilogueOperands struct {
	Vectors          [][][]build.Reg // for each side of each vector its elements
	factor, Residual [][]build.Reg
	OutScale         build.Reg
	// Where the vectors begin.
	Rows, Cols []build.Reg
}

// operands loads what the epilogue reads for vectors that begin at these rows and columns,
// each element of a side once for all that need it. All of it is under way before the first
// is used.
func (g *Writer) LoadOperands(rows, cols []build.Reg, vectors [][]build.Reg, inside []build.Reg) *EpilogueOperands {
	x := &EpilogueOperands{OutScale: g.LoadOutScale(), Rows: rows, Cols: cols}
	if c := g.Config; c.Factor.Valid() {
		x.factor = LoadMatching(g.factor, VectorOf(c.scaleType()), rows, cols, vectors, inside)
	}
	if c := g.Config; c.Epilogue.Residual {
		x.Residual = LoadMatching(g.Residual, c.VecResidual, rows, cols, vectors, inside)
	}
	for _, s := range g.EpilogueVectors() {
		loaded := map[build.Reg]build.Reg{}
		of := make([][]build.Reg, len(vectors))
		for i, values := range vectors {
			for j := range values {
				at := rows[i]
				if !s.PerRow {
					at = g.Add(cols[i], j)
				}
				if _, ok := loaded[at]; !ok {
					loaded[at] = g.LoadElement(s, at)
				}
				of[i] = append(of[i], loaded[at])
			}
		}
		x.Vectors = append(x.Vectors, of)
	}
	return x
}

// outScale is the number that all is multiplied by, if there is one.
func (g *Writer) LoadOutScale() (x build.Reg) {
	if g.Config.Epilogue.OutScale {
		x = g.vectors[gemm.OutScale].Load()
	}
	return x
}

// matching is a matrix's elements for vectors that begin at these rows and columns, up to so many
// loaded at once.
func LoadMatching(m build.Matrix, vec int, rows, cols []build.Reg, vectors [][]build.Reg, inside []build.Reg) (all [][]build.Reg) {
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
func (g *Writer) ApplyEpilogue(vectors [][]build.Reg, o *EpilogueOperands) [][]build.Reg {
	e, sides := g.Config.Epilogue, g.EpilogueVectors()
	if e == (gemm.Epilogue{}) {
		return vectors
	}
	var activated []build.Reg
	for i, values := range vectors {
		for j, x := range values {
			for n, s := range sides {
				if y := g.ToEpilogueType(o.Vectors[n][i][j]); s.adds {
					x = g.Add(x, y)
				} else {
					x = g.Mul(x, y)
				}
			}
			activated = append(activated, x)
		}
	}
	if act := activations[e.Activation]; act != nil && !g.Config.ComputesGate() {
		activated = act(g.Kernel, g.Config.SM, activated)
	}
	finished := make([][]build.Reg, len(vectors))
	for i, values := range vectors {
		for j := range values {
			x := activated[0]
			activated = activated[1:]
			if o.factor != nil {
				x = g.Mul(x, g.ToEpilogueType(o.factor[i][j]))
			}
			if e.Residual {
				x = g.Add(x, g.ToEpilogueType(o.Residual[i][j]))
			}
			if e.OutScale {
				x = g.Mul(x, o.OutScale)
			}
			if e.Function != nil {
				x = g.call(x, o.Rows[i], g.Add(o.Cols[i], j))
			}
			if e.Saturate {
				x = saturate(g.Kernel, x, g.Config.Out.Info().Max)
			}
			finished[i] = append(finished[i], x)
		}
	}
	return finished
}

// saturated is x where it is at most so large, and else the number next to it that is. NaN
// stays, which min and max would drop.
func saturate(k *build.Kernel, x build.Reg, most float64) build.Reg {
	x = k.Select(k.Gt(x, most), most, x)
	return k.Select(k.Lt(x, -most), -most, x)
}

// write rounds what is finished to C's type and writes it.
func (g *Writer) write(row, col build.Reg, values []build.Reg) {
	at := g.C.At(row, col)
	out := make([]build.Value, len(values))
	for i, v := range values {
		switch t := g.Config.Out; {
		case t == dtype.F8E4M3 || t == dtype.F8E5M2:
			v = float8(g.Kernel, v, t, g.Config.SM)
		case v.Type() != at.Elem():
			v = g.To(at.Elem(), v)
		}
		out[i] = v
	}
	at.StoreVec(out...)
}
