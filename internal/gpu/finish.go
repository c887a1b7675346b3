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
	n, at := len(sums), g.c.At(row, col)
	values := make([]build.Reg, n)
	for i, sum := range sums {
		values[i] = g.Var("", g.acc, g.Mul(g.alpha, sum))
	}
	g.If(g.readC, func() {
		for i, old := range at.LoadVec(n) {
			g.FMA(values[i], g.beta, g.sum(old))
		}
	})
	out := make([]build.Value, n)
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
