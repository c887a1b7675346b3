package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// finishers writes the functions that finish a tile of C while it is in the cache.
func (g *generator) finishers() {
	g.finisher("BiasCol", ", v *T", "adds v[j] to every element of column j",
		func(reg.Register) func(reg.Register, func(dst reg.Register)) {
			return func(x reg.Register, load func(reg.Register)) {
				bias := g.vector(g.Context)
				load(bias)
				g.add(g.Context, bias, x, x)
			}
		})
	g.finisher("BiasRow", ", v *T", "adds v[i] to every element of row i",
		func(row reg.Register) func(reg.Register, func(reg.Register)) {
			bias := g.vector(g.Context)
			g.broadcast(g.Context, operand.Mem{Base: row}, bias)
			return func(x reg.Register, _ func(reg.Register)) { g.add(g.Context, bias, x, x) }
		})
	g.activation("ReLU", "makes every element max(x, 0)", func(x reg.Register) {
		zero := g.vector(g.Context)
		g.zero(zero)
		g.max(g.Context, x, zero, x) // x comes second, so that a NaN stays one
	})
	if g.maths == nil {
		return
	}
	g.activation("GELU", "makes every element x·Φ(x), Φ the normal distribution", g.gelu)
	g.activation("GELUTanh", "makes every element x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))", g.geluTanh)
	g.activation("SiLU", "makes every element x/(1 + e⁻ˣ)", func(x reg.Register) { g.timesSigmoid(x, x) })
}

func (g *generator) activation(name, does string, apply func(x reg.Register)) {
	g.finisher(name, "", does, func(reg.Register) func(reg.Register, func(reg.Register)) {
		return func(x reg.Register, _ func(reg.Register)) { apply(x) }
	})
}

// finisher writes one function over the elements of a tile. open begins a row, with a
// pointer to its element of v, and returns what is done to a vector x; load gives that the
// elements of v in x's columns. Whatever stands in a tile's last columns is treated as
// the rest.
func (g *generator) finisher(name, extra, does string, open func(row reg.Register) func(x reg.Register, load func(reg.Register))) {
	name += g.suffix()
	g.function(name, "m, n int, c *T, ldc int"+extra,
		fmt.Sprintf("%s %s of an m×n tile of C, whose rows are ldc elements apart.", name, does))
	m, c, ldc := g.param("m"), g.param("c"), g.stride("ldc")
	var v reg.GPVirtual
	each := strings.HasPrefix(name, "BiasCol")
	if extra != "" {
		v = g.param("v")
	} else {
		v = c
	}
	tail := g.param("n")
	g.ANDQ(operand.I32(g.lanes()-1), tail)
	count := g.GP64()
	g.MOVQ(tail, count)
	mask := g.mask(g, count)
	whole := g.param("n")
	g.SHRQ(operand.U8(log2(g.lanes())), whole)

	g.loop("rows", m, func() {
		apply := open(v)
		at, from, left := g.GP64(), g.GP64(), g.GP64()
		g.MOVQ(c, at)
		g.MOVQ(v, from)
		g.MOVQ(whole, left)
		x := g.vector(g.Context)
		g.loop("vectors", left, func() {
			g.move(g.Context, operand.Mem{Base: at}, x)
			apply(x, func(dst reg.Register) { g.move(g.Context, operand.Mem{Base: from}, dst) })
			g.move(g.Context, x, operand.Mem{Base: at})
			g.ADDQ(operand.I32(g.vectorBytes), at)
			if each {
				g.ADDQ(operand.I32(g.vectorBytes), from)
			}
		})
		g.TESTQ(tail, tail)
		g.JZ(operand.LabelRef("next"))
		g.load(g, operand.Mem{Base: at}, mask, x)
		apply(x, func(dst reg.Register) { g.load(g, operand.Mem{Base: from}, mask, dst) })
		g.store(g, x, mask, operand.Mem{Base: at})
		g.Label("next")
		g.ADDQ(ldc, c)
		if extra != "" && !each {
			g.ADDQ(operand.I32(g.size), v)
		}
	})
	g.VZEROUPPER()
	g.RET()
}

// maths are a floating-point type's further instructions and what functions need to
// be as accurate as it is.
type maths struct {
	min, sub, div, and   instruction
	mulAdd, subtractFMA  instruction // x·y + z into y's register; z − x·y into z's
	round                func(c *build.Context, vectorBytes int, x, dst operand.Op)
	power                func(g *generator, n, x reg.Register) // x times 2ⁿ
	expTerms, erfcTerms  int
	erfcEnd, least, most float64 // erfc(erfcEnd) and eˡᵉᵃˢᵗ are as good as zero, eᵐᵒˢᵗ is finite
	ln2High              float64 // so short that its multiples are exact
}

var (
	maths32 = &maths{
		min: (*build.Context).VMINPS, sub: (*build.Context).VSUBPS, div: (*build.Context).VDIVPS, and: (*build.Context).VANDPS,
		mulAdd: (*build.Context).VFMADD213PS, subtractFMA: (*build.Context).VFNMADD231PS,
		round: func(c *build.Context, vectorBytes int, x, dst operand.Op) {
			if vectorBytes == 64 {
				c.VRNDSCALEPS(operand.U8(0), x, dst)
			} else {
				c.VROUNDPS(operand.U8(0), x, dst)
			}
		},
		power: func(g *generator, n, x reg.Register) {
			if g.vectorBytes == 64 {
				g.VSCALEFPS(n, x, x)
				return
			}
			g.VCVTPS2DQ(n, n)
			g.VPSLLD(operand.U8(23), n, n)
			g.VPADDD(n, x, x) // to the exponent of x, which stays a normal number
		},
		expTerms: 8, erfcTerms: 11, erfcEnd: 9.3, least: -70, most: 88, ln2High: 0x1.62e4p-1,
	}
	maths64 = &maths{
		min: (*build.Context).VMINPD, sub: (*build.Context).VSUBPD, div: (*build.Context).VDIVPD, and: (*build.Context).VANDPD,
		mulAdd: (*build.Context).VFMADD213PD, subtractFMA: (*build.Context).VFNMADD231PD,
		round: func(c *build.Context, vectorBytes int, x, dst operand.Op) {
			if vectorBytes == 64 {
				c.VRNDSCALEPD(operand.U8(0), x, dst)
			} else {
				c.VROUNDPD(operand.U8(0), x, dst)
			}
		},
		power: func(g *generator, n, x reg.Register) {
			if g.vectorBytes == 64 {
				g.VSCALEFPD(n, x, x)
				return
			}
			// n + 1.5·2⁵² has n in its lowest bits.
			g.VADDPD(g.constant(0x1.8p52), n, n)
			g.VPSLLQ(operand.U8(52), n, n)
			g.VPADDQ(n, x, x)
		},
		expTerms: 15, erfcTerms: 26, erfcEnd: 26, least: -690, most: 708, ln2High: 0x1.62e42feep-1,
	}
)

// gelu is x·Φ(x) = max(x, 0) − |x|·erfc(|x|/√2)/2, which for x < 0 keeps small values.
func (g *generator) gelu(x reg.Register) {
	far, y, e := g.vector(g.Context), g.vector(g.Context), g.vector(g.Context)
	g.and(g.Context, g.allButSign(), x, far)
	g.limit(far, g.maths.min, 1e4) // ∞ times the tail, which is 0 there, would be NaN
	g.mul(g.Context, g.constant(1/math.Sqrt2), far, y)

	// erfc(y) = t·e^(P(t) − y²), t = 1/(1 + y/2) (Press et al., Numerical Recipes,
	// 3rd ed., §6.2.2), with P in s, which runs from -1 to 1.
	t, s, p := g.vector(g.Context), g.vector(g.Context), g.vector(g.Context)
	g.move(g.Context, g.constant(0.5), t)
	g.mulAdd(g.Context, g.constant(1), y, t)
	one := g.vector(g.Context)
	g.move(g.Context, g.constant(1), one)
	g.div(g.Context, t, one, t)
	least := 1 / (1 + g.erfcEnd/2)
	g.move(g.Context, g.constant(2/(1-least)), s)
	g.mulAdd(g.Context, g.constant(-(1+least)/(1-least)), t, s)
	g.polynomial(s, p, erfcPolynomial(g.erfcEnd, g.erfcTerms))
	g.subtractFMA(g.Context, y, y, p)
	g.exp(p, e)
	g.mul(g.Context, t, e, e)

	g.mul(g.Context, g.constant(0.5), far, far)
	zero := g.vector(g.Context)
	g.zero(zero)
	g.max(g.Context, x, zero, x)
	g.subtractFMA(g.Context, far, e, x)
}

// geluTanh is x/2·(1 + tanh z) = x/(1 + e^(-2z)), z = √(2/π)·(x + 0.044715·x³).
func (g *generator) geluTanh(x reg.Register) {
	z, square := g.vector(g.Context), g.vector(g.Context)
	g.mul(g.Context, x, x, square)
	scale := 2 * math.Sqrt(2/math.Pi)
	g.move(g.Context, g.constant(0.044715*scale), z)
	g.mulAdd(g.Context, g.constant(scale), square, z)
	g.mul(g.Context, x, z, z)
	g.timesSigmoid(x, z)
}

// timesSigmoid is x/(1 + e^(-z)). Where e^(-z) is beyond the type's range, x is first
// brought to where the result is as good as zero: −∞ tends to 0.
func (g *generator) timesSigmoid(x, z reg.Register) {
	e, minus := g.vector(g.Context), g.vector(g.Context)
	g.zero(minus)
	g.sub(g.Context, z, minus, minus)
	g.exp(minus, e)
	g.add(g.Context, g.constant(1), e, e)
	g.limit(x, g.max, -1e4)
	g.div(g.Context, e, x, x)
}

// exp is e^x, to about a roundoff; x is lost.
func (g *generator) exp(x, dst reg.Register) {
	g.limit(x, g.max, g.least)
	g.limit(x, g.min, g.most)
	n := g.vector(g.Context)
	g.mul(g.Context, g.constant(math.Log2E), x, n)
	g.round(g.Context, g.vectorBytes, n, n)
	// ln 2 in two parts, the first so short that its multiples are exact.
	g.subtractFMA(g.Context, g.constant(g.ln2High), n, x)
	g.subtractFMA(g.Context, g.constant(math.Ln2-g.ln2High), n, x)
	series := make([]float64, g.expTerms)
	for i := range series {
		series[i] = 1 / math.Gamma(float64(i+1))
	}
	g.polynomial(x, dst, series)
	g.power(g, n, dst)
}

// limit applies min or max with a constant. x is their second source, so that a NaN
// stays one.
func (g *generator) limit(x reg.Register, which instruction, to float64) {
	bound := g.vector(g.Context)
	g.move(g.Context, g.constant(to), bound)
	which(g.Context, x, bound, x)
}

// polynomial is Σ c[i]·xⁱ, by Horner's rule.
func (g *generator) polynomial(x, dst reg.Register, c []float64) {
	g.move(g.Context, g.constant(c[len(c)-1]), dst)
	for i := len(c) - 2; i >= 0; i-- {
		g.mulAdd(g.Context, g.constant(c[i]), x, dst)
	}
}

// constant is a vector of one number in memory.
func (g *generator) constant(v float64) operand.Mem {
	if g.size == 4 {
		return g.repeated(uint64(math.Float32bits(float32(v))) * (1<<32 + 1))
	}
	return g.repeated(math.Float64bits(v))
}

// allButSign is a vector that selects all bits but the sign's.
func (g *generator) allButSign() operand.Mem {
	if g.size == 4 {
		return g.repeated(^uint64(1<<63 | 1<<31))
	}
	return g.repeated(^uint64(1 << 63))
}

func (g *generator) repeated(bits uint64) operand.Mem {
	at, ok := g.constants[bits]
	if !ok {
		at = g.StaticGlobal(fmt.Sprintf("constant%d", len(g.constants)))
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for range g.vectorBytes / 8 {
			g.AppendDatum(operand.U64(bits))
		}
		g.constants[bits] = at
	}
	return at
}

// scaledErfc is erfc(y)·e^(y²), by the continued fraction where the two are far apart
// (Abramowitz and Stegun, 7.1.14).
func scaledErfc(y float64) float64 {
	if y < 2 {
		return math.Erfc(y) * math.Exp(y*y)
	}
	const depth = 200 // leaves e⁻⁸⁰ at y = 2
	rest := y
	for n := depth; n > 0; n-- {
		rest = y + float64(n)/2/rest
	}
	return 1 / (math.Sqrt(math.Pi) * rest)
}

// erfcPolynomial interpolates ln(erfc(y)/t) + y² in s at Chebyshev's points and
// returns the coefficients of 1, s, s², …
func erfcPolynomial(end float64, terms int) []float64 {
	least := 1 / (1 + end/2)
	chebyshev := make([]float64, terms)
	for j := range terms {
		cosine := func(times int) float64 { // of a multiple of the point's angle
			return math.Cos(math.Pi * float64(times*(2*j+1)%(4*terms)) / float64(2*terms))
		}
		t := (1 + least + (1-least)*cosine(1)) / 2
		y := 2 * (1/t - 1)
		value := math.Log(scaledErfc(y) / t)
		for m := range chebyshev {
			chebyshev[m] += 2 / float64(terms) * value * cosine(m)
		}
	}
	chebyshev[0] /= 2
	// Tₘ₊₁ = 2s·Tₘ − Tₘ₋₁, with T₀ = 1 and T₋₁ = T₁ = s.
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
