package gpu

import (
	"math"

	"tilework/dtype"
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
		values[i] = g.Var("c", g.acc, g.Mul(g.alpha, sum))
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
		if act := activations[activationKey{g.config.Epilogue.Activation, g.config.In.Info().Accum}]; act != nil {
			v = act(g.Kernel, g.Add(v, 0))
		}
		if out[i] = v; v.Type() != at.Elem() {
			out[i] = g.To(at.Elem(), v)
		}
	}
	at.StoreVec(out...)
}

type activationKey struct {
	activation gemm.Activation
	sums       dtype.Type
}

// activations are the functions of package gemm's table as a kernel computes them,
// for the types of sums in which their accuracy is that of the type.
var activations = map[activationKey]func(k *build.Kernel, x build.Reg) build.Reg{
	{gemm.ActReLU, dtype.F32}:     relu,
	{gemm.ActReLU, dtype.F64}:     relu,
	{gemm.ActReLU, dtype.I32}:     relu,
	{gemm.ActSiLU, dtype.F32}:     silu,
	{gemm.ActGELUTanh, dtype.F32}: geluTanh,
}

// relu is max(x, 0), and NaN for NaN, which max would drop.
func relu(k *build.Kernel, x build.Reg) build.Reg { return k.Select(k.Lt(x, 0), 0, x) }

// silu is x/(1 + e^-x), and 0 for -Inf, where that is -Inf/Inf.
func silu(k *build.Kernel, x build.Reg) build.Reg { return sigmoidTimes(k, x, x) }

// geluTanh is x/2*(1 + tanh z) = x/(1 + e^-2z), with z = sqrt(2/pi)*(x + 0.044715*x^3).
func geluTanh(k *build.Kernel, x build.Reg) build.Reg {
	cube := k.Mul(k.Mul(x, x), x)
	z2 := k.Mul(2*math.Sqrt(2/math.Pi), k.Mad(cube, 0.044715, x))
	return sigmoidTimes(k, x, z2)
}

// sigmoidTimes is x/(1 + e^-z), and 0 where the quotient's limit is.
func sigmoidTimes(k *build.Kernel, x, z build.Reg) build.Reg {
	e := k.Exp2(k.Mul(z, -math.Log2E))
	q := k.Div(x, k.Add(e, 1))
	return k.Select(k.Eq(x, math.Inf(-1)), 0, q)
}
