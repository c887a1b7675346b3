package verify

import (
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// orders lists summation orders of kernels that round to nearest. Blocks of terms are added in
// sequence (0 means one block of all terms), and the terms of a block in interleaved lanes.
var orders = [...]struct{ lanes, block int }{{1, 0}, {16, 0}, {1, 256}}

// KernelSums returns Σa·b as kernels of the given accuracy compute it in type t, once for each
// summation order. Truncating kernels have one order.
func KernelSums(acc gemm.Accuracy, t dtype.Type, a, b []float64) (sums []float64) {
	if acc.Operand > 0 {
		a, b = roundOperands(a, acc.Operand), roundOperands(b, acc.Operand)
	}
	if acc.Truncates {
		return append(sums, truncatedSum(acc, a, b))
	}
	for _, o := range orders {
		sums = append(sums, nearestSum(t, a, b, o.lanes, o.block))
	}
	return sums
}

// nearestSum returns Σa·b with each sum rounded to nearest in t.
func nearestSum(t dtype.Type, a, b []float64, lanes, block int) (total float64) {
	round := func(x float64) float64 { return x }
	if t == dtype.F32 {
		round = func(x float64) float64 { return float64(float32(x)) }
	}
	if block == 0 {
		block = max(len(a), 1)
	}
	part := make([]float64, lanes)
	for ; len(a) > 0; a, b = a[min(block, len(a)):], b[min(block, len(b)):] {
		clear(part)
		for k, x := range a[:min(block, len(a))] {
			part[k%lanes] = round(part[k%lanes] + float64(x*b[k]))
		}
		sum := 0.0
		for _, x := range part {
			sum = round(sum + x)
		}
		total = round(total + sum)
	}
	return total
}

// truncatedSum returns Σa·b as truncating tensor cores compute it; see [gemm.Accuracy].
func truncatedSum(acc gemm.Accuracy, a, b []float64) float64 {
	const fraction = 23 // of a float32
	var total float32
	sum := 0.0
	for k := 0; k < len(a); k += acc.Terms {
		end := min(k+acc.Terms, len(a))
		sum = truncate(alignedSum(a[k:end], b[k:end], sum, acc.Bits), min(acc.Bits, fraction))
		if acc.Chunk > 0 && end%acc.Chunk == 0 {
			total += float32(sum)
			sum = 0
		}
	}
	return float64(total + float32(sum))
}

// alignedSum returns c + Σa·b with each summand truncated to the given number of bits after the
// leading bit of the largest. Package ptx/emu implements the same, subnormal numbers included.
func alignedSum(a, b []float64, c float64, bits int) float64 {
	first := math.MinInt32
	if c != 0 {
		first = math.Ilogb(c)
	}
	for k, x := range a {
		if x != 0 && b[k] != 0 {
			first = max(first, math.Ilogb(x)+math.Ilogb(b[k]))
		}
	}
	if first == math.MinInt32 {
		return 0
	}
	scale := math.Ldexp(1, bits-first)
	sum := math.Trunc(c * scale)
	for k, x := range a {
		sum += math.Trunc(x * b[k] * scale)
	}
	return sum / scale
}

// truncate truncates x to the given number of bits after its leading bit.
func truncate(x float64, bits int) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Ldexp(1, bits-math.Ilogb(x))
	return math.Trunc(x*scale) / scale
}

// roundOperands rounds elements to the precision with unit roundoff u (Veltkamp's splitting).
func roundOperands(x []float64, u float64) []float64 {
	rounded := make([]float64, len(x))
	for k, v := range x {
		y := v * (1 + u*0x1p53)
		rounded[k] = y - (y - v)
	}
	return rounded
}
