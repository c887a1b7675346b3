package dot

import "math"

const (
	// blackwellMinExp is the exponent of a zero, to which a sum is aligned at least.
	blackwellMinExp = -126
	// scaledBits is the number of bits that a sum of products of 4-bit floats keeps after the
	// leading bit of its largest scale.
	scaledBits = 35
	// scaledGroup is the number of products of 4-bit floats that are added exactly.
	scaledGroup = 16
)

// Scaled returns the dot product of row and col plus c, where each scale applies to an equal part
// of the products. nearest has the same meaning as for [Product.Element].
func (p *Product) Scaled(nearest bool, row, col []float64, c float64, scaleA, scaleB []float64) float64 {
	each := len(row) / len(scaleA)
	if nearest {
		for k, x := range row {
			c += x * col[k] * scaleA[k/each] * scaleB[k/each]
		}
		return p.rounded(c)
	}
	for k := range scaleA {
		if s := scaleA[k] * scaleB[k]; s != s {
			return s
		}
	}
	if len(scaleA) == 1 {
		return p.blackwellSum(row, col, c, exponentOf(scaleA[0])+exponentOf(scaleB[0]))
	}
	if exponentOf(c) == specialExponent {
		return c
	}
	exp := blackwellExponent(c, p.Result.MinExp)
	for k := range scaleA {
		exp = max(exp, blackwellExponent(scaleA[k], p.Scale.MinExp)+blackwellExponent(scaleB[k], p.Scale.MinExp))
	}
	sum := shifted(c, scaledBits-exp)
	for at := 0; at < len(row); at += scaledGroup {
		group := plainSum(row[at:][:scaledGroup], col[at:][:scaledGroup], 0)
		sum += shifted(group*scaleA[at/each]*scaleB[at/each], scaledBits-exp)
	}
	return p.truncated(math.Ldexp(float64(sum), exp-scaledBits))
}

// blackwellExponent returns the exponent by which x is aligned.
func blackwellExponent(x float64, least int) int {
	if x == 0 {
		return blackwellMinExp
	}
	return max(exponentOf(x), least)
}

// blackwellSum returns the dot product of row and col, times 2^shift, plus c. All terms are
// truncated AlignedBits below the leading bit of the largest one and added.
func (p *Product) blackwellSum(row, col []float64, c float64, shift int) float64 {
	exp := blackwellExponent(c, p.Result.MinExp)
	special := exponentOf(c)
	for k, x := range row {
		exp = max(exp, blackwellExponent(x, p.A.MinExp)+blackwellExponent(col[k], p.B.MinExp)+shift)
		special = max(special, exponentOf(x), exponentOf(col[k]))
	}
	factor := math.Ldexp(1, shift)
	if special == specialExponent {
		for k, x := range row {
			c += x * col[k] * factor
		}
		return p.truncated(c)
	}
	sum := shifted(c, AlignedBits-exp)
	for k, x := range row {
		sum += shifted(x*col[k]*factor, AlignedBits-exp)
	}
	return p.truncated(math.Ldexp(float64(sum), exp-AlignedBits))
}

// shifted returns x·2^bits without its fraction.
func shifted(x float64, bits int) int64 { return int64(math.Ldexp(x, bits)) }
