package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// finishers writes the functions that finish a tile of C while it is in the cache.
func (g *generator) finishers() {
	g.finisher("BiasCol", alongCols, "adds v[j] to every element of column j", g.light, func(x, v group) { g.each(g.add, v, x, x) })
	g.finisher("BiasRow", alongRows, "adds v[i] to every element of row i", g.light, func(x, v group) { g.each(g.add, v, x, x) })
	g.finisher("Add", everywhere, "adds v[i*ldv+j] to every element", rowsOfTwo, func(x, v group) { g.each(g.add, v, x, x) })
	g.finisher("ReLU", alone, "makes every element max(x, 0)", g.light, func(x, _ group) { g.atLeastZero(x) })
	if g.maths == nil {
		return
	}
	g.finisher("ScaleCol", alongCols, "multiplies every element of column j by v[j]", g.light, func(x, v group) { g.each(g.mul, v, x, x) })
	g.finisher("ScaleRow", alongRows, "multiplies every element of row i by v[i]", g.light, func(x, v group) { g.each(g.mul, v, x, x) })
	g.finisher("Scale", byOne, "multiplies every element by v[0]", g.light, func(x, v group) { g.each(g.mul, v, x, x) })
	if g.fromInt32 != nil {
		g.finisher("FromInt32", byOne, "makes every element, which holds an int32 in its bits, that number times v[0]", g.light, func(x, v group) {
			g.each(g.fromInt32, x, x)
			g.each(g.mul, v, x, x)
		})
	}
	g.finisher("Times", everywhere, "multiplies every element by v[i*ldv+j]", rowsOfTwo, func(x, v group) { g.each(g.mul, v, x, x) })
	g.finisher("GELU", alone, "makes every element x·Φ(x), Φ the normal distribution", g.abreast, func(x, _ group) { g.gelu(x) })
	g.finisher("GELUTanh", alone, "makes every element x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))", g.abreast, func(x, _ group) { g.geluTanh(x) })
	g.finisher("SiLU", alone, "makes every element x/(1 + e⁻ˣ)", g.abreast, func(x, _ group) { g.silu(x) })
}

// beside says which numbers a finisher is given beside a tile.
type beside int

const (
	alone      beside = iota // none,
	byOne                    // one,
	alongRows                // one for each row,
	alongCols                // one for each column,
	everywhere               // one for each element
)

// rowsOfTwo is how many rows of two matrices there are addresses of at once.
const rowsOfTwo = 4

// A group is a register of each of several rows, which are computed abreast: what is done
// to one waits for what was done to it before, so that a processor with one row at a time
// would wait most of the time.
type group []reg.Register

// another is a group of as many registers as x has.
func (g *generator) another(x group) group { return g.vectors(len(x)) }

// each does an instruction to each of a group. Operands are groups, or the same for all.
func (g *generator) each(op instruction, operands ...any) {
	var n int
	for _, o := range operands {
		if rows, ok := o.(group); ok {
			n = len(rows)
		}
	}
	for i := range n {
		var ops []operand.Op
		for _, o := range operands {
			if rows, ok := o.(group); ok {
				o = rows[i]
			}
			ops = append(ops, o.(operand.Op))
		}
		op(g.Context, ops...)
	}
}

// finisher writes one function over the elements of a tile, several rows abreast and the
// rest one by one. apply does it to vectors x, and is given the elements of v that belong
// to them. What stands in a tile's last columns is treated as all else.
func (g *generator) finisher(name string, with beside, does string, abreast int, apply func(x, v group)) {
	name += g.suffix()
	extra := ""
	switch with {
	case alone:
	case everywhere:
		extra = ", v *T, ldv int"
	default:
		extra = ", v *T"
	}
	g.function(name, "m, n int, c *T, ldc int"+extra,
		fmt.Sprintf("%s %s of an m×n tile of C, whose rows are ldc elements apart.", name, does))
	c, ldc := g.param("c"), g.stride("ldc")
	var v reg.GPVirtual
	if with != alone {
		v = g.param("v")
	}
	var ldv reg.GPVirtual
	if with == everywhere {
		ldv = g.stride("ldv")
	}
	tail := g.param("n")
	g.ANDQ(operand.I32(g.lanes()-1), tail)
	count := g.GP64()
	g.MOVQ(tail, count)
	mask := g.mask(g, count)
	whole := g.param("n")
	g.SHRQ(operand.U8(log2(g.lanes())), whole)

	rows := func(label string, count int) {
		at, from, left := g.GP64(), g.GP64(), g.GP64()
		g.MOVQ(c, at)
		lines := strides(g.Context, at, ldc, count)
		x, y := group(g.vectors(count)), group(g.vectors(count))
		var theirs []operand.Mem // where the numbers for a vector of each row are, if they change along it
		switch with {
		case byOne:
			for i := range y {
				g.broadcast(g.Context, operand.Mem{Base: v}, y[i])
			}
		case alongRows:
			for i := range y {
				g.broadcast(g.Context, operand.Mem{Base: v, Disp: i * g.size}, y[i])
			}
			g.ADDQ(operand.I32(count*g.size), v)
		case alongCols:
			g.MOVQ(v, from)
			for range count {
				theirs = append(theirs, operand.Mem{Base: from})
			}
		case everywhere:
			g.MOVQ(v, from)
			theirs = strides(g.Context, from, ldv, count)
			for range count {
				g.ADDQ(ldv, v)
			}
		}
		g.MOVQ(whole, left)
		g.loop(label+"_vectors", left, func() {
			for i := range x {
				g.move(g.Context, lines[i], x[i])
			}
			if theirs != nil {
				for i := range y {
					g.move(g.Context, theirs[i], y[i])
				}
				g.ADDQ(operand.I32(g.vectorBytes), from)
			}
			apply(x, y)
			for i := range x {
				g.move(g.Context, x[i], lines[i])
			}
			g.ADDQ(operand.I32(g.vectorBytes), at)
		})
		g.TESTQ(tail, tail)
		g.JZ(operand.LabelRef(label + "_next"))
		for i := range x {
			g.load(g, lines[i], mask, x[i])
			if theirs != nil {
				g.load(g, theirs[i], mask, y[i])
			}
		}
		apply(x, y)
		for i := range x {
			g.store(g, x[i], mask, lines[i])
		}
		g.Label(label + "_next")
		for range count {
			g.ADDQ(ldc, c)
		}
	}
	m := g.param("m")
	if abreast > 1 {
		groups := g.GP64()
		g.MOVQ(m, groups)
		g.SHRQ(operand.U8(log2(abreast)), groups)
		g.loop("rows", groups, func() { rows("rows", abreast) })
		g.ANDQ(operand.I32(abreast-1), m)
	}
	g.loop("row", m, func() { rows("row", 1) })
	g.VZEROUPPER()
	g.RET()
}

// maths are a floating-point type's further instructions and what functions need to
// be as accurate as it is.
type maths struct {
	min, sub, div, and  instruction
	shift, addBits      instruction
	mulAdd              instruction // x·y + z into y's register
	minusMinus          instruction // −x·y − z into z's
	fromInt32           instruction // of int32; nil for elements of another size
	subtract            instruction // z − x·y into z's
	fraction            int         // bits of a number's fraction
	expTerms, erfcTerms int
	least, most         float64 // e^least is as good as zero, and e^most as infinite; both are normal numbers with room to spare
}

var (
	maths32 = &maths{
		min: (*build.Context).VMINPS, sub: (*build.Context).VSUBPS, div: (*build.Context).VDIVPS, and: (*build.Context).VANDPS,
		shift: (*build.Context).VPSLLD, addBits: (*build.Context).VPADDD,
		mulAdd: (*build.Context).VFMADD213PS, subtract: (*build.Context).VFNMADD231PS,
		minusMinus: (*build.Context).VFNMSUB231PS,
		fromInt32:  (*build.Context).VCVTDQ2PS,
		fraction:   23, expTerms: 7, erfcTerms: 10, least: -70, most: 80,
	}
	maths64 = &maths{
		min: (*build.Context).VMINPD, sub: (*build.Context).VSUBPD, div: (*build.Context).VDIVPD, and: (*build.Context).VANDPD,
		shift: (*build.Context).VPSLLQ, addBits: (*build.Context).VPADDQ,
		mulAdd: (*build.Context).VFMADD213PD, subtract: (*build.Context).VFNMADD231PD,
		minusMinus: (*build.Context).VFNMSUB231PD,
		fraction:   52, expTerms: 12, erfcTerms: 20, least: -690, most: 690,
	}
)

// atLeastZero is max(x, 0). x comes second, so that a NaN stays one.
func (g *generator) atLeastZero(x group) {
	zero := g.vector(g.Context)
	g.zero(zero)
	g.each(g.max, x, zero, x)
}

// gelu is x·Φ(x) = max(x, 0) − |x|·erfc(|x|/√2)/2, which for x < 0 keeps small values.
func (g *generator) gelu(x group) {
	far := g.another(x) // |x|, as far as there is a tail: ∞ times that would be NaN
	g.each(g.and, g.allButSign(), x, far)
	g.limit(far, g.maths.min, math.Sqrt(-2*g.least))
	g.atLeastZero(x)

	// With y = |x|/√2, erfc(y) = e^(−y²)·P(t − 1), t = 1/(1 + y/erfcScale). That the exponential does not wait for the polynomial, nor
	// for the division, is half of the time.
	t, one := g.another(x), g.vector(g.Context)
	g.each(g.move, g.constant(1/math.Sqrt2/erfcScale), t)
	g.each(g.mulAdd, g.constant(1), far, t)
	g.move(g.Context, g.constant(1), one)
	g.each(g.div, t, one, t)
	half := g.another(x)
	g.each(g.mul, g.constant(0.5), far, half)
	g.each(g.mul, half, far, far)
	e := g.expOfMinus(far)
	g.each(g.mul, e, half, half)

	g.each(g.add, g.constant(-1), t, t)
	p := g.polynomial(t, erfcPolynomial(math.Sqrt(-g.least), g.erfcTerms))
	g.each(g.subtract, half, p, x)
}

// geluTanh is x/2·(1 + tanh z) = x/(1 + e^(-2z)), z = √(2/π)·(x + 0.044715·x³).
func (g *generator) geluTanh(x group) {
	z, square := g.another(x), g.another(x)
	g.each(g.mul, x, x, square)
	scale := 2 * math.Sqrt(2/math.Pi)
	g.each(g.move, g.constant(0.044715*scale), z)
	g.each(g.mulAdd, g.constant(scale), square, z)
	g.each(g.mul, x, z, z)
	g.timesSigmoid(x, z)
}

// silu is x/(1 + e^(-x)).
func (g *generator) silu(x group) {
	z := g.another(x)
	g.each(g.move, x, z)
	g.timesSigmoid(x, z)
}

// timesSigmoid is x/(1 + e^(-z)); z is lost. Where e^(-z) is as good as infinite x is first
// made finite: −∞ tends to 0.
func (g *generator) timesSigmoid(x, z group) {
	g.limit(z, g.max, -g.most)
	g.limit(z, g.maths.min, -g.least)
	e := g.expOfMinus(z)
	g.each(g.add, g.constant(1), e, e)
	g.limit(x, g.max, -1e4)
	g.each(g.div, e, x, x)
}

// expOfMinus is e^(-x), to about a roundoff times 1 + |x|, for an x from -most to -least; x
// is lost.
func (g *generator) expOfMinus(x group) group {
	// n, the whole number next to -x/ln 2, stands in the lowest bits of its sum with
	// 1.5 units of a fraction's weight, from where it goes to the result's exponent.
	weight := math.Ldexp(1.5, g.fraction)
	bits, n := g.another(x), g.another(x)
	g.each(g.move, g.constant(weight), bits)
	g.each(g.fma, g.constant(-math.Log2E), x, bits)
	unit := g.vector(g.Context)
	g.move(g.Context, g.constant(weight), unit)
	g.each(g.sub, unit, bits, n)
	g.each(g.minusMinus, g.constant(math.Ln2), n, x)
	e := g.polynomial(x, expPolynomial(g.expTerms))
	g.each(g.shift, operand.U8(g.fraction), bits, bits)
	g.each(g.addBits, bits, e, e)
	return e
}

// limit applies min or max with a constant. x is their second source, so that a NaN
// stays one.
func (g *generator) limit(x group, which instruction, to float64) {
	bound := g.vector(g.Context)
	g.move(g.Context, g.constant(to), bound)
	g.each(which, x, bound, x)
}

// polynomial is Σ c[i]·xⁱ, by Horner's rule in x² for the even and the odd terms, which
// halves the wait.
func (g *generator) polynomial(x group, c []float64) group {
	even, odd, square := g.another(x), g.another(x), g.another(x)
	g.each(g.mul, x, x, square)
	sums, last := []group{even, odd}, len(c)-1
	for i := last; i >= 0; i-- {
		if i > last-2 {
			g.each(g.move, g.constant(c[i]), sums[i%2])
		} else {
			g.each(g.mulAdd, g.constant(c[i]), square, sums[i%2])
		}
	}
	g.each(g.fma, x, odd, even)
	return even
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

// erfcScale is the y whose t is a half: of those from 1 to 4 this one takes the fewest terms.
const erfcScale = 3

// erfcPolynomial is erfc(y)·e^(y²) in t − 1, for y from 0, where errors count most and
// it is 1, to end.
func erfcPolynomial(end float64, terms int) []float64 {
	half := (1 - 1/(1+end/erfcScale)) / 2 // of what t − 1 runs through
	c := interpolate(terms, func(s float64) float64 {
		t := 1 + half*(s-1)
		return scaledErfc(erfcScale * (1/t - 1))
	})
	// From powers of s to those of s − 1, by Horner's rule, and to those of t − 1.
	for i := range c {
		for j := terms - 2; j >= i; j-- {
			c[j] += c[j+1]
		}
	}
	c[0] = 1
	for i := range c {
		c[i] /= math.Pow(half, float64(i))
	}
	return c
}

// expPolynomial is eˣ for x of up to ln 2/2, and 1 for 0.
func expPolynomial(terms int) []float64 {
	c := interpolate(terms, func(s float64) float64 { return math.Exp(s * math.Ln2 / 2) })
	c[0] = 1
	for i := range c {
		c[i] /= math.Pow(math.Ln2/2, float64(i))
	}
	return c
}

// interpolate returns the coefficients of 1, s, s², … of a polynomial that is next to f
// in [-1, 1]: Chebyshev's series, from so many points that their roundings average out.
func interpolate(terms int, f func(s float64) float64) []float64 {
	points := 16 * terms
	chebyshev := make([]float64, terms)
	for j := range points {
		cosine := func(times int) float64 { // of a multiple of the point's angle
			return math.Cos(math.Pi * float64(times*(2*j+1)%(4*points)) / float64(2*points))
		}
		value := f(cosine(1))
		for m := range chebyshev {
			chebyshev[m] += 2 / float64(points) * value * cosine(m)
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
