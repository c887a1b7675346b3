package verify

import (
	"math"

	"tilework/internal/gemm"
	"tilework/internal/ref"
)

const (
	// NumVectors is the number of random vectors that a check multiplies by.
	NumVectors = 4
	// sigmas is the number of standard deviations that a row's residual may reach. The
	// residual is a root mean square over the vectors. For fixed errors e of a row and independent
	// signs ±1 it exceeds t·‖e‖₂ with a probability of at most (t²·exp(1−t²))^(NumVectors/2), which
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
	// times 2.6 for a residual of errors that are equal along a row. It is limited to maxBias,
	// which positive data can exceed for large k.
	truncatedBias, maxBias = 0.15, 0.0025
	// operandWalk is the root mean square of the rounding errors of both factors, in units of the
	// largest.
	operandWalk = 0.82
	// resultNorm is [sigmas] times the norm of the errors of rounding a row of C, in units of the
	// roundoff times the row's norm. Measured: 0.41 for the norm and, if all elements are just
	// above a power of two, 0.58. Rows of few elements have √N instead, which is certain.
	resultNorm = 2

	// defaultWithin is the largest [Report.Within] that is accepted unless
	// [Options.Within] says otherwise, and withinRoundings the same in units of C's roundoff:
	// 3.1 % of bfloat16.
	defaultWithin, withinRoundings = 0.01, 8
)

// Threshold holds the coefficients of the largest residual that a correct row may have:
//
//	OfTerms·terms + OfNorm·norm + Min
//
// norm is the Euclidean norm of C's row. terms is that of the row's terms, √Σ(a·‖b‖₂)² over the
// rows b of op(B). For terms of random signs the two norms are about equal.
type Threshold struct{ OfTerms, OfNorm, Min float64 }

func (t *Threshold) of(terms, norm float64) float64 { return t.OfTerms*terms + t.OfNorm*norm + t.Min }

// within returns the smallest error of one element that is certain to be found in a row. It is
// relative to the larger one of the row's two norms. ratio is the row's residual divided by its
// threshold. Errors from underflow are left out.
func (t *Threshold) within(ratio, terms, norm float64) float64 {
	larger := max(terms, norm)
	if larger == 0 {
		return 0
	}
	return (1 + ratio) * (t.OfTerms*terms + t.OfNorm*norm) / larger
}

// newThreshold returns the coefficients for typical data. The errors of k roundings are a random
// walk, which grows as u·√k. A truncating accumulator also has a bias, relative to the sum, that
// grows as u·k. Errors can be larger if terms repeat or if partial sums are far larger than the
// terms and the sum; see [freivalds.explained].
func newThreshold(p *gemm.Problem, acc gemm.Accuracy) Threshold {
	out := p.Out().Info()
	if p.ScaleType().Info().Integer {
		return Threshold{}
	}
	n := ref.Roundings(p, acc)
	walk, norm := nearestWalk*acc.Roundoff*math.Sqrt(n), sigmas*nearestNorm*acc.Roundoff*math.Sqrt(n)
	if acc.Truncates {
		walk = truncatedWalk * acc.Roundoff * math.Sqrt(n)
		norm = min(truncatedBias*acc.Roundoff*n, maxBias)
	}
	own := 0x1p-53 * math.Sqrt(n+float64(p.N)) // the errors of the check itself
	return Threshold{
		OfTerms: sigmas * (walk + operandWalk*acc.Operand + own),
		OfNorm:  norm + out.Roundoff*min(resultNorm, math.Sqrt(float64(p.N))) + sigmas*own,
		Min:     sigmas * math.Sqrt(float64(p.N)) * (ref.Underflow(p, acc) + out.Tiny/2),
	}
}

// accepted returns the largest Within that a check of p accepts.
func accepted(p *gemm.Problem, within float64) float64 {
	if within > 0 {
		return within
	}
	return max(defaultWithin, withinRoundings*p.Out().Info().Roundoff)
}
