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
	gemm.ActSiLU:     silu,
}

// relu is max(x, 0), and NaN for NaN, which max would drop.
func relu(k *build.Kernel, x build.Reg) build.Reg { return k.Select(k.Lt(x, 0), 0, x) }

// gelu is x·Φ(x), Φ(x) = erfc(-x/√2)/2.
func gelu(k *build.Kernel, x build.Reg) build.Reg {
	if x.Type() == ptx.F32 {
		// For both signs that is max(x, 0) - |x|·Φ(-|x|), which no large numbers meet in
		// and no branch or choice of formula is for. Beyond 14 Φ(-|x|) is 0 in float32.
		y := k.Min(k.Abs(x), 14)
		return k.Mad(k.Neg(y), upperTail(k, y), relu(k, x))
	}
	// Near 0 erf is its power series, farther out 1 - erfc, which keeps the small values on
	// the left.
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
	const two = 2 * 0.7978845608028654 // 2·√(2/π)
	return timesSigmoid(k, x, func(unit float64) build.Reg {
		return k.Mul(x, k.Mad(k.Mul(x, x), two*0.044715*unit, two*unit))
	})
}

func silu(k *build.Kernel, x build.Reg) build.Reg {
	return timesSigmoid(k, x, func(unit float64) build.Reg { return k.Mul(x, unit) })
}

// timesSigmoid is x/(1 + e^(-z)), of z in any unit that is wanted.
func timesSigmoid(k *build.Kernel, x build.Reg, z func(unit float64) build.Reg) build.Reg {
	if x.Type() == ptx.F32 {
		return limit(k, x, k.Mul(x, k.Reciprocal(k.Add(k.Exp2(z(-math.Log2E)), 1))))
	}
	return limit(k, x, k.Div(x, k.Add(exp(k, z(-1)), 1)))
}

// limit is y, and 0 where x is -Inf: there all but relu tend to 0, and the formulas
// multiply 0 by infinity.
func limit(k *build.Kernel, x, y build.Reg) build.Reg {
	return k.Select(k.Eq(x, math.Inf(-1)), 0, y)
}

// exp is e^x in float64, within a few roundoffs times 1 + |x|.
func exp(k *build.Kernel, x build.Reg) build.Reg {
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

// upperTail is Φ(-x) for x ≥ 0 in float32, within a roundoff of 1: t·Q(t)·e^(-x²/2) with
// t = 1/(1 + x/4), the form of [erfc] with a polynomial beside the exponential, which
// need not be exact where that is small.
func upperTail(k *build.Kernel, x build.Reg) build.Reg {
	t := k.Reciprocal(k.Mad(x, 0.25, 1))
	q := k.Mul(t, polynomial(k, t, tailPolynomial))
	return k.Mul(q, k.Exp2(k.Mul(k.Mul(x, -math.Log2E/2), x)))
}

// tailPolynomial interpolates Φ(-x)·e^(x²/2)/t in t, for x from 0 to where Φ(-x) is less
// than a float32's roundoff of 1.
var tailPolynomial = func() []float64 {
	const end, terms = 5.6, 7
	least := 1 / (1 + end/4.)
	return interpolate(terms, least, 1, func(t float64) float64 {
		x := 4 * (1/t - 1)
		return math.Erfc(x/math.Sqrt2) / 2 * math.Exp(x*x/2) / t
	})
}()

// erfSeries is erf(√z)/√z in float64 for 0 ≤ z < 1: 2/√π · Σ (-z)^n/(n!·(2n+1)).
func erfSeries(k *build.Kernel, z build.Reg) build.Reg {
	const terms = 19
	series := make([]float64, terms)
	for i := range series {
		n := float64(i)
		series[i] = 2 / math.Sqrt(math.Pi) * math.Pow(-1, n) / (math.Gamma(n+1) * (2*n + 1))
	}
	return polynomial(k, z, series)
}

// erfc is the complementary error function in float64 for y ≥ 0, within a few roundoffs of 1 for
// y ≥ 1, in the form t·e^(P(t) - y²) with t = 1/(1 + y/2) (Press et al., Numerical
// Recipes, 3rd ed., §6.2.2). It is 0 where it is less than half a roundoff.
func erfc(k *build.Kernel, y build.Reg) build.Reg {
	const end, terms = 6.0, 20
	t := k.Div(1, k.Mad(y, 0.5, 1))
	least := 1 / (1 + end/2) // of t; s runs from -1 to 1
	s := k.Mad(t, 2/(1-least), -(1+least)/(1-least))
	p := polynomial(k, s, erfcPolynomial(end, terms))
	e := k.Mul(t, exp(k, k.Sub(p, k.Mul(y, y))))
	return k.Select(k.Gt(y, end), 0, e)
}

// erfcPolynomial interpolates ln(erfc(y)/t) + y² in s.
func erfcPolynomial(end float64, terms int) []float64 {
	least := 1 / (1 + end/2)
	return interpolate(terms, -1, 1, func(s float64) float64 {
		t := (1 + least + (1-least)*s) / 2
		y := 2 * (1/t - 1)
		return math.Log(math.Erfc(y)/t) + y*y
	})
}

// interpolate is the polynomial of so many terms that has f's values at Chebyshev's points
// between low and high: the coefficients of 1, x, x², …
func interpolate(terms int, low, high float64, f func(x float64) float64) []float64 {
	chebyshev := make([]float64, terms)
	for j := range terms {
		at := math.Pi * (float64(j) + 0.5) / float64(terms)
		g := f((low + high + (high-low)*math.Cos(at)) / 2)
		for m := range chebyshev {
			chebyshev[m] += 2 / float64(terms) * g * math.Cos(float64(m)*at)
		}
	}
	chebyshev[0] /= 2
	// With s = a·x + b from -1 to 1, Tₘ₊₁ = 2s·Tₘ - Tₘ₋₁, T₀ = 1 and T₋₁ = T₁ = s.
	a, b := 2/(high-low), -(low+high)/(high-low)
	sum, now, last := make([]float64, terms), make([]float64, terms), make([]float64, terms)
	now[0], last[0] = 1, b
	if terms > 1 {
		last[1] = a
	}
	for _, c := range chebyshev {
		next := make([]float64, terms)
		for i := range terms {
			sum[i] += c * now[i]
			next[i] += 2*b*now[i] - last[i]
			if i > 0 {
				next[i] += 2 * a * now[i-1]
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
