package gpu

import (
	"math"

	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// activations are the functions of package gemm's table as kernels compute them, in
// the type that products are summed in and to a few roundoffs of it.
var activations = map[gemm.Activation]func(k *build.Kernel, x build.Reg) build.Reg{
	gemm.ActReLU:     relu,
	gemm.ActGELU:     gelu,
	gemm.ActGELUTanh: geluTanh,
	gemm.ActSiLU:     func(k *build.Kernel, x build.Reg) build.Reg { return timesSigmoid(k, x, x) },
}

// relu is max(x, 0), and NaN for NaN, which max would drop.
func relu(k *build.Kernel, x build.Reg) build.Reg { return k.Select(k.Lt(x, 0), 0, x) }

// gelu is x·Φ(x), Φ(x) = (1 + erf(x/√2))/2. Near 0 erf is its power series, farther out
// 1 - erfc, which keeps the small values on the left.
func gelu(k *build.Kernel, x build.Reg) build.Reg {
	y := k.Mul(x, 1/math.Sqrt2)
	far := k.Abs(y)
	tail := k.Mul(erfc(k, far), 0.5)
	right := k.Sub(1, tail)
	phi := k.Select(k.Lt(x, 0), tail, right)
	near := k.Mad(k.Mul(erfSeries(k, k.Mul(y, y)), y), 0.5, 0.5)
	phi = k.Select(k.Lt(far, 1), near, phi)
	return limit(k, x, k.Mul(x, phi))
}

// geluTanh is x/2·(1 + tanh z) = x/(1 + e^(-2z)), z = √(2/π)·(x + 0.044715·x³).
func geluTanh(k *build.Kernel, x build.Reg) build.Reg {
	cube := k.Mul(k.Mul(x, x), x)
	return timesSigmoid(k, x, k.Mul(k.Mad(cube, 0.044715, x), 2*math.Sqrt(2/math.Pi)))
}

// timesSigmoid is x/(1 + e^(-z)).
func timesSigmoid(k *build.Kernel, x, z build.Reg) build.Reg {
	return limit(k, x, k.Div(x, k.Add(exp(k, k.Neg(z)), 1)))
}

// limit is y, and 0 where x is -Inf: there all but relu tend to 0, and the formulas
// multiply 0 by infinity.
func limit(k *build.Kernel, x, y build.Reg) build.Reg {
	return k.Select(k.Eq(x, math.Inf(-1)), 0, y)
}

// exp is e^x, within a few roundoffs of its type, times 1 + |x|.
func exp(k *build.Kernel, x build.Reg) build.Reg {
	if x.Type() == ptx.F32 {
		return k.Exp2(k.Mul(x, math.Log2E))
	}
	// e^x = 2^n · e^r, |r| < ln 2. Outside of ±700 nothing that exp is used for
	// depends on its value any more, and inside n is an exponent that float64 has.
	x = k.Max(k.Min(x, 700), -700)
	n := k.To(ptx.S32, k.Mul(x, math.Log2E))
	whole := k.To(ptx.F64, n)
	// ln 2 in two parts, the first so short that its multiples are exact.
	const high = 0x1.62e42feep-1
	r := k.Mad(whole, -(math.Ln2 - high), k.Mad(whole, -high, x))
	const terms = 19 // (ln 2)^19/19! < 2^-63
	series := make([]float64, terms)
	for i := range series {
		series[i] = 1 / math.Gamma(float64(i+1))
	}
	scale := k.Bits(ptx.F64, k.Shl(k.To(ptx.U64, k.To(ptx.S64, k.Add(n, 1023))), 52))
	return k.Mul(polynomial(k, r, series), scale)
}

// erfSeries is erf(√z)/√z for 0 ≤ z < 1: 2/√π · Σ (-z)^n/(n!·(2n+1)).
func erfSeries(k *build.Kernel, z build.Reg) build.Reg {
	terms := 10
	if z.Type() == ptx.F64 {
		terms = 19
	}
	series := make([]float64, terms)
	for i := range series {
		n := float64(i)
		series[i] = 2 / math.Sqrt(math.Pi) * math.Pow(-1, n) / (math.Gamma(n+1) * (2*n + 1))
	}
	return polynomial(k, z, series)
}

// erfc is the complementary error function for y ≥ 0, within a few roundoffs of 1 for
// y ≥ 1, in the form t·e^(P(t) - y²) with t = 1/(1 + y/2) (Press et al., Numerical
// Recipes, 3rd ed., §6.2.2). It is 0 where it is less than half a roundoff.
func erfc(k *build.Kernel, y build.Reg) build.Reg {
	end, terms := 4.0, 10
	if y.Type() == ptx.F64 {
		end, terms = 6, 20
	}
	t := k.Div(1, k.Mad(y, 0.5, 1))
	least := 1 / (1 + end/2) // of t; s runs from -1 to 1
	s := k.Mad(t, 2/(1-least), -(1+least)/(1-least))
	p := polynomial(k, s, erfcPolynomial(end, terms))
	e := k.Mul(t, exp(k, k.Sub(p, k.Mul(y, y))))
	return k.Select(k.Gt(y, end), 0, e)
}

// erfcPolynomial interpolates ln(erfc(y)/t) + y² in s at Chebyshev's points and
// returns the coefficients of 1, s, s², …
func erfcPolynomial(end float64, terms int) []float64 {
	least := 1 / (1 + end/2)
	chebyshev := make([]float64, terms)
	for j := range terms {
		at := math.Pi * (float64(j) + 0.5) / float64(terms)
		t := (1 + least + (1-least)*math.Cos(at)) / 2
		y := 2 * (1/t - 1)
		g := math.Log(math.Erfc(y)/t) + y*y
		for m := range chebyshev {
			chebyshev[m] += 2 / float64(terms) * g * math.Cos(float64(m)*at)
		}
	}
	chebyshev[0] /= 2
	// Tₘ₊₁ = 2s·Tₘ - Tₘ₋₁, with T₀ = 1 and T₋₁ = T₁ = s.
	sum, now, last := make([]float64, terms), make([]float64, terms), make([]float64, terms)
	now[0], last[1] = 1, 1
	for _, c := range chebyshev {
		next := make([]float64, terms)
		for i := range terms {
			sum[i] += c * now[i]
			if next[i] -= last[i]; i > 0 {
				next[i] += 2 * now[i-1]
			}
		}
		now, last = next, now
	}
	return sum
}

// polynomial is Σ c[i]·xⁱ, by Horner's rule.
func polynomial(k *build.Kernel, x build.Reg, c []float64) build.Reg {
	p := k.Mad(x, c[len(c)-1], c[len(c)-2])
	for i := len(c) - 3; i >= 0; i-- {
		p = k.Mad(p, x, c[i])
	}
	return p
}
