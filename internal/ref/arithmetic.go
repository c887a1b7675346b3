package ref

import (
	"math"

	"tilework/dtype"
)

// orders lists orders of summation of kernels that round to nearest. They add up blocks of terms in
// turn (0 means one block of all terms), and a block in a number of interleaved sums.
var orders = [...]struct{ lanes, block int }{{1, 0}, {16, 0}, {1, 256}}

// KernelSums returns Σa·b as kernels of that accuracy compute it in type t, in each of the orders
// that they may have; truncating ones have one.
func KernelSums(acc Accuracy, t dtype.Type, a, b []float64) (sums []float64) {
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

// nearestSum rounds each sum to the nearest number of t.
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

// truncatedSum returns the sum of tensor cores that truncate; see [Accuracy.Terms].
func truncatedSum(acc Accuracy, a, b []float64) float64 {
	const fraction = 23 // of a float32
	var total float32
	sum := 0.0
	for k := 0; k < len(a); k += acc.Terms {
		end := min(k+acc.Terms, len(a))
		sum = cutOff(alignedSum(a[k:end], b[k:end], sum, acc.Bits), min(acc.Bits, fraction))
		if acc.Chunk > 0 && end%acc.Chunk == 0 {
			total += float32(sum)
			sum = 0
		}
	}
	return float64(total + float32(sum))
}

// alignedSum returns c + Σa·b with each summand truncated to a number of bits after the first bit of
// the largest. Package ptx/emu does the same, as the hardware does, with subnormal numbers too.
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

// cutOff truncates x to a number of bits after its first.
func cutOff(x float64, bits int) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Ldexp(1, bits-math.Ilogb(x))
	return math.Trunc(x*scale) / scale
}

// roundOperands rounds elements to as many bits as have u as their roundoff (Veltkamp's splitting).
func roundOperands(x []float64, u float64) []float64 {
	rounded := make([]float64, len(x))
	for k, v := range x {
		y := v * (1 + u*0x1p53)
		rounded[k] = y - (y - v)
	}
	return rounded
}
