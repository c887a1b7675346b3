package ref

import (
	"math"

	"tilework/internal/gemm"
)

const (
	// Vectors is the number of random vectors that a check multiplies by.
	Vectors = 4
	// sigmas is the number of standard deviations of a row's residual that are allowed. The
	// residual is a root mean square over the vectors. For fixed errors e of a row and independent
	// signs ±1 it exceeds t·‖e‖₂ with a probability of at most (t²·exp(1−t²))^(Vectors/2), which
	// is 2.4·10⁻¹¹ for t = 4. (Sums of signs have the moments of a normal variable at most; the
	// bound is Chernoff's for χ².)
	sigmas = 4
)

// The constants below are measured, on the distributions and sizes in
// docs/results/verification.md.
const (
	// nearestWalk and nearestNorm relate the norm of a row's errors to u·√k times the norm of the
	// row's terms and of the row, where sums are rounded to nearest. Measured: 0.43 and 0.27.
	nearestWalk, nearestNorm = 1, 0.5
	// truncatedWalk is nearestWalk where sums are truncated. Measured: up to 0.1.
	truncatedWalk = 0.2
	// truncatedBias relates the bias of a truncated sum to u·k times the sum. Measured: 0.035,
	// times 2.6 for a residual of errors that are equal along a row. It is limited to mostBias,
	// which positive data can exceed where k is large.
	truncatedBias, mostBias = 0.15, 0.0025
	// operandWalk is the root mean square of the rounding errors of both factors, in units of the
	// largest.
	operandWalk = 0.82
	// resultNorm is [sigmas] times the norm of the errors of rounding a row of C, in units of the
	// roundoff times the row's norm. Measured: 0.41 for the norm and, if all elements are just above
	// a power of two, 0.58. Rows of few elements have √N instead, which is certain.
	resultNorm = 2

	// defaultWithin is the largest [VerifyReport.Within] that is accepted unless
	// [VerifyOptions.Within] says otherwise, and withinRoundings the same in units of C's roundoff:
	// 3.1 % of bfloat16.
	defaultWithin, withinRoundings = 0.01, 8
)

// Limits are the coefficients of the threshold of a row's residual: OfSize of the norm of the
// row's terms, OfNorm of the norm of C's row, and Least, which holds for any row.
//
// The terms' norm is √Σ(a·‖b‖₂)² over the rows b of op(B). Where signs are random the row's norm is
// about as large.
type Limits struct{ OfSize, OfNorm, Least float64 }

func (l *Limits) of(size, norm float64) float64 { return l.OfSize*size + l.OfNorm*norm + l.Least }

// within returns the smallest error of an element that is certain to be found, relative to the
// row's norm or that of its terms, whichever is larger, for a row with that ratio of its residual
// to its threshold. Losses by underflow do not count.
func (l *Limits) within(ratio, size, norm float64) float64 {
	whole := max(size, norm)
	if whole == 0 {
		return 0
	}
	return (1 + ratio) * (l.OfSize*size + l.OfNorm*norm) / whole
}

// limits returns the coefficients for rows of typical data. The errors of k roundings are a random
// walk: they grow as u·√k. A truncating accumulator also has a bias, relative to the sum, that
// grows as u·k. Errors can be larger where terms repeat, or where partial sums are far larger than
// terms and sum; see [freivalds.explained].
func limits(p *gemm.Problem, acc Accuracy) Limits {
	out := p.Out().Info()
	if p.ScaleType().Info().Integer {
		return Limits{}
	}
	n := roundings(p, acc)
	walk, norm := nearestWalk*acc.Roundoff*math.Sqrt(n), sigmas*nearestNorm*acc.Roundoff*math.Sqrt(n)
	if acc.Truncates {
		walk = truncatedWalk * acc.Roundoff * math.Sqrt(n)
		norm = min(truncatedBias*acc.Roundoff*n, mostBias)
	}
	own := 0x1p-53 * math.Sqrt(n+float64(p.N)) // the check's errors
	return Limits{
		OfSize: sigmas * (walk + operandWalk*acc.Operand + own),
		OfNorm: norm + out.Roundoff*min(resultNorm, math.Sqrt(float64(p.N))) + sigmas*own,
		Least:  sigmas * math.Sqrt(float64(p.N)) * (underflow(p, acc) + out.Tiny/2),
	}
}

// accepted returns the largest Within that a check of p accepts.
func accepted(p *gemm.Problem, within float64) float64 {
	if within > 0 {
		return within
	}
	return max(defaultWithin, withinRoundings*p.Out().Info().Roundoff)
}
