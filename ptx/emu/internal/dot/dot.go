// Package dot computes the elements of matrix products as the tensor cores of NVIDIA GPUs do.
package dot

import (
	"math"
	"slices"
	"sync"

	"tilework/ptx/emu/internal/number"
)

// Unit is the way in which a tensor core sums the products of an element.
type Unit uint8

const (
	// Aligned adds up to 16 products and the accumulator at a time. Each term is truncated 25 bits
	// below the leading bit of the largest one, and the sum is truncated to float32 or rounded to
	// f16. (Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021, found the same for older
	// GPUs, with fewer bits and terms.)
	Aligned Unit = iota
	// Fused consists of fused operations in float32, one for each product. It is that of
	// mma.m8n8k4.
	Fused
	// TwoSums consists of two sums of Aligned and a float32 addition of the accumulator. It is that
	// of mma with 8-bit floats.
	TwoSums
	// Short is Aligned with all products at once and 14 bits, for the terms and for a float32
	// result. It is that of wgmma with 8-bit floats.
	Short
	// Blackwell is that of Blackwell's tensor cores, after the published model of MMA-Sim
	// (github.com/microsoft/MMA-Sim; Li et al., 2025). It was not compared with a GPU.
	Blackwell
)

const (
	// termsPerSum is the number of products that a tensor core adds at a time. guardBits is the
	// number of bits that it keeps below the last bit of a float32.
	termsPerSum = 16
	guardBits   = 2
	// AlignedBits is the number of bits that a sum keeps after the leading bit of its largest term.
	// shortBits is the same for Short.
	AlignedBits = 23 + guardBits
	shortBits   = 13
	// minAlignExp is the minimum exponent to which a sum is aligned.
	minAlignExp = -133
)

// Product describes the arithmetic of a matrix product: c + Σ a·b.
type Product struct {
	Unit Unit
	// A, B and Result are the types of A, of B, and of the accumulators, or nil for integers. A sum
	// is aligned as if its subnormal terms were normal numbers of these types.
	A, B, Result *number.Format
	Scale        *number.Format  // type of block scales
	BitOp        string          // "and" or "xor", for 1-bit elements
	Saturate     bool            // of sums of integers, which wrap otherwise
	Rounding     number.Rounding // of sums of float64
}

// exponents holds memory for the exponents of two matrices.
var exponents = sync.Pool{New: func() any { return new([2][]int32) }}

// Multiply adds the products of the rows of a and the columns of b to c, a matrix in row-major
// order, as [Product.Element] does for one element. Rows and columns have k elements.
func (p *Product) Multiply(nearest bool, a, b []float64, k int, c []float64) {
	n := len(b) / k
	if nearest || !p.aligns() {
		for at := range c {
			c[at] = p.Element(nearest, a[at/n*k:][:k], b[at%n*k:][:k], c[at])
		}
		return
	}
	if p.Unit == TwoSums {
		a, b = halves(a, k), halves(b, k)
	}
	scratch := exponents.Get().(*[2][]int32)
	defer exponents.Put(scratch)
	rowExps, _ := alignExponents(scratch[0], a, p.A.MinExp)
	colExps, special := alignExponents(scratch[1], b, p.B.MinExp)
	scratch[0], scratch[1] = rowExps, colExps
	for i := range len(a) / k {
		row, exps, sums := a[i*k:][:k], rowExps[i*k:][:k], c[i*n:][:n]
		// Many tiles are padded with rows of zeros, which change no float32.
		zero := !special && p.Unit != Short && p.Result == number.F32 && slices.Max(exps) == zeroExponent
		for j, sum := range sums {
			if zero && exponentOf(sum) != specialExponent {
				sums[j] = sum + 0
				continue
			}
			sums[j] = p.alignedElement(row, b[j*k:][:k], exps, colExps[j*k:][:k], sum)
		}
	}
}

// aligns reports whether the terms of a sum are truncated below the leading bit of the largest one.
func (p *Product) aligns() bool {
	return p.BitOp == "" && p.Result != nil && p.Result != number.F64 && p.Unit <= Short && p.Unit != Fused
}

// Element returns the dot product of row and col plus c. Products of float64 are accumulated by one
// fused multiply-add after the other. Sums of integers are exact. With nearest set, other products
// are added in float64, and the sum is rounded to nearest once.
func (p *Product) Element(nearest bool, row, col []float64, c float64) float64 {
	switch {
	case p.BitOp != "":
		return wrap(c+popcount(p.BitOp, row, col), false)
	case p.Result == nil: // sums of 256 products of 8-bit integers are exact
		return wrap(plainSum(row, col, c), p.Saturate)
	case p.Result == number.F64:
		for k, x := range row {
			c = number.FMA64(x, col[k], c, p.Rounding)
		}
		if c != c {
			return math.Float64frombits(number.NaN64)
		}
		return c
	case nearest:
		return p.rounded(plainSum(row, col, c))
	}
	switch p.Unit {
	case Fused:
		return p.fused(row, col, float32(c))
	case TwoSums:
		row, col = halves(row, len(row)), halves(col, len(row))
	case Blackwell:
		return p.blackwellSum(row, col, c, 0)
	}
	rowExps, _ := alignExponents(nil, row, p.A.MinExp)
	colExps, _ := alignExponents(nil, col, p.B.MinExp)
	return p.alignedElement(row, col, rowExps, colExps, c)
}

// alignedElement computes Element for Aligned, TwoSums and Short, with the results of
// alignExponents for row and col. For TwoSums, they are in the order of halves.
func (p *Product) alignedElement(row, col []float64, rowExps, colExps []int32, c float64) float64 {
	if p.Unit == Short {
		sum := p.alignedSum(row, col, rowExps, colExps, c, shortBits)
		if p.Result == number.F16 {
			return p.truncated(sum)
		}
		return truncate(sum, shortBits)
	}
	if p.Unit == TwoSums {
		half := len(row) / 2
		sum := p.truncated(p.alignedSum(row[:half], col[:half], rowExps, colExps, 0, AlignedBits))
		sum = p.truncated(p.alignedSum(row[half:], col[half:], rowExps[half:], colExps[half:], sum, AlignedBits))
		return p.rounded(number.AddOdd(sum, c))
	}
	for at := 0; at < len(row); at += termsPerSum {
		end := min(at+termsPerSum, len(row))
		c = p.truncated(p.alignedSum(row[at:end], col[at:end], rowExps[at:], colExps[at:], c, AlignedBits))
	}
	return c
}

// plainSum returns the dot product of row and col plus c in float64.
func plainSum(row, col []float64, c float64) float64 {
	for k, x := range row {
		c += x * col[k]
	}
	return c
}

// fused computes Element for Fused. For float32, it sums all products and adds c. For f16, it sums
// the first two products and the last two separately and adds c between them.
func (p *Product) fused(row, col []float64, c float32) float64 {
	sum := func(from, to int) (s float32) {
		for k := from; k < to; k++ {
			s = float32(number.FMAOdd(row[k], col[k], float64(s)))
		}
		return s
	}
	if p.Result == number.F16 {
		return p.rounded(float64(sum(0, 2) + c + sum(2, 4)))
	}
	return p.rounded(float64(sum(0, 4) + c))
}

// halves returns rows of 16 or 32 elements in the order of TwoSums: the first half of a row takes
// the lower two of the four elements in each register, and the second half the upper two.
func halves(rows []float64, k int) []float64 {
	all := make([]float64, len(rows))
	for i, x := range rows {
		column := i % k
		all[i-column+column/2%2*k/2+column/4*2+column%2] = x
	}
	return all
}

// truncated returns the result of a sum in a tensor core: rounded to nearest for f16, and truncated
// for float32. A zero result is positive.
func (p *Product) truncated(sum float64) float64 {
	if p.Result == number.F16 {
		return number.F16.Round(sum, number.Nearest) + 0
	}
	if math.Abs(sum) >= 0x1p128 {
		return math.Inf(int(math.Copysign(1, sum)))
	}
	if exponentOf(sum) >= number.F32.MinExp {
		return truncate(sum, number.F32.Precision-1)
	}
	return number.F32.Round(sum, number.ToZero) + 0
}

// rounded rounds v to nearest in the type of the accumulators.
func (p *Product) rounded(v float64) float64 {
	if p.Result == number.F16 {
		return number.F16.Round(v, number.Nearest)
	}
	return float64(float32(v))
}

// wrap returns an integer as an int32: modulo 2^32, or saturated.
func wrap(v float64, saturate bool) float64 {
	if saturate {
		return min(max(v, math.MinInt32), math.MaxInt32)
	}
	return float64(int32(int64(v)))
}

// popcount returns the number of ones in the AND or XOR of two rows of bits.
func popcount(op string, row, col []float64) float64 {
	n := 0
	for k, x := range row {
		if op == "and" && x*col[k] == 1 || op == "xor" && x != col[k] {
			n++
		}
	}
	return float64(n)
}

// alignedSum returns the dot product of row and col plus c, with each term truncated after the
// given number of bits below the leading bit of the largest one. rowExps and colExps start with the
// results of alignExponents. All values are normal as float64.
func (p *Product) alignedSum(row, col []float64, rowExps, colExps []int32, c float64, bits int) float64 {
	// A tensor core adds the exponents of the factors. That of the product can be greater by one.
	exp := max(minAlignExp, alignExponent(c, p.Result.MinExp))
	colExps = colExps[:len(row)]
	for k, x := range rowExps[:len(row)] {
		exp = max(exp, x+colExps[k])
	}
	if exp >= specialExponent/2 {
		return plainSum(row, col, c)
	}
	scale := powerOfTwo(bits - int(exp))
	sum := int64(c * scale)
	col = col[:len(row)]
	for k, x := range row {
		sum += int64(x * col[k] * scale)
	}
	return float64(sum) / scale
}

// specialExponent is the result of exponentOf for infinities and NaNs.
const specialExponent = 1024

// exponentOf returns e for a normal x with |x| in [2^e, 2^(e+1)), and -1023 for 0.
func exponentOf(x float64) int { return int(math.Float64bits(x)>>52&0x7ff) - 1023 }

// zeroExponent is the result of alignExponent for 0.
const zeroExponent = -1 << 20

// alignExponent returns the exponent by which a tensor core aligns x. It is least for a subnormal
// x, and at least specialExponent/2 also with another factor if x is an infinity or a NaN.
func alignExponent(x float64, least int) int32 {
	switch e := exponentOf(x); {
	case x == 0:
		return zeroExponent
	case e == specialExponent:
		return -2 * zeroExponent
	default:
		return int32(max(e, least))
	}
}

// alignExponents returns the exponents of values, in exps if that is large enough. It reports
// whether there are infinities or NaNs.
func alignExponents(exps []int32, values []float64, least int) (all []int32, special bool) {
	exps = slices.Grow(exps[:0], len(values))[:len(values)]
	for k, x := range values {
		exps[k] = alignExponent(x, least)
		special = special || exps[k] > specialExponent
	}
	return exps, special
}

// powerOfTwo returns 2^e for e from -1022 to 1023.
func powerOfTwo(e int) float64 { return math.Float64frombits(uint64(e+1023) << 52) }

// truncate truncates sum after the given number of bits below its leading bit.
func truncate(sum float64, bits int) float64 {
	if sum == 0 || math.IsInf(sum, 0) || sum != sum {
		return sum
	}
	return math.Float64frombits(math.Float64bits(sum) &^ (1<<(52-bits) - 1))
}
