package kernel

import (
	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// store applies the epilogue to the sum of element (row, col) and stores it to C.
func (g *Writer) store(row, col, sum build.Reg) { g.storeVec(row, col, []build.Reg{sum}) }

// storeVec applies alpha, beta and the epilogue to consecutive elements of a row, which begin at
// (row, col), and stores them to C.
func (g *Writer) storeVec(row, col build.Reg, sums []build.Reg) {
	at, values := g.C.At(row, col), g.ScaledByAlpha(sums)
	g.If(g.ReadC, func() { g.AddBetaC(values, at.LoadVec(len(values))) })
	vectors := [][]build.Reg{values}
	g.write(at, g.ApplyEpilogue(vectors, g.LoadOperands([]build.Reg{row}, []build.Reg{col}, vectors,
		[]build.Reg{g.Eq(0, 0)}))[0])
}

// storeRow applies the epilogue to vectors of one row that begin at the columns cols, and stores
// those inside C. All loads of C are in flight at the same time.
func (g *Writer) storeRow(row build.Reg, cols []build.Reg, vectors [][]build.Reg) {
	rows := make([]build.Reg, len(cols))
	for i := range rows {
		rows[i] = row
	}
	g.StoreAll(rows, cols, vectors)
}

// StoreAll applies the epilogue to vectors that begin at (rows[i], cols[i]), and stores those
// inside C. All loads of C are in flight at the same time.
func (g *Writer) StoreAll(rows, cols []build.Reg, vectors [][]build.Reg) {
	at, inside, values := make([]build.Ptr, len(cols)), make([]build.Reg, len(cols)), make([][]build.Reg, len(cols))
	for i, sums := range vectors {
		at[i], inside[i] = g.C.At(rows[i], cols[i]), g.C.InBounds(rows[i], cols[i])
		values[i] = g.ScaledByAlpha(sums)
	}
	g.If(g.ReadC, func() {
		old := make([][]build.Reg, len(cols))
		for i := range old {
			old[i] = at[i].LoadVecOr0(inside[i], len(values[i]))
		}
		for i := range old {
			g.AddBetaC(values[i], old[i])
		}
	})
	values = g.ApplyEpilogue(values, g.LoadOperands(rows, cols, values, inside))
	for i := range at {
		g.If(inside[i], func() { g.write(at[i], values[i]) })
	}
}

// ScaledByAlpha returns variables with alpha times the sums. If the launch computes both factors of
// a gated product, the sums already include alpha; see [Writer.GatedValues].
func (g *Writer) ScaledByAlpha(sums []build.Reg) []build.Reg {
	values := make([]build.Reg, len(sums))
	for i, sum := range sums {
		if !g.Config.ComputesGate() { // GatedValues multiplies by alpha
			sum = g.Mul(g.alpha, g.SumToEpilogueType(sum))
		}
		values[i] = g.Var("", g.EpilogueType, sum)
	}
	return values
}

// AddBetaC adds beta times the old elements of C to values.
func (g *Writer) AddBetaC(values, old []build.Reg) {
	for i, x := range old {
		g.FMA(values[i], g.beta, g.ToEpilogueType(x))
	}
}

// EpilogueVector is a vector operand of the epilogue: a scale or bias with one element per row of C
// or per column.
type EpilogueVector struct {
	vector build.Ptr
	PerRow bool
	adds   bool // whether the element is added; it is a factor otherwise
}

// EpilogueVectors returns the vector operands of the epilogue in the order of their application.
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

// CountOperands returns the number of operands that the epilogue loads for each element of C.
func CountOperands(e gemm.Epilogue) (n int) {
	for _, reads := range []bool{e.RowScale, e.ColScale, e.Bias != gemm.BiasNone, e.Gated, e.Residual} {
		if reads {
			n++
		}
	}
	return n
}

// LoadElement loads the element of s for row or column at. Outside C the result is 0.
func (g *Writer) LoadElement(s EpilogueVector, at build.Reg) build.Reg {
	end := g.N
	if s.PerRow {
		end = g.M
	}
	return s.vector.At(at).LoadVecOr0(g.Lt(at, end), 1)[0]
}

// EpilogueOperands holds the operands that the epilogue loaded for vectors of C.
type EpilogueOperands struct {
	Vectors          [][][]build.Reg // indexed by EpilogueVectors, vector of C, element
	factor, Residual [][]build.Reg
	OutScale         build.Reg
	// Rows and Cols are the first row and column of each vector.
	Rows, Cols []build.Reg
}

// LoadOperands loads the epilogue's operands for vectors that begin at (rows[i], cols[i]). Elements
// of an EpilogueVector that several elements of C use are loaded once. All loads are in flight
// before the first result is used.
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

// LoadOutScale loads the scale of the output, if the epilogue has one.
func (g *Writer) LoadOutScale() (x build.Reg) {
	if g.Config.Epilogue.OutScale {
		x = g.vectors[gemm.OutScale].Load()
	}
	return x
}

// LoadMatching loads the elements of m that correspond to vectors of C that begin at (rows[i],
// cols[i]). A load has at most vec elements.
func LoadMatching(m build.Matrix, vec int, rows, cols []build.Reg, vectors [][]build.Reg,
	inside []build.Reg) (all [][]build.Reg) {
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

// ApplyEpilogue returns vectors after the epilogue: scales, bias, activation, gate factor,
// residual, output scale, custom function, saturation.
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
	if !g.Config.ComputesGate() {
		activated = g.activate(e.Activation, activated)
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

// saturate clamps x to ±most. It keeps NaN, which min and max would replace.
func saturate(k *build.Kernel, x build.Reg, most float64) build.Reg {
	x = k.Select(k.Gt(x, most), most, x)
	return k.Select(k.Lt(x, -most), -most, x)
}

// write rounds values to the type of C and stores them.
func (g *Writer) write(at build.Ptr, values []build.Reg) {
	out := make([]build.Value, len(values))
	for i, v := range values {
		out[i] = g.toOut(v)
	}
	at.StoreVec(out...)
}

// toOut converts a value to the element type of C.
func (g *Writer) toOut(v build.Reg) build.Reg {
	switch t := g.Config.Out; {
	case t == dtype.F8E4M3 || t == dtype.F8E5M2:
		return float8(g.Kernel, v, t, g.Config.SM)
	case t == dtype.BF16 && v.Type() == ptx.F32 && g.Config.SM >= bf16SM:
		x := g.Fresh(ptx.BF16)
		g.Do("cvt.rn.bf16.f32", x, v)
		return x
	case v.Type() != g.C.Elem():
		return g.To(g.C.Elem(), v)
	}
	return v
}

// bf16SM is the first architecture with an instruction that rounds to bfloat16.
const bf16SM = 80
