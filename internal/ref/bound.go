package ref

import (
	"fmt"
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
)

const (
	// activationError is how many roundoffs of the argument's size an implementation
	// may add by evaluating an activation as its formula is written, where 1 + erf(x)
	// and 1 + tanh(x) cancel.
	activationError = 8

	// BLASLimit is the threshold of the reference BLAS's test programs (THRESH in
	// dblat3), BLASTerms the largest k that it is held to: their own sizes are small.
	BLASLimit, BLASTerms = 16, 128

	// alarmLimit is the largest RMS of a clean product of many elements. Calibrated:
	// sums of random data, sequential or blocked, in every type, stay below 0.75 (a
	// rounding's own RMS is 0.4 to 0.6 roundoffs), while one of 256 terms left out
	// or operands rounded to tf32 give hundreds. TestAlarm holds it to that.
	alarmLimit = 1
)

// Comparison says how far a computed C is from the reference.
type Comparison struct {
	Elements int // compared, without those that may have overflowed
	// Ratio is the largest error in units of the element's bound: above 1 the
	// element is wrong. I, J, Got, Want and Bound are that element's.
	Ratio            float64
	I, J             int
	Got, Want, Bound float64
	// BLAS is the ratio that the reference BLAS's test programs compute: the largest
	// of error / (eps·(|α|·|A|·|B| + |β|·|C|)), eps being twice the largest roundoff
	// involved. What underflow may add to the error is taken off first.
	BLAS float64
	// RMS is the root mean square over all elements of the error, each in units of
	// what k random roundings come to. It is far more sensitive than Ratio.
	RMS float64

	terms int
}

// Compare compares c, in the layout of the problem's C, with the reference by three measures.
//
// The bound of an element, with u the accumulator's roundoff, u' that of C's type
// and γₙ = n·u/(1−n·u) (Higham, §3.5), is
//
//	slope·(γ_{k+3}·(|α|·|A|·|B| + |β|·|C| + |bias|) + underflow) + u'·|Ĉ| + underflow'
//
// with one more term in γ for a bias and for each scale before it; what comes behind the
// activation adds a rounding of its own each, and the factors of a gated product are each off
// by their own bound. Nothing correct exceeds it, whatever its
// order of summation. It must allow for all k errors pointing one way, so the RMS
// measures against what they come to when they do not: a partial sum of random
// terms is a drift towards α·A·B and a random walk of variance Σ(a·b)², and each
// of k roundings adds an error in proportion to the partial sum it met, so
//
//	u·√(k+3)·√((α·A·B)² + α²·Σ(a·b)² + (β·C)² + bias²)
//
// with the rounding to C's type added as squares add. That presumes random data:
// sums of equal terms have equal rounding errors. The third measure is BLAS.
//
// An element is left out where a partial sum or the result may have overflowed.
// Where an input is not finite, NaN and infinities must stand where the reference
// has them.
func (r *Result) Compare(c []byte, acc Accuracy) Comparison {
	p := r.p
	acc = acc.OrDefault(p)
	out := p.Out().Info()
	cmp := Comparison{terms: p.K}
	row := make([]float64, p.N)
	var squares float64
	for i := range p.M {
		if p.N == 0 {
			break
		}
		p.Out().Load(row, c[i*p.C().LD*out.Size:])
		for j, got := range row {
			at := i*p.N + j
			want := r.Value[at]
			var e, bound float64
			switch {
			case p.ScaleType().Info().Integer, r.nonfinite && !finite(want):
				if got != want && (got == got || want == want) {
					e = math.Inf(1)
				}
			case r.overflows(at):
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
				if e != e {
					e = math.Inf(1)
				}
				if g := r.gauge(i, j, acc); g > 0 {
					squares += (e / g) * (e / g)
				}
				if e := e - r.gain()*r.underflow(i, j, acc) - r.lateTiny(acc) - out.Tiny; e > 0 {
					cmp.BLAS = max(cmp.BLAS, e/(2*max(acc.Roundoff, acc.Operand, out.Roundoff)*r.gain()*(r.size(at)+r.late(at))))
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

// Err is nil for a correct product and otherwise says in one line which element or
// which measure is off. It wraps [gemm.ErrVerify].
func (c Comparison) Err() error {
	err := c.ElementErr()
	switch {
	case err != nil || c.Elements == 0:
		return err
	case c.RMS > alarmLimit*(1+2/math.Sqrt(float64(c.Elements))):
		return fmt.Errorf("%w: statistical alarm: over %d elements of %d terms the errors are %.3g times what rounding comes to", gemm.ErrVerify, c.Elements, c.terms, c.RMS)
	case c.BLAS >= BLASLimit && c.terms <= BLASTerms:
		return fmt.Errorf("%w: the reference BLAS test's ratio is %.3g, want less than %d", gemm.ErrVerify, c.BLAS, BLASLimit)
	}
	return nil
}

// ElementErr is the part of Err that holds for any data: whether each element is
// within its bound.
func (c Comparison) ElementErr() error {
	if !(c.Ratio > 1) {
		return nil
	}
	return fmt.Errorf("%w: C(%d,%d) is %v, want %v ± %.3g", gemm.ErrVerify, c.I, c.J, c.Got, c.Want, c.Bound)
}

// Exactly compares c, laid out as the problem's C, with the reference's values
// rounded to C's type. The sign of a zero and the payload of a NaN do not count: the
// order of summation decides them.
func (r *Result) Exactly(c []byte) error {
	p := r.p
	var first error
	row, wrong := make([]float64, p.N), 0
	for i := range p.M {
		if p.N == 0 {
			break
		}
		p.Out().Load(row, c[i*p.C().LD*p.Out().Size():])
		for j, got := range row {
			want := r.Value[i*p.N+j]
			if got == want || got != got && want != want {
				continue
			}
			if want = p.Out().Round(want); got == want || got != got && want != want {
				continue
			}
			if wrong++; first == nil {
				first = fmt.Errorf("C(%d,%d) is %v, want %v exactly", i, j, got, want)
			}
		}
	}
	if wrong == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w, and %d of %d elements are wrong", gemm.ErrVerify, first, wrong, p.M*p.N)
}

// Overflowed reports whether got is what t stores for an overflow with the sign of want: an
// infinity of that sign, or NaN in a type without infinities.
func Overflowed(t dtype.Type, got, want float64) bool {
	beyond := t.Round(math.Copysign(math.Inf(1), want))
	return got == beyond || got != got && beyond != beyond
}

// Gamma returns γₙ = n·u/(1 − n·u) (Higham, §3.1), and infinity for n·u ≥ 1.
func Gamma(n, u float64) float64 {
	if n*u >= 1 {
		return math.Inf(1)
	}
	return n * u / (1 - n*u)
}

// roundedTerms returns how many additions of a sum are rounded: none of integers.
func roundedTerms(p *gemm.Problem) float64 {
	if p.Accum().Info().Integer {
		return 0
	}
	return float64(p.K)
}

// Roundings returns the number of roundings that a term of the sum may go through. Block scales may
// multiply each factor, or each other and then a sum.
func Roundings(p *gemm.Problem, acc Accuracy) float64 {
	n := acc.Roundings(roundedTerms(p)) + 3
	if p.Converts() {
		n++
	}
	if p.BlockScaled() {
		n += 2
	}
	for _, more := range []bool{p.Epilogue.Bias != gemm.BiasNone, p.Epilogue.RowScale, p.Epilogue.ColScale} {
		if more {
			n++
		}
	}
	return n
}

// Underflow returns the largest error that the k products and the few operations after them can
// make below the accumulator's normal range.
func Underflow(p *gemm.Problem, acc Accuracy) float64 {
	return (roundedTerms(p)*max(1, math.Abs(p.Alpha)) + 4) * tiny(acc, p.ScaleType())
}

// Bound returns the largest error of element (i, j) that [Result.Compare] accepts.
func (r *Result) Bound(i, j int, acc Accuracy) float64 {
	p, at := r.p, i*r.p.N+j
	u := acc.Roundoff
	if r.low == nil {
		u += 0x1p-53 // the reference's own roundings
	}
	e := (Gamma(Roundings(p, acc), u)+2*acc.Operand+acc.Operand*acc.Operand)*r.scale[at] + r.underflow(i, j, acc)
	if acc.FlushesToZero {
		e += r.weight(i, j) * tiny(acc, p.ScaleType()) * math.Abs(p.Alpha) * (r.normA[i] + r.normB[j])
	}
	if act := p.Epilogue.Activation; act != gemm.ActNone {
		e = act.Info().Slope*e + activationError*u*r.scale[at]
	}
	if r.up != nil {
		g, up := math.Abs(r.gate[at]), math.Abs(r.up.Value[at])
		other := r.up.Bound(i, j, acc)
		e = (g+e)*(up+other)*(1+u) - g*up + tiny(acc, p.ScaleType())
	}
	e = r.gain()*(e+r.late(at)*2*u) + r.lateTiny(acc)
	out := p.Out().Info()
	return e + out.Roundoff*(math.Abs(r.Value[at])+e) + out.Tiny/2
}

// gauge is the size that the error of element (i, j) has when roundings are random,
// or 0 where it cannot be told.
func (r *Result) gauge(i, j int, acc Accuracy) float64 {
	p, at := r.p, i*r.p.N+j
	if r.scale[at] < 0x1p-480 {
		return 0 // the squares in drift have underflowed
	}
	walk := math.Sqrt(r.drift[at])
	g := math.Hypot(acc.Roundoff*steps(acc, Roundings(p, acc)), math.Sqrt2*acc.Operand) * walk
	g = math.Hypot(g, r.underflow(i, j, acc))
	if acc.FlushesToZero {
		g = math.Hypot(g, r.weight(i, j)*tiny(acc, p.ScaleType())*math.Abs(p.Alpha)*(r.normA[i]+r.normB[j]))
	}
	if p.Epilogue.Activation != gemm.ActNone {
		g = math.Hypot(g, activationError*acc.Roundoff*r.scale[at])
	}
	if r.up != nil {
		gate, up := math.Abs(r.gate[at]), math.Abs(r.up.Value[at])
		g = math.Hypot(math.Hypot(g*up, gate*r.up.gauge(i, j, acc)), acc.Roundoff*gate*up+tiny(acc, p.ScaleType()))
	}
	g = r.gain() * math.Hypot(g, acc.Roundoff*r.late(at))
	out := p.Out().Info()
	return math.Hypot(math.Hypot(g, out.Roundoff*math.Abs(r.Value[at])), r.lateTiny(acc)+out.Tiny/2)
}

// weight is the product of the magnitudes of an element's scales before the bias.
func (r *Result) weight(i, j int) float64 {
	w := 1.0
	for _, f := range r.scales(i, j) {
		w *= math.Abs(f)
	}
	return w
}

// underflow returns [Underflow] of an element, magnified by its scales.
func (r *Result) underflow(i, j int, acc Accuracy) float64 {
	return Underflow(r.p, acc) * max(1, r.weight(i, j))
}

// gain is by how much the scale behind all else magnifies an error.
func (r *Result) gain() float64 {
	if g := r.epilogue[gemm.OutScale]; g != nil {
		return math.Abs(g[0])
	}
	return 1
}

// size is scale behind the activation.
func (r *Result) size(at int) float64 {
	if r.up != nil {
		return r.scale[at] * r.up.scale[at]
	}
	return r.scale[at]
}

// late is how large the sums are that are rounded behind the activation: of an element and
// the residual, and again with the scale.
func (r *Result) late(at int) float64 {
	size := 0.0
	if res := r.epilogue[gemm.Residual]; res != nil {
		size += math.Abs(res[at]) + r.size(at)
	}
	if r.epilogue[gemm.OutScale] != nil {
		size += r.size(at)
	}
	return size
}

// lateTiny is what these lose below the normal range.
func (r *Result) lateTiny(acc Accuracy) float64 {
	if r.epilogue[gemm.Residual] == nil && r.epilogue[gemm.OutScale] == nil {
		return 0
	}
	return (1 + r.gain()) * tiny(acc, r.p.ScaleType())
}

// overflows reports whether some order of summation takes element at beyond the
// accumulator's range, so that nothing can be said of it.
func (r *Result) overflows(at int) bool {
	largest := r.scale[at]
	if alpha := math.Abs(r.p.Alpha); alpha > 0 && alpha < 1 {
		largest /= alpha // the sum before it is scaled down
	}
	if w := r.weight(at/r.p.N, at%r.p.N); w < 1 {
		largest /= w
	}
	if r.up != nil {
		if r.up.overflows(at) {
			return true
		}
		largest = max(largest, r.size(at))
	}
	largest = max(largest, r.gain()*(largest+r.late(at)))
	return !(largest < r.p.ScaleType().Info().Max/2)
}
