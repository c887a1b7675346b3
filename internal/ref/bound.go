package ref

import (
	"fmt"
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
)

const (
	// activationRoundoffs is the largest error that evaluating an activation may add, in units of
	// roundoff times the magnitude of the argument. It allows for the cancellation in 1 + erf(x)
	// and 1 + tanh(x).
	activationRoundoffs = 8

	// BLASLimit is the threshold for [Comparison.BLAS]: THRESH in the test program dblat3 of the
	// reference BLAS.
	BLASLimit = 16
	// BLASMaxK is the largest k that BLASLimit applies to. The reference BLAS tests only small
	// sizes.
	BLASMaxK = 128

	// maxRMS is the largest [Comparison.RMS] of a correct product with many elements. It is
	// calibrated with random data. Correct sums, sequential or blocked, stay below 0.75 in every
	// type, since the RMS error of one rounding is 0.4 to 0.6 roundoffs. Omitting one of 256 terms
	// or rounding the operands to tf32 results in values in the hundreds.
	maxRMS = 1
)

// Comparison describes the difference between a computed C and the reference.
type Comparison struct {
	// Elements is the number of compared elements. Elements that may have overflowed are left out.
	Elements int
	// Ratio is the largest error of an element divided by the bound of that element. A ratio above
	// 1 means that the element is wrong.
	Ratio float64
	// I, J, Got, Want and Bound describe the element with the largest ratio.
	I, J             int
	Got, Want, Bound float64
	// BLAS is the ratio that the test programs of the reference BLAS compute: the largest value of
	// error / (eps·(|α|·|A|·|B| + |β|·|C|)), where eps is twice the largest roundoff involved. The
	// largest possible effect of underflow is subtracted from the error first.
	BLAS float64
	// RMS is the root mean square of the errors of all elements. Each error is divided by the
	// typical error of k random roundings. RMS is far more sensitive than Ratio.
	RMS float64

	k int
}

// Compare compares c, in the layout of the problem's C, with the reference. It computes three
// measures: Ratio, RMS and BLAS. acc describes the arithmetic of the implementation under test. Its
// zero value selects [gemm.AccuracyOf] the problem.
//
// Ratio uses a bound that no correct result exceeds, in any order of summation. With the roundoff
// u of the accumulator, the roundoff u' of C's type and γₙ = n·u/(1−n·u) (Higham, Accuracy and
// Stability of Numerical Algorithms, section 3.5), the bound of an element is
//
//	slope·(γ_{k+3}·(|α|·|A|·|B| + |β|·|C| + |bias|) + underflow) + u'·|Ĉ| + underflow'
//
// A bias and each scale before it add 1 to the index of γ. Each operation after the activation adds
// the error of one rounding. The bound of a gated product combines the bounds of its two factors.
//
// This bound allows for k errors of the same sign. RMS compares the errors with their typical
// size instead. A partial sum of random terms consists of a drift towards α·A·B and a random walk
// with variance Σ(a·b)². Each of the k roundings adds an error in proportion to the partial sum
// that it rounds. The typical error is therefore
//
//	u·√(k+3)·√((α·A·B)² + α²·Σ(a·b)² + (β·C)² + bias²)
//
// The square of the rounding error of C's type is added to the square of this value. RMS presumes
// random data, because sums of equal terms have equal rounding errors.
//
// An element is left out if a partial sum or the result may have overflowed. If an input is not
// finite, c must have NaNs and infinities in the same places as the reference.
func (r *Result) Compare(c []byte, acc gemm.Accuracy) Comparison {
	p := r.p
	acc = acc.OrDefault(p)
	out := p.Out().Info()
	cmp := Comparison{k: p.K}
	row := make([]float64, p.N)
	var squares float64
	for i := range p.M {
		if p.N == 0 {
			break
		}
		p.Out().Load(row, c[out.Bytes(i*p.C().LD):])
		for j, got := range row {
			at := i*p.N + j
			want := r.Value[at]
			var e, bound float64
			switch {
			case p.ScaleType().Info().Integer, r.nonfinite && !finite(want):
				if !same(got, want) {
					e = math.Inf(1)
				}
			case r.mayOverflow(at):
				continue
			default:
				bound = r.Bound(i, j, acc)
				if Overflowed(p.Out(), got, want) && math.Abs(want)+bound > out.Max {
					continue
				}
				e = math.Abs(got - want)
				if r.low != nil {
					e = math.Abs(got - want - r.low[at])
				}
				if math.IsNaN(e) {
					e = math.Inf(1)
				}
				if typical := r.typicalError(i, j, acc); typical > 0 {
					squares += (e / typical) * (e / typical)
				}
				if e := e - r.outScale()*r.underflow(i, j, acc) - r.outputUnderflow(acc) - out.Tiny; e > 0 {
					eps := 2 * max(acc.Roundoff, acc.Operand, out.Roundoff)
					cmp.BLAS = max(cmp.BLAS, e/(eps*r.outScale()*(r.gatedAbsSum(at)+r.outputAbsSum(at))))
				}
			}
			ratio := e / bound
			if e == 0 {
				ratio = 0
			}
			if ratio > cmp.Ratio || cmp.Elements == 0 {
				cmp.Ratio, cmp.I, cmp.J, cmp.Got, cmp.Want, cmp.Bound = ratio, i, j, got, want, bound
			}
			cmp.Elements++
		}
	}
	if cmp.Elements > 0 {
		cmp.RMS = math.Sqrt(squares / float64(cmp.Elements))
	}
	return cmp
}

// Err returns nil for a correct product. Otherwise it returns an error that wraps [gemm.ErrVerify]
// and names the wrong element or the measure that exceeds its limit. The RMS presumes random data;
// see [Result.Compare].
func (c Comparison) Err() error {
	err := c.ElementErr()
	switch {
	case err != nil || c.Elements == 0:
		return err
	case c.RMS > c.rmsLimit():
		return fmt.Errorf("%w: the RMS error of %d elements with k = %d is %.3g times the typical rounding error: "+
			"want at most %.3g", gemm.ErrVerify, c.Elements, c.k, c.RMS, c.rmsLimit())
	case c.BLAS >= BLASLimit && c.k <= BLASMaxK:
		return fmt.Errorf("%w: the ratio of the reference BLAS test is %.3g: want less than %d",
			gemm.ErrVerify, c.BLAS, BLASLimit)
	}
	return nil
}

// rmsLimit returns the largest RMS that Err accepts. It is higher for few elements, because their
// RMS varies more.
func (c Comparison) rmsLimit() float64 { return maxRMS * (1 + 2/math.Sqrt(float64(c.Elements))) }

// ElementErr returns an error that wraps [gemm.ErrVerify] if an element exceeds its bound. Unlike
// Err, it makes no assumption about the data.
func (c Comparison) ElementErr() error {
	if !(c.Ratio > 1) {
		return nil
	}
	return fmt.Errorf("%w: C(%d,%d) is %v: want %v ± %.3g", gemm.ErrVerify, c.I, c.J, c.Got, c.Want, c.Bound)
}

// Exactly returns an error that wraps [gemm.ErrVerify] unless c, in the layout of the problem's C,
// has the values of the reference, rounded to C's type. It ignores the sign of a zero and the
// payload of a NaN, which depend on the order of summation.
func (r *Result) Exactly(c []byte) error {
	p := r.p
	var first error
	row, wrong := make([]float64, p.N), 0
	for i := range p.M {
		if p.N == 0 {
			break
		}
		p.Out().Load(row, c[p.Out().Bytes(i*p.C().LD):])
		for j, got := range row {
			want := r.Value[i*p.N+j]
			if same(got, want) {
				continue
			}
			if want = p.Out().Round(want); same(got, want) {
				continue
			}
			if wrong++; first == nil {
				first = fmt.Errorf("C(%d,%d) is %v: want exactly %v", i, j, got, want)
			}
		}
	}
	if wrong == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d elements are wrong: %w", gemm.ErrVerify, wrong, p.M*p.N, first)
}

// same reports whether x and y are equal or both NaN.
func same(x, y float64) bool { return x == y || x != x && y != y }

// Overflowed reports whether got is the result of an overflow in type t with the sign of want: an
// infinity of that sign, or NaN in a type without infinities.
func Overflowed(t dtype.Type, got, want float64) bool {
	return same(got, t.Round(math.Copysign(math.Inf(1), want)))
}

// Gamma returns γₙ = n·u/(1 − n·u) (Higham, Accuracy and Stability of Numerical Algorithms,
// section 3.1), or infinity if n·u ≥ 1.
func Gamma(n, u float64) float64 {
	if n*u >= 1 {
		return math.Inf(1)
	}
	return n * u / (1 - n*u)
}

// roundedTerms returns the number of rounded additions in a sum of K products. Integer additions
// are exact.
func roundedTerms(p *gemm.Problem) float64 {
	if p.Accum().Info().Integer {
		return 0
	}
	return float64(p.K)
}

// Roundings returns the largest number of roundings that affect one term of a sum. Block scales add
// two: an implementation multiplies either each factor by its scale, or the two scales and then a
// partial sum by their product.
func Roundings(p *gemm.Problem, acc gemm.Accuracy) float64 {
	n := acc.Roundings(roundedTerms(p)) + 3
	if p.Converts() {
		n++
	}
	if p.BlockScaled() {
		n += 2
	}
	rounded := p.Epilogue.WithoutZeros()
	for o := range gemm.Operands { // the scales and the bias
		if rounded.Reads(o) && rounded.VectorDim(o) != gemm.BiasNone {
			n++
		}
	}
	return n
}

// Underflow returns the largest total error of the K products and the operations after them in the
// subnormal range of the accumulator.
func Underflow(p *gemm.Problem, acc gemm.Accuracy) float64 {
	return (roundedTerms(p)*max(1, math.Abs(real(p.Alpha))) + 4) * underflowError(acc, p.ScaleType())
}

// Bound returns the largest error of element (i, j) that [Result.Compare] accepts.
func (r *Result) Bound(i, j int, acc gemm.Accuracy) float64 {
	p, at := r.p, i*r.p.N+j
	u := acc.Roundoff
	if r.low == nil {
		u += 0x1p-53 // the reference's own roundings
	}
	e := (Gamma(Roundings(p, acc), u)+2*acc.Operand+acc.Operand*acc.Operand)*r.absSum[at] + r.underflow(i, j, acc)
	if acc.FlushesToZero {
		e += r.flushedOperands(i, j, acc)
	}
	if act := p.Epilogue.Activation; act != gemm.ActNone {
		e = act.Info().Slope*e + activationRoundoffs*u*r.absSum[at]
	}
	if r.up != nil {
		gate, up := math.Abs(r.gate[at]), math.Abs(r.up.Value[at])
		upBound := r.up.Bound(i, j, acc)
		e = (gate+e)*(up+upBound)*(1+u) - gate*up + underflowError(acc, p.ScaleType())
	}
	e = r.outScale()*(e+r.outputAbsSum(at)*2*u) + r.outputUnderflow(acc)
	out := p.Out().Info()
	return e + out.Roundoff*(math.Abs(r.Value[at])+e) + out.Tiny/2
}

// typicalError returns the typical error of element (i, j) if roundings are random, or 0 if it
// cannot be computed.
func (r *Result) typicalError(i, j int, acc gemm.Accuracy) float64 {
	p, at := r.p, i*r.p.N+j
	if r.absSum[at] < 0x1p-480 {
		return 0 // the squares in sumSquare have underflowed
	}
	e := math.Hypot(acc.Roundoff*errorGrowth(acc, Roundings(p, acc)), math.Sqrt2*acc.Operand)
	e = math.Hypot(e*math.Sqrt(r.sumSquare[at]), r.underflow(i, j, acc))
	if acc.FlushesToZero {
		e = math.Hypot(e, r.flushedOperands(i, j, acc))
	}
	if p.Epilogue.Activation != gemm.ActNone {
		e = math.Hypot(e, activationRoundoffs*acc.Roundoff*r.absSum[at])
	}
	if r.up != nil {
		gate, up := math.Abs(r.gate[at]), math.Abs(r.up.Value[at])
		e = math.Hypot(e*up, gate*r.up.typicalError(i, j, acc))
		e = math.Hypot(e, acc.Roundoff*gate*up+underflowError(acc, p.ScaleType()))
	}
	e = r.outScale() * math.Hypot(e, acc.Roundoff*r.outputAbsSum(at))
	out := p.Out().Info()
	return math.Hypot(math.Hypot(e, out.Roundoff*math.Abs(r.Value[at])), r.outputUnderflow(acc)+out.Tiny/2)
}

// absScale returns the magnitude of the product of the scales that [Result.scales] returns.
func (r *Result) absScale(i, j int) float64 {
	product := 1.0
	for _, s := range r.scales(i, j) {
		product *= math.Abs(s)
	}
	return product
}

// underflow returns [Underflow], magnified by the scales of element (i, j).
func (r *Result) underflow(i, j int, acc gemm.Accuracy) float64 {
	return Underflow(r.p, acc) * max(1, r.absScale(i, j))
}

// flushedOperands returns the largest error of element (i, j) due to subnormal elements of A and B
// that are flushed to zero.
func (r *Result) flushedOperands(i, j int, acc gemm.Accuracy) float64 {
	flushed := r.absScale(i, j) * underflowError(acc, r.p.ScaleType())
	return flushed * math.Abs(real(r.p.Alpha)) * (r.normA[i] + r.normB[j])
}

// outScale returns the magnitude of the OutScale operand, or 1 if the epilogue has none.
func (r *Result) outScale() float64 {
	if g := r.epilogue[gemm.OutScale]; g != nil {
		return math.Abs(g[0])
	}
	return 1
}

// gatedAbsSum returns absSum of the element at index at. In a gated product, it is multiplied by
// the absSum of the element's other factor.
func (r *Result) gatedAbsSum(at int) float64 {
	if r.up != nil {
		return r.absSum[at] * r.up.absSum[at]
	}
	return r.absSum[at]
}

// outputAbsSum returns a bound on the total magnitude of the values rounded by the last operations
// of the epilogue: [Result.addends] and OutScale. The factor of OutScale is left out.
func (r *Result) outputAbsSum(at int) float64 {
	total, addends := 0.0, r.addends(at)
	for n, x := range addends { // the further additions round x too
		total += float64(len(addends)-n)*math.Abs(x) + r.gatedAbsSum(at)
	}
	if r.epilogue[gemm.OutScale] != nil {
		total += r.gatedAbsSum(at)
	}
	return total
}

// outputUnderflow returns the largest error of the same operations in the subnormal range.
func (r *Result) outputUnderflow(acc gemm.Accuracy) float64 {
	additions := len(r.addends(0))
	if additions == 0 && r.epilogue[gemm.OutScale] == nil {
		return 0
	}
	return (max(1, float64(additions)) + r.outScale()) * underflowError(acc, r.p.ScaleType())
}

// mayOverflow reports whether some order of summation may exceed the range of the accumulator in
// the element at index at. Such an element cannot be checked.
func (r *Result) mayOverflow(at int) bool {
	largest := r.largest[at]
	if alpha := math.Abs(real(r.p.Alpha)); alpha > 0 && alpha < 1 {
		largest /= alpha // the sum before alpha scales it down
	}
	if s := r.absScale(at/r.p.N, at%r.p.N); s < 1 {
		largest /= s
	}
	if r.up != nil {
		if r.up.mayOverflow(at) {
			return true
		}
		largest = max(largest, r.largest[at]*r.up.largest[at])
	}
	largest = max(largest, r.outScale()*(largest+r.outputAbsSum(at)))
	return !(largest < r.p.ScaleType().Info().Max/2)
}
