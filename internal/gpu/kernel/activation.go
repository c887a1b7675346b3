package kernel

import (
	"math"

	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// activations maps each activation of package gemm to the function that emits it for one element.
// It computes in the type of the accumulators, accurate to a few roundoffs. As it gets no other
// element, a result does not depend on the elements beside it.
var activations = map[gemm.Activation]func(f elementary, x build.Reg) build.Reg{
	gemm.ActReLU:     relu,
	gemm.ActGELU:     gelu,
	gemm.ActGELUTanh: geluTanh,
	gemm.ActSiLU:     silu,
}

// activate returns the elements of xs after an activation.
func (g *Writer) activate(act gemm.Activation, xs []build.Reg) []build.Reg {
	f := activations[act]
	if f == nil {
		return xs
	}
	ys := make([]build.Reg, len(xs))
	for i, x := range xs {
		ys[i] = f(elementary{g.Kernel, g.Config.SM, g.Config.RowInvariant}, x)
	}
	return ys
}

// elementary emits the elementary functions of the activations with the instructions of
// architecture sm.
type elementary struct {
	k  *build.Kernel
	sm int
	// exact selects functions of IEEE operations alone, whose bits are the same on every GPU and on
	// the emulator. The special function unit's are shorter, and a GPU defines their last bits.
	exact bool
}

// reciprocal returns 1/a of a float32 from 1 to 2¹²⁵.
func (f elementary) reciprocal(a build.Reg) build.Reg {
	if !f.exact {
		return f.k.Reciprocal(a)
	}
	// A Newton step rounds correctly from any neighbour of the reciprocal, unless all bits of a's
	// fraction are set (Markstein, IBM Journal of Research and Development 34, 1990). Such an a is
	// rounded up to the power of two.
	const fraction = 1<<23 - 1
	bits := f.k.Bits(ptx.U32, a)
	a = f.k.Bits(ptx.F32, f.k.Select(f.k.Eq(f.k.And(bits, fraction), fraction), f.k.Add(bits, 1), bits))
	y := f.k.Reciprocal(a)
	return f.k.Mad(f.k.Mad(f.k.Neg(a), y, 1), y, y)
}

// exp2 returns 2^x of a float32 of at most 126. Results below 2⁻¹²⁶ are at most that.
func (f elementary) exp2(x build.Reg) build.Reg {
	if !f.exact {
		return f.k.Exp2(x)
	}
	// 2^x = 2^n · 2^r, |r| ≤ 1/2. Adding 1.5·2²³ rounds x to an integer n in the last bits.
	const shift = 0x1.8p23
	x = f.k.Max(x, -126)
	n := f.k.Add(x, shift)
	r := f.k.Sub(x, f.k.Sub(n, shift))
	p := f.k.Bits(ptx.U32, polynomial(f.k, r, exp2Polynomial))
	return f.k.Bits(ptx.F32, f.k.Add(p, f.k.Shl(f.k.Bits(ptx.U32, n), 23)))
}

// exp2Polynomial interpolates 2^r for |r| ≤ 1/2, to less than the roundoff of float32. It is 1 at
// 0.
var exp2Polynomial = append([]float64{1}, interpolate(6, -0.5, 0.5, func(r float64) float64 {
	if r == 0 {
		return math.Ln2
	}
	return math.Expm1(r*math.Ln2) / r
})...)

// maxNaN returns max(x, low), and NaN for NaN. PTX's max drops NaN; max.NaN needs sm_80.
func (f elementary) maxNaN(x build.Reg, low float64) build.Reg {
	if f.sm < 80 || x.Type() != ptx.F32 {
		return f.k.Select(f.k.Lt(x, low), low, x)
	}
	y := f.k.Fresh(ptx.F32)
	f.k.Do("max.NaN.f32", y, x, low)
	return y
}

func relu(f elementary, x build.Reg) build.Reg {
	if x.Type().Class() != ptx.Float {
		return f.k.Max(x, 0)
	}
	return f.maxNaN(x, 0)
}

// gelu computes x·Φ(x), Φ(x) = erfc(-x/√2)/2.
func gelu(f elementary, x build.Reg) build.Reg {
	if x.Type() != ptx.F32 {
		return wideGELU(f.k, x)
	}
	// max(x, 0) - |x|·Φ(-|x|) is the same for both signs. It needs no branch and has no
	// cancellation of large numbers. Beyond 14 Φ(-|x|) is 0 in float32.
	size := f.k.Min(f.k.Abs(x), 14)
	return f.k.Mad(f.k.Neg(size), f.upperTail(size), f.maxNaN(x, 0))
}

// wideGELU computes GELU in float64.
func wideGELU(k *build.Kernel, x build.Reg) build.Reg {
	// Near 0 erf is its power series. Farther out 1 - erfc keeps the small values of negative x.
	y := k.Mul(x, 1/math.Sqrt2)
	far := k.Abs(y)
	tail := k.Mul(erfc(k, far), 0.5)
	right := k.Sub(1, tail)
	phi := k.Select(k.Lt(x, 0), tail, right)
	near := k.Mad(k.Mul(erfSeries(k, k.Mul(y, y)), y), 0.5, 0.5)
	phi = k.Select(k.Lt(far, 1), near, phi)
	return zeroAtMinusInf(k, x, k.Mul(x, phi))
}

// geluTanh computes x/2·(1 + tanh z) = x/(1 + e^(-2z)), z = √(2/π)·(x + 0.044715·x³).
func geluTanh(f elementary, x build.Reg) build.Reg {
	const two = 2 * 0.7978845608028654 // 2·√(2/π)
	return f.timesSigmoid(x, -7.4, func(x build.Reg, unit float64) build.Reg {
		return f.k.Mul(x, f.k.Mad(f.k.Mul(x, x), two*0.044715*unit, two*unit))
	})
}

func silu(f elementary, x build.Reg) build.Reg {
	return f.timesSigmoid(x, -41, func(x build.Reg, unit float64) build.Reg { return f.k.Mul(x, unit) })
}

// timesSigmoid computes x/(1 + e^(-z)). The function z returns z in units of 1/unit. In float32
// values of x below low are replaced by low: e^(-z) is nearly 2⁶⁰ there and the result less than
// 2⁻⁵⁸ of x. This keeps the denominator finite.
func (f elementary) timesSigmoid(x build.Reg, low float64, z func(x build.Reg, unit float64) build.Reg) build.Reg {
	if x.Type() != ptx.F32 {
		return zeroAtMinusInf(f.k, x, f.k.Div(x, f.k.Add(exp(f.k, z(x, -1)), 1)))
	}
	return f.k.Mul(f.maxNaN(x, low), f.reciprocal(f.k.Add(f.exp2(z(f.k.Max(x, low), -math.Log2E)), 1)))
}

// zeroAtMinusInf returns y, or 0 if x is -Inf. All activations but ReLU tend to 0 there, but the
// float64 formulas multiply 0 by infinity.
func zeroAtMinusInf(k *build.Kernel, x, y build.Reg) build.Reg {
	return k.Select(k.Eq(x, math.Inf(-1)), 0, y)
}

// exp computes e^x in float64, accurate to a few roundoffs times 1 + |x|.
func exp(k *build.Kernel, x build.Reg) build.Reg {
	// e^x = 2^n · e^r, |r| < ln 2. Clamping x to ±700 keeps n in the range of float64's exponents;
	// no caller depends on the value outside.
	x = k.Max(k.Min(x, 700), -700)
	n := k.To(ptx.S32, k.Mul(x, math.Log2E))
	whole := k.To(ptx.F64, n)
	// ln 2 as a sum of two numbers; the first is so short that its multiples are exact.
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

// upperTail computes Φ(-x) for x from 0 to 14 in float32, with an absolute error of a roundoff of
// 1. The formula is t·Q(t)·e^(-x²/2) with t = 1/(1 + x/4). It resembles [erfc], but its polynomial
// is a factor instead of part of the exponent, so the exponential may be inexact where it is small.
func (f elementary) upperTail(x build.Reg) build.Reg {
	t := f.reciprocal(f.k.Mad(x, 0.25, 1))
	return f.k.Mul(f.k.Mul(t, polynomial(f.k, t, tailPolynomial)), f.exp2(f.k.Mul(f.k.Mul(x, -math.Log2E/2), x)))
}

// tailPolynomial interpolates Φ(-x)·e^(x²/2)/t in t, for x from 0 to the point where Φ(-x) is less
// than the roundoff of 1 in float32.
var tailPolynomial = func() []float64 {
	const end, terms = 5.6, 7
	least := 1 / (1 + end/4.)
	return interpolate(terms, least, 1, func(t float64) float64 {
		x := 4 * (1/t - 1)
		return math.Erfc(x/math.Sqrt2) / 2 * math.Exp(x*x/2) / t
	})
}()

// erfSeries computes erf(√z)/√z in float64 for 0 ≤ z < 1: 2/√π · Σ (-z)^n/(n!·(2n+1)).
func erfSeries(k *build.Kernel, z build.Reg) build.Reg {
	const terms = 19
	series := make([]float64, terms)
	for i := range series {
		n := float64(i)
		series[i] = 2 / math.Sqrt(math.Pi) * math.Pow(-1, n) / (math.Gamma(n+1) * (2*n + 1))
	}
	return polynomial(k, z, series)
}

// erfc computes the complementary error function in float64 for y ≥ 0. For y ≥ 1 it is accurate to
// a few roundoffs of 1. The formula is t·e^(P(t) - y²) with t = 1/(1 + y/2) (Press et al.,
// Numerical Recipes, 3rd ed., §6.2.2). Results below half a roundoff are 0.
func erfc(k *build.Kernel, y build.Reg) build.Reg {
	const end, terms = 6.0, 20
	t := k.Div(1, k.Mad(y, 0.5, 1))
	least := 1 / (1 + end/2) // minimum of t; s runs from -1 to 1
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

// interpolate returns the coefficients of 1, x, x², … of the polynomial with the given number of
// terms that equals f at the Chebyshev points between low and high.
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

// polynomial evaluates Σ c[i]·xⁱ with Horner's rule.
func polynomial(k *build.Kernel, x build.Reg, c []float64) build.Reg {
	p := k.Mad(x, c[len(c)-1], c[len(c)-2])
	for i := len(c) - 3; i >= 0; i-- {
		p = k.Mad(p, x, c[i])
	}
	return p
}
